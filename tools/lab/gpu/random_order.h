// Orders by seed: the same on every machine. 0 is no permutation.
#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <utility>

namespace tenon::gpu {

class RandomOrder {
 public:
  explicit RandomOrder(uint64_t seed) : seed_(seed), state_(seed) {}

  bool permutes() const { return seed_ != 0; }
  // Below n. (Biased for huge n, which is none of our concern.)
  uint64_t Below(uint64_t n) { return Next() % n; }
  void Shuffle(std::span<uint32_t> values) {
    if (seed_ == 0) return;
    for (size_t n = values.size(); n > 1; --n) std::swap(values[n - 1], values[Below(n)]);
  }

  // A permutation of [0, n), without a table: k -> (k * factor + shift) mod n, with a factor that has no divisor in common with n.
  struct Walk {
    uint64_t factor = 1, shift = 0, n = 1;
    uint64_t operator()(uint64_t k) const { return static_cast<uint64_t>((static_cast<unsigned __int128>(k) * factor + shift) % n); }
  };
  Walk WalkOf(uint64_t n) {
    Walk walk{1, 0, n};
    if (seed_ == 0 || n < 2) return walk;
    do {
      walk.factor = 1 + Below(n);
    } while (std::gcd(walk.factor, n) != 1);
    walk.shift = Below(n);
    return walk;
  }

 private:
  // splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  uint64_t seed_, state_;
};

}  // namespace tenon::gpu
