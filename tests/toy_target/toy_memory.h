// ToyMemory: the memory of a device that there is no hardware for. Its addresses are of a range that faults when it is touched; the bytes
// lie elsewhere, and are poison until written. Work is given to streams, and is done when somebody waits for it, as late as can be.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace tenon::toy {

class ToyMemory {
 public:
  static constexpr std::byte kPoison{0xa5};

  ToyMemory();
  ~ToyMemory();
  ToyMemory(const ToyMemory&) = delete;

  // Aligned to 64; null: no more than `limit` bytes may live, or the n-th allocation from now was to fail.
  void* Allocate(size_t bytes);
  void Free(void* memory);
  bool Owns(const void* address) const;
  void FailAllocation(int64_t n) { fail_in_ = n; }  // 0: the next; -1: none
  int64_t live_bytes() const { return live_bytes_; }
  int64_t allocations() const { return allocations_; }

  // A stream's work in order. A task that fails takes what comes behind it along, and leaves its
  // error for the next Drain. Streams are told apart by their address alone.
  void Enqueue(void* stream, std::function<absl::Status()> task);
  absl::Status Drain(void* stream);

  // What a task of the device sees: bytes [address, address + size), of one allocation. OutOfRange: nobody's, or over its end.
  absl::StatusOr<std::byte*> At(const void* address, int64_t size);

 private:
  struct Block {
    std::vector<std::byte> bytes;
  };
  absl::StatusOr<std::byte*> Find(const void* address, int64_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  char* const base_;
  absl::Mutex mutex_;
  char* next_ ABSL_GUARDED_BY(mutex_);
  std::map<const char*, Block> blocks_ ABSL_GUARDED_BY(mutex_);
  std::map<void*, std::deque<std::function<absl::Status()>>> streams_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int64_t> fail_in_{-1}, live_bytes_{0}, allocations_{0};
};

// The one of this process's toy device.
ToyMemory& TheMemory();

}  // namespace tenon::toy
