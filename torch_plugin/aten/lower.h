// Lower: aten::Graph -> HLO module, by one table (aten.def). EagerProgram: aten::Graph -> Program of framework steps only.
//
// Contract of a lowering (asserted after each one): the HLO value has the dtype and dims of the node's meta; the compute dtype
// follows the row's promotion rule (default, int -> float, bool, keep), where 0-d tensors and Python scalars promote as in
// ATen; the layout set on the result instruction is the meta's stride order when that is a dense permutation (so that ATen's
// views are bitcasts), else row-major. bf16/f16 math is carried in f32 inside one lowering and rounded once at its end.
// An op without a lowering (or whose dtype or layout has none) becomes custom-call "aten.<op>" with
// backend_config={"args":"(%0, [1, 2])","rule":"owned","reason":"..."}; several results make a tuple.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hlo/module.h"
#include "runtime/program.h"
#include "torch_plugin/aten/graph.h"

namespace tenon::aten {

// How the HLO module's parameters and root tuple stand for the graph's inputs and outputs.
struct Binding {
  struct Input {                 // per HLO parameter
    enum class Kind : uint8_t { kInput, kConstant } kind = Kind::kInput;
    int64_t index = 0;           // graph input / constant number
    std::vector<Dim> sizes, strides;  // what the caller brings. If not dense, the HLO parameter is the flat storage extent
    bool flat_storage = false;        // (rank 1, from the lowest address) and the graph's value an indexed view of it.
  };
  std::vector<Input> parameters;
  std::vector<InputSpec> inputs;  // all graph inputs in order
  struct Output {
    OutputKind kind = OutputKind::kFresh;
    int64_t index = 0;            // kInput/kConstant: which
    int64_t root_index = -1;      // kFresh/kSlot: element of the root tuple
    PrimitiveType dtype = PrimitiveType::kF32;
    std::vector<Dim> sizes, strides;  // eager's exact meta. Dims with stride 0 have size 1 in the root element.
    Dim symint = 0;
  };
  std::vector<Output> outputs;
  // Element `root_index` of the root tuple is written into graph input `input` at the end (copy_ / in-graph mutation).
  struct Mutation { int64_t input = 0; int64_t root_index = 0; };
  std::vector<Mutation> mutations;
  std::vector<CheckSpec> checks;  // custom-call "tenon.check"(pred any shape: true = error), backend_config={"check":k}
};

struct LowerOptions {
  bool excess_precision = true;
  // Ops (overload names) to leave as custom-calls; "*" for all. For tests and bisection.
  std::vector<std::string> disable;
};
struct Lowered {
  std::unique_ptr<Module> module;
  Binding binding;
  std::vector<std::string> remarks;  // JSON objects: one for each op that became a framework call, with the reason
};

// kUnimplemented: the graph needs the eager program (foreign device, subclass, unbacked sizes, ...); the message says why.
absl::StatusOr<Lowered> Lower(const Graph& graph, const LowerOptions& options = {});

// Never needs HLO; every node one framework step. Fails only on malformed graphs.
absl::StatusOr<Program> EagerProgram(const Graph& graph, std::string reason);

// True if `overload` has a row in aten.def.
bool HasLowering(std::string_view overload);

}  // namespace tenon::aten
