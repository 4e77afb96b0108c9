// aten::Graph -> HLO -> native executable, through the process's cache.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/cache/memory_cache.h"
#include "runtime/execute/executable.h"
#include "torch_plugin/aten/graph.h"
#include "torch_plugin/aten/lower.h"
#include "torch_plugin/libtenon/options.h"

namespace tenon {

// A graph, compiled. Where some of its inputs are frozen: two executables.
struct CompiledGraph {
  std::shared_ptr<Executable> executable;  // inputs: the graph's, then the outputs of `once`
  std::shared_ptr<Executable> once;        // null: nothing is computed once. Inputs: the graph's, of which only the frozen ones are read
};

struct NativeCompile {
  const aten::Graph& graph;
  const RequestOptions& options;
  const std::vector<TenonTensor>& constants;
  const TenonHost* host;
  // kUnimplemented: the graph needs the eager program, and that is no failure of ours. May throw.
  absl::StatusOr<CompiledGraph> Run();
  // For a repro: lowered once more, since a compile that succeeds needs no text. "": what fails is the lowering.
  std::string Hlo() const;

 private:
  bool shared() const;
  // `key`: what the executable is found by, if it is shared.
  absl::StatusOr<std::shared_ptr<Executable>> CompileOne(aten::Lowered lowered, const std::string& name, double lower_ms,
                                                         CacheKey* key) const;
};

}  // namespace tenon
