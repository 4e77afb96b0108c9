#include "tools/lab/gpu/host_math.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

namespace tenon::gpu {
namespace {

// To a format of `mantissa` bits (with the hidden one) whose smallest normal number is 2^min_exponent; as a double.
double RoundTo(double value, int mantissa, int min_exponent) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent;
  std::frexp(value, &exponent);  // value = m * 2^exponent, 0.5 <= |m| < 1
  const int ulp = std::max(exponent - 1, min_exponent) - (mantissa - 1);
  return std::ldexp(std::nearbyint(std::ldexp(value, -ulp)), ulp);
}

template <float (*f)(float)>
float Ftz(float x) {
  return Flushed(f(Flushed(x)));
}
float Ex2(float x) { return std::exp2(x); }
float Lg2(float x) { return std::log2(x); }
double Lg2d(double x) { return std::log2(x); }
float Rcp(float x) { return 1.0f / x; }
double Rcpd(double x) { return 1.0 / x; }
float Rsqrt(float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); }
double Rsqrtd(double x) { return 1.0 / std::sqrt(x); }
float Sqrt(float x) { return std::sqrt(x); }
double Sqrtd(double x) { return std::sqrt(x); }
float Sin(float x) { return std::sin(x); }
float Cos(float x) { return std::cos(x); }
float Saturate(float x) { return x > 0 ? std::fmin(x, 1.0f) : 0.0f; }  // NaN becomes 0
double Saturated(double x) { return x > 0 ? std::fmin(x, 1.0) : 0.0; }
float Fabs(float x) { return std::fabs(x); }

constexpr UnaryMath kUnary[] = {
    {"ex2.approx.f32", Ex2, nullptr},
    {"ex2.approx.ftz.f32", Ftz<Ex2>, nullptr},
    {"lg2.approx.f", Lg2, nullptr},
    {"lg2.approx.ftz.f", Ftz<Lg2>, nullptr},
    {"lg2.approx.d", nullptr, Lg2d},
    {"rcp.rn.f", Rcp, nullptr},
    {"rcp.rn.ftz.f", Ftz<Rcp>, nullptr},
    {"rcp.rn.d", nullptr, Rcpd},
    {"rcp.approx.ftz.f", Ftz<Rcp>, nullptr},
    {"rcp.approx.ftz.d", nullptr, Rcpd},
    {"rsqrt.approx.f", Rsqrt, nullptr},
    {"rsqrt.approx.ftz.f", Ftz<Rsqrt>, nullptr},
    {"rsqrt.approx.d", nullptr, Rsqrtd},
    {"rsqrt.approx.ftz.d", nullptr, Rsqrtd},
    {"sqrt.f", Sqrt, nullptr},
    {"sqrt.rn.f", Sqrt, nullptr},
    {"sqrt.rn.ftz.f", Ftz<Sqrt>, nullptr},
    {"sqrt.rn.d", nullptr, Sqrtd},
    {"sqrt.approx.f", Sqrt, nullptr},
    {"sqrt.approx.ftz.f", Ftz<Sqrt>, nullptr},
    {"sin.approx.f", Sin, nullptr},
    {"sin.approx.ftz.f", Ftz<Sin>, nullptr},
    {"cos.approx.f", Cos, nullptr},
    {"cos.approx.ftz.f", Ftz<Cos>, nullptr},
    {"saturate.f", Saturate, nullptr},
    {"saturate.ftz.f", Ftz<Saturate>, nullptr},
    {"saturate.d", nullptr, Saturated},
    {"fabs.f32", Fabs, nullptr},
    {"fabs.ftz.f32", Ftz<Fabs>, nullptr},
};

}  // namespace

std::span<const UnaryMath> UnaryMathTable() { return kUnary; }

float Flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
float FmaFlushed(float a, float b, float c) { return Flushed(std::fma(Flushed(a), Flushed(b), Flushed(c))); }

float HalfToFloat(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16, exponent = half >> 10 & 31, mantissa = half & 1023;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | mantissa << 13);
  const float magnitude =
      exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24) : std::bit_cast<float>((exponent + 112) << 23 | mantissa << 13);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
}

uint16_t DoubleToHalf(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return sign | 0x7e00;
  const double rounded = std::fabs(RoundTo(value, 11, -14));
  if (rounded >= 65536) return sign | 0x7c00;  // 65520 and more round to 65536
  if (rounded < std::ldexp(1.0, -14)) return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::ldexp(rounded, 24)));
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(rounded));
  return static_cast<uint16_t>(sign | ((bits >> 23) - 112) << 10 | (bits >> 13 & 1023));
}

uint16_t DoubleToBfloat(double value) {
  if (std::isnan(value)) return static_cast<uint16_t>((std::signbit(value) ? 0x8000 : 0) | 0x7fc0);
  const auto rounded = static_cast<float>(RoundTo(value, 8, -126));  // above the greatest: infinite
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(rounded) >> 16);
}

}  // namespace tenon::gpu
