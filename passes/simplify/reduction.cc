#include <cmath>
#include <limits>

#include "hlo/order_free.h"
#include "passes/simplify/rule.h"

namespace tenon {
namespace {

bool IsNeutral(Opcode opcode, const Instruction* init) {
  const PrimitiveType type = init->shape().element_type();
  if (opcode == Opcode::kMaximum) return IsFloat(type) && IsSplat(init, -std::numeric_limits<double>::infinity());
  if (opcode == Opcode::kMinimum) return IsFloat(type) && IsSplat(init, std::numeric_limits<double>::infinity());
  if (opcode == Opcode::kMultiply) return IsSplat(init, 1);
  if (opcode == Opcode::kAdd) return IsFloat(type) ? IsSplat(init, -0.0) : IsSplat(init, 0);
  return false;
}

// A reduce of dims of size one, from a neutral start, only drops them.
Instruction* ReduceOfOnes(Instruction* op, Builder& b, const PassContext&) {
  if (op->opcode() != Opcode::kReduce || op->operand_count() != 2) return nullptr;
  for (int64_t d : op->dimensions()) {
    if (!KnownOne(op->operand(0)->shape().dim(d))) return nullptr;
  }
  const std::optional<Opcode> simple = SimpleOp(*op->to_apply());
  if (!simple || !IsNeutral(*simple, op->operand(1))) return nullptr;
  return b.Reshape(op->operand(0), op->shape().dims());
}

// A reduce of no elements is its initial values.
Instruction* ReduceOfNothing(Instruction* op, Builder& b, const PassContext&) {
  if (op->opcode() != Opcode::kReduce) return nullptr;
  bool nothing = false;
  for (int64_t d : op->dimensions()) nothing = nothing || KnownEqual(op->operand(0)->shape().dim(d), 0);
  if (!nothing) return nullptr;
  const int64_t n = op->operand_count() / 2;
  std::vector<Instruction*> results;
  for (int64_t k = 0; k < n; ++k) {
    const Shape& shape = op->shape().is_tuple() ? op->shape().element(k) : op->shape();
    Instruction* init = op->operand(n + k);
    results.push_back(shape.rank() == 0 ? init : b.Broadcast(init, shape.dims(), {}));
  }
  return op->shape().is_tuple() ? b.Tuple(results) : results[0];
}

// Does the window of a dim of `size` stand in one place, over all of it?
bool IsWhole(const WindowDim& w, Dim size) {
  return KnownEqual(size, w.size) && w.padding_low == 0 && w.padding_high == 0 && w.base_dilation == 1 && w.window_dilation == 1;
}
bool IsEachAlone(const WindowDim& w) {
  return w.size == 1 && w.stride == 1 && w.padding_low == 0 && w.padding_high == 0 && w.base_dilation == 1;
}

// A reduce-window whose windows are all of a dim or one element of it is a reduce:
// f32[8,512,1,1] reduce-window(f32[8,512,7,7] x), size=1x1x7x7  =>  reshape(f32[8,512] reduce(x), dimensions={2,3})
Instruction* ReduceOfWholeDims(Instruction* op, Builder& b, const PassContext&) {
  if (op->opcode() != Opcode::kReduceWindow) return nullptr;
  const Window window = op->attrs().get<Window>(Attr::kWindow);
  const Shape& x = op->operand(0)->shape();
  std::vector<int64_t> reduced;
  for (int64_t d = 0; d < x.rank(); ++d) {
    const WindowDim& w = window.dims[static_cast<size_t>(d)];
    if (IsEachAlone(w)) continue;
    if (!IsWhole(w, x.dim(d))) return nullptr;
    reduced.push_back(d);
  }
  if (reduced.empty()) return nullptr;
  const size_t n = static_cast<size_t>(op->operand_count()) / 2;
  const std::vector<Instruction*> operands(op->operands().begin(), op->operands().end());
  Instruction* all = b.Reduce(absl::MakeSpan(operands).subspan(0, n), absl::MakeSpan(operands).subspan(n), reduced, op->to_apply());
  if (!op->shape().is_tuple()) return b.Reshape(all, op->shape().dims());
  std::vector<Instruction*> results;
  for (size_t k = 0; k < n; ++k) {
    const auto element = static_cast<int64_t>(k);
    results.push_back(b.Reshape(b.GetTupleElement(all, element), op->shape().element(element).dims()));
  }
  return b.Tuple(results);
}

}  // namespace

absl::Span<const Rule> ReductionRules() {
  static constexpr Rule rules[] = {
      {"reduce of ones", ReduceOfOnes}, {"reduce of nothing", ReduceOfNothing}, {"reduce of whole dims", ReduceOfWholeDims}};
  return rules;
}

}  // namespace tenon
