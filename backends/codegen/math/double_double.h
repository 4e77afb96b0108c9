// A sum of two doubles, |lo| at most half a unit of hi, for the bodies of library.h. The error-free sums and products are those of T.
// Dekker (Numer. Math. 18, 1971) and D. Knuth (TAOCP 2, 4.2.2), products with FMA.
#pragma once

#include "backends/codegen/math/vec.h"

namespace tenon::math {

struct DD {
  V hi, lo;
};

inline DD Exact(V x) { return {x, x.Constant(0)}; }
inline DD Constant(V like, const double (&parts)[2]) { return {like.Constant(parts[0]), like.Constant(parts[1])}; }
inline V Rounded(DD x) { return x.hi + x.lo; }

// a + b where |a| >= |b|, or a is 0.
inline DD FastTwoSum(V a, V b) {
  V s = a + b;
  return {s, b - (s - a)};
}
inline DD TwoSum(V a, V b) {
  V s = a + b;
  V t = s - a;
  return {s, (a - (s - t)) + (b - t)};
}
inline DD TwoProduct(V a, V b) {
  V p = a * b;
  return {p, Fma(a, b, -p)};
}

inline DD operator-(DD x) { return {-x.hi, -x.lo}; }
inline DD operator+(DD x, DD y) {
  DD s = TwoSum(x.hi, y.hi);
  return FastTwoSum(s.hi, s.lo + (x.lo + y.lo));
}
inline DD operator-(DD x, DD y) { return x + -y; }
inline DD operator+(DD x, double y) { return x + Exact(x.hi.Constant(y)); }
inline DD operator+(double x, DD y) { return y + x; }
inline DD operator*(DD x, DD y) {
  DD p = TwoProduct(x.hi, y.hi);
  return FastTwoSum(p.hi, p.lo + Fma(x.hi, y.lo, x.lo * y.hi));
}
inline DD operator*(DD x, V y) {
  DD p = TwoProduct(x.hi, y);
  return FastTwoSum(p.hi, Fma(x.lo, y, p.lo));
}
inline DD operator/(DD x, DD y) {
  V q = x.hi / y.hi;
  V rest = Fma(-q, y.hi, x.hi) + (x.lo - q * y.lo);
  return FastTwoSum(q, rest / y.hi);
}
// By a power of two.
inline DD Scaled(DD x, V power) { return {x.hi * power, x.lo * power}; }
inline DD Scaled(DD x, double power) { return {x.hi * power, x.lo * power}; }
// x.hi > 0.
inline DD Sqrt(DD x) {
  V s = Sqrt(x.hi);
  return FastTwoSum(s, (Fma(-s, s, x.hi) + x.lo) / (s + s));
}
inline DD Select(V c, DD x, DD y) { return {Select(c, x.hi, y.hi), Select(c, x.lo, y.lo)}; }

}  // namespace tenon::math
