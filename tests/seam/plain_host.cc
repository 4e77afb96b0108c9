#include "tests/seam/plain_host.h"

#include <cstdlib>
#include <cstring>

namespace seam {

const TenonHost* PlainHost() {
  static const auto* host = [] {
    auto* h = new TenonHost{};
    h->size = sizeof(TenonHost);
    h->version = TENON_ABI_VERSION;
    h->spaces = 1;
    h->allocate = [](void*, size_t bytes) { return std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64); };
    h->deallocate = [](void*, void* memory, size_t) { std::free(memory); };
    h->parallel_for = [](void*, int64_t begin, int64_t end, int64_t, void (*fn)(void*, int64_t, int64_t), void* arg) {
      if (begin < end) fn(arg, begin, end);
    };
    h->num_threads = [](void*) { return 1; };
    h->op_prepare = [](void*, const TenonOpSpec*, char** error) -> void* {
      *error = strdup("there are no operators here");
      return nullptr;
    };
    h->op_release = [](void*, void*) {};
    h->cache_release = [](void*, void*) {};
    h->log = [](void*, int, const char*) {};
    h->interrupted = [](void*) { return 0; };
    h->tracing = [](void*) { return 0; };
    h->range_begin = [](void*, const char*) -> void* { return nullptr; };
    h->range_end = [](void*, void*) {};
    return h;
  }();
  return host;
}

}  // namespace seam
