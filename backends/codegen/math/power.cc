// Roots and powers.
#include <limits>

#include "backends/codegen/math/bodies.h"

namespace tenon::math {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kMaxF32 = std::numeric_limits<float>::max();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

// y = 1 / sqrt(x) has two roundings; one Newton step with the exact residual 1 - x y^2 takes them
// back. At 0 and inf the residual is NaN and y is right already.
V EmitRsqrt(V x) {
  V y = 1 / Sqrt(x);
  V h = x * y;
  V h_low = Fma(x, y, -h);
  V residual = Fma(-h_low, y, Fma(-h, y, 1));
  V corrected = Fma(residual * 0.5, y, y);
  return Select(IsNan(residual), y, corrected);
}

// 0 and inf come out of Log2F64 as -1023 and 1024, far enough out for a third of them to underflow
// and overflow.
V EmitCbrt(V x) {
  V y = ToF32(Exp2F64(Log2F64(ToF64(Abs(x))) * (1.0 / 3)));
  return Select(IsNan(x), x, CopySign(y, x));
}

// Special values are C99's (F.9.4.4).
V EmitPow(V x, V y) {
  V a = Abs(x);
  V wide = ToF64(a);
  V log = Select(a < kInf, Log2F64(wide), wide);
  log = Select(a == 0.0, -kInf, log);
  // A finite y keeps 0 * inf out of |x| = 1.
  V t = ToF64(ClampHigh(ClampLow(y, -kMaxF32), kMaxF32)) * log;
  V magnitude = ToF32(Exp2F64(ClampHigh(ClampLow(t, -400), 400)));

  V integer = Trunc(y) == y;
  V half = y * 0.5;
  V odd = And(integer, Not(Trunc(half) == half));
  V negated = FromBits(OrInt(Bits(magnitude), AndInt(Bits(x), 0x80000000u)), x.type());
  V result = Select(odd, negated, magnitude);
  V invalid = And(And(x<0, x> - kInf), Not(integer));
  result = Select(invalid, x.Constant(kNan), result);
  return Select(Or(x == 1.0, y == 0.0), 1, result);
}

}  // namespace tenon::math
