// Counts what a process has from malloc, at its highest: peak_memory.py preloads it (LD_PRELOAD). PyTorch's own reports leave out what
// oneDNN and MKL take for themselves. Own code, because heaptrack and massif know no peak of one call, and slow each allocation down.
#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

extern "C" {
void* __libc_malloc(size_t);
void __libc_free(void*);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

std::atomic<int64_t> live{0}, peak{0};  // bytes

void* Taken(void* p) {
  if (p == nullptr) return p;
  const auto bytes = static_cast<int64_t>(malloc_usable_size(p));
  const int64_t now = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t high = peak.load(std::memory_order_relaxed);
  while (now > high && !peak.compare_exchange_weak(high, now, std::memory_order_relaxed)) {
  }
  return p;
}

void GivenBack(void* p) {
  if (p != nullptr) live.fetch_sub(static_cast<int64_t>(malloc_usable_size(p)), std::memory_order_relaxed);
}

}  // namespace

extern "C" {

int64_t counted_live() { return live.load(); }
int64_t counted_peak() { return peak.load(); }
void counted_restart() { peak.store(live.load()); }  // the peak is what is there now

void* malloc(size_t bytes) { return Taken(__libc_malloc(bytes)); }
void* calloc(size_t n, size_t bytes) { return Taken(__libc_calloc(n, bytes)); }
void* memalign(size_t alignment, size_t bytes) { return Taken(__libc_memalign(alignment, bytes)); }
void* aligned_alloc(size_t alignment, size_t bytes) { return Taken(__libc_memalign(alignment, bytes)); }

int posix_memalign(void** p, size_t alignment, size_t bytes) {
  void* got = Taken(__libc_memalign(alignment, bytes));
  if (got == nullptr) return ENOMEM;
  *p = got;
  return 0;
}

void* realloc(void* p, size_t bytes) {
  const auto before = p == nullptr ? 0 : static_cast<int64_t>(malloc_usable_size(p));
  void* got = __libc_realloc(p, bytes);
  if (got != nullptr || bytes == 0) live.fetch_sub(before, std::memory_order_relaxed);
  return Taken(got);
}

void free(void* p) {
  GivenBack(p);
  __libc_free(p);
}
}
