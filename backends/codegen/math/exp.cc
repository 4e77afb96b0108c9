// exp and what is built on it. Reduction x = n ln2 + r with ln2 in two parts and rounding by
// adding 1.5 * 2^23 (W. Cody, W. Waite, Software Manual for the Elementary Functions, 1980);
// polynomials by Remez (coefficients/derive.py).
#include <cmath>

#include "backends/codegen/math/bodies.h"
#include "backends/codegen/math/coefficients.h"

namespace tenon::math {
namespace {

using namespace coefficients;

// e^r is kept in [3/4, 3/2) rather than [sqrt(1/2), sqrt(2)): where it is below 1 the result has
// the finer unit in the last place, so r is made smaller on that side. That takes 0.15 ULP off exp
// for one addition.

// Adding it rounds to an integer, which then stands in the low mantissa bits.
constexpr double kRoundF32 = 0x1.8p23;
constexpr double kRoundF64 = 0x1.8p52;

struct ExpPartsF64 {
  V scale;  // 2^n
  V r;      // |r| <= ln2 / 2
};

// One f64 ln2 is enough: the results are rounded to f32.
ExpPartsF64 ReduceExpF64(V x) {
  V t = Fma(x, kLog2E, kRoundF64 + 1023);
  V r = Fma(t - (kRoundF64 + 1023), -kLn2, x);
  return {FromBits(ShlInt(Bits(t), 52), x.type()), r};
}

}  // namespace

ExpParts ReduceExp(V x, double bias, std::span<const float> coefficients) {
  V t = Fma(x, kLog2EF, -kExpShiftF) + (kRoundF32 + bias);
  V n = t - (kRoundF32 + bias);
  V r = Fma(n, -kLn2FLo, Fma(n, -kLn2FHi, x));
  return {Bits(t), Fma(r * r, Polynomial(r, coefficients), r)};
}

V PowerOfTwo(V biased) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(biased.type());
  llvm::Type* type = biased.b->getFloatTy();
  if (vector) type = llvm::FixedVectorType::get(type, vector->getNumElements());
  return FromBits(ShlInt(biased, 23), type);
}

namespace {

// y * 2^n for n in [-252, 254], one rounding. n comes with bias 254, so that its halves come with
// 127 each.
V ScaleWide(V y, V biased) {
  V half = AndInt(ShlInt(biased, 22), 0xff800000u);
  V rest = SubInt(ShlInt(biased, 23), half);
  return y * FromBits(half, y.type()) * FromBits(rest, y.type());
}

}  // namespace

// Below these the result rounds to 0. Such lanes (masked scores, above all) are computed as e^0 and
// zeroed at the end: a product that underflows costs some x86 cores 150 cycles of microcode.
V EmitExpWith(V x, std::span<const float> coefficients) {
  V none = x < -104;
  ExpParts e = ReduceExp(ClampHigh(Select(none, 0, x), 89), 254, coefficients);
  return Select(none, 0, ScaleWide(e.p + 1, e.biased));
}

V EmitExp(V x) { return EmitExpWith(x, kExpF); }

V EmitExp2(V x) {
  V none = x < -151;
  x = ClampHigh(Select(none, 0, x), 129);
  V t = x + (kRoundF32 + 254);
  V r = x - (t - (kRoundF32 + 254));
  V p = Fma(r, kExp2FHi, r * Polynomial(r, kExp2F));
  return Select(none, 0, ScaleWide(p + 1, Bits(t)));
}

V EmitExpm1(V x) {
  auto [scale, r] = ReduceExpF64(ToF64(ClampHigh(ClampLow(x, -20), 89)));
  V p = r * Polynomial(r, kExpm1);
  return CopySign(ToF32(Fma(scale, p, scale - 1)), x);
}

// 1 / (1 + e^z), z = -x. Above z = 64 everything is scaled by 2^-64, so that e^z doesn't overflow
// where the result is subnormal.
V EmitLogistic(V x) {
  V z = ClampHigh(ClampLow(-x, -20), 104);
  V large = z > 64;
  V unit = Select(large, z.Constant(0x1p-64), 1);
  ExpParts e = ReduceExp(z, 127, kExpF);
  V offset = x.With(x.b->CreateSelect(large.v, e.biased.Int(64).v, e.biased.Int(0).v));
  V s = PowerOfTwo(SubInt(e.biased, offset));
  V d = Fma(s, e.p, s + unit);
  V d_low = Fma(s, e.p, (s - d) + unit);
  V y = 1 / d;
  V residual = Fma(-d_low, y, Fma(-d, y, 1));
  return Fma(residual, y, y) * unit;
}

V EmitTanh(V x) {
  V a = Abs(x);
  V u = a * a;
  V small = Fma(a * u, Polynomial(u, kTanhF), a);

  V b = ClampHigh(a, 10);
  ExpParts e = ReduceExp(b + b, 127, kExpF);
  V s = PowerOfTwo(e.biased);
  V s1 = s + 1;
  V d = Fma(s, e.p, s1);
  V d_low = Fma(s, e.p, s1 - d);
  V t = 2 / d;
  V residual = Fma(-t, d_low, Fma(-t, d, 2));
  V large = 1 - Fma(residual * 0.5, t, t);
  return CopySign(Select(a < 0.55, small, large), x);
}

// With C = cosh r, S = sinh r: e^x = 2^n (C + S) and e^-x = 2^-n (C - S), so nothing cancels, and n
// = 0 is sinh r itself.
V EmitSinh(V x) {
  auto [up, r] = ReduceExpF64(ToF64(ClampHigh(Abs(x), 90)));
  V down = FromBits(SubInt(Bits(up).Int(uint64_t{2046} << 52), Bits(up)), up.type());
  V u = r * r;
  V even = (up - down) * Polynomial(u, kCosh);
  V y = Fma((up + down) * r, Polynomial(u, kSinh), even) * 0.5;
  return CopySign(ToF32(y), x);
}

V EmitCosh(V x) {
  auto [up, r] = ReduceExpF64(ToF64(ClampHigh(Abs(x), 90)));
  V down = FromBits(SubInt(Bits(up).Int(uint64_t{2046} << 52), Bits(up)), up.type());
  V u = r * r;
  V even = (up + down) * Polynomial(u, kCosh);
  return ToF32(Fma((up - down) * r, Polynomial(u, kSinh), even) * 0.5);
}

V Exp2F64(V t) {
  V rounded = t + (kRoundF64 + 1023);
  V r = t - (rounded - (kRoundF64 + 1023));
  V scale = FromBits(ShlInt(Bits(rounded), 52), t.type());
  return Fma(scale, r * Polynomial(r, kExp2), scale);
}

}  // namespace tenon::math
