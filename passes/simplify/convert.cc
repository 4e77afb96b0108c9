#include "passes/simplify/rule.h"

namespace tenon {
namespace {

// Every value of `narrow` is a value of `wide`.
bool Holds(PrimitiveType wide, PrimitiveType narrow) {
  using T = PrimitiveType;
  if (wide == narrow) return true;
  // f8e8m0fnu has no zero; true is -1 in s1.
  if (narrow == T::kPred) return wide != T::kF8E8M0FNU && wide != T::kS1;
  if (IsFloat(narrow)) {
    if (wide == T::kF64) return true;
    return wide == T::kF32 && narrow != T::kF64;
  }
  if (!IsIntegral(narrow) || !IsIntegral(wide)) return false;
  if (IsUnsigned(narrow)) return BitWidth(wide) > BitWidth(narrow) || (IsUnsigned(wide) && BitWidth(wide) == BitWidth(narrow));
  return IsSigned(wide) && BitWidth(wide) >= BitWidth(narrow);
}

Instruction* SameType(Instruction* op, Builder&, const PassContext&) {
  if (op->opcode() != Opcode::kConvert || op->operand(0)->shape().element_type() != op->shape().element_type()) return nullptr;
  return op->operand(0);
}
// convert(convert(x, wide), t): x itself or convert(x, t), when nothing was lost on the way to `wide`.
Instruction* ThroughWider(Instruction* op, Builder& b, const PassContext&) {
  if (op->opcode() != Opcode::kConvert || op->operand(0)->opcode() != Opcode::kConvert) return nullptr;
  Instruction* x = op->operand(0)->operand(0);
  const PrimitiveType from = x->shape().element_type(), wide = op->operand(0)->shape().element_type();
  const PrimitiveType to = op->shape().element_type();
  if (!Holds(wide, from) || IsComplex(from) || (to != from && !IsFloat(to) && !IsIntegral(to))) return nullptr;
  // From a float or a complex number an integer type saturates, from a pred or an integer it wraps: 1 becomes 0 or -1 in s1.
  if (!IsFloat(from) && (IsFloat(wide) || IsComplex(wide)) && IsIntegral(to) && !Holds(to, from)) return nullptr;
  // Between integers wrap-around composes; from a float the saturation of `to` must be applied to the same value: it is.
  return b.Convert(x, to);
}

}  // namespace

absl::Span<const Rule> ConvertRules() {
  static constexpr Rule rules[] = {
      {"convert to the same type", SameType},
      {"convert through a wider type", ThroughWider},
  };
  return rules;
}

}  // namespace tenon
