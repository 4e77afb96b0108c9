// One request to compile an aten::Graph: native if that works, else the eager program with the
// reason why not.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "torch_plugin/libtenon/native.h"
#include "torch_plugin/libtenon/options.h"

namespace tenon {

// Fails only if the request itself is bad (a graph that lacks what the options promise, an operator the host doesn't
// know): whatever fails inside the compiler, thrown or returned, becomes the tier_reason of an
// eager program, after a repro was saved. kCancelled: the host was interrupted.
absl::StatusOr<CompiledGraph> CompileRequest(
    const aten::Graph& graph, const RequestOptions& options,
    const std::vector<TenonTensor>& constants, const TenonHost* host);

}  // namespace tenon
