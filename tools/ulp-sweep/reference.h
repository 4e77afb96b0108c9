// What a float body is compared with: a double function with an error far below half a float ULP,
// and the interval in which its speed is measured.
#pragma once

#include <cmath>

#include "backends/codegen/math/math.h"

namespace tenon::ulp_sweep {

struct Reference {
  math::Fn fn;
  double (*unary)(double);
  double (*binary)(double, double);
  float time_lo, time_hi;
};

inline double LogisticReference(double x) { return 1 / (1 + std::exp(-x)); }
inline double RsqrtReference(double x) { return 1 / std::sqrt(x); }

// Newton's method on erf, or on erfc in the tail, where 1 - x is exact. Small x: the series, next
// term 0.1 x^6.
inline double ErfInvReference(double x) {
  const double half_sqrt_pi = std::sqrt(std::acos(-1.0)) / 2;
  double a = std::abs(x);
  if (!(a < 1)) return a == 1 ? std::copysign(INFINITY, x) : NAN;
  if (a < 1e-3) {
    double u = a * a * half_sqrt_pi * half_sqrt_pi;
    return x * half_sqrt_pi * (1 + u * (1.0 / 3 + u * 7.0 / 30));
  }
  double log_term = std::log1p(-a * a), c = 4.33 + log_term / 2;
  double y = std::sqrt(std::sqrt(c * c - log_term / 0.147) - c);  // S. Winitzki 2008, 2e-3
  for (int i = 0; i < 3; ++i) {
    double error = a > 0.5 ? (1 - a) - std::erfc(y) : std::erf(y) - a;
    double step = error * half_sqrt_pi * std::exp(y * y);
    y -= step / (1 + y * step);  // Halley's correction
  }
  return std::copysign(y, x);
}

inline const Reference& ReferenceFor(math::Fn fn) {
  using math::Fn;
  static const Reference kReferences[] = {
      {Fn::kExp, std::exp, nullptr, -10, 10},
      {Fn::kExp2, std::exp2, nullptr, -10, 10},
      {Fn::kExpm1, std::expm1, nullptr, -5, 5},
      {Fn::kLogistic, LogisticReference, nullptr, -8, 8},
      {Fn::kTanh, std::tanh, nullptr, -5, 5},
      {Fn::kErf, std::erf, nullptr, -4, 4},
      {Fn::kErfc, std::erfc, nullptr, -4, 4},
      {Fn::kErfInv, ErfInvReference, nullptr, -1, 1},
      {Fn::kLog, std::log, nullptr, 1e-3f, 1e3f},
      {Fn::kLog1p, std::log1p, nullptr, -0.9f, 10},
      {Fn::kLog2, std::log2, nullptr, 1e-3f, 1e3f},
      {Fn::kLog10, std::log10, nullptr, 1e-3f, 1e3f},
      {Fn::kRsqrt, RsqrtReference, nullptr, 1e-3f, 1e3f},
      {Fn::kCbrt, std::cbrt, nullptr, -1e3f, 1e3f},
      {Fn::kPow, nullptr, std::pow, 0.1f, 8},
      {Fn::kSin, std::sin, nullptr, -100, 100},
      {Fn::kCos, std::cos, nullptr, -100, 100},
      {Fn::kTan, std::tan, nullptr, -100, 100},
      {Fn::kAsin, std::asin, nullptr, -1, 1},
      {Fn::kAcos, std::acos, nullptr, -1, 1},
      {Fn::kAtan, std::atan, nullptr, -10, 10},
      {Fn::kAtan2, nullptr, std::atan2, -10, 10},
      {Fn::kSinh, std::sinh, nullptr, -5, 5},
      {Fn::kCosh, std::cosh, nullptr, -5, 5},
      {Fn::kAsinh, std::asinh, nullptr, -10, 10},
      {Fn::kAcosh, std::acosh, nullptr, 1, 10},
      {Fn::kAtanh, std::atanh, nullptr, -1, 1},
  };
  return kReferences[static_cast<size_t>(fn)];
}

}  // namespace tenon::ulp_sweep
