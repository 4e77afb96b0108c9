// OpContext: what a lowering function sees of its node: arguments by schema position, metas, the builder, and the rules of
// ATen that many lowerings share (promotion, broadcasting, f32 math for half types, checks).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hlo/builder.h"
#include "torch_plugin/aten/lower.h"
#include "torch_plugin/aten/op_table.h"

namespace tenon::aten {

using Values = std::vector<Instruction*>;
using Lowering = absl::StatusOr<Values>;

// A framework step takes the op's place, for this reason.
inline constexpr char kByLibrary[] = "library";  // a framework step by choice, which takes any values
inline absl::Status NotLowered(std::string reason) { return absl::UnimplementedError(std::move(reason)); }

// f16 and bf16 compute in f32 (ATen's opmath).
PrimitiveType OpMath(PrimitiveType type);
PrimitiveType PromoteTypes(PrimitiveType a, PrimitiveType b);  // c10::promoteTypes
inline bool IsHalf(PrimitiveType t) { return t == PrimitiveType::kF16 || t == PrimitiveType::kBF16; }

// The layout that `meta` asks for: empty when row-major or when its strides are no dense permutation.
Permutation LayoutOf(const Meta& meta);
bool IsDense(const Meta& meta);  // some permutation of the dims is contiguous

class OpContext {
 public:
  // What the driver gives; `values` maps graph values to HLO.
  struct Shared {
    const Graph& graph;
    Builder& builder;
    std::vector<Instruction*>& values;
    Binding& binding;
    const std::vector<int32_t>& use_count;  // by graph value; outputs count
    const LowerOptions& options;
  };
  OpContext(Shared& shared, const Node& node, const OpRow& row)
      : b(shared.builder), shared_(shared), node_(node), row_(row) {}

  Builder& b;
  const Node& node() const { return node_; }
  const OpRow& row() const { return row_; }

  // The call that this one, of a `_foreach_*`, makes on the k-th element of each list among its arguments: the node of result k.
  Node ElementNode(int64_t k) const;
  // What `node`, a call on (some of) this node's operands for (some of) its results, is as a context of its own.
  OpContext Within(const Node& node, const OpRow& row) const { return OpContext(shared_, node, row); }

  // ---- arguments, by position in the schema (defaults are filled in by the capture)
  int64_t arg_count() const { return static_cast<int64_t>(node_.args.size()); }
  const FrameworkArg& arg(int64_t i) const;
  bool is_none(int64_t i) const;    // None, or beyond the given arguments
  bool is_tensor(int64_t i) const;  // a tensor (a SymInt value isn't)
  Instruction* tensor(int64_t i) const;
  Instruction* tensor_or_null(int64_t i) const { return is_none(i) ? nullptr : tensor(i); }
  const Meta& meta(int64_t i) const;  // of tensor argument i
  std::vector<Instruction*> tensors(int64_t i) const;  // a list; nullptr where None
  Instruction* element(const FrameworkArg& arg) const;
  Dim dim(int64_t i) const;                 // int or SymInt
  int64_t integer(int64_t i) const;         // checked: a number
  int64_t integer_or(int64_t i, int64_t otherwise) const { return is_none(i) ? otherwise : integer(i); }
  double number(int64_t i) const;           // int, float or bool
  bool equals(int64_t i, double n) const;   // a number that is n; it may be complex
  bool boolean(int64_t i) const { return number(i) != 0; }
  bool boolean_or(int64_t i, bool otherwise) const { return is_none(i) ? otherwise : boolean(i); }
  std::string string(int64_t i) const;
  std::vector<Dim> dims(int64_t i) const;          // int[] (an int alone is a list of one)
  std::vector<int64_t> integers(int64_t i) const;  // checked: numbers
  // A dim argument wrapped into [0, rank).
  int64_t axis(int64_t i, int64_t rank) const;
  // int[] dims wrapped; None or empty: all.
  std::vector<int64_t> axes(int64_t i, int64_t rank) const;

  bool IsSymbolic(const FrameworkArg& arg) const;  // a number that is an expression

  // ---- results
  const Meta& result(int64_t k = 0) const { return shared_.graph.meta(node_.results[k]); }
  int64_t result_count() const { return static_cast<int64_t>(node_.results.size()); }
  bool result_used(int64_t k) const { return shared_.use_count[node_.results[k]] > 0; }
  const std::vector<Dim>& result_dims(int64_t k = 0) const { return result(k).sizes; }
  PrimitiveType result_type(int64_t k = 0) const { return result(k).dtype; }

  // ---- promotion
  // ATen's result_type of the arguments at these positions (tensors and numbers), then the row's promotion.
  PrimitiveType Common(std::initializer_list<int64_t> positions) const;
  // Argument i (tensor or number) in `type` with the dims `dims`. A half-typed common dtype rounds numbers and 0-d
  // tensors to it first when `round_to` names it.
  Instruction* Operand(int64_t i, PrimitiveType type, absl::Span<const Dim> dims,
                       std::optional<PrimitiveType> round_to = std::nullopt) const;
  Instruction* NumberConstant(const FrameworkArg& arg, PrimitiveType type) const;  // scalar
  // A size as a value, scalar (Builder::SizeValue).
  Instruction* SizeValue(Dim size, PrimitiveType type) const;

  // ---- small emissions
  Instruction* Scalar(PrimitiveType type, double value) const { return b.ScalarConstant(type, value); }
  Instruction* Full(Instruction* like, double value) const { return b.FullLike(like, value); }
  // `x` broadcast so that its dims are dims `at` of `like`'s (e.g. {1} for per-channel values).
  Instruction* Along(Instruction* x, Instruction* like, std::initializer_list<int64_t> at) const;
  // `x` as eager casts it. Out of range, HLO saturates where the machine's conversion wraps: to narrow integers it goes through a wide one.
  Instruction* Cast(Instruction* x, PrimitiveType to) const;
  Values One(Instruction* x) const;  // converted to result 0's dtype

  // D8: `pred` (any shape) true anywhere raises `exception` with eager's text after the run.
  void Check(Instruction* pred, std::string exception, std::string message);

  // The value of an input as it lies in memory from its lowest address, `extent` elements (as_strided of an input).
  Instruction* FlatInput(ValueId input, Dim extent);
  ValueId value_id(int64_t i) const { return node_.operands[arg(i).i]; }
  const Graph& graph() const { return shared_.graph; }
  const LowerOptions& options() const { return shared_.options; }

 private:
  Shared& shared_;
  const Node& node_;
  const OpRow& row_;
};

inline int64_t Rank(const Instruction* x) { return x->shape().rank(); }
// Tensor argument i, half types in f32.
inline Instruction* Math(OpContext& op, int64_t i) {
  Instruction* x = op.tensor(i);
  return op.b.Convert(x, OpMath(x->shape().element_type()));
}
// `x` with result k's dims and dtype; nullptr if that result is None.
inline Instruction* Shaped(OpContext& op, Instruction* x, int64_t k = 0) {
  if (op.result(k).kind != Meta::Kind::kTensor) return nullptr;
  return op.b.Convert(op.b.Reshape(x, op.result_dims(k)), op.result_type(k));
}

Instruction* Conjugate(OpContext& op, Instruction* x);  // x itself if it isn't complex
// A complex array as pairs of its parts in a new last dim of 2, and back.
Instruction* AsPairs(Builder& b, Instruction* x);
Instruction* OfPairs(Builder& b, Instruction* x);
// log(e^x + e^y) of complex arrays by the one with the larger real part; a NaN spreads to both parts (ATen's _log_add_exp_helper).
Instruction* ComplexLogAddExp(Builder& b, Instruction* x, Instruction* y);

// Integer division that rounds down; HLO's truncates. The divisor is not 0.
Instruction* IntegerFloorDivide(Builder& b, Instruction* x, Instruction* y);

}  // namespace tenon::aten
