// Trigonometric functions, f64 inside: at 53 bits one rounding to f32 is all that is left of the error.
#include <limits>

#include "backends/common/math/bodies.h"
#include "backends/common/math/coefficients.h"

namespace tenon::math {
namespace {

using namespace coefficients;

constexpr double kRoundF64 = 0x1.8p52;

struct QuarterTurns {
  V n;  // i32: how many, modulo 4
  V f;  // f64: the rest, in quarter turns. |f| <= 3/4: 1/2 and, for huge arguments, the product's second word
};

// a * 2/pi for a >= 0 (M. Payne, R. Hanek 1983): the words of 2/pi that only count whole turns are left out, which
// words these are is chosen from four ranges of a. The product is a double-double; what remains is exact to 2^-55.
QuarterTurns ReduceTurns(V a) {
  V x = ToF64(a);
  V high = x.Constant(kTwoOverPiHi[0]), low = x.Constant(kTwoOverPiLo[0]);
  constexpr double kStarts[] = {0, 0x1p48, 0x1p75, 0x1p102};
  for (int i = 1; i < 4; ++i) {
    V above = a >= kStarts[i];
    high = Select(above, kTwoOverPiHi[i], high);
    low = Select(above, kTwoOverPiLo[i], low);
  }
  V p = x * high;
  V rounded = p + kRoundF64;
  V f = p - (rounded - kRoundF64);
  V rest = Fma(x, low, Fma(x, high, -p));
  return {LowWord(Bits(rounded)), f + rest};
}

V SinTurn(V f, V u) { return f * Polynomial(u, kSinTurn); }
V CosTurn(V u) { return Polynomial(u, kCosTurn); }

// sin or cos by quadrant: odd ones swap the two, the upper two are negative.
V ByQuadrant(V f, V quadrant) {
  V u = f * f;
  V odd = NotZeroInt(AndInt(quadrant, 1));
  V y = Bits(ToF32(Select(odd, CosTurn(u), SinTurn(f, u))));
  return XorInt(y, ShlInt(AndInt(quadrant, 2), 30));
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
  auto [n, f] = ReduceTurns(Abs(x));
  return FromBits(XorInt(ByQuadrant(f, n), SignBit(x)), x.type());
}

V EmitCos(V x) {
  auto [n, f] = ReduceTurns(Abs(x));
  return FromBits(ByQuadrant(f, AddInt(n, n.Int(1))), x.type());
}

V EmitTan(V x) {
  auto [n, f] = ReduceTurns(Abs(x));
  V u = f * f;
  V s = SinTurn(f, u), c = CosTurn(u);
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

// Special values are C99's (F.9.1.4). Infinities become 1e200 and a zero denominator 1e-200, beyond any float, so that
// inf/inf is 1 and 0/0 is 0.
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
