// FrameworkStep -> TenonOpSpec, the C form in which a host learns about a call site.
#pragma once

#include <deque>
#include <vector>

#include "runtime/program/program.h"
#include "runtime/tenon_c.h"

namespace tenon {

// Owns everything the spec points at; neither may move.
class OpSpec {
 public:
  // `promised`: the host checks results against the metas of step.results; else any result will do.
  OpSpec(const FrameworkStep& step, bool promised);
  OpSpec(const OpSpec&) = delete;
  const TenonOpSpec* get() const { return &spec_; }

 private:
  const TenonArg* Convert(const std::vector<FrameworkArg>& args);
  TenonTensor Meta(const View& view) const;

  std::deque<std::vector<TenonArg>> lists_;
  std::vector<TenonTensor> operands_, results_;
  TenonOpSpec spec_;
};

}  // namespace tenon
