// Retarget: a graph that was traced on the CPU -> the graph that tracing on another device would have given. For what a PyTorch without
// that device can compile but not run.
//
// * Every tensor lies on the device: metas, device arguments (`device:cpu`), the default device of operators that make a tensor of nothing.
// * Overloads of the CPU become the device's (torch_plugin/aten/retarget/): arguments and results are then the other operator's; results
//   that nobody asked for have new names, "<first result>.<what it is>".
// * What has no counterpart is Unimplemented: the message names node, source line and why. So are Python callables and operators of other
//   libraries: nobody knows where they run.
//
// What stays the CPU's: dtypes of statistics (CUDA keeps layer_norm's mean of halves in f32), and strides behind an operator whose results
// lie otherwise on the device. Lower copies there, as wherever metas and layouts differ.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "torch_plugin/aten/graph.h"

namespace tenon::aten {

struct RetargetOptions {
  std::string device = "cuda:0";
  bool foreign = false;  // operators of other libraries run wherever their operands lie: taken for granted instead of refused
};
absl::StatusOr<Graph> Retarget(const Graph& graph, const RetargetOptions& options = {});

// Overloads that make a tensor of no tensor, and the place of `device` among their arguments. For tests.
struct FactoryRow {
  std::string_view overload;
  int device = 0;
};
absl::Span<const FactoryRow> Factories();

}  // namespace tenon::aten
