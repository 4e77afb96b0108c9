// Roots and powers in f64.
#include <limits>

#include "backends/codegen/math/coefficients_f64.h"
#include "backends/codegen/math/library_bodies.h"

namespace tenon::math::library {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

// A third of the exponent (W. Kahan; FreeBSD's cbrt), Halley's steps, of which each triples the right places, and one of Newton with the
// exact residual.
V Cbrt(V x) {
  V a = Abs(x);
  V tiny = a < 0x1p-800, huge = a > 0x1p800;  // where the cube or its low part would leave the range
  V m = a * Select(tiny, 0x1p180, Select(huge, 0x1p-180, x.Constant(1)));
  V high = HighWord(m);
  V third = high.With(high.b->CreateUDiv(high.v, high.Int(3).v));
  V bits = Bits(m);
  V start = bits.With(high.b->CreateZExt(AddInt(third, high.Int(715094163)).v, bits.type()));  // (1023 - 1023/3 - 0.033) 2^20
  V y = FromBits(ShlInt(start, 32), m.type());
  for (int step = 0; step < 3; ++step) {
    V r = y * (y * y) / m;  // near 1
    y = y * ((2 + r) / (1 + r * 2));
  }
  DD square = TwoProduct(y, y);
  DD cube = square * y;
  V residual = (m - cube.hi) - cube.lo;
  y = y + residual / (square.hi * 3);
  V result = CopySign(y * Select(tiny, 0x1p-60, Select(huge, 0x1p60, x.Constant(1))), x);
  return Select(And(a < kInf, a > 0), result, x);
}

// e^(y log|x|). Special values are C99's (F.9.4.4). Beyond 2^70, any y over- or underflows but at |x| = 1.
V Pow(V x, V y) {
  V a = Abs(x);
  V regular = And(a > 0, a < kInf);
  V base = Select(regular, a, 1);
  V subnormal = base < 0x1p-1022;
  DD log = LogOf(Exact(Select(subnormal, base * 0x1p54, base)), Select(subnormal, -54, x.Constant(0)));
  DD t = log * ClampHigh(ClampLow(y, -0x1p70), 0x1p70);
  t = Select(Abs(t.hi) > 800, Exact(CopySign(x.Constant(800), t.hi)), t);
  V magnitude = ExpOf(t);
  V limit = Select(y < 0, x.Constant(kInf), 0);  // of 0
  limit = Select(a == kInf, Select(y < 0, x.Constant(0), kInf), limit);
  magnitude = Select(Or(a == 0.0, a == kInf), limit, magnitude);

  V integer = Trunc(y) == y;
  V half = y * 0.5;
  V odd = And(And(integer, Not(Trunc(half) == half)), Abs(y) < 0x1p53);
  V result = Select(odd, CopySign(magnitude, x), magnitude);
  V invalid = And(And(x < 0, x > -kInf), Not(integer));
  result = Select(invalid, x.Constant(kNan), result);
  result = Select(Or(IsNan(x), IsNan(y)), x + y, result);
  V one = Or(Or(x == 1.0, y == 0.0), And(a == 1.0, Abs(y) == kInf));
  return Select(one, 1, result);
}

// sqrt(x^2 + y^2) as a double-double, of operands scaled by a power of two.
V Hypot(V x, V y) {
  V ax = Abs(x), ay = Abs(y);
  V swap = ax < ay;
  V large = Select(swap, ay, ax), small = Select(swap, ax, ay);
  V huge = large > 0x1p500, tiny = large < 0x1p-400;
  V scale = Select(huge, 0x1p-600, Select(tiny, 0x1p600, x.Constant(1)));
  V back = Select(huge, 0x1p600, Select(tiny, 0x1p-600, x.Constant(1)));
  V p = large * scale, q = small * scale;
  DD sum = TwoProduct(p, p) + TwoProduct(q, q);
  V root = Rounded(Sqrt(sum)) * back;
  root = Select(large == 0.0, 0, root);
  root = Select(Or(IsNan(x), IsNan(y)), x + y, root);
  return Select(Or(ax == kInf, ay == kInf), kInf, root);
}

}  // namespace tenon::math::library
