#include "runtime/fork.h"

#include <pthread.h>

#include <mutex>

#include "runtime/cache/memory_cache.h"
#include "runtime/frame.h"
#include "runtime/thread_pool.h"

namespace tenon {
namespace {

// The order is that of nesting: a cache may free executables, they their frames.
void Prepare() {
  MemoryCache::LockAll();
  FramePool::LockAll();
  LockPool();
}
void Release(bool in_child) {
  UnlockPool(in_child);
  FramePool::UnlockAll();
  MemoryCache::UnlockAll(in_child);
}

}  // namespace

void InstallForkHandlers() {
  static std::once_flag once;
  std::call_once(once,
                 [] { pthread_atfork(Prepare, [] { Release(false); }, [] { Release(true); }); });
}

}  // namespace tenon
