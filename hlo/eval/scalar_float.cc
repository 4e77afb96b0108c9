// Elementwise ops on floats, computed in double.
#include <cmath>
#include <limits>

#include "hlo/eval/scalar_kernels.h"

namespace tenon::eval {
namespace {

// NaN wins; on a tie of zeros the sign decides (-0 < +0).
double Maximum(double a, double b) {
  if (std::isnan(a)) return a;
  if (std::isnan(b)) return b;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

double Minimum(double a, double b) {
  if (std::isnan(a)) return a;
  if (std::isnan(b)) return b;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

// C's pow gives NaN for a signalling one here, which any NaN of a narrow type may become.
double Power(double a, double b) { return a == 1 || b == 0 ? 1 : std::pow(a, b); }
double Sign(double x) { return std::isnan(x) || x == 0 ? x : x > 0 ? 1.0 : -1.0; }

double StochasticRound(double x, uint64_t random, const ScalarOpParams& p, int random_bits) {
  double magnitude = std::fabs(x), whole = std::trunc(magnitude), fraction = magnitude - whole;
  double scaled = std::ldexp(fraction, random_bits);
  if (static_cast<double>(random) < std::floor(scaled)) whole += 1;
  return std::copysign(whole, x);
}

ScalarOp::Kernel StochasticConvert(PrimitiveType result) {
  if (DomainOf(result) != Domain::kSigned) return nullptr;
  return [](const void* const* in, void* out, int64_t n, const ScalarOpParams& p) {
    auto* x = static_cast<const double*>(in[0]);
    auto* random = static_cast<const uint64_t*>(in[1]);
    auto* y = static_cast<int64_t*>(out);
    Converter to_int = DomainConverter(PrimitiveType::kF64, p.result);
    for (int64_t i = 0; i < n; ++i) {
      double rounded = std::isfinite(x[i]) ? StochasticRound(x[i], random[i], p, p.bits) : x[i];
      to_int(&rounded, &y[i], 1);
    }
  };
}

}  // namespace

ScalarOp::Kernel FloatKernel(Opcode opcode, PrimitiveType result) {
#define TENON_UNARY(e, expr) \
  case Opcode::e:            \
    return UnaryKernel<double, double>([](double x) -> double { return expr; });
#define TENON_BINARY(e, expr) \
  case Opcode::e:             \
    return BinaryKernel<double, double>([](double a, double b) -> double { return expr; });
  switch (opcode) {
    TENON_UNARY(kAbs, std::fabs(x))
    TENON_UNARY(kAcos, std::acos(x))
    TENON_UNARY(kAcosh, std::acosh(x))
    TENON_UNARY(kAsin, std::asin(x))
    TENON_UNARY(kAsinh, std::asinh(x))
    TENON_UNARY(kAtan, std::atan(x))
    TENON_UNARY(kAtanh, std::atanh(x))
    TENON_UNARY(kCbrt, std::cbrt(x))
    TENON_UNARY(kCeil, std::ceil(x))
    TENON_UNARY(kCosine, std::cos(x))
    TENON_UNARY(kCosh, std::cosh(x))
    TENON_UNARY(kErf, std::erf(x))
    TENON_UNARY(kExponential, std::exp(x))
    TENON_UNARY(kExponentialMinusOne, std::expm1(x))
    TENON_UNARY(kFloor, std::floor(x))
    TENON_UNARY(kImag, 0.0 * (x == x))
    TENON_UNARY(kLog, std::log(x))
    TENON_UNARY(kLogPlusOne, std::log1p(x))
    TENON_UNARY(kLogistic, 1.0 / (1.0 + std::exp(-x)))
    TENON_UNARY(kNegate, -x)
    TENON_UNARY(kReal, x)
    TENON_UNARY(kRoundNearestAfz, std::round(x))
    TENON_UNARY(kRoundNearestEven, std::nearbyint(x))
    TENON_UNARY(kRsqrt, 1.0 / std::sqrt(x))
    TENON_UNARY(kSign, Sign(x))
    TENON_UNARY(kSine, std::sin(x))
    TENON_UNARY(kSinh, std::sinh(x))
    TENON_UNARY(kSqrt, std::sqrt(x))
    TENON_UNARY(kTan, std::tan(x))
    TENON_UNARY(kTanh, std::tanh(x))
    TENON_BINARY(kAdd, a + b)
    TENON_BINARY(kAtan2, std::atan2(a, b))
    TENON_BINARY(kDivide, a / b)
    TENON_BINARY(kMaximum, Maximum(a, b))
    TENON_BINARY(kMinimum, Minimum(a, b))
    TENON_BINARY(kMultiply, a* b)
    TENON_BINARY(kPower, Power(a, b))
    TENON_BINARY(kRemainder, std::fmod(a, b))
    TENON_BINARY(kSubtract, a - b)
    case Opcode::kIsFinite:
      return UnaryKernel<uint64_t, double>([](double x) -> uint64_t { return std::isfinite(x); });
    case Opcode::kComplex:
      return BinaryKernel<std::complex<double>, double>(
          [](double a, double b) { return std::complex<double>(a, b); });
    case Opcode::kClamp:
      return TernaryKernel<double>(
          [](double lo, double x, double hi) { return Minimum(Maximum(lo, x), hi); });
    case Opcode::kStochasticConvert:
      return StochasticConvert(result);
    default:
      return nullptr;
  }
#undef TENON_UNARY
#undef TENON_BINARY
}

// In f32 itself: a sum rounded to double, and then to f32, would be rounded twice.
ScalarOp::Kernel FmaKernel(PrimitiveType type) {
  if (type == PrimitiveType::kF64) return TernaryKernel<double>([](double a, double b, double c) { return std::fma(a, b, c); });
  if (type != PrimitiveType::kF32) return nullptr;
  return TernaryKernel<double>([](double a, double b, double c) -> double {
    return std::fma(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c));
  });
}

}  // namespace tenon::eval
