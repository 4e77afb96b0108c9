// Pointwise: unary, binary, comparison, bitwise, selection. Formulas follow aten/src/ATen/native/cpu/{Unary,Binary}OpsKernel.cpp.
#include <cmath>
#include <limits>
#include <numbers>

#include "hlo/own_calls.h"
#include "torch_plugin/aten/lower/foreach.h"

namespace tenon::aten {

using enum Opcode;
using PT = PrimitiveType;

Instruction* IntegerFloorDivide(Builder& b, Instruction* x, Instruction* y) {
  Instruction* quotient = b.Binary(kDivide, x, y);
  if (!IsSigned(x->shape().element_type())) return quotient;
  Instruction* rest = b.Binary(kRemainder, x, y);
  Instruction* zero = b.FullLike(x, 0);
  Instruction* signs_differ = b.Binary(kXor, b.Compare(rest, zero, "LT"), b.Compare(y, zero, "LT"));
  Instruction* adjust = b.Binary(kAnd, b.Compare(rest, zero, "NE"), signs_differ);
  return b.Select(adjust, b.Binary(kSubtract, quotient, b.FullLike(x, 1)), quotient);
}

namespace {

// Operand 0 in the dtype of the computation: the promoted one, f32 for half types.
Instruction* MathOperand(OpContext& op) {
  return op.Operand(0, OpMath(op.Common({0})), op.result_dims());
}

Lowering UnaryMath(OpContext& op, Opcode opcode) { return op.One(op.b.Unary(opcode, MathOperand(op))); }

// Ops whose result is exact in any dtype: no detour through f32.
Lowering UnaryExact(OpContext& op, Opcode opcode) { return op.One(op.b.Unary(opcode, op.tensor(0))); }

// Rounding leaves integers alone.
Lowering Rounding(OpContext& op, Opcode opcode) {
  Instruction* x = op.tensor(0);
  return op.One(IsFloat(x->shape().element_type()) ? op.b.Unary(opcode, x) : x);
}

struct Pair {
  Instruction *a, *b;
  PT common;
};
// Arithmetic keeps numbers in f32 next to half tensors (ATen's opmath scalar); other ops round them to the dtype first.
Pair Arithmetic(OpContext& op, int64_t ia = 0, int64_t ib = 1) {
  const PT common = op.Common({ia, ib}), math = OpMath(common);
  return {op.Operand(ia, math, op.result_dims()), op.Operand(ib, math, op.result_dims()), common};
}
Pair Rounded(OpContext& op, int64_t ia = 0, int64_t ib = 1) {
  const PT common = op.Common({ia, ib}), math = OpMath(common);
  return {op.Operand(ia, math, op.result_dims(), common), op.Operand(ib, math, op.result_dims(), common), common};
}
// In the common dtype itself, for exact ops.
Pair Same(OpContext& op, int64_t ia = 0, int64_t ib = 1) {
  const PT common = op.Common({ia, ib});
  return {op.Operand(ia, common, op.result_dims()), op.Operand(ib, common, op.result_dims()), common};
}

Lowering Compare(OpContext& op, std::string_view direction) {
  Pair p = Same(op);
  return op.One(op.b.Compare(p.a, p.b, direction));
}

Instruction* IsNan(Builder& b, Instruction* x) { return b.Compare(x, x, "NE"); }
Instruction* ToPred(OpContext& op, Instruction* x) {
  if (x->shape().element_type() == PT::kPred) return x;
  return op.b.Compare(x, op.Full(x, 0), "NE");
}
// x / |x|, and 0 of 0.
Lowering ComplexSign(OpContext& op) {
  Builder& b = op.b;
  Instruction* x = op.tensor(0);
  Instruction* size = b.Unary(kAbs, x);
  Instruction* zero = op.Full(size, 0);
  const auto part = [&](Opcode opcode) {
    return b.Select(b.Compare(size, zero, "EQ"), zero, b.Binary(kDivide, b.Unary(opcode, x), size));
  };
  return op.One(b.Binary(kComplex, part(kReal), part(kImag)));
}
Instruction* Truncate(Builder& b, Instruction* x) {
  return b.Select(b.Compare(x, b.FullLike(x, 0), "LT"), b.Unary(kCeil, x), b.Unary(kFloor, x));
}

// Integer division by zero raises in eager.
void CheckDivisor(OpContext& op, Instruction* divisor, PT common) {
  if (!IsIntegral(common)) return;
  Instruction* scalar = divisor;
  while (scalar->opcode() == kBroadcast || scalar->opcode() == kConvert) scalar = scalar->operand(0);
  if (scalar->opcode() == kConstant && scalar->literal().num_elements() == 1 && scalar->literal().GetAsInt64(0) != 0) return;
  op.Check(op.b.Compare(divisor, op.Full(divisor, 0), "EQ"), "RuntimeError", "ZeroDivisionError");
}

// c10::div_floor_floating.
Instruction* FloatFloorDivide(Builder& b, Instruction* x, Instruction* y) {
  Instruction* zero = b.FullLike(x, 0);
  Instruction* one = b.FullLike(x, 1);
  Instruction* by_zero = b.Compare(y, zero, "EQ");
  Instruction* mod = b.Binary(kRemainder, x, y);
  Instruction* div = b.Binary(kDivide, b.Binary(kSubtract, x, mod), y);
  Instruction* differ = b.Binary(kXor, b.Compare(y, zero, "LT"), b.Compare(mod, zero, "LT"));
  Instruction* adjust = b.Binary(kAnd, b.Compare(mod, zero, "NE"), differ);
  div = b.Select(adjust, b.Binary(kSubtract, div, one), div);
  Instruction* floored = b.Unary(kFloor, div);
  Instruction* above = b.Compare(b.Binary(kSubtract, div, floored), b.FullLike(x, 0.5), "GT");
  Instruction* rounded = b.Select(above, b.Binary(kAdd, floored, one), floored);
  Instruction* quotient = b.Binary(kDivide, x, y);
  // copysign(0, x / y): 0 * quotient keeps the sign, but quotient may be infinite only where div isn't 0.
  Instruction* signed_zero = b.Select(b.Compare(quotient, zero, "LT"), b.FullLike(x, -0.0), zero);
  Instruction* result = b.Select(b.Compare(div, zero, "NE"), rounded, signed_zero);
  return b.Select(by_zero, quotient, result);
}

Lowering FloorDivide(OpContext& op) {
  Pair p = Arithmetic(op);
  if (p.common == PT::kPred) return NotLowered("floor division of bool");
  CheckDivisor(op, p.b, p.common);
  return op.One(IsFloat(p.common) ? FloatFloorDivide(op.b, p.a, p.b) : IntegerFloorDivide(op.b, p.a, p.b));
}

Instruction* PythonRemainder(OpContext& op, Pair p) {
  Builder& b = op.b;
  Instruction* mod = b.Binary(kRemainder, p.a, p.b);
  Instruction* zero = op.Full(mod, 0);
  Instruction* differ = b.Binary(kXor, b.Compare(mod, zero, "LT"), b.Compare(p.b, zero, "LT"));
  Instruction* adjust = b.Binary(kAnd, b.Compare(mod, zero, "NE"), differ);
  return b.Select(adjust, b.Binary(kAdd, mod, p.b), mod);
}

// x ** n for the exponents that ATen multiplies out (pow_tensor_scalar_optimized_kernel).
Instruction* PowConstant(OpContext& op, Instruction* x, double n) {
  Builder& b = op.b;
  if (n == 0.5) return b.Unary(kSqrt, x);
  if (n == 0) return op.Full(x, 1);  // of NaN too
  if (n == 1) return x;
  if (n == 2) return b.Binary(kMultiply, x, x);
  if (n == 3) return b.Binary(kMultiply, b.Binary(kMultiply, x, x), x);
  if (n == -0.5) return b.Unary(kRsqrt, x);
  if (n == -1) return b.Binary(kDivide, op.Full(x, 1), x);
  if (n == -2) return b.Binary(kDivide, op.Full(x, 1), b.Binary(kMultiply, x, x));
  return b.Binary(kPower, x, op.Full(x, n));
}

// HLO's integer power wraps and takes negative exponents as ATen's powi does.
Instruction* IntegerPower(OpContext& op, Instruction* x, Instruction* n) {
  if (x->shape().element_type() == PT::kPred) return op.b.Binary(kOr, x, op.b.Unary(kNot, n));
  return op.b.Binary(kPower, x, n);
}

Lowering MinMax(OpContext& op, Opcode opcode) {
  Pair p = Same(op);
  if (p.common == PT::kPred) opcode = opcode == kMaximum ? kOr : kAnd;
  return op.One(op.b.Binary(opcode, p.a, p.b));
}

// fmax, fmin: the other operand where one is NaN.
Lowering NanIgnoringMinMax(OpContext& op, Opcode opcode) {
  Pair p = Same(op);
  Builder& b = op.b;
  if (!IsFloat(p.common)) return MinMax(op, opcode);
  Instruction* both = b.Binary(opcode, p.a, p.b);
  return op.One(b.Select(IsNan(b, p.a), p.b, b.Select(IsNan(b, p.b), p.a, both)));
}

Lowering Bitwise(OpContext& op, Opcode opcode) {
  Pair p = Same(op);
  return op.One(op.b.Binary(opcode, p.a, p.b));
}

// Of the operands in the common dtype, in which a large number of no dims may be 0.
Lowering Logical(OpContext& op, Opcode opcode) {
  const Pair p = Same(op);
  return op.One(op.b.Binary(opcode, ToPred(op, p.a), ToPred(op, p.b)));
}

// Left shifts by >= width give 0 in HLO; in ATen shifts by a negative count or by >= width give 0 (-1 for a right shift of a
// negative number).
Lowering Shift(OpContext& op, bool left) {
  Pair p = Same(op);
  if (!IsIntegral(p.common)) return NotLowered("shift of a float");
  Builder& b = op.b;
  Instruction* width = op.Full(p.b, BitWidth(p.common) - (left || IsUnsigned(p.common) ? 0 : 1));
  Instruction* outside = b.Compare(p.b, width, "GE");
  if (IsSigned(p.common)) outside = b.Binary(kOr, outside, b.Compare(p.b, op.Full(p.b, 0), "LT"));
  Instruction* beyond = op.Full(p.a, 0);
  const Opcode right = IsSigned(p.common) ? kShiftRightArithmetic : kShiftRightLogical;
  if (!left && IsSigned(p.common)) {
    beyond = b.Select(b.Compare(p.a, op.Full(p.a, 0), "LT"), op.Full(p.a, -1), op.Full(p.a, 0));
  }
  return op.One(b.Select(outside, beyond, b.Binary(left ? kShiftLeft : right, p.a, p.b)));
}

// a + alpha * b.
Lowering AddScaled(OpContext& op, Opcode opcode, int64_t ia, int64_t ib, int64_t alpha) {
  Pair p = Arithmetic(op, ia, ib);
  if (p.common == PT::kPred) {
    if (opcode != kAdd) return NotLowered("subtraction of bool");
    return op.One(op.is_none(alpha) || op.boolean(alpha) ? op.b.Binary(kOr, p.a, p.b) : p.a);
  }
  if (!op.is_none(alpha) && !op.equals(alpha, 1)) {
    p.b = op.b.Binary(kMultiply, p.b, op.b.BroadcastTo(op.NumberConstant(op.arg(alpha), p.b->shape().element_type()), op.result_dims()));
  }
  return op.One(op.b.Binary(opcode, p.a, p.b));
}

Lowering Multiply(OpContext& op) {
  Pair p = Arithmetic(op);
  return op.One(op.b.Binary(p.common == PT::kPred ? kAnd : kMultiply, p.a, p.b));
}

Lowering Divide(OpContext& op) {
  Pair p = Arithmetic(op);
  return op.One(op.b.Binary(kDivide, p.a, p.b));
}

// div with rounding_mode (argument 2); the row promotes as default, None as int -> float.
Lowering DivideMode(OpContext& op) {
  if (op.is_none(2)) {
    const PT math = OpMath(op.result_type());
    return op.One(op.b.Binary(kDivide, op.Operand(0, math, op.result_dims()), op.Operand(1, math, op.result_dims())));
  }
  if (op.string(2) == "floor") return FloorDivide(op);
  Pair p = Arithmetic(op);
  if (p.common == PT::kPred) return NotLowered("division of bool");
  CheckDivisor(op, p.b, p.common);
  Instruction* quotient = op.b.Binary(kDivide, p.a, p.b);
  if (!IsFloat(p.common)) return op.One(quotient);
  return op.One(Truncate(op.b, op.b.Convert(quotient, p.common)));  // ATen rounds a half-typed quotient first
}

Lowering Remainder(OpContext& op) {
  Pair p = Rounded(op);
  if (p.common == PT::kPred) return NotLowered("remainder of bool");
  CheckDivisor(op, p.b, p.common);
  return op.One(PythonRemainder(op, p));
}

Lowering Fmod(OpContext& op) {
  Pair p = Rounded(op);
  if (p.common == PT::kPred) return NotLowered("fmod of bool");
  CheckDivisor(op, p.b, p.common);
  return op.One(op.b.Binary(kRemainder, p.a, p.b));
}

Lowering BinaryMath(OpContext& op, Opcode opcode) {
  Pair p = Rounded(op);
  return op.One(op.b.Binary(opcode, p.a, p.b));
}

// clamp's bounds are numbers or tensors; NaN of x or of a tensor bound propagates (maximum and minimum do).
Lowering ClampBetween(OpContext& op, int64_t lo, int64_t hi) {
  PT common = op.Common({0, lo, hi});
  Instruction* x = op.Operand(0, common, op.result_dims());
  const bool pred = common == PT::kPred;
  if (!op.is_none(lo)) x = op.b.Binary(pred ? kOr : kMaximum, x, op.Operand(lo, common, op.result_dims()));
  if (!op.is_none(hi)) x = op.b.Binary(pred ? kAnd : kMinimum, x, op.Operand(hi, common, op.result_dims()));
  return op.One(x);
}

Lowering Where(OpContext& op) {
  Pair p = Same(op, 1, 2);
  Instruction* condition = op.b.BroadcastTo(ToPred(op, op.tensor(0)), op.result_dims());
  return op.One(op.b.Select(condition, p.a, p.b));
}

Lowering MaskedFill(OpContext& op) {
  const PT type = op.result_type();
  Instruction* x = op.b.BroadcastTo(op.tensor(0), op.result_dims());
  Instruction* mask = op.b.BroadcastTo(ToPred(op, op.tensor(1)), op.result_dims());
  return op.One(op.b.Select(mask, op.Operand(2, type, op.result_dims()), x));
}

// self + value * t1 (* or /) t2.
Lowering AddCombined(OpContext& op, Opcode opcode, Instruction* value = nullptr) {
  const PT common = op.Common({0, 1, 2}), math = OpMath(common);
  if (opcode == kDivide && !IsFloat(common) && !IsComplex(common)) return NotLowered("addcdiv of integers");
  if (value != nullptr && !IsFloat(common) && IsFloat(value->shape().element_type())) return NotLowered("integers by fractions");
  Instruction* self = op.Operand(0, math, op.result_dims());
  Instruction* t1 = op.Operand(1, math, op.result_dims());
  Instruction* t2 = op.Operand(2, math, op.result_dims());
  if (value != nullptr) {
    t1 = op.b.Binary(kMultiply, op.b.BroadcastTo(op.b.Convert(value, math), op.result_dims()), t1);
  } else if (!op.is_none(3) && op.number(3) != 1) {
    t1 = op.b.Binary(kMultiply, op.Operand(3, math, op.result_dims()), t1);
  }
  return op.One(op.b.Binary(kAdd, self, op.b.Binary(opcode, t1, t2)));
}

// aten/src/ATen/native/Lerp.h.
Lowering LerpTowards(OpContext& op) {
  const PT math = OpMath(op.result_type());
  Builder& b = op.b;
  Instruction* start = op.Operand(0, math, op.result_dims());
  Instruction* end = op.Operand(1, math, op.result_dims());
  Instruction* weight = op.Operand(2, math, op.result_dims());
  Instruction* step = b.Binary(kSubtract, end, start);
  Instruction* near = b.Binary(kAdd, start, b.Binary(kMultiply, weight, step));
  Instruction* rest = b.Binary(kMultiply, step, b.Binary(kSubtract, op.Full(weight, 1), weight));
  Instruction* size = b.Unary(kAbs, weight);
  Instruction* small = b.Compare(size, op.Full(size, 0.5), "LT");
  return op.One(b.Select(small, near, b.Binary(kSubtract, end, rest)));
}

}  // namespace

#define UNARY_MATH(name, opcode) \
  Lowering Lower##name(OpContext& op) { return UnaryMath(op, opcode); }
UNARY_MATH(Exp, kExponential)
UNARY_MATH(Expm1, kExponentialMinusOne)
UNARY_MATH(Log, kLog)
UNARY_MATH(Log1p, kLogPlusOne)
UNARY_MATH(Sqrt, kSqrt)
UNARY_MATH(Rsqrt, kRsqrt)
UNARY_MATH(Sin, kSine)
UNARY_MATH(Cos, kCosine)
UNARY_MATH(Tan, kTan)
UNARY_MATH(Asin, kAsin)
UNARY_MATH(Acos, kAcos)
UNARY_MATH(Atan, kAtan)
UNARY_MATH(Sinh, kSinh)
UNARY_MATH(Cosh, kCosh)
UNARY_MATH(Tanh, kTanh)
UNARY_MATH(Asinh, kAsinh)
UNARY_MATH(Acosh, kAcosh)
UNARY_MATH(Atanh, kAtanh)
UNARY_MATH(Erf, kErf)
UNARY_MATH(Sigmoid, kLogistic)
#undef UNARY_MATH

Lowering LowerNeg(OpContext& op) { return UnaryExact(op, kNegate); }
Lowering LowerSign(OpContext& op) {
  if (op.result_type() == PT::kPred) return op.One(op.tensor(0));
  Instruction* x = op.tensor(0);
  if (IsComplex(op.result_type())) return ComplexSign(op);
  if (IsUnsigned(op.result_type())) return op.One(op.b.Binary(kMinimum, x, op.Full(x, 1)));
  Instruction* sign = op.b.Unary(kSign, x);
  if (!IsFloat(op.result_type())) return op.One(sign);
  // ATen: sign(NaN) = 0 and sign(-0.0) = 0.
  Instruction* zero = op.Full(x, 0);
  Instruction* nonzero = op.b.Binary(kOr, op.b.Compare(x, zero, "LT"), op.b.Compare(x, zero, "GT"));
  return op.One(op.b.Select(nonzero, sign, zero));
}
Lowering LowerAbs(OpContext& op) {
  if (IsUnsigned(op.result_type()) || op.result_type() == PT::kPred) return op.One(op.tensor(0));
  return UnaryExact(op, kAbs);
}
Lowering LowerCeil(OpContext& op) { return Rounding(op, kCeil); }
Lowering LowerFloor(OpContext& op) { return Rounding(op, kFloor); }
Lowering LowerRound(OpContext& op) { return Rounding(op, kRoundNearestEven); }
Lowering LowerTrunc(OpContext& op) {
  Instruction* x = op.tensor(0);
  return op.One(IsFloat(x->shape().element_type()) ? Truncate(op.b, x) : x);
}
Lowering LowerFrac(OpContext& op) {
  Instruction* x = op.tensor(0);
  return op.One(op.b.Binary(kSubtract, x, Truncate(op.b, x)));
}
Lowering LowerExp2(OpContext& op) {
  Instruction* x = MathOperand(op);
  return op.One(op.b.Binary(kPower, op.Full(x, 2), x));
}

namespace {

// log(x) / log(base), and the number itself of powers of it: a quotient of two rounded logarithms may lie beside. `most`: the largest power
// that is exact in the type.
Lowering LogarithmOf(OpContext& op, double base, int most) {
  Builder& b = op.b;
  Instruction *x = MathOperand(op), *log = b.Unary(kLog, x);
  if (IsComplex(x->shape().element_type())) {  // a division of complex numbers makes NaN of an infinite part's zero
    Instruction *real = b.Unary(kReal, log), *imag = b.Unary(kImag, log), *by = op.Full(real, std::log(base));
    return op.One(b.Binary(kComplex, b.Binary(kDivide, real, by), b.Binary(kDivide, imag, by)));
  }
  Instruction *quotient = b.Binary(kDivide, log, op.Full(x, std::log(base))), *one = op.Full(x, 1), *zero = op.Full(x, 0);
  Instruction *whole = b.Unary(kRoundNearestEven, quotient), *size = b.Unary(kAbs, whole);
  Instruction* fits = b.Compare(size, op.Full(x, most), "LE");
  Instruction *power = one, *bits = b.Convert(b.Select(fits, size, zero), PT::kS32);
  for (double square = base; most > 0; square *= square, most /= 2) {
    Instruction* odd = b.Compare(b.Binary(kAnd, bits, b.FullLike(bits, 1)), b.FullLike(bits, 0), "NE");
    power = b.Binary(kMultiply, power, b.Select(odd, op.Full(x, square), one));
    bits = b.Binary(kShiftRightLogical, bits, b.FullLike(bits, 1));
  }
  Instruction* is_power = b.Select(b.Compare(quotient, zero, "LT"), b.Compare(b.Binary(kMultiply, x, power), one, "EQ"),
                                   b.Compare(x, power, "EQ"));
  return op.One(b.Select(b.Binary(kAnd, fits, is_power), whole, quotient));
}
bool IsOfF64(OpContext& op) { return op.Common({0}) == PT::kF64; }

}  // namespace

Lowering LowerLog2(OpContext& op) { return LogarithmOf(op, 2, IsOfF64(op) ? 1023 : 127); }
Lowering LowerLog10(OpContext& op) { return LogarithmOf(op, 10, IsOfF64(op) ? 22 : 10); }
Lowering LowerReciprocal(OpContext& op) {
  Instruction* x = MathOperand(op);
  return op.One(op.b.Binary(kDivide, op.Full(x, 1), x));
}
Lowering LowerSinc(OpContext& op) {
  Instruction* x = MathOperand(op);
  Instruction* scaled = op.b.Binary(kMultiply, x, op.Full(x, std::numbers::pi));
  Instruction* ratio = op.b.Binary(kDivide, op.b.Unary(kSine, scaled), scaled);
  return op.One(op.b.Select(op.b.Compare(x, op.Full(x, 0), "EQ"), op.Full(x, 1), ratio));
}
Lowering LowerLogit(OpContext& op) {
  Instruction* x = MathOperand(op);
  if (!op.is_none(1) && op.number(1) >= 0) {
    const double eps = op.number(1);
    x = op.b.Binary(kMinimum, op.b.Binary(kMaximum, x, op.Full(x, eps)), op.Full(x, 1 - eps));
  }
  return op.One(op.b.Unary(kLog, op.b.Binary(kDivide, x, op.b.Binary(kSubtract, op.Full(x, 1), x))));
}
Lowering LowerDeg2Rad(OpContext& op) {
  Instruction* x = MathOperand(op);
  return op.One(op.b.Binary(kMultiply, x, op.Full(x, std::numbers::pi / 180)));
}
Lowering LowerRad2Deg(OpContext& op) {
  Instruction* x = MathOperand(op);
  return op.One(op.b.Binary(kMultiply, x, op.Full(x, 180 / std::numbers::pi)));
}
Lowering LowerBitwiseNot(OpContext& op) { return UnaryExact(op, kNot); }
Lowering LowerLogicalNot(OpContext& op) { return op.One(op.b.Unary(kNot, ToPred(op, op.tensor(0)))); }
Lowering LowerIsnan(OpContext& op) {
  Instruction* x = op.tensor(0);
  const PT type = x->shape().element_type();
  if (!IsFloat(type) && !IsComplex(type)) return op.One(op.b.Full(PT::kPred, op.result_dims(), 0));
  return op.One(IsNan(op.b, x));
}
Lowering LowerIsinf(OpContext& op) {
  Instruction* x = op.tensor(0);
  if (IsComplex(x->shape().element_type())) x = op.b.Unary(kAbs, x);  // infinite if a part is, and NaN beside it
  if (!IsFloat(x->shape().element_type())) return op.One(op.b.Full(PT::kPred, op.result_dims(), 0));
  return op.One(op.b.Compare(op.b.Unary(kAbs, x), op.Full(x, INFINITY), "EQ"));
}
Lowering LowerIsposinf(OpContext& op) {
  Instruction* x = op.tensor(0);
  if (!IsFloat(x->shape().element_type())) return op.One(op.b.Full(PT::kPred, op.result_dims(), 0));
  return op.One(op.b.Compare(x, op.Full(x, INFINITY), "EQ"));
}
Lowering LowerIsneginf(OpContext& op) {
  Instruction* x = op.tensor(0);
  if (!IsFloat(x->shape().element_type())) return op.One(op.b.Full(PT::kPred, op.result_dims(), 0));
  return op.One(op.b.Compare(x, op.Full(x, -INFINITY), "EQ"));
}
Lowering LowerSignbit(OpContext& op) {
  Instruction* x = op.tensor(0);
  const PT type = x->shape().element_type();
  if (type == PT::kPred || IsUnsigned(type)) return op.One(op.b.Full(PT::kPred, op.result_dims(), 0));
  if (IsFloat(type)) {
    const PT bits = BitWidth(type) == 16 ? PT::kS16 : BitWidth(type) == 32 ? PT::kS32 : PT::kS64;
    x = op.b.BitcastConvert(x, bits);
  }
  return op.One(op.b.Compare(x, op.Full(x, 0), "LT"));
}

Lowering LowerAdd(OpContext& op) { return AddScaled(op, kAdd, 0, 1, 2); }
Lowering LowerSub(OpContext& op) { return AddScaled(op, kSubtract, 0, 1, 2); }
Lowering LowerRsub(OpContext& op) { return AddScaled(op, kSubtract, 1, 0, 2); }
Lowering LowerMul(OpContext& op) { return Multiply(op); }
Lowering LowerDiv(OpContext& op) { return Divide(op); }
Lowering LowerDivMode(OpContext& op) { return DivideMode(op); }
Lowering LowerFloorDivide(OpContext& op) { return FloorDivide(op); }
Lowering LowerRemainder(OpContext& op) { return Remainder(op); }
Lowering LowerFmod(OpContext& op) { return Fmod(op); }
Lowering LowerAtan2(OpContext& op) { return BinaryMath(op, kAtan2); }
Lowering LowerMaximum(OpContext& op) { return MinMax(op, kMaximum); }
Lowering LowerMinimum(OpContext& op) { return MinMax(op, kMinimum); }
Lowering LowerFmax(OpContext& op) { return NanIgnoringMinMax(op, kMaximum); }
Lowering LowerFmin(OpContext& op) { return NanIgnoringMinMax(op, kMinimum); }
Lowering LowerBitwiseAnd(OpContext& op) { return Bitwise(op, kAnd); }
Lowering LowerBitwiseOr(OpContext& op) { return Bitwise(op, kOr); }
Lowering LowerBitwiseXor(OpContext& op) { return Bitwise(op, kXor); }
Lowering LowerShiftLeft(OpContext& op) { return Shift(op, true); }
Lowering LowerShiftRight(OpContext& op) { return Shift(op, false); }
Lowering LowerLogicalAnd(OpContext& op) { return Logical(op, kAnd); }
Lowering LowerLogicalOr(OpContext& op) { return Logical(op, kOr); }
Lowering LowerLogicalXor(OpContext& op) { return Logical(op, kXor); }
Lowering LowerEq(OpContext& op) { return Compare(op, "EQ"); }
Lowering LowerNe(OpContext& op) { return Compare(op, "NE"); }
Lowering LowerLt(OpContext& op) { return Compare(op, "LT"); }
Lowering LowerLe(OpContext& op) { return Compare(op, "LE"); }
Lowering LowerGt(OpContext& op) { return Compare(op, "GT"); }
Lowering LowerGe(OpContext& op) { return Compare(op, "GE"); }
Lowering LowerWhere(OpContext& op) { return Where(op); }
Lowering LowerMaskedFill(OpContext& op) { return MaskedFill(op); }
Lowering LowerClamp(OpContext& op) { return ClampBetween(op, 1, 2); }
Lowering LowerClampMin(OpContext& op) { return ClampBetween(op, 1, 3); }
Lowering LowerClampMax(OpContext& op) { return ClampBetween(op, 3, 1); }
Lowering LowerAddcmul(OpContext& op) { return AddCombined(op, kMultiply); }
Lowering LowerAddcdiv(OpContext& op) { return AddCombined(op, kDivide); }
Lowering LowerLerp(OpContext& op) { return LerpTowards(op); }

namespace {

// The numbers are the elements of one tensor, the last argument.
Lowering ForeachAddCombined(OpContext& op, Opcode opcode) {
  Instruction* numbers = op.tensor(3);
  return ForEach(op, [](Node* node) { node->args.resize(3); }, [&](OpContext& element, int64_t k) {
    return AddCombined(element, opcode, op.b.Reshape(op.b.SliceDim(numbers, 0, k, k + 1), {}));
  });
}

}  // namespace

Lowering LowerForeachAddcmulTensor(OpContext& op) { return ForeachAddCombined(op, kMultiply); }
Lowering LowerForeachAddcdivTensor(OpContext& op) { return ForeachAddCombined(op, kDivide); }

// prims.fma(a, b, c), where b may be a number: a * b + c, rounded once (halves: to f32 first). Integers wrap either way.
Lowering LowerFma(OpContext& op) {
  const PT common = op.Common({0, 1, 2}), math = OpMath(common);
  if (common == PT::kPred) return NotLowered("fma of booleans");
  Instruction* a = op.Operand(0, math, op.result_dims());
  Instruction* b = op.Operand(1, math, op.result_dims());
  Instruction* c = op.Operand(2, math, op.result_dims());
  if (!IsFloat(common)) return op.One(op.b.Binary(kAdd, op.b.Binary(kMultiply, a, b), c));
  return op.One(op.b.CustomCall(kFmaTarget, a->shape(), {a, b, c}, ""));
}

Lowering LowerPowTensorScalar(OpContext& op) {
  const PT common = op.Common({0, 1});
  Instruction* x = op.Operand(0, OpMath(common), op.result_dims());
  if (op.arg(1).kind == FrameworkArg::Kind::kComplex) return op.One(op.b.Binary(kPower, x, op.Operand(1, common, op.result_dims())));
  const double n = op.number(1);
  // ATen's f16 kernel takes powers where the others take roots: of -0 and -inf they differ.
  if (common == PT::kF16 && std::fabs(n) == 0.5) return op.One(op.b.Binary(kPower, x, op.Full(x, n)));
  if (IsFloat(common) || IsComplex(common)) return op.One(PowConstant(op, x, n));
  if (n == 2 && common != PT::kPred) return op.One(op.b.Binary(kMultiply, x, x));
  return op.One(IntegerPower(op, x, op.Operand(1, common, op.result_dims())));
}
Lowering LowerPowTensor(OpContext& op) {
  Pair p = Rounded(op);
  if (!IsFloat(p.common) && !IsComplex(p.common)) return op.One(IntegerPower(op, p.a, p.b));
  return op.One(op.b.Binary(kPower, p.a, p.b));
}
// nan_to_num(self, nan, posinf, neginf); the defaults are 0 and the dtype's largest numbers. Of complex numbers each part for itself.
Lowering LowerNanToNum(OpContext& op) {
  Builder& b = op.b;
  const PT type = ComplexComponent(op.result_type());
  if (!IsFloat(type)) return Values{op.tensor(0)};
  const double largest = type == PT::kF64    ? std::numeric_limits<double>::max()
                         : type == PT::kF16  ? 65504.0
                         : type == PT::kBF16 ? 0x1.fep127
                                             : std::numeric_limits<float>::max();
  auto numbers = [&](Instruction* x) {
    auto number = [&](int64_t i, double otherwise) { return op.Full(x, op.is_none(i) ? otherwise : op.number(i)); };
    Instruction* y = b.Select(IsNan(b, x), number(1, 0), x);
    y = b.Select(b.Compare(x, op.Full(x, INFINITY), "EQ"), number(2, largest), y);
    return b.Select(b.Compare(x, op.Full(x, -INFINITY), "EQ"), number(3, -largest), y);
  };
  Instruction* x = op.tensor(0);
  if (!IsComplex(op.result_type())) return op.One(numbers(x));
  return op.One(b.Binary(Opcode::kComplex, numbers(b.Unary(Opcode::kReal, x)), numbers(b.Unary(Opcode::kImag, x))));
}
Lowering LowerHeaviside(OpContext& op) {
  Pair p = Same(op);
  Builder& b = op.b;
  Instruction* zero = op.Full(p.a, 0);
  Instruction* step = b.Convert(b.Compare(p.a, zero, "GT"), p.common);
  return op.One(b.Select(b.Compare(p.a, zero, "EQ"), p.b, step));
}
Lowering LowerHypot(OpContext& op) {
  // Scaled: x*x alone overflows.
  Pair p = Rounded(op);
  Builder& b = op.b;
  Instruction *x = b.Unary(kAbs, p.a), *y = b.Unary(kAbs, p.b);
  Instruction *hi = b.Binary(kMaximum, x, y), *lo = b.Binary(kMinimum, x, y);
  Instruction* ratio = b.Binary(kDivide, lo, hi);
  Instruction* root = b.Unary(kSqrt, b.Binary(kAdd, op.Full(x, 1), b.Binary(kMultiply, ratio, ratio)));
  Instruction* result = b.Select(b.Compare(hi, op.Full(x, 0), "EQ"), hi, b.Binary(kMultiply, hi, root));
  Instruction* infinite = b.Binary(kOr, b.Compare(x, op.Full(x, INFINITY), "EQ"), b.Compare(y, op.Full(x, INFINITY), "EQ"));
  return op.One(b.Select(infinite, op.Full(x, INFINITY), result));
}
Lowering LowerXlogy(OpContext& op) {
  Pair p = Rounded(op);
  Builder& b = op.b;
  Instruction* zero = op.Full(p.a, 0);
  Instruction* product = b.Binary(kMultiply, p.a, b.Unary(kLog, p.b));
  return op.One(b.Select(IsNan(b, p.b), p.b, b.Select(b.Compare(p.a, zero, "EQ"), zero, product)));
}
Lowering LowerLogaddexp(OpContext& op) {
  Pair p = Rounded(op);
  Builder& b = op.b;
  if (IsComplex(p.common)) return op.One(ComplexLogAddExp(b, p.a, p.b));
  Instruction* m = b.Binary(kMaximum, p.a, p.b);
  Instruction* distance = b.Unary(kAbs, b.Binary(kSubtract, p.a, p.b));
  Instruction* sum = b.Binary(kAdd, m, b.Unary(kLogPlusOne, b.Unary(kExponential, b.Unary(kNegate, distance))));
  Instruction* equal_infinite = b.Binary(kAnd, b.Compare(b.Unary(kAbs, p.a), op.Full(p.a, INFINITY), "EQ"), b.Compare(p.a, p.b, "EQ"));
  return op.One(b.Select(equal_infinite, p.a, sum));
}
Lowering LowerLogaddexp2(OpContext& op) {
  // max + log2(1 + 2^-|a - b|): no power overflows.
  Pair p = Rounded(op);
  Builder& b = op.b;
  Instruction* m = b.Binary(kMaximum, p.a, p.b);
  Instruction* distance = b.Unary(kAbs, b.Binary(kSubtract, p.a, p.b));
  Instruction* power = b.Unary(kExponential, b.Binary(kMultiply, distance, op.Full(distance, -std::numbers::ln2)));
  Instruction* log2 = b.Binary(kMultiply, b.Unary(kLogPlusOne, power), op.Full(power, std::numbers::log2e));
  Instruction* equal_infinite = b.Binary(kAnd, b.Compare(b.Unary(kAbs, p.a), op.Full(p.a, INFINITY), "EQ"), b.Compare(p.a, p.b, "EQ"));
  return op.One(b.Select(equal_infinite, p.a, b.Binary(kAdd, m, log2)));
}
Lowering LowerCopysign(OpContext& op) {
  Pair p = Rounded(op);
  Builder& b = op.b;
  const PT bits = BitWidth(p.a->shape().element_type()) == 64 ? PT::kS64 : PT::kS32;
  Instruction* signed_bits = b.BitcastConvert(p.b, bits);
  Instruction* magnitude = b.Unary(kAbs, p.a);
  Instruction* negative = b.Compare(signed_bits, op.Full(signed_bits, 0), "LT");
  return op.One(b.Select(negative, b.Unary(kNegate, magnitude), magnitude));
}

}  // namespace tenon::aten
