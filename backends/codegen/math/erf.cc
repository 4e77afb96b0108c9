// The error function, its complement and its inverse. erf in two branches: the form is N. Juffa's
// ("my_erff", 2014-2019, NVIDIA developer forum). erfc scaled by e^(a^2) in one polynomial: the
// mapping of J. Schonfelder (Math. Comp. 32, 1978). erfinv by w = -log(1 - x^2): M. Giles (GPU
// Computing Gems, 2011). All coefficients are our own (coefficients/derive.py).
#include <limits>

#include "backends/codegen/math/bodies.h"
#include "backends/codegen/math/coefficients.h"

namespace tenon::math {

using namespace coefficients;

V EmitErf(V x) {
  V a = Abs(x);
  V small = Fma(a, Polynomial(a * a, kErfSmallF), a);

  V b = ClampHigh(a, 4);
  ExpParts e = ReduceExp(-Fma(b, Polynomial(b, kErfLargeF), b), 127, kExpF);
  V s = PowerOfTwo(e.biased);
  V large = Fma(-s, e.p, 1 - s);
  return CopySign(Select(a < 0.8, small, large), x);
}

// The first steps by Horner's rule, for the error; the others, whose terms are small, in quarters.
V EmitCoarseErfWith(V x, std::span<const float> coefficients) {
  constexpr size_t kFirst = 3;
  V t = ClampHigh(Fma(x * x, 2 / (kErfCoarseEndF * kErfCoarseEndF), -1), 1);
  V p = PolynomialInQuarters(t, coefficients.subspan(kFirst));
  for (size_t k = kFirst; k-- > 0;) p = Fma(p, t, coefficients[k]);
  return ClampLow(ClampHigh(x * p, 1), -1);
}

V EmitCoarseErf(V x) { return EmitCoarseErfWith(x, kErfCoarseF); }

V EmitErfc(V x) {
  V a = ToF64(ClampHigh(Abs(x), 10.5));
  V t = (a - 3) / (a + 3);
  V y = Exp2F64(a * a * -kLog2E) * Polynomial(t, kErfc);
  return ToF32(Select(ToF64(x) < 0, 2 - y, y));
}

V EmitErfInv(V x) {
  V a = ToF64(x);
  V w = -Log1pF64(-(a * a));
  V ratio = Select(w < 6, Polynomial(w, kErfInvCentral), Polynomial(Sqrt(w), kErfInvTail));
  V y = ToF32(a * ratio);
  V magnitude = Abs(x);
  V outside = Select(magnitude == 1.0, x * std::numeric_limits<double>::infinity(),
                     std::numeric_limits<double>::quiet_NaN());
  return Select(magnitude < 1, y, outside);
}

}  // namespace tenon::math
