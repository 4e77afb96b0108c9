// Complex numbers: parts, views as pairs, polar form. HLO has no conjugate bit: a value is what ATen reads through the bit, so
// _conj computes, and resolve_conj does nothing.
#include <cmath>
#include <numbers>

#include "torch_plugin/aten/lower/op_context.h"

namespace tenon::aten {

using enum Opcode;
using PT = PrimitiveType;

namespace {

bool IsComplexValue(const Instruction* x) { return IsComplex(x->shape().element_type()); }

Instruction* Operand(OpContext& op, int64_t i) {
  const PT part = ComplexComponent(op.result_type());
  return op.b.BroadcastTo(op.b.Convert(op.tensor(i), part), op.result_dims());
}

// The k-th numbers of the pairs in x's last dim.
Instruction* OfPairs(OpContext& op, Instruction* x, int64_t k) {
  return op.b.Reshape(op.b.SliceDim(x, Rank(x) - 1, k, k + 1), op.result_dims());
}

}  // namespace

Instruction* Conjugate(OpContext& op, Instruction* x) {
  if (!IsComplexValue(x)) return x;
  return op.b.Binary(kComplex, op.b.Unary(kReal, x), op.b.Unary(kNegate, op.b.Unary(kImag, x)));
}

Lowering LowerReal(OpContext& op) {
  Instruction* x = op.tensor(0);
  return op.One(IsComplexValue(x) ? op.b.Unary(kReal, x) : x);
}
Lowering LowerImag(OpContext& op) { return op.One(op.b.Unary(kImag, op.tensor(0))); }

Lowering LowerViewAsReal(OpContext& op) {
  Instruction* x = op.tensor(0);
  std::vector<Dim> pair(op.result_dims());
  pair.back() = 1;
  const auto part = [&](Opcode opcode) { return op.b.Reshape(op.b.Unary(opcode, x), pair); };
  return op.One(op.b.Concatenate({part(kReal), part(kImag)}, Rank(x)));
}
Lowering LowerViewAsComplex(OpContext& op) {
  Instruction* x = op.tensor(0);
  return op.One(op.b.Binary(kComplex, OfPairs(op, x, 0), OfPairs(op, x, 1)));
}
Lowering LowerComplex(OpContext& op) { return op.One(op.b.Binary(kComplex, Operand(op, 0), Operand(op, 1))); }

// abs * (cos(angle) + i sin(angle)).
Lowering LowerPolar(OpContext& op) {
  Builder& b = op.b;
  Instruction *size = Operand(op, 0), *angle = Operand(op, 1);
  const auto part = [&](Opcode opcode) { return b.Binary(kMultiply, size, b.Unary(opcode, angle)); };
  return op.One(b.Binary(kComplex, part(kCosine), part(kSine)));
}

Lowering LowerConj(OpContext& op) {
  // Of a number too, in backwards.
  return op.One(Conjugate(op, op.Operand(0, op.result_type(), op.result_dims())));
}

// The bit of a lazy negation, as that of a lazy conjugate.
Lowering LowerNegView(OpContext& op) { return op.One(op.b.Unary(kNegate, op.tensor(0))); }
Lowering LowerResolved(OpContext& op) { return Values{op.tensor(0)}; }

// atan2(imag, real); of real numbers 0 or pi, and NaN of NaN.
Lowering LowerAngle(OpContext& op) {
  Builder& b = op.b;
  Instruction* x = op.tensor(0);
  if (IsComplexValue(x)) return op.One(b.Binary(kAtan2, b.Unary(kImag, x), b.Unary(kReal, x)));
  const PT type = x->shape().element_type();
  if (type == PT::kPred) return op.One(b.Full(op.result_type(), op.result_dims(), 0));
  Instruction* pi = b.Full(op.result_type(), op.result_dims(), std::numbers::pi);
  Instruction* angle = b.Select(b.Compare(x, op.Full(x, 0), "LT"), pi, op.Full(pi, 0));
  if (!IsFloat(type)) return op.One(angle);
  return op.One(b.Select(b.Compare(x, x, "NE"), x, angle));
}

}  // namespace tenon::aten
