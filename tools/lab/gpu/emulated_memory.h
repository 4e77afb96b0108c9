// EmulatedMemory: the memory of the emulated device. Real memory of the host, in one range of addresses that is reserved once and of
// which no address is used twice, so that generated code can touch it and a pointer of what was freed is known for one.
//
// Between allocations lie at least 256 bytes that are nobody's. New bytes are "uninitialised" (and poison, 0xa5, in allocations of up to
// 1 GiB; greater ones are zero and cost no memory until touched) until a kernel or Write gives them a value.
// Thread-safe. A launch (emulator.h) holds the lock from its beginning to its end: calls from other threads wait for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "tools/lab/gpu/shadow.h"

namespace tenon::gpu {

class EmulatedMemory {
 public:
  static constexpr size_t kAlignment = 256;  // as cudaMalloc's

  EmulatedMemory();
  ~EmulatedMemory();
  EmulatedMemory(const EmulatedMemory&) = delete;

  // Null: the n-th allocation from now was to fail, or the range of addresses (1 TiB) is used up.
  void* Allocate(size_t bytes) ABSL_LOCKS_EXCLUDED(mutex_) { return AllocateMisaligned(bytes, 0); }
  // `offset` bytes behind an address that is aligned to 256, and no better: kernels that rely on more than they were promised show it.
  void* AllocateMisaligned(size_t bytes, size_t offset) ABSL_LOCKS_EXCLUDED(mutex_);
  // `memory` is null or an allocation that lives (checked).
  void Free(void* memory) ABSL_LOCKS_EXCLUDED(mutex_);
  bool Owns(const void* address) const { return static_cast<const char*>(address) - base_ >= 0 && Offset(address) < kRange; }

  // Between the host's memory and the device's. OutOfRange: not wholly inside of one living allocation. Read gives uninitialised bytes
  // as they are; Copy carries along which bytes are initialised.
  absl::Status Read(void* host, const void* device, size_t bytes) const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Write(void* device, const void* host, size_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Copy(void* to, const void* from, size_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether all of these bytes have been given a value.
  absl::StatusOr<bool> Initialised(const void* device, size_t bytes) const ABSL_LOCKS_EXCLUDED(mutex_);

  int64_t live_bytes() const ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t allocations() const ABSL_LOCKS_EXCLUDED(mutex_);     // since the process began, failed ones too
  void FailAllocation(int64_t n) ABSL_LOCKS_EXCLUDED(mutex_);  // 0: the next; -1: none

  // Of the emulator.
  struct Allocation {
    uintptr_t begin = 0;
    size_t size = 0;
    bool freed = false;
  };
  static constexpr size_t kRange = size_t{1} << 40;
  absl::Mutex& mutex() const ABSL_LOCK_RETURNED(mutex_) { return mutex_; }
  uintptr_t base() const { return reinterpret_cast<uintptr_t>(base_); }
  size_t Offset(const void* address) const { return static_cast<size_t>(static_cast<const char*>(address) - base_); }
  // The allocation with the greatest beginning that is not behind `address`; null: none. Where it lies until the next Free.
  const Allocation* Find(uintptr_t address) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // "8 bytes behind the end of an allocation of 400 bytes"
  std::string Describe(uintptr_t address) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const Shadow& shadow() const { return shadow_; }

 private:
  absl::Status Check(const void* device, size_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  char* const base_;
  Shadow shadow_;
  mutable absl::Mutex mutex_;
  size_t next_ ABSL_GUARDED_BY(mutex_) = kAlignment;
  size_t committed_ ABSL_GUARDED_BY(mutex_) = 0;                    // bytes from base_ on that may be touched
  std::map<uintptr_t, Allocation> blocks_ ABSL_GUARDED_BY(mutex_);  // what was freed stays known
  int64_t fail_in_ ABSL_GUARDED_BY(mutex_) = -1, live_bytes_ ABSL_GUARDED_BY(mutex_) = 0, allocations_ ABSL_GUARDED_BY(mutex_) = 0;
};

// The one of this process. Never destroyed.
EmulatedMemory& TheEmulatedMemory();

}  // namespace tenon::gpu
