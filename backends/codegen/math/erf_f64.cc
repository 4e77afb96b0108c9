// The error function and its complement in f64, near 0 a polynomial, else
// erfc(a) = e^(-a^2) P((a - 3.75) / (a + 3.75)) / (1 + 2a), whose P is nearly constant (M. Shepherd, J. Laframboise, Math. Comp. 36, 1981).
#include "backends/codegen/math/coefficients_f64.h"
#include "backends/codegen/math/library_bodies.h"

namespace tenon::math::library {
namespace {

using namespace coefficients;

// P, whose leading term is kErfcHeadF64's.
V ErfcTail(V a) {
  V t = (a - 3.75) / (a + 3.75);
  return Fma(t, PolynomialInHalves(t, kErfcF64), kErfcHeadF64[1]);
}

// For 1/2 <= a <= 27.3.
V ErfcOf(V a) {
  DD numerator = FastTwoSum(a.Constant(kErfcHeadF64[0]), ErfcTail(a));
  return ExpOf(-TwoProduct(a, a), numerator / (1 + Exact(a + a)));
}

// For 1 <= a <= 6, to a few units: what is left of 1 has two places more.
V ErfcBeyondOne(V a) {
  DD square = TwoProduct(a, a);
  V e = Exp(-square.hi);
  return Fma(-e, square.lo, e) * ((kErfcHeadF64[0] + ErfcTail(a)) / (1 + (a + a)));
}

// erf(x) - x for |x| <= 1.
V ErfRest(V x) { return x * PolynomialInHalves(x * x, kErfF64); }

}  // namespace

V Erf(V x) {
  V a = Abs(x);
  V large = 1 - ErfcBeyondOne(ClampLow(ClampHigh(a, 6), 1));
  V near = ClampHigh(a, 1);
  return CopySign(Select(a < 1, near + ErfRest(near), large), x);
}

V Erfc(V x) {
  V a = Abs(x);
  V tail = ErfcOf(ClampLow(ClampHigh(a, 27.3), 0.5));
  V near = ClampLow(ClampHigh(x, 0.5), -0.5);
  DD head = FastTwoSum(x.Constant(1), -near);
  V small = head.hi + (head.lo - ErfRest(near));
  return Select(a < 0.5, small, Select(x < 0, 2 - tail, tail));
}

}  // namespace tenon::math::library
