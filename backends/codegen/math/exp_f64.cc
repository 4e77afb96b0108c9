// exp and what is built on it, in f64: x = n ln2 + r with ln2 in two parts, e^r - 1 as a double-double (r and r^2/2 exact, the rest by one
// polynomial), so that sums and quotients of exponentials lose nothing (the method of N. Shibata and F. Petrogalli, SLEEF, IEEE TPDS 2020).
// exp and exp2 themselves do with e^r - 1 as one double: it is at most half of the 1 that it is added to.
#include <limits>

#include "backends/codegen/math/coefficients_f64.h"
#include "backends/codegen/math/library_bodies.h"

namespace tenon::math::library {
namespace {

using namespace coefficients;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kRound = 0x1.8p52;

// p = r + r^2/2 + r^3 Q(r)
DD Expm1OfReduced(DD r) {
  DD square = Scaled(TwoProduct(r.hi, r.hi), 0.5);
  V rest = Fma(r.hi * r.hi * r.hi, PolynomialInHalves(r.hi, kExpF64), Fma(r.hi, r.lo, square.lo)) + r.lo;
  DD sum = FastTwoSum(r.hi, square.hi);
  return FastTwoSum(sum.hi, sum.lo + rest);
}

struct ByLn2 {
  V n, r;  // x = n ln2 + r
};

ByLn2 ReduceByLn2(V x) {
  V n = Fma(x, kLog2EParts[0], kRound) - kRound;
  return {n, Fma(-n, kLn2Parts[1], Fma(-n, kLn2Parts[0], x))};
}

V Expm1OfReduced(V r) { return Fma(r * r, Fma(r, PolynomialInHalves(r, kExpF64), 0.5), r); }

// y 2^n for |n| <= 1500, y near 1; rounded once but where it is subnormal.
V ScaleTwice(V y, V n) {
  V half = Fma(n, 0.5, kRound) - kRound;
  return y * PowerOfTwo(half) * PowerOfTwo(n - half);
}

// e^x - 1, as half of it times two: e^x may be beyond the largest double where its half is not.
DD HalfOfExpm1(ExpParts e) {
  V half = PowerOfTwo(e.n - 1);
  DD whole = TwoSum(half, half.Constant(-0.5));
  DD sum = TwoSum(whole.hi, half * e.p.hi);
  return FastTwoSum(sum.hi, sum.lo + whole.lo + half * e.p.lo);
}

struct Halves {
  DD grown, shrunk;  // e^x / 4, e^-x / 4, both less than their powers of two
  V up, down;        // those
};

// 1 / (1 + p) = 1 - p / (1 + p).
Halves BothExponentials(V a) {
  auto [n, p] = ReduceExp(Exact(a));
  V up = PowerOfTwo(n - 2);
  V down = Select(n > 100, 0, PowerOfTwo(ClampLow(-n, -100) - 2));
  DD q = -(p / (1 + p));
  return {Scaled(p, up), Scaled(q, down), up, down};
}

}  // namespace

ExpParts ReduceExp(DD x) {
  V n = Fma(x.hi, kLog2EParts[0], kRound) - kRound;
  V head = Fma(-n, kLn2Parts[0], x.hi);  // exact: a multiple of 2^-54 below 1/2
  DD tail = TwoProduct(n, n.Constant(kLn2Parts[1]));
  DD r = TwoSum(head, -tail.hi);
  return {n, Expm1OfReduced(FastTwoSum(r.hi, r.lo + (x.lo - tail.lo)))};
}

V PowerOfTwo(V n) { return FromBits(ShlInt(Bits(n + (kRound + 1023)), 52), n.type()); }

V ScaleByPower(V y, V n) {
  n = ClampHigh(ClampLow(n, -2200), 2200);
  V third = Trunc(n * 0.25);
  V rest = n - third * 3;
  V power = PowerOfTwo(third);
  return y * PowerOfTwo(rest) * power * power * power;
}

V ExpOf(DD x, DD factor) {
  V none = x.hi < -760;
  x = Select(none, Exact(x.hi.Constant(0)), x);
  auto [n, p] = ReduceExp(x);
  return Select(none, 0, ScaleByPower(Rounded(factor + factor * p), n));
}

V ExpOf(DD x) {
  auto [n, r] = ReduceByLn2(x.hi);
  return ScaleTwice(1 + Expm1OfReduced(r + x.lo), n);
}

V Exp(V x) {
  auto [n, r] = ReduceByLn2(ClampHigh(ClampLow(x, -800), 800));
  return ScaleTwice(1 + Expm1OfReduced(r), n);
}

V Exp2(V x) {
  V t = ClampHigh(ClampLow(x, -1100), 1100);
  V n = (t + kRound) - kRound;
  return ScaleTwice(1 + Expm1OfReduced((t - n) * kLn2Parts[0]), n);
}

V Expm1(V x) {
  DD half = HalfOfExpm1(ReduceExp(Exact(ClampHigh(ClampLow(x, -40), 709.9))));
  return Select(Abs(x) < 0x1p-55, x, Rounded(half) * 2);
}

V Tanh(V x) {
  V a = Abs(x);
  DD half = HalfOfExpm1(ReduceExp(Exact(ClampHigh(a, 22) * 2)));
  V y = Rounded(half / (half + 1));
  return CopySign(Select(a < 0x1p-28, a, y), x);
}

V Sinh(V x) {
  V a = Abs(x);
  Halves e = BothExponentials(ClampHigh(a, 710.8));
  DD whole = TwoSum(e.up, -e.down);
  DD y = whole + (e.grown - e.shrunk);
  return CopySign(Select(a < 0x1p-28, a, Rounded(y) * 2), x);
}

V Cosh(V x) {
  Halves e = BothExponentials(ClampHigh(Abs(x), 710.8));
  DD whole = TwoSum(e.up, e.down);
  return Rounded(whole + (e.grown + e.shrunk)) * 2;
}

}  // namespace tenon::math::library
