// RandomInputs: arguments for a module from a seed, the same on every machine.
//
// Each leaf is filled in one of several styles chosen by the seed: special values (NaN, infinities, -0, subnormals, extremes),
// small integers (whose sums and products are exact in every order), values in [-1, 1), powers of two, any bits at all.
// Integer scalars, and what indexes (a gather's, scatter's or slice's start indices), stay near the range of valid indices, in it and out
// of it.
#pragma once

#include <cstdint>
#include <vector>

#include "hlo/literal.h"
#include "hlo/module.h"

namespace tenon::lab {

// SplitMix64: small, fixed for ever, good enough to choose tests by.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  int64_t Below(int64_t n) { return n <= 1 ? 0 : static_cast<int64_t>(Next() % static_cast<uint64_t>(n)); }  // [0, n)
  int64_t Between(int64_t low, int64_t high) { return low + Below(high - low + 1); }                       // inclusive
  bool OneIn(int64_t n) { return Below(n) == 0; }
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }  // [0, 1)
  template <typename C>
  const auto& Pick(const C& c) {
    return c[Below(static_cast<int64_t>(std::size(c)))];
  }
  Random Fork() { return Random(Next()); }

 private:
  uint64_t state_;
};

enum class Style : uint8_t { kSpecial, kSmallIntegers, kUnit, kPowers, kBits, kIndices };

// One array (static dims). Tokens and tuples: RandomArgument.
Literal RandomArray(const Shape& shape, Style style, Random& random);
Literal RandomArgument(const Shape& shape, Random& random);
// One literal per parameter of the entry; InvalidArgument-free: shapes must be static arrays, tokens or tuples of them.
std::vector<Literal> RandomInputs(const Module& module, uint64_t seed);

}  // namespace tenon::lab
