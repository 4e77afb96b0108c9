// How the threads that run a kernel divide its units. Each has a share, the same in every run, so that what it reads and writes is still in
// its own caches. The last quarter of each share is open: a thread that is done takes from the others', so that one on a core that
// something else slows down does not hold up all. Whoever computes a unit, its bits are the same.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace tenon {

inline constexpr int64_t kGrainsOfOpenShare = 4;  // a share of fewer is too short for its thread to fall behind in

// Units [begin, end): the open end of a share. Written by one thread before the others start.
struct alignas(64) OpenShare {
  int64_t begin = 0, end = 0;
  std::atomic<int64_t> next{0};
  int64_t least = 1;  // units that are taken at once: each call of a kernel begins anew with what it packs

  void Open(int64_t share_begin, int64_t share_end, int64_t grain) {
    constexpr int64_t kPart = 4, kSmallestPart = 32;
    begin = share_end - (share_end - share_begin) / kPart;
    end = share_end;
    least = std::max(grain, (share_end - share_begin) / kSmallestPart);
    next.store(begin, std::memory_order_relaxed);
  }

  // run(first, last) for halves of what is left, until there is nothing. Any number of threads at once.
  template <typename Run>
  void Take(const Run& run) {
    int64_t at = next.load(std::memory_order_relaxed);
    while (at < end) {
      const int64_t to = std::min(end, at + std::max(least, (end - at) / 2));
      if (!next.compare_exchange_weak(at, to, std::memory_order_relaxed)) continue;
      run(at, to);
      at = next.load(std::memory_order_relaxed);
    }
  }
};

}  // namespace tenon
