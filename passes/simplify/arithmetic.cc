#include <cmath>

#include "passes/simplify/rule.h"

namespace tenon {
namespace {

bool Is(const Instruction* op, Opcode opcode) { return op->opcode() == opcode; }
bool IsFloating(const Instruction* op) { return IsFloat(op->shape().element_type()); }

// x + 0 for integers; x + -0 for floats (x + +0 turns -0 into +0).
Instruction* AddZero(Instruction* op, Builder&, const PassContext&) {
  if (!Is(op, Opcode::kAdd) || IsComplex(op->shape().element_type())) return nullptr;
  for (int i = 0; i < 2; ++i) {
    const Instruction* other = op->operand(1 - i);
    if (IsFloating(op) ? IsSplat(other, -0.0) : IsSplat(other, 0)) return op->operand(i);
  }
  return nullptr;
}
// (x + +0) + +0: the first sum is not -0, so the second changes nothing. Sums of gradients of slices are full of it.
Instruction* AddZeroTwice(Instruction* op, Builder&, const PassContext&) {
  auto adds_zero = [](const Instruction* sum) {
    return Is(sum, Opcode::kAdd) && IsFloating(sum) && (IsSplat(sum->operand(0), 0) || IsSplat(sum->operand(1), 0));
  };
  if (!adds_zero(op)) return nullptr;
  Instruction* inner = op->operand(IsSplat(op->operand(0), 0) ? 1 : 0);
  return adds_zero(inner) ? inner : nullptr;
}
Instruction* SubtractZero(Instruction* op, Builder&, const PassContext&) {
  return Is(op, Opcode::kSubtract) && IsSplat(op->operand(1), 0) ? op->operand(0) : nullptr;
}
Instruction* MultiplyOne(Instruction* op, Builder&, const PassContext&) {
  if (!Is(op, Opcode::kMultiply)) return nullptr;
  for (int i = 0; i < 2; ++i) {
    if (IsSplat(op->operand(1 - i), 1)) return op->operand(i);
  }
  return nullptr;
}
Instruction* MultiplyIntegerZero(Instruction* op, Builder&, const PassContext&) {
  if (!Is(op, Opcode::kMultiply) || !IsIntegral(op->shape().element_type())) return nullptr;
  for (int i = 0; i < 2; ++i) {
    if (IsSplat(op->operand(i), 0)) return op->operand(i);
  }
  return nullptr;
}
Instruction* DivideByOne(Instruction* op, Builder&, const PassContext&) {
  return Is(op, Opcode::kDivide) && IsSplat(op->operand(1), 1) ? op->operand(0) : nullptr;
}
// x / 2^k is x * 2^-k exactly, as long as 2^-k is a normal number of the type.
Instruction* DivideByPowerOfTwo(Instruction* op, Builder& b, const PassContext&) {
  const PrimitiveType type = op->shape().element_type();
  if (!Is(op, Opcode::kDivide) || (type != PrimitiveType::kF32 && type != PrimitiveType::kF64)) return nullptr;
  const Instruction* c = SplatConstant(op->operand(1));
  if (c == nullptr) return nullptr;
  const double v = c->literal().GetAsDouble(0);
  int exponent;
  if (std::fabs(std::frexp(v, &exponent)) != 0.5 || std::abs(exponent) > 100 || exponent == 1) return nullptr;
  return b.Binary(Opcode::kMultiply, op->operand(0), b.FullLike(op, 1 / v));
}
Instruction* Involution(Instruction* op, Builder&, const PassContext&) {
  if (!Is(op, Opcode::kNegate) && !Is(op, Opcode::kNot)) return nullptr;
  if (op->shape().element_type() == PrimitiveType::kF8E8M0FNU) return nullptr;  // no sign: NaN
  return op->operand(0)->opcode() == op->opcode() ? op->operand(0)->operand(0) : nullptr;
}
Instruction* Idempotent(Instruction* op, Builder&, const PassContext&) {
  switch (op->opcode()) {
    case Opcode::kAnd:
    case Opcode::kOr:
    case Opcode::kMaximum:
    case Opcode::kMinimum: return op->operand(0) == op->operand(1) ? op->operand(0) : nullptr;
    case Opcode::kAbs:
    case Opcode::kCeil:
    case Opcode::kFloor:
    case Opcode::kRoundNearestEven:
    case Opcode::kRoundNearestAfz: return op->operand(0)->opcode() == op->opcode() ? op->operand(0) : nullptr;
    default: return nullptr;
  }
}
// and(p, true), or(p, false) on pred.
Instruction* LogicalConstant(Instruction* op, Builder&, const PassContext&) {
  if (op->shape().element_type() != PrimitiveType::kPred || (!Is(op, Opcode::kAnd) && !Is(op, Opcode::kOr))) return nullptr;
  const double neutral = Is(op, Opcode::kAnd) ? 1 : 0;
  for (int i = 0; i < 2; ++i) {
    if (IsSplat(op->operand(1 - i), neutral)) return op->operand(i);
    if (IsSplat(op->operand(i), 1 - neutral)) return op->operand(i);
  }
  return nullptr;
}
// pow(x, 2) and pow(x, 1): correctly rounded both ways.
Instruction* PowerOfSmallInteger(Instruction* op, Builder& b, const PassContext&) {
  if (!Is(op, Opcode::kPower) || !IsFloating(op)) return nullptr;
  if (IsSplat(op->operand(1), 1)) return op->operand(0);
  if (IsSplat(op->operand(1), 2)) return b.Binary(Opcode::kMultiply, op->operand(0), op->operand(0));
  return nullptr;
}
Instruction* SelectKnown(Instruction* op, Builder&, const PassContext&) {
  if (!Is(op, Opcode::kSelect)) return nullptr;
  if (op->operand(1) == op->operand(2)) return op->operand(1);
  if (IsSplat(op->operand(0), 1)) return op->operand(1);
  if (IsSplat(op->operand(0), 0)) return op->operand(2);
  return nullptr;
}
Instruction* SelectNot(Instruction* op, Builder& b, const PassContext&) {
  if (!Is(op, Opcode::kSelect) || !Is(op->operand(0), Opcode::kNot)) return nullptr;
  return b.Select(op->operand(0)->operand(0), op->operand(2), op->operand(1));
}

}  // namespace

absl::Span<const Rule> ArithmeticRules() {
  static constexpr Rule rules[] = {
      {"x + 0", AddZero},
      {"(x + 0) + 0", AddZeroTwice},
      {"x - 0", SubtractZero},
      {"x * 1", MultiplyOne},
      {"integer x * 0", MultiplyIntegerZero},
      {"x / 1", DivideByOne},
      {"x / 2^k", DivideByPowerOfTwo},
      {"negate(negate), not(not)", Involution},
      {"max(x, x), abs(abs), ...", Idempotent},
      {"and true, or false", LogicalConstant},
      {"pow 1, pow 2", PowerOfSmallInteger},
      {"select known", SelectKnown},
      {"select(not p)", SelectNot},
  };
  return rules;
}

}  // namespace tenon
