// aten::Graph: a functionalised ATen graph as a torch-free value. What capture hands over, by tenon_graph_* (runtime/tenon_c.h) through
// GraphBuilder; prints and parses, for dumps, tests and bug reports:
//
//   graph "forward" {
//     symbols s0 in [2, 1024] ~ 128, s1
//     %p0 = input f32[8,s0]{s0,1}
//     %p1 = input symint s0
//     %c0 = constant f32[3]{1}                        // k-th `constant` is the k-th tensor handed to tenon_compile
//     %lit = literal s64[2]{1} [1, 2]                 // small constants with their values
//     %add = aten.add.Tensor(%p0, %p0, 1) -> f32[8,s0]{s0,1} @ "layer.0" "net.py:12"
//     %v, %i = aten.max.dim(%add, 1, false) -> f32[8]{1}, s64[8]{1}
//     %n = aten.sym_size.int(%p0, 1) -> symint s0
//     aten.copy_.default(%p0, %add, false) -> alias %p0   // in-graph mutation: the node's value is the input's memory
//     %r, %new = my.update.default(%add[4]{2}+7, %p0{8,1}) writes(%add) -> f32[8]{1}, f32[8,s0]{s0,1}
//     return (%v, none, %p0, sym(s0))
//   }
//
// Arguments: the schema's whole positional list, defaults filled in, keyword-only ones included, in the text form of
// hlo/framework_arg.h with tensors by name. Metas: dtype (HLO names) [sizes] {strides in elements} (+ `+offset` when the
// storage offset is not 0). `writes`: the operator changes these operands; the node is a function all the same, whose last results are what
// they hold then. `@ "module path" "file:line"` is provenance. `//` comments are legal.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "hlo/dim/dim.h"
#include "hlo/literal.h"
#include "hlo/framework_arg.h"

namespace tenon::aten {

struct Meta {
  enum class Kind : uint8_t { kTensor, kSymInt, kNone, kOther } kind = Kind::kTensor;
  PrimitiveType dtype = PrimitiveType::kF32;
  std::vector<Dim> sizes, strides;
  Dim offset = 0;
  Dim symint = 0;  // kSymInt: its value
  std::string device = "cpu";
  std::string other;  // kOther: why (subclass, sparse, quantised, ...): forces the eager program
};

using ValueId = int32_t;  // index into Graph::values

struct GraphValue {
  std::string name;  // without '%', unique
  Meta meta;
  int32_t node = -1;    // producing node, -1: input, constant or literal
  int32_t result = 0;   // which result of it
};

struct Node {
  std::string op;                   // "aten.add.Tensor"; "python.<k>": the k-th Python callable of the host
  std::vector<FrameworkArg> args;   // kTensor: i indexes `operands`
  std::vector<ValueId> operands;    // distinct, in order of first use in args
  std::vector<ValueId> results;
  bool mutates_first = false;       // trailing underscore op: result 0 is operand 0's memory
  std::vector<int32_t> writes;      // operands that it changes; the last results are their new values
  std::string module_path, source;  // provenance
};

struct GraphOutput {
  enum class Kind : uint8_t { kValue, kNone, kSymInt } kind = Kind::kValue;
  ValueId value = -1;
  Dim symint = 0;
};

struct Symbol { std::string name; int64_t lower = 0, upper = INT64_MAX, typical = kTypicalSize; };

class Graph {
 public:
  Graph() : dims(std::make_shared<DimTable>()) {}
  std::string name;
  std::shared_ptr<DimTable> dims;
  std::vector<Symbol> symbols;
  std::vector<GraphValue> values;
  std::vector<ValueId> inputs;
  std::vector<ValueId> constants;                        // framework constants, in order
  std::vector<std::pair<ValueId, Literal>> literals;
  std::vector<Node> nodes;
  std::vector<GraphOutput> outputs;

  const Meta& meta(ValueId v) const { return values[v].meta; }
  bool has_symbols() const { return !symbols.empty(); }
};

// Errors name line and column, what was wanted and what came.
absl::StatusOr<Graph> ParseGraph(std::string_view text);
std::string Print(const Graph& graph);

// Replaces symbols by numbers. A symbol without a value, or a value out of range: error.
absl::StatusOr<Graph> Specialize(const Graph& graph, const std::vector<std::pair<std::string, int64_t>>& values);

}  // namespace tenon::aten
