// erf in two branches: the form is N. Juffa's (erff, "my_erff", 2014-2019, NVIDIA developer forum), coefficients are our own.
#include "backends/common/math/bodies.h"
#include "backends/common/math/coefficients.h"

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

}  // namespace tenon::math
