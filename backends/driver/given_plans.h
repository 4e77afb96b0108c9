// Plans that somebody gives for fusions by name, in the text in which the stage `plans` shows them (hlo-opt --stage=plans, changed,
// hlo-run --plans=FILE):
//
//   fusion_a, fusion_b:  // k0
//     loop loops=[0+1:8192] split=0 block=1024 tile=-1 lanes=16 unroll=2 tail=mask phases=[] scratch=0
//
// A line for each launch, where there are several.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "backends/program/builder.h"

namespace tenon {

class GivenPlans {
 public:
  // InvalidArgument: names the line.
  static absl::StatusOr<GivenPlans> Parse(std::string_view text);

  // The plan for this fusion, of several launches line by line, "" if none was given. Every question is remembered.
  const std::string& For(const std::string& fusion);
  // InvalidArgument: a plan was given for what nobody asked for; names the fusions that there were.
  absl::Status AllUsed() const;

 private:
  std::map<std::string, std::string> plans_;
  std::set<std::string> asked_;
};

// All plans of a program, as Parse reads them.
std::string PlansOf(const Program& program);

}  // namespace tenon
