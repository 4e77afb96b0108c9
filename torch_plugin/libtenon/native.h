// aten::Graph -> HLO -> native executable, through the process's cache.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/execute/executable.h"
#include "torch_plugin/aten/graph.h"
#include "torch_plugin/libtenon/options.h"

namespace tenon {

struct NativeCompile {
  const aten::Graph& graph;
  const RequestOptions& options;
  const std::vector<TenonTensor>& constants;
  const TenonHost* host;
  // kUnimplemented: the graph needs the eager program, and that is no failure of ours. May throw.
  absl::StatusOr<std::shared_ptr<Executable>> Run();
  // For a repro: lowered once more, since a compile that succeeds needs no text. "": what fails is the lowering.
  std::string Hlo() const;
};

}  // namespace tenon
