// Lower: aten::Graph -> HLO module, by one table (aten.def). EagerProgram: aten::Graph -> Program of framework steps only.
//
// Contract of a lowering (asserted after each one): the HLO value has the dtype and dims of the node's meta; the compute dtype
// follows the row's promotion rule (default, int -> float, bool, keep), where 0-d tensors and Python scalars promote as in
// ATen; the layout set on the result instruction is the meta's stride order when that is a dense permutation (so that ATen's
// views are bitcasts), else row-major. bf16/f16 math is carried in f32 inside one lowering and rounded once at its end.
// An op without a lowering (or whose dtype or layout has none) becomes custom-call "aten.<op>" with a call site
// (hlo/framework_call.h): its arguments, its rule, the reason; several results make a tuple.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hlo/module.h"
#include "runtime/program/binding.h"
#include "runtime/program/program.h"
#include "torch_plugin/aten/graph.h"

namespace tenon::aten {

struct LowerOptions {
  bool excess_precision = true;
  bool fill_empty = false;  // torch.utils.deterministic.fill_uninitialized_memory holds: with what is no number, the largest or true
  PrimitiveType default_dtype = PrimitiveType::kF32;  // torch.get_default_dtype(): what Python's floats are, and integers in floating math
  // Ops (overload names) to leave as custom-calls; "*" for all. For tests and bisection.
  std::vector<std::string> disable;
  // Where the graph's tensors lie, all of them, and the memory space that this is (docs/architecture/targets.md).
  std::string device = "cpu";
  int32_t space = 0;
};
struct Lowered {
  std::unique_ptr<Module> module;
  Binding binding;  // runtime/program/binding.h
  std::vector<std::string> remarks;  // JSON objects: one for each op that became a framework call, with the reason
};

// kUnimplemented: the graph needs the eager program (foreign device, subclass, unbacked sizes, ...); the message says why.
absl::StatusOr<Lowered> Lower(const Graph& graph, const LowerOptions& options = {});

// Never needs HLO; every node one framework step. Fails only on malformed graphs.
absl::StatusOr<Program> EagerProgram(const Graph& graph, std::string reason);

// True if `overload` has a row in aten.def.
bool HasLowering(std::string_view overload);

}  // namespace tenon::aten
