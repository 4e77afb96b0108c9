// Elementwise ops on complex numbers, computed in complex<double>.
#include <cmath>
#include <complex>

#include "hlo/eval/scalar_kernels.h"

namespace tenon::eval {
namespace {

using C = std::complex<double>;

C Sign(C x) {
  double r = std::abs(x);
  return r == 0 || std::isnan(r) ? (r == 0 ? C(0) : C(r, r)) : x / r;
}

// exp(x) - 1 without cancellation near 0: Re = expm1(a) cos(b) - 2 sin^2(b/2).
C Expm1(C x) {
  double a = x.real(), b = x.imag();
  double half = std::sin(b / 2);
  double real = std::expm1(a) * std::cos(b) - 2 * half * half;
  return {real, b == 0 ? b : std::exp(a) * std::sin(b)};
}

C Log1p(C x) {
  double a = x.real(), b = x.imag();
  // |1+x|^2 - 1 = a (2 + a) + b^2
  double real = std::fabs(a) < 0.5 && std::fabs(b) < 0.5 ? 0.5 * std::log1p(a * (2 + a) + b * b)
                                                       : std::log(std::hypot(1 + a, b));
  return {real, std::atan2(b, 1 + a)};
}

C Power(C a, C b) {
  if (a == C(0)) return b == C(0) ? C(1) : b.real() > 0 ? C(0) : std::pow(a, b);
  return std::pow(a, b);
}

}  // namespace

ScalarOp::Kernel ComplexKernel(Opcode opcode) {
#define TENON_UNARY(e, Out, expr) \
  case Opcode::e:                 \
    return UnaryKernel<Out, C>([](C x) -> Out { return expr; });
#define TENON_BINARY(e, expr) \
  case Opcode::e:             \
    return BinaryKernel<C, C>([](C a, C b) -> C { return expr; });
  switch (opcode) {
    TENON_UNARY(kAbs, double, std::abs(x))
    TENON_UNARY(kReal, double, x.real())
    TENON_UNARY(kImag, double, x.imag())
    TENON_UNARY(kIsFinite, uint64_t, std::isfinite(x.real()) && std::isfinite(x.imag()))
    TENON_UNARY(kAcos, C, std::acos(x))
    TENON_UNARY(kAcosh, C, std::acosh(x))
    TENON_UNARY(kAsin, C, std::asin(x))
    TENON_UNARY(kAsinh, C, std::asinh(x))
    TENON_UNARY(kAtan, C, std::atan(x))
    TENON_UNARY(kAtanh, C, std::atanh(x))
    TENON_UNARY(kCbrt, C, Power(x, C(1.0 / 3)))
    TENON_UNARY(kCosine, C, std::cos(x))
    TENON_UNARY(kCosh, C, std::cosh(x))
    TENON_UNARY(kExponential, C, std::exp(x))
    TENON_UNARY(kExponentialMinusOne, C, Expm1(x))
    TENON_UNARY(kLog, C, std::log(x))
    TENON_UNARY(kLogPlusOne, C, Log1p(x))
    TENON_UNARY(kLogistic, C, 1.0 / (1.0 + std::exp(-x)))
    TENON_UNARY(kNegate, C, -x)
    TENON_UNARY(kRsqrt, C, 1.0 / std::sqrt(x))
    TENON_UNARY(kSign, C, Sign(x))
    TENON_UNARY(kSine, C, std::sin(x))
    TENON_UNARY(kSinh, C, std::sinh(x))
    TENON_UNARY(kSqrt, C, std::sqrt(x))
    TENON_UNARY(kTan, C, std::tan(x))
    TENON_UNARY(kTanh, C, std::tanh(x))
    TENON_BINARY(kAdd, a + b)
    TENON_BINARY(kSubtract, a - b)
    TENON_BINARY(kMultiply, a* b)
    TENON_BINARY(kDivide, a / b)
    TENON_BINARY(kPower, Power(a, b))
    // atan2(a, b) = -i log((b + i a) / sqrt(a^2 + b^2))
    TENON_BINARY(kAtan2, C(0, -1) * std::log((b + C(0, 1) * a) / std::sqrt(a * a + b * b)))
    default:
      return nullptr;
  }
#undef TENON_UNARY
#undef TENON_BINARY
}

}  // namespace tenon::eval
