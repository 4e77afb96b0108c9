// Trigonometric functions, f64 inside: at 53 bits one rounding to f32 is all that is left of the
// error.
#include <limits>

#include "backends/codegen/math/bodies.h"
#include "backends/codegen/math/coefficients.h"

namespace tenon::math {
namespace {

using namespace coefficients;

constexpr double kRoundF64 = 0x1.8p52;

struct Turns {
  V n;  // i32: how many whole units, modulo a turn
  V f;  // f64: the rest, in units. |f| <= 1/2 and, for huge arguments, the product's second word:
        // 1/4 of a quarter turn
};

// a >= 0 in units of a quarter turn times `unit`: a * 2/pi / unit (M. Payne, R. Hanek 1983). The
// words of 2/pi that only count whole turns are left out, which words these are is chosen from four
// ranges of a. The product is a double-double; what remains is exact to 2^-55. `shift` is taken off
// first.
Turns ReduceTurns(V a, double unit, double shift = 0) {
  V x = ToF64(a);
  V high = x.Constant(kTwoOverPiHi[0] / unit), low = x.Constant(kTwoOverPiLo[0] / unit);
  constexpr double kStarts[] = {0, 0x1p48, 0x1p75, 0x1p102};
  for (int i = 1; i < 4; ++i) {
    V above = a >= kStarts[i];
    high = Select(above, kTwoOverPiHi[i] / unit, high);
    low = Select(above, kTwoOverPiLo[i] / unit, low);
  }
  V p = x * high;
  V rest = Fma(x, low, Fma(x, high, -p));
  if (shift != 0) p = p - shift;
  V rounded = p + kRoundF64;
  V f = p - (rounded - kRoundF64);
  return {LowWord(Bits(rounded)), f + rest};
}

// sin(pi (n + f)): one polynomial, and the sign of n's parity.
V SinHalfTurns(Turns t) {
  V y = ToF32(t.f * Polynomial(t.f * t.f, kSinHalfTurn));
  return XorInt(Bits(y), ShlInt(t.n, 31));
}

V SignBit(V x) { return AndInt(Bits(x), 0x80000000u); }

// atan(t) for 0 <= t <= 1.
V AtanUnit(V t) { return t * Polynomial(t * t, kAtan); }

struct AsinParts {
  V half_angle;  // i1: |x| > 1/2
  V p;           // asin(|x|), or asin(sqrt((1 - |x|) / 2)) where half_angle
};

AsinParts ReduceAsin(V x) {
  V a = Abs(x);
  V half_angle = a > 0.5;
  V wide = ToF64(a);
  V z = Select(half_angle, Fma(wide, -0.5, 0.5), wide * wide);
  V s = Select(half_angle, Sqrt(z), wide);
  return {half_angle, s * Polynomial(z, kAsin)};
}

}  // namespace

V EmitSin(V x) {
  return FromBits(XorInt(SinHalfTurns(ReduceTurns(Abs(x), 2)), SignBit(x)), x.type());
}

// cos(pi p) = -sin(pi (p - 1/2)). Where the shift rounds, cos is near 1 and doesn't notice; near
// its zeros it is exact.
V EmitCos(V x) {
  V y = SinHalfTurns(ReduceTurns(Abs(x), 2, 0.5));
  return FromBits(XorInt(y, y.Int(0x80000000u)), x.type());
}

V EmitTan(V x) {
  auto [n, f] = ReduceTurns(Abs(x), 1);
  V u = f * f;
  V s = f * Polynomial(u, kSinQuarterTurn), c = Polynomial(u, kCosQuarterTurn);
  V odd = NotZeroInt(AndInt(n, 1));
  V y = Bits(ToF32(Select(odd, c, s) / Select(odd, s, c)));
  V sign = XorInt(ShlInt(n, 31), SignBit(x));
  return FromBits(XorInt(y, sign), x.type());
}

V EmitAsin(V x) {
  auto [half_angle, p] = ReduceAsin(x);
  V y = Select(half_angle, Fma(p, -2, kPi / 2), p);
  return CopySign(ToF32(y), x);
}

V EmitAcos(V x) {
  auto [half_angle, p] = ReduceAsin(x);
  V wide = ToF64(x);
  V base = Select(half_angle, Select(wide < 0, wide.Constant(kPi), 0), kPi / 2);
  V factor = Select(half_angle, wide.Constant(2), -1);
  return ToF32(Fma(CopySign(p, wide), factor, base));
}

V EmitAtan(V x) {
  V a = Abs(x);
  V wide = ToF64(a);
  V above = a > 1;
  V p = AtanUnit(Select(above, 1 / wide, wide));
  return CopySign(ToF32(Select(above, kPi / 2 - p, p)), x);
}

// Special values are C99's (F.9.1.4). Infinities become 1e200 and a zero denominator 1e-200, beyond
// any float, so that inf/inf is 1 and 0/0 is 0.
V EmitAtan2(V y, V x) {
  V ay = ClampHigh(ToF64(Abs(y)), 1e200), ax = ClampHigh(ToF64(Abs(x)), 1e200);
  V steep = ax < ay;
  V t = Select(steep, ax, ay) / ClampLow(Select(steep, ay, ax), 1e-200);
  V p = AtanUnit(t);
  p = Select(steep, kPi / 2 - p, p);
  V left = x.With(x.b->CreateICmpSLT(Bits(x).v, Bits(x).Int(0).v));
  p = Select(left, kPi - p, p);
  return CopySign(ToF32(p), y);
}

}  // namespace tenon::math
