// What a TenonExecutable* points at.
#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "runtime/execute/executable.h"
#include "runtime/execute/stats.h"
#include "torch_plugin/libtenon/native.h"

// Several handles may share one cached Executable; each counts its own runs.
struct TenonExecutable {
  explicit TenonExecutable(std::shared_ptr<tenon::Executable> e);
  // With what is computed once, if anything is.
  explicit TenonExecutable(tenon::CompiledGraph compiled);

  std::shared_ptr<tenon::Executable> executable;
  std::unique_ptr<TenonExecutable> once;
  std::shared_ptr<tenon::RunCounters> counters;
  std::vector<TenonInput> inputs;
  std::vector<TenonOutput> outputs;
  std::vector<TenonPhase> phases;
  TenonSignature signature = {};  // points into the above and at the program
  std::atomic<int64_t> references{1};

 private:
  void Describe();
};

namespace tenon {

// For tenon_string_free.
inline char* NewString(const std::string& text) { return strdup(text.c_str()); }

}  // namespace tenon
