// The measurement: run a body over many inputs, compare each result with the reference, keep the
// worst.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

#include "tools/ulp-sweep/jit_body.h"
#include "tools/ulp-sweep/reference.h"

namespace tenon::ulp_sweep {

struct Worst {
  double ulp = 0;
  float a = 0, b = 0, got = 0;
  double want = 0;
};

struct SweepResult {
  int64_t inputs = 0;
  Worst worst;
  // NaN against a number, an infinity or zero of the wrong sign, an infinity for what is far from
  // overflow.
  int64_t mismatches = 0;
  Worst first_mismatch;
};

struct SweepOptions {
  int64_t stride = 1;  // unary: one input from each `stride` neighbouring bit patterns
  int64_t pairs = 0;   // binary: how many random pairs
  int threads = 2;
  uint64_t seed = 1;
  std::function<void(double)> progress;  // fraction done; called from worker threads, serialised
};

inline uint64_t SplitMix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// 1 / (one unit in the last float place of want).
inline double UlpInverse(double want) {
  int exponent = static_cast<int>(std::bit_cast<uint64_t>(want) >> 52 & 0x7ff) - 1023;
  exponent = std::clamp(exponent, -126, 127);
  return std::bit_cast<double>(static_cast<uint64_t>(1023 + 23 - exponent) << 52);
}

// |got - want| in units of the last float place of want. Infinity means a mismatch that no
// tolerance excuses. For results around the largest float, infinity counts as the 2^128 it is
// rounded from.
inline double UlpError(float got, double want) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got) ? 0 : kInf;
  float rounded = static_cast<float>(want);
  if (got == rounded && std::signbit(got) == std::signbit(rounded) && std::isinf(got)) return 0;
  if (got == 0 && rounded == 0) {
    if (std::signbit(got) != std::signbit(rounded)) return kInf;
  }
  double value = got;
  if (std::isinf(got)) {
    if (std::isinf(want)) return kInf;
    value = std::copysign(0x1p128, got);
  } else if (std::isinf(want)) {
    return kInf;
  }
  double error = std::abs(value - want) * UlpInverse(want);
  return error > 1e6 ? kInf : error;
}

inline void Note(SweepResult& result, float a, float b, float got, double want) {
  ++result.inputs;
  // Nearly all inputs end here; NaNs, infinities and zeros don't.
  if (got != 0 && std::abs(got - want) * UlpInverse(want) <= result.worst.ulp) return;
  double ulp = UlpError(got, want);
  if (ulp <= result.worst.ulp) return;
  Worst found{ulp, a, b, got, want};
  if (!std::isinf(ulp)) {
    result.worst = found;
  } else if (result.mismatches++ == 0) {
    result.first_mismatch = found;
  }
}

inline void Merge(SweepResult& into, const SweepResult& from) {
  into.inputs += from.inputs;
  if (from.worst.ulp > into.worst.ulp) into.worst = from.worst;
  if (into.mismatches == 0) into.first_mismatch = from.first_mismatch;
  into.mismatches += from.mismatches;
}

// Values at which functions change their behaviour, both signs; the binary functions see all pairs.
inline std::vector<float> SpecialValues() {
  using Limits = std::numeric_limits<float>;
  std::vector<float> values;
  for (float v : {0.0f,
                  Limits::denorm_min(),
                  1e-41f,
                  Limits::min(),
                  1e-30f,
                  1e-4f,
                  0.25f,
                  1.0f / 3,
                  0.5f,
                  0.55f,
                  0.75f,
                  std::nextafter(1.0f, 0.0f),
                  1.0f,
                  std::nextafter(1.0f, 2.0f),
                  1.5f,
                  2.0f,
                  2.5f,
                  3.0f,
                  3.1415927f,
                  4.0f,
                  9.0f,
                  17.0f,
                  31.0f,
                  88.72284f,
                  103.97208f,
                  127.0f,
                  128.0f,
                  149.0f,
                  150.0f,
                  1e4f,
                  8388607.5f,
                  16777215.0f,
                  16777216.0f,
                  33554434.0f,
                  2147483648.0f,
                  1e20f,
                  1e30f,
                  Limits::max(),
                  Limits::infinity(),
                  Limits::quiet_NaN()}) {
    values.push_back(v);
    values.push_back(-v);
  }
  return values;
}

// The i-th random pair. A quarter is any two bit patterns; the others are where pow and atan2 are
// hard: an exponent that keeps pow in range, integer exponents, bases next to 1, neighbouring
// magnitudes.
inline std::pair<float, float> RandomPair(uint64_t i, uint64_t seed) {
  uint64_t r = SplitMix(i * 2 + seed * 0x10001), s = SplitMix(r);
  float a = std::bit_cast<float>(static_cast<uint32_t>(r)),
        b = std::bit_cast<float>(static_cast<uint32_t>(r >> 32));
  double unit = static_cast<double>(s >> 11) * 0x1p-53;
  switch (i & 7) {
    case 0:
    case 1:
      return {a, b};
    case 2:
    case 3:
      a = std::abs(a);
      return {a, static_cast<float>((unit * 280 - 151) / std::log2(static_cast<double>(a)))};
    case 4:
      return {a, static_cast<float>(static_cast<int>(unit * 61) - 30)};
    case 5:
      a = 1 + static_cast<float>((unit - 0.5) * 0.01);
      return {a, static_cast<float>((static_cast<double>(r >> 11) * 0x1p-53 * 280 - 151) /
                                    std::log2(static_cast<double>(a)))};
    case 6:
      return {a, a * static_cast<float>(unit * 4 - 2)};
    default:
      return {static_cast<float>(unit * 20 - 10),
              static_cast<float>(static_cast<double>(r >> 11) * 0x1p-53 * 20 - 10)};
  }
}

// Runs one block of inputs, padded to whole vectors.
inline void CompareBlock(const JitBody& body, const Reference& reference, std::vector<float>& a,
                         std::vector<float>& b, SweepResult& result) {
  size_t n = a.size();
  a.resize((n + body.width() - 1) / body.width() * body.width(), 1.0f);
  b.resize(a.size(), 1.0f);
  std::vector<float> y(a.size());
  body.Run(a.data(), b.data(), y.data(), static_cast<int64_t>(a.size()));
  for (size_t i = 0; i < n; ++i) {
    double want = reference.unary ? reference.unary(a[i]) : reference.binary(a[i], b[i]);
    Note(result, a[i], b[i], y[i], want);
  }
  a.clear();
  b.clear();
}

// Unary: every bit pattern (or one per stride). Binary: `pairs` random pairs. Both: all special
// values.
inline SweepResult Sweep(const JitBody& body, const Reference& reference,
                         const SweepOptions& options) {
  constexpr int64_t kBlock = 1 << 12;
  const bool unary = reference.unary != nullptr;
  const int64_t total = unary ? (int64_t{1} << 32) / options.stride : options.pairs;
  SweepResult all;
  std::vector<float> a, b;
  for (float x : SpecialValues()) {
    if (unary) a.push_back(x);
    for (float y : unary ? std::vector<float>() : SpecialValues()) {
      a.push_back(x);
      b.push_back(y);
    }
  }
  CompareBlock(body, reference, a, b, all);

  std::atomic<int64_t> next{0};
  std::mutex mutex;
  auto work = [&] {
    SweepResult mine;
    std::vector<float> a, b;
    for (;;) {
      int64_t begin = next.fetch_add(kBlock);
      if (begin >= total) break;
      for (int64_t i = begin; i < std::min(begin + kBlock, total); ++i) {
        if (unary) {
          uint64_t pattern = i * options.stride;
          if (options.stride > 1) pattern += SplitMix(i + options.seed) % options.stride;
          a.push_back(std::bit_cast<float>(static_cast<uint32_t>(pattern)));
        } else {
          auto [x, y] = RandomPair(i, options.seed);
          a.push_back(x);
          b.push_back(y);
        }
      }
      CompareBlock(body, reference, a, b, mine);
      if (options.progress && begin / kBlock % 1024 == 0) {
        std::lock_guard lock(mutex);
        options.progress(static_cast<double>(begin) / total);
      }
    }
    std::lock_guard lock(mutex);
    Merge(all, mine);
  };
  std::vector<std::thread> threads;
  for (int t = 1; t < options.threads; ++t) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return all;
}

// Nanoseconds per element on one thread over 16K elements (in cache), best of many.
inline double MeasureSpeed(const JitBody& body, const Reference& reference) {
  constexpr int kElements = 16384;
  std::vector<float> a(kElements), b(kElements), y(kElements);
  for (int i = 0; i < kElements; ++i) {
    auto uniform = [&](uint64_t k) {
      return static_cast<float>(static_cast<double>(SplitMix(k) >> 11) * 0x1p-53);
    };
    a[i] = reference.time_lo + (reference.time_hi - reference.time_lo) * uniform(i);
    b[i] = reference.time_lo + (reference.time_hi - reference.time_lo) * uniform(i + kElements);
  }
  double best = std::numeric_limits<double>::infinity();
  for (int repeat = 0; repeat < 300; ++repeat) {
    auto start = std::chrono::steady_clock::now();
    body.Run(a.data(), b.data(), y.data(), kElements);
    std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
    best = std::min(best, elapsed.count() / kElements);
  }
  return best;
}

}  // namespace tenon::ulp_sweep
