// What the calling thread's floating-point unit does with subnormal numbers.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif
#include <cstdint>

namespace tenon {

inline constexpr char kFlushesSubnormals[] =
    "the calling thread takes subnormal numbers for zeros (MXCSR's FTZ or DAZ, torch.set_flush_denormal): compiled programs want them kept";

// True if it takes subnormal operands, or makes subnormal results, for zeros (torch.set_flush_denormal). Compiled code is made for a thread
// that doesn't. A few cycles.
inline bool FlushesSubnormals() {
#if defined(__x86_64__)
  constexpr uint32_t kFlushToZero = 1U << 15, kDenormalsAreZeros = 1U << 6;  // of MXCSR: Intel SDM vol. 1, 10.2.3
  return (_mm_getcsr() & (kFlushToZero | kDenormalsAreZeros)) != 0;
#elif defined(__aarch64__)
  constexpr uint64_t kFlush = uint64_t{1} << 24;  // of FPCR: FZ
  uint64_t fpcr;
  asm volatile("mrs %0, fpcr" : "=r"(fpcr));
  return (fpcr & kFlush) != 0;
#else
  return false;
#endif
}

// Inside, this thread and those that it starts keep subnormal numbers: constants are computed once for all modes.
class KeepSubnormals {
 public:
#if defined(__x86_64__)
  KeepSubnormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ & ~((1U << 15) | (1U << 6))); }
  ~KeepSubnormals() { _mm_setcsr(saved_); }
#elif defined(__aarch64__)
  KeepSubnormals() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" : : "r"(saved_ & ~(uint64_t{1} << 24)));
  }
  ~KeepSubnormals() { asm volatile("msr fpcr, %0" : : "r"(saved_)); }
#else
  KeepSubnormals() {}
  ~KeepSubnormals() {}
#endif
  KeepSubnormals(const KeepSubnormals&) = delete;

 private:
#if defined(__aarch64__)
  uint64_t saved_ = 0;
#elif defined(__x86_64__)
  uint32_t saved_ = 0;
#endif
};

}  // namespace tenon
