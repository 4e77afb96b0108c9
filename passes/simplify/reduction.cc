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

}  // namespace

absl::Span<const Rule> ReductionRules() {
  static constexpr Rule rules[] = {{"reduce of ones", ReduceOfOnes}, {"reduce of nothing", ReduceOfNothing}};
  return rules;
}

}  // namespace tenon
