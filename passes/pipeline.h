// The pipeline: a straight list, read top to bottom in pipeline.cc.
#pragma once

#include <string>
#include <vector>

#include "passes/pass.h"

namespace tenon {

// Whether a pipeline verifies where nobody says otherwise. The one switch of all self-checks of passes: TENON_VERIFY of the
// environment ("1": yes, "0": no), read once; without it, builds with TENON_DEBUG_CHECKS do (presets debug, ci and the sanitizers').
// Every test sets it (tests/conftest.py, cmake/TenonTargets.cmake, tools/dev/test.sh).
bool VerifyByDefault();

struct PipelineOptions {
  std::vector<std::string> passes;   // empty: the default list
  std::vector<std::string> disable;  // by name; unknown names are an error
  std::string stop_after;
  // Verify after each changing pass, and check that "changed" is told truly.
  bool verify = VerifyByDefault();
  std::function<void(std::string_view pass, int index, const Module&)> dump;  // after each changing pass
  std::function<absl::Status()> between;  // before each pass; an error ends the pipeline with it
  absl::Span<const PassInfo> table;  // where names are looked up; empty: AllPasses(). Tests plant faulty passes here
};
struct PassTiming {
  std::string name;
  double ms = 0;  // of the pass
  bool changed = false;
  double verify_ms = 0;  // of the checks behind it
};

// "changed" of any. Errors name the guilty pass.
absl::StatusOr<bool> RunPipeline(Module& module, PassContext& context, const PipelineOptions& options,
                                 std::vector<PassTiming>* timings = nullptr);
const std::vector<std::string>& DefaultPipeline();

}  // namespace tenon
