// Complex numbers: parts, views as pairs, polar form. HLO has no conjugate bit: a value is what ATen reads through the bit, so
// _conj computes, and resolve_conj does nothing.
#include <cmath>
#include <limits>
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

}  // namespace

Instruction* AsPairs(Builder& b, Instruction* x) {
  std::vector<Dim> pair(x->shape().dims().begin(), x->shape().dims().end());
  pair.push_back(1);
  const auto part = [&](Opcode opcode) { return b.Reshape(b.Unary(opcode, x), pair); };
  return b.Concatenate({part(kReal), part(kImag)}, Rank(x));
}
Instruction* OfPairs(Builder& b, Instruction* x) {
  const int64_t last = Rank(x) - 1;
  const std::vector<Dim> dims(x->shape().dims().begin(), x->shape().dims().end() - 1);
  const auto part = [&](int64_t k) { return b.Reshape(b.SliceDim(x, last, k, k + 1), dims); };
  return b.Binary(kComplex, part(0), part(1));
}

Instruction* ComplexLogAddExp(Builder& b, Instruction* x, Instruction* y) {
  const auto real = [&](Instruction* z) { return b.Unary(kReal, z); };
  const auto is_nan = [&](Instruction* z) {
    Instruction *re = real(z), *im = b.Unary(kImag, z);
    return b.Binary(kOr, b.Compare(re, re, "NE"), b.Compare(im, im, "NE"));
  };
  Instruction* less = b.Compare(real(x), real(y), "LT");
  Instruction *low = b.Select(less, x, y), *high = b.Select(less, y, x), *difference = b.Binary(kSubtract, low, high);
  Instruction* vanishes = b.Compare(real(difference), b.FullLike(real(difference), -INFINITY), "EQ");
  Instruction* power = b.Select(vanishes, b.FullLike(difference, 0), b.Unary(kExponential, difference));
  Instruction* sum = b.Binary(kAdd, b.Unary(kLogPlusOne, power), high);
  // Of two equal infinities: below, one of them; above, what the plain formula gives.
  Instruction* infinite = b.Compare(b.Unary(kAbs, real(low)), b.FullLike(real(low), INFINITY), "EQ");
  infinite = b.Binary(kAnd, infinite, b.Compare(real(low), real(high), "EQ"));
  Instruction* plain = b.Unary(kLog, b.Binary(kAdd, b.Unary(kExponential, low), b.Unary(kExponential, high)));
  sum = b.Select(infinite, b.Select(b.Compare(real(low), b.FullLike(real(low), 0), "LT"), low, plain), sum);
  Instruction* nan = b.FullLike(real(x), std::numeric_limits<double>::quiet_NaN());
  return b.Select(b.Binary(kOr, is_nan(x), is_nan(y)), b.Binary(kComplex, nan, nan), sum);
}

Instruction* Conjugate(OpContext& op, Instruction* x) {
  if (!IsComplexValue(x)) return x;
  return op.b.Binary(kComplex, op.b.Unary(kReal, x), op.b.Unary(kNegate, op.b.Unary(kImag, x)));
}

Lowering LowerReal(OpContext& op) {
  Instruction* x = op.tensor(0);
  return op.One(IsComplexValue(x) ? op.b.Unary(kReal, x) : x);
}
Lowering LowerImag(OpContext& op) { return op.One(op.b.Unary(kImag, op.tensor(0))); }

Lowering LowerViewAsReal(OpContext& op) { return op.One(AsPairs(op.b, op.tensor(0))); }
Lowering LowerViewAsComplex(OpContext& op) { return op.One(OfPairs(op.b, op.tensor(0))); }
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
