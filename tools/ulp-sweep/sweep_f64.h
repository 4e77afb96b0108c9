// The measurement of library.h's functions of doubles: compared with the C library's of long double, whose 64 bits are right but for one or
// two of their units, 2^-10 of a double's.
#pragma once

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "tools/ulp-sweep/sweep.h"

namespace tenon::ulp_sweep {

struct ReferenceF64 {
  math::Fn fn;
  long double (*unary)(long double);
  long double (*binary)(long double, long double);
  double low, high;  // where half of the sample lies
};

inline const ReferenceF64* ReferenceF64For(math::Fn fn) {
  using math::Fn;
  static const ReferenceF64 kReferences[] = {
      {Fn::kExp, std::exp, nullptr, -746, 710},
      {Fn::kExp2, std::exp2, nullptr, -1075, 1025},
      {Fn::kExpm1, std::expm1, nullptr, -40, 40},
      {Fn::kTanh, std::tanh, nullptr, -20, 20},
      {Fn::kErf, std::erf, nullptr, -6, 6},
      {Fn::kErfc, std::erfc, nullptr, -6, 27.3},
      {Fn::kLog, std::log, nullptr, 0, 3},
      {Fn::kLog1p, std::log1p, nullptr, -1, 3},
      {Fn::kLog2, std::log2, nullptr, 0, 3},
      {Fn::kLog10, std::log10, nullptr, 0, 3},
      {Fn::kCbrt, std::cbrt, nullptr, -8, 8},
      {Fn::kPow, nullptr, std::pow, 0, 8},
      {Fn::kSin, std::sin, nullptr, -100, 100},
      {Fn::kCos, std::cos, nullptr, -100, 100},
      {Fn::kTan, std::tan, nullptr, -100, 100},
      {Fn::kAsin, std::asin, nullptr, -1, 1},
      {Fn::kAcos, std::acos, nullptr, -1, 1},
      {Fn::kAtan, std::atan, nullptr, -10, 10},
      {Fn::kAtan2, nullptr, std::atan2, -10, 10},
      {Fn::kSinh, std::sinh, nullptr, -30, 30},
      {Fn::kCosh, std::cosh, nullptr, -30, 30},
      {Fn::kAsinh, std::asinh, nullptr, -10, 10},
      {Fn::kAcosh, std::acosh, nullptr, 1, 10},
      {Fn::kAtanh, std::atanh, nullptr, -1, 1},
  };
  for (const ReferenceF64& r : kReferences) {
    if (r.fn == fn) return &r;
  }
  return nullptr;
}

struct WorstF64 {
  double ulp = 0, a = 0, b = 0, got = 0;
  long double want = 0;
};

struct ResultF64 {
  int64_t inputs = 0;
  WorstF64 worst;
  int64_t mismatches = 0;  // as SweepResult's
  WorstF64 first_mismatch;
};

inline double UlpErrorF64(double got, long double want) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got) ? 0 : kInf;
  const double rounded = static_cast<double>(want);
  if ((got == 0 || rounded == 0) && std::signbit(got) != std::signbit(rounded)) return kInf;
  if (got == rounded && (std::isinf(got) || want == 0)) return 0;
  if (std::isinf(rounded) && (std::isinf(want) || std::isinf(got))) return kInf;
  const long double value = std::isinf(got) ? std::copysign(0x1p1024L, got) : got;
  const double error = static_cast<double>(std::abs(value - want) / std::ldexp(1.0L, std::max(std::ilogb(want), -1022) - 52));
  return error > 1e6 ? kInf : error;
}

inline std::vector<double> SpecialValuesF64() {
  using Limits = std::numeric_limits<double>;
  std::vector<double> values;
  for (const float v : SpecialValues()) values.push_back(v);
  for (const double v : {Limits::denorm_min(), 1e-310, 0x1.fffffffffffffp-1023, Limits::min(), 0x1p-969, 1e-200, 0x1p-60, 0x1p-55, 0x1p-54,
                         0x1p-53, 0x1p-28, 0x1p-27, 0.7071067811865475, std::nextafter(1.0, 0.0), std::nextafter(1.0, 2.0),
                         1.4142135623730951, 1.5707963267948966, 3.141592653589793, 2.718281828459045, 22.0, 27.3, 36.7, 709.782712893384,
                         709.79, 710.4758600739439, 710.476, 744.44, 745.14, 745.2, 1023.5, 1024.0, 1074.0, 1074.5, 1075.5, 0x1p30, 0x1p52,
                         0x1p53, 0x1.0000000000001p53, 0x1p60, 1e200, 1e300, 0x1p1000, Limits::max(), 1e22,
                         0x1.6ac5b262ca1ffp+849 /* nearest a multiple of pi/2: J.-M. Muller */}) {
    values.push_back(v);
    values.push_back(-v);
  }
  return values;
}

// Of four: any bits; a size between 2^-60 and 2^12; two in [low, high]. Where there is a trigonometric reduction, some next to multiples
// of pi/2.
inline double RandomF64(uint64_t i, uint64_t seed, const ReferenceF64& reference) {
  const uint64_t r = SplitMix(i * 3 + seed * 0x10001), s = SplitMix(r);
  const double unit = static_cast<double>(s >> 11) * 0x1p-53;
  const bool trigonometric = reference.fn == math::Fn::kSin || reference.fn == math::Fn::kCos || reference.fn == math::Fn::kTan;
  switch (i & 7) {
    case 0:
    case 1:
      return std::bit_cast<double>(r);
    case 2:
    case 3:
      return std::copysign(std::ldexp(1 + unit, static_cast<int>(r % 72) - 60), (r >> 63) != 0 && reference.low < 0 ? -1.0 : 1.0);
    case 4:
      if (trigonometric) return static_cast<double>(std::ldexp(static_cast<long double>(r >> (34 + s % 30)), 0) * (std::acos(-1.0L) / 2));
      if (reference.low <= 1 && reference.high >= 1) return 1 + (unit - 0.5) * std::ldexp(1.0, -static_cast<int>(r % 50));
      [[fallthrough]];
    default:
      return reference.low + (reference.high - reference.low) * unit;
  }
}

inline std::pair<double, double> RandomPairF64(uint64_t i, uint64_t seed, const ReferenceF64& reference) {
  const double a = RandomF64(2 * i + (i & 1), seed, reference), b = RandomF64(2 * i + 1 + (i >> 3 & 1), seed + 7, reference);
  const double unit = static_cast<double>(SplitMix(i + seed) >> 11) * 0x1p-53;
  switch (i % 5) {
    case 0:  // an exponent that keeps pow in range
      return {std::abs(a), (unit * 2150 - 1080) / std::log2(std::abs(a))};
    case 1:
      return {a, static_cast<double>(static_cast<int>(unit * 61) - 30)};
    case 2:
      return {a, a * (unit * 4 - 2)};
    default:
      return {a, b};
  }
}

// The sample's inputs, `b` of unary functions too.
inline void SampleF64(const ReferenceF64& reference, int64_t count, uint64_t seed, std::vector<double>* a, std::vector<double>* b) {
  for (const double x : SpecialValuesF64()) {
    for (const double y : reference.unary ? std::vector<double>{1} : SpecialValuesF64()) {
      a->push_back(x);
      b->push_back(y);
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    const auto [x, y] = reference.unary ? std::pair{RandomF64(static_cast<uint64_t>(i), seed, reference), 1.0}
                                        : RandomPairF64(static_cast<uint64_t>(i), seed, reference);
    a->push_back(x);
    b->push_back(y);
  }
}

inline ResultF64 CompareF64(const ReferenceF64& reference, const std::vector<double>& a, const std::vector<double>& b,
                            const std::vector<double>& y) {
  ResultF64 result;
  for (size_t i = 0; i < a.size(); ++i) {
    const long double want = reference.unary ? reference.unary(a[i]) : reference.binary(a[i], b[i]);
    const double ulp = UlpErrorF64(y[i], want);
    const WorstF64 found{ulp, a[i], b[i], y[i], want};
    if (std::isinf(ulp)) {
      if (result.mismatches++ == 0) result.first_mismatch = found;
    } else if (ulp > result.worst.ulp) {
      result.worst = found;
    }
  }
  result.inputs = static_cast<int64_t>(a.size());
  return result;
}

// In blocks, so that memory stays small.
inline ResultF64 SweepF64(const JitBody& body, const ReferenceF64& reference, int64_t count, uint64_t seed = 1) {
  constexpr int64_t kBlock = 1 << 14;
  ResultF64 all;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    std::vector<double> a, b;
    SampleF64(reference, std::min(kBlock, count - begin), seed + static_cast<uint64_t>(begin), &a, &b);
    for (; a.size() % static_cast<size_t>(body.width()) != 0; a.push_back(1)) b.push_back(1);
    std::vector<double> y(a.size());
    body.Run(a.data(), b.data(), y.data(), static_cast<int64_t>(a.size()));
    const ResultF64 r = CompareF64(reference, a, b, y);
    all.inputs += r.inputs;
    if (r.worst.ulp > all.worst.ulp) all.worst = r.worst;
    if (all.mismatches == 0) all.first_mismatch = r.first_mismatch;
    all.mismatches += r.mismatches;
  }
  return all;
}

}  // namespace tenon::ulp_sweep
