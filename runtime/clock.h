// A clock that costs a few ns to read, for timing single steps.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#else
#include <chrono>
#endif

namespace tenon {

// Monotonic per thread; differences are comparable across threads.
inline uint64_t Ticks() {
#if defined(__x86_64__)
  return __rdtsc();
#else
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

// The rate is taken against the steady clock since the process loaded this library.
double TicksToNs(uint64_t ticks);
uint64_t NsToTicks(double ns);

}  // namespace tenon
