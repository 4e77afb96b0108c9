// Logarithms and inverse hyperbolic functions. The argument is split at sqrt(1/2) by integer
// arithmetic on its bits, as in musl's and FreeBSD's logf; polynomials by Remez
// (coefficients/derive.py).
#include <limits>

#include "backends/codegen/math/bodies.h"
#include "backends/codegen/math/coefficients.h"

namespace tenon::math {
namespace {

using namespace coefficients;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr uint64_t kSqrtHalfBitsF32 = 0x3f3504f3;
constexpr uint64_t kSqrtHalfBitsF64 = 0x3fe6a09e667f3bcd;
constexpr uint64_t kExponentMaskF64 = 0xfff0000000000000;

// The logarithm's values outside its domain: y for x > pole, -inf at the pole, NaN below, x for inf
// and NaN.
V WithSpecialValues(V y, V x, double pole) {
  y = Select(x < kInf, y, x);
  return Select(x <= pole, Select(x == pole, -kInf, x.Constant(kNan)), y);
}

// The exponent field of x / sqrt(1/2), in place: x = 2^k m with sqrt(1/2) <= m < sqrt(2).
V ExponentField(V x) {
  V bits = Bits(x);
  return AndInt(SubInt(bits, bits.Int(kSqrtHalfBitsF64)), kExponentMaskF64);
}

// k * 2^20 as f64; through i32, because AVX2 has no conversion from i64.
V ScaledExponent(V field) {
  V high = LowWord(field.With(field.b->CreateLShr(field.v, field.Int(32).v)));
  return SignedToF64(high);
}

}  // namespace

// f = 2^-k (1 + v) - 1 is formed from v, so that a tiny v isn't lost in 1 + v.
V Log1pF64(V v) {
  V field = ExponentField(1 + v);
  V scale = FromBits(SubInt(field.Int(uint64_t{1023} << 52), field), v.type());
  V f = Fma(v, scale, scale - 1);
  return Fma(ScaledExponent(field), kLn2 * 0x1p-20, f * Polynomial(f, kLog1p));
}

V EmitLog(V x) {
  V subnormal = x < 0x1p-126;
  V scaled = Select(subnormal, x * 0x1p23, x);
  V bits = Bits(scaled);
  V field = AndInt(SubInt(bits, bits.Int(kSqrtHalfBitsF32)), 0xff800000u);
  V k = SignedToF32(field.With(field.b->CreateAShr(field.v, field.Int(23).v)));
  k = k + Select(subnormal, -23, x.Constant(0));
  V f = FromBits(SubInt(bits, field), x.type()) - 1;
  V tail = f * f * Fma(f, Polynomial(f, kLogF), -0.5);
  V low = Fma(k, kLn2FLo, tail);
  return WithSpecialValues(Fma(k, kLn2FHi, f + low), x, 0);
}

V EmitLog1p(V x) {
  V y = CopySign(ToF32(Log1pF64(ToF64(x))), x);
  return WithSpecialValues(y, x, -1);
}

V Log2F64(V x) {
  V field = ExponentField(x);
  V f = FromBits(SubInt(Bits(x), field), x.type()) - 1;
  return Fma(ScaledExponent(field), 0x1p-20, f * Polynomial(f, kLog2));
}

V EmitLog2(V x) { return WithSpecialValues(ToF32(Log2F64(ToF64(x))), x, 0); }

V EmitLog10(V x) { return WithSpecialValues(ToF32(Log2F64(ToF64(x)) * kLog10Of2), x, 0); }

V EmitAsinh(V x) {
  V a = ToF64(Abs(x));
  V u = a * a;
  V y = ToF32(Log1pF64(a + u / (1 + Sqrt(u + 1))));
  return CopySign(Select(Abs(x) < kInf, y, x), x);
}

V EmitAcosh(V x) {
  V t = ToF64(x) - 1;
  V y = ToF32(Log1pF64(t + Sqrt(t * (t + 2))));
  return Select(x >= 1, Select(x < kInf, y, x), kNan);
}

V EmitAtanh(V x) {
  V a = Abs(x);
  V wide = ToF64(a);
  V y = ToF32(Log1pF64((wide + wide) / (1 - wide)) * 0.5);
  V outside = Select(a == 1.0, kInf, x.Constant(kNan));
  return CopySign(Select(a < 1.0, y, outside), x);
}

}  // namespace tenon::math
