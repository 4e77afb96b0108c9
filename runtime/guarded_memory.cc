#include "runtime/guarded_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tenon {
namespace {

constexpr size_t kPage = 4096;
constexpr int kPoison = 0xff, kBeside = 0xa5;

// A mapping: a page with this at its beginning, which stays readable, one in front of the data, the data's pages, and one that may not be
// touched. Nor may the one in front, kBegin or where there is no data; kEnd it is readable, too (so that the kernel has one range less).
struct Header {
  size_t mapped, bytes;
};

[[noreturn]] void Die(const char* what, const void* memory, size_t bytes) {
  std::fprintf(stderr, "TENON_GUARD: %s: allocation %p of %zu bytes\n", what, memory, bytes);
  std::abort();
}

constexpr size_t kBefore = 2 * kPage;

// From the data's first byte.
char* HeaderOf(void* memory) { return reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(memory) / kPage * kPage) - kBefore; }

}  // namespace

MemoryGuard GuardOfEnvironment() {
  static const MemoryGuard guard = [] {
    const char* text = std::getenv("TENON_GUARD");
    if (text == nullptr || *text == 0 || std::strcmp(text, "0") == 0) return MemoryGuard::kOff;
    if (std::strcmp(text, "1") == 0) return MemoryGuard::kEnd;
    if (std::strcmp(text, "2") == 0) return MemoryGuard::kBegin;
    std::fprintf(stderr, "TENON_GUARD: wanted 0, 1 or 2, got \"%s\"\n", text);
    std::exit(2);
  }();
  return guard;
}

void* GuardedAllocate(size_t bytes, MemoryGuard guard) {
  if (bytes > SIZE_MAX / 2) return nullptr;
  const bool end = guard == MemoryGuard::kEnd;
  const size_t data = (bytes + kPage - 1) / kPage * kPage, mapped = kBefore + data + kPage, readable = end && data > 0 ? kBefore : kPage;
  void* map = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return nullptr;
  char* start = static_cast<char*>(map);
  char* first = start + kBefore;
  if (mprotect(start, readable, PROT_READ | PROT_WRITE) != 0 || (data > 0 && mprotect(first, data, PROT_READ | PROT_WRITE) != 0)) {
    munmap(map, mapped);
    return nullptr;
  }
  const Header header{mapped, bytes};
  std::memcpy(start, &header, sizeof header);
  mprotect(start, readable, PROT_READ);
  char* memory = end ? first + data - bytes : first;
  if (data > 0) {
    std::memset(first, kBeside, end ? data - bytes : 0);
    std::memset(memory, kPoison, bytes);
    std::memset(memory + bytes, kBeside, end ? 0 : data - bytes);
  }
  return memory;
}

void GuardedFree(void* memory) {
  if (memory == nullptr) return;
  char* start = HeaderOf(memory);
  Header header;
  std::memcpy(&header, start, sizeof header);
  char* first = start + kBefore;
  const char* last = start + header.mapped - kPage;
  auto* data = static_cast<char*>(memory);
  auto untouched = [](const char* from, const char* to) {
    return std::all_of(from, to, [](char c) { return static_cast<unsigned char>(c) == kBeside; });
  };
  if (!untouched(first, data)) Die("memory in front was written", memory, header.bytes);
  if (!untouched(data + header.bytes, last)) Die("memory behind was written", memory, header.bytes);
  munmap(start, header.mapped);
}

}  // namespace tenon
