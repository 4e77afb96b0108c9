#include "tests/toy_target/toy_memory.h"

#include <sys/mman.h>

#include "absl/strings/str_cat.h"
#include "hlo/check.h"

namespace tenon::toy {
namespace {

constexpr size_t kRange = size_t{1} << 40;  // of addresses, none of them used twice

char* Reserve() {
  void* range = mmap(nullptr, kRange, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TENON_CHECK(range != MAP_FAILED, "no range of addresses for the toy's memory");
  return static_cast<char*>(range);
}

}  // namespace

ToyMemory::ToyMemory() : base_(Reserve()), next_(base_ + 64) {}
ToyMemory::~ToyMemory() { munmap(base_, kRange); }

void* ToyMemory::Allocate(size_t bytes) {
  ++allocations_;
  if (fail_in_ >= 0 && fail_in_-- == 0) return nullptr;
  absl::MutexLock lock(&mutex_);
  char* address = next_;
  next_ += (bytes + 63) / 64 * 64 + 64;  // a gap: what runs over an end is nobody's
  if (next_ > base_ + kRange) return nullptr;
  blocks_[address].bytes.assign(bytes, kPoison);
  live_bytes_ += static_cast<int64_t>(bytes);
  return address;
}

void ToyMemory::Free(void* memory) {
  absl::MutexLock lock(&mutex_);
  const auto block = blocks_.find(static_cast<const char*>(memory));
  TENON_CHECK(block != blocks_.end(), "free of what was not allocated on the toy");
  live_bytes_ -= static_cast<int64_t>(block->second.bytes.size());
  blocks_.erase(block);
}

bool ToyMemory::Owns(const void* address) const {
  const char* p = static_cast<const char*>(address);
  return p >= base_ && p < base_ + kRange;
}

absl::StatusOr<std::byte*> ToyMemory::Find(const void* address, int64_t size) {
  const char* p = static_cast<const char*>(address);
  auto block = blocks_.upper_bound(p);
  if (block != blocks_.begin()) {
    --block;
    const int64_t offset = p - block->first;
    if (offset + size <= static_cast<int64_t>(block->second.bytes.size())) return block->second.bytes.data() + offset;
  }
  return absl::OutOfRangeError(absl::StrCat(size, " bytes at ", absl::Hex(reinterpret_cast<uintptr_t>(address)),
                                            Owns(address) ? " are in no allocation of the toy" : " are not the toy's"));
}

absl::StatusOr<std::byte*> ToyMemory::At(const void* address, int64_t size) {
  absl::MutexLock lock(&mutex_);
  return Find(address, size);
}

void ToyMemory::Enqueue(void* stream, std::function<absl::Status()> task) {
  absl::MutexLock lock(&mutex_);
  streams_[stream].push_back(std::move(task));
}

absl::Status ToyMemory::Drain(void* stream) {
  absl::Status first;
  for (;;) {
    std::function<absl::Status()> task;
    {
      absl::MutexLock lock(&mutex_);
      auto& queue = streams_[stream];
      if (queue.empty()) return first;
      task = std::move(queue.front());
      queue.pop_front();
    }
    if (first.ok()) first = task();  // what was to come after a failure is dropped
  }
}

ToyMemory& TheMemory() {
  static auto* memory = new ToyMemory;
  return *memory;
}

}  // namespace tenon::toy
