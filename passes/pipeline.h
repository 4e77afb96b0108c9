// The pipeline: a straight list, read top to bottom in pipeline.cc.
#pragma once

#include <string>
#include <vector>

#include "passes/pass.h"

namespace tenon {

struct PipelineOptions {
  std::vector<std::string> passes;   // empty: the default list
  std::vector<std::string> disable;  // by name; unknown names are an error
  std::string stop_after;
  bool verify = false;               // verify after each changing pass, and check that "changed" is told truly
  std::function<void(std::string_view pass, int index, const Module&)> dump;  // after each changing pass
  std::function<absl::Status()> between;  // before each pass; an error ends the pipeline with it
  absl::Span<const PassInfo> table;  // where names are looked up; empty: AllPasses(). Tests plant faulty passes here
};
struct PassTiming { std::string name; double ms = 0; bool changed = false; };

// "changed" of any. Errors name the guilty pass.
absl::StatusOr<bool> RunPipeline(Module& module, PassContext& context, const PipelineOptions& options,
                                 std::vector<PassTiming>* timings = nullptr);
const std::vector<std::string>& DefaultPipeline();

}  // namespace tenon
