// Logarithms and inverse hyperbolic functions in f64: log(m) = 2 atanh(s), s = (m - 1) / (m + 1) as a double-double, its first two terms
// too (as SLEEF does; the split at sqrt(1/2) is log.cc's). The error of the logarithm is 2^-65 of it, which is what pow needs. log and
// log1p themselves are summed as fdlibm's e_log.c does, from m - 1 on.
#include <limits>

#include "backends/codegen/math/coefficients_f64.h"
#include "backends/codegen/math/library_bodies.h"

namespace tenon::math::library {
namespace {

using namespace coefficients;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr uint64_t kSqrtHalfBits = 0x3fe6a09e667f3bcd;

// y for x > pole, -inf at the pole, NaN below, x for inf and NaN.
V WithSpecialValues(V y, V x, double pole) {
  y = Select(x < kInf, y, x);
  return Select(x <= pole, Select(x == pole, -kInf, x.Constant(kNan)), y);
}

// x = 2^k m, sqrt(1/2) <= m < sqrt(2). x is normal.
struct Mantissa {
  V m, k;
  V field;  // i64: k where the exponent lies
};

Mantissa MantissaOf(V x) {
  V bits = Bits(x);
  V field = AndInt(SubInt(bits, bits.Int(kSqrtHalfBits)), uint64_t{0xfff} << 52);
  V high = HighWord(FromBits(field, x.type()));
  V k = SignedToF64(high.With(high.b->CreateAShr(high.v, high.Int(20).v)));
  return {FromBits(SubInt(bits, field), x.type()), k, field};
}

// log(2^k m (1 + c)), |c| <= 2^-52.
V LogNear(V m, V k, V c) {
  V f = m - 1;
  V s = f / (2 + f);
  V z = s * s;
  V half_square = f * f * 0.5;
  V rest = z * Fma(z, Fma(z, PolynomialInHalves(z, kLogF64), kTwoFifths[0]), kTwoThirds[0]);
  DD whole = FastTwoSum(k * kLn2Head, f);
  return whole.hi + (whole.lo - (half_square - Fma(s, half_square + rest, Fma(k, kLn2Tail, c))));
}

struct LogParts {
  V k;
  DD log;  // of the rest
};

LogParts Split(DD x, V k) {
  auto [m, more, field] = MantissaOf(x.hi);
  k = k + more;
  V scale = FromBits(SubInt(field.Int(uint64_t{1024} << 52), field), x.hi.type()) * 0.5;  // 0 for 2^1024, whose low part is below all
  DD f = TwoSum(m - 1, x.lo * scale);
  DD s = f / (2 + f);
  DD z = s * s;
  DD sum = Constant(z.hi, kTwoThirds) + z * Fma(z.hi, PolynomialInHalves(z.hi, kLogF64), kTwoFifths[0]);
  return {k, Scaled(s, 2) + s * (z * sum)};
}

struct Normal {
  V x, k;  // x = 2^k times this x, which is not subnormal
};

Normal Normalize(V x) {
  V small = x < 0x1p-1022;
  return {Select(small, x * 0x1p54, x), Select(small, -54, x.Constant(0))};
}

// log(1 + u), or log(2u) where `huge`.
DD Log1pOf(DD u, V huge) {
  DD sum = TwoSum(u.hi.Constant(1), u.hi);
  return LogOf(Select(huge, Exact(u.hi), DD{sum.hi, sum.lo + u.lo}), Select(huge, u.hi.Constant(1), 0));
}

}  // namespace

DD LogOf(DD x, V k) {
  LogParts l = Split(x, k);
  DD whole = TwoSum(l.k * kLn2Head, l.log.hi);
  return FastTwoSum(whole.hi, whole.lo + Fma(l.k, kLn2Tail, l.log.lo));
}

V Log(V x) {
  Normal n = Normalize(x);
  auto [m, k, field] = MantissaOf(n.x);
  return WithSpecialValues(LogNear(m, n.k + k, x.Constant(0)), x, 0);
}

V Log2(V x) {
  Normal n = Normalize(x);
  LogParts l = Split(Exact(n.x), n.k);
  return WithSpecialValues(Rounded(Exact(l.k) + l.log * Constant(x, kLog2EParts)), x, 0);
}

V Log10(V x) {
  Normal n = Normalize(x);
  return WithSpecialValues(Rounded(LogOf(Exact(n.x), n.k) * Constant(x, kLog10EParts)), x, 0);
}

V Log1p(V x) {
  DD sum = TwoSum(x.Constant(1), x);
  auto [m, k, field] = MantissaOf(sum.hi);
  V y = LogNear(m, k, sum.lo / sum.hi);
  return WithSpecialValues(Select(Abs(x) < 0x1p-55, x, y), x, -1);
}

// log1p(a + a^2 / (1 + sqrt(1 + a^2)))
V Asinh(V x) {
  V a = Abs(x);
  V huge = a > 0x1p60;
  V b = Select(huge, 1, a);
  DD square = TwoProduct(b, b);
  DD u = Exact(b) + square / (1 + Sqrt(1 + square));
  V y = Rounded(Log1pOf(Select(huge, Exact(a), u), huge));
  y = Select(a < 0x1p-28, a, y);
  return CopySign(Select(a < kInf, y, a), x);
}

// log1p(t + sqrt(t (t + 2))), t = x - 1
V Acosh(V x) {
  V huge = x > 0x1p60;
  DD t = TwoSum(Select(huge, 2, x), x.Constant(-1));
  DD u = t + Sqrt(t * (t + 2));
  V y = Rounded(Log1pOf(Select(huge, Exact(x), u), huge));
  y = Select(x > 1, y, 0);
  return Select(x >= 1, Select(x < kInf, y, x), kNan);
}

// log1p(2a / (1 - a)) / 2
V Atanh(V x) {
  V a = Abs(x);
  DD u = Exact(a + a) / TwoSum(a.Constant(1), -a);
  DD sum = TwoSum(a.Constant(1), u.hi);
  V y = Rounded(LogOf({sum.hi, sum.lo + u.lo}, a.Constant(0))) * 0.5;
  y = Select(a < 0x1p-28, a, y);
  V outside = Select(a == 1.0, kInf, x.Constant(kNan));
  return CopySign(Select(a < 1.0, y, outside), x);
}

}  // namespace tenon::math::library
