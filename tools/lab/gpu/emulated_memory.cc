#include "tools/lab/gpu/emulated_memory.h"

#include <sys/mman.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "hlo/check.h"

namespace tenon::gpu {
namespace {

constexpr size_t kCommit = size_t{64} << 20;
constexpr size_t kPoisoned = size_t{1} << 30;  // greater allocations are for sparse use
constexpr int kPoison = 0xa5;

char* Reserve() {
  void* range = mmap(nullptr, EmulatedMemory::kRange, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TENON_CHECK(range != MAP_FAILED, "no range of addresses for the emulated memory");
  return static_cast<char*>(range);
}

size_t RoundUp(size_t n, size_t to) { return (n + to - 1) / to * to; }

}  // namespace

EmulatedMemory::EmulatedMemory() : base_(Reserve()), shadow_(Shadow::Map(kRange)) {}
EmulatedMemory::~EmulatedMemory() {
  munmap(base_, kRange);
  shadow_.Unmap(kRange);
}

void* EmulatedMemory::AllocateMisaligned(size_t bytes, size_t offset) {
  absl::MutexLock lock(&mutex_);
  ++allocations_;
  if (fail_in_ >= 0 && fail_in_-- == 0) return nullptr;
  if (bytes > kRange || offset >= kAlignment) return nullptr;
  const size_t at = next_ + offset, end = at + bytes;
  const size_t next = RoundUp(end, kAlignment) + kAlignment;
  if (next > kRange) return nullptr;
  if (next > committed_) {
    const size_t more = RoundUp(next, kCommit);
    if (mprotect(base_ + committed_, more - committed_, PROT_READ | PROT_WRITE) != 0) return nullptr;
    committed_ = more;
  }
  next_ = next;
  char* memory = base_ + at;
  if (bytes <= kPoisoned) std::memset(memory, kPoison, bytes);
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  blocks_[begin] = {begin, bytes, false};
  live_bytes_ += static_cast<int64_t>(bytes);
  return memory;
}

void EmulatedMemory::Free(void* memory) {
  if (memory == nullptr) return;
  absl::MutexLock lock(&mutex_);
  const auto block = blocks_.find(reinterpret_cast<uintptr_t>(memory));
  TENON_CHECK(block != blocks_.end() && !block->second.freed, "free of what is no living allocation of the emulated memory");
  Allocation& a = block->second;
  a.freed = true;
  live_bytes_ -= static_cast<int64_t>(a.size);
  shadow_.Forget(Offset(memory), a.size);
  constexpr size_t kPage = 4096;
  const size_t first = RoundUp(Offset(memory), kPage), last = (Offset(memory) + a.size) / kPage * kPage;
  if (first < last) madvise(base_ + first, last - first, MADV_DONTNEED);
}

const EmulatedMemory::Allocation* EmulatedMemory::Find(uintptr_t address) const {
  auto block = blocks_.upper_bound(address);
  return block == blocks_.begin() ? nullptr : &(--block)->second;
}

std::string EmulatedMemory::Describe(uintptr_t address) const {
  if (!Owns(reinterpret_cast<const void*>(address))) return "in no memory of the device";
  const Allocation* below = Find(address);
  const auto above = blocks_.upper_bound(address);
  const auto of = [](const Allocation& a) { return absl::StrCat(a.freed ? "a freed" : "an", " allocation of ", a.size, " bytes"); };
  if (below != nullptr && address < below->begin + below->size) return absl::StrCat("byte ", address - below->begin, " of ", of(*below));
  if (above != blocks_.end() && (below == nullptr || above->first - address < address - (below->begin + below->size))) {
    return absl::StrCat(above->first - address, " bytes before ", of(above->second));
  }
  if (below == nullptr) return "where nothing was allocated";
  return absl::StrCat(address - (below->begin + below->size), " bytes behind the end of ", of(*below));
}

absl::Status EmulatedMemory::Check(const void* device, size_t bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(device);
  const Allocation* a = Find(address);
  if (a != nullptr && !a->freed && address - a->begin <= a->size && bytes <= a->size - (address - a->begin)) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(bytes, " bytes at 0x", absl::Hex(address), " are in no allocation: ", Describe(address)));
}

absl::Status EmulatedMemory::Read(void* host, const void* device, size_t bytes) const {
  absl::MutexLock lock(&mutex_);
  TENON_RETURN_IF_ERROR(Check(device, bytes));
  std::memcpy(host, device, bytes);
  return absl::OkStatus();
}

absl::Status EmulatedMemory::Write(void* device, const void* host, size_t bytes) {
  absl::MutexLock lock(&mutex_);
  TENON_RETURN_IF_ERROR(Check(device, bytes));
  std::memcpy(device, host, bytes);
  std::memset(shadow_.written + Offset(device), 1, bytes);
  return absl::OkStatus();
}

absl::Status EmulatedMemory::Copy(void* to, const void* from, size_t bytes) {
  absl::MutexLock lock(&mutex_);
  TENON_RETURN_IF_ERROR(Check(to, bytes));
  TENON_RETURN_IF_ERROR(Check(from, bytes));
  std::memmove(to, from, bytes);
  std::memmove(shadow_.written + Offset(to), shadow_.written + Offset(from), bytes);
  return absl::OkStatus();
}

absl::StatusOr<bool> EmulatedMemory::Initialised(const void* device, size_t bytes) const {
  absl::MutexLock lock(&mutex_);
  TENON_RETURN_IF_ERROR(Check(device, bytes));
  return FirstUnwritten(shadow_, Offset(device), bytes) == Offset(device) + bytes;
}

int64_t EmulatedMemory::live_bytes() const {
  absl::MutexLock lock(&mutex_);
  return live_bytes_;
}
int64_t EmulatedMemory::allocations() const {
  absl::MutexLock lock(&mutex_);
  return allocations_;
}
void EmulatedMemory::FailAllocation(int64_t n) {
  absl::MutexLock lock(&mutex_);
  fail_in_ = n;
}

EmulatedMemory& TheEmulatedMemory() {
  static auto* memory = new EmulatedMemory;
  return *memory;
}

}  // namespace tenon::gpu
