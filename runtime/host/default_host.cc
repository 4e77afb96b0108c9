#include <cstdlib>
#include <cstring>

#include "runtime/guarded_memory.h"
#include "runtime/host/host.h"
#include "runtime/host/host_space.h"
#include "runtime/host/thread_pool.h"

namespace tenon {
namespace {

void* Allocate(void*, size_t bytes) {
  if (const MemoryGuard guard = GuardOfEnvironment(); guard != MemoryGuard::kOff) return GuardedAllocate(bytes, guard);
  if (bytes > SIZE_MAX - 64) return nullptr;
  return std::aligned_alloc(64, (bytes + 63) / 64 * 64 + (bytes == 0 ? 64 : 0));
}
void Deallocate(void*, void* memory, size_t) {
  if (GuardOfEnvironment() != MemoryGuard::kOff) return GuardedFree(memory);
  std::free(memory);
}
void ParallelFor(void*, int64_t begin, int64_t end, int64_t grain,
                 void (*fn)(void*, int64_t, int64_t), void* arg) {
  PoolParallelFor(begin, end, grain, fn, arg);
}
int NumThreads(void*) { return PoolThreads(); }

void* NoOps(void*, const TenonOpSpec*, char** error) {
  *error = strdup("this host has no framework operators");
  return nullptr;
}
void ReleaseNothing(void*, void*) {}
int CallNothing(void*, TenonOpCall*) { return 1; }
int CloneNothing(void*, TenonTensor*) { return 1; }
void LogNothing(void*, int, const char*) {}
int NeverInterrupted(void*) { return 0; }
int NeverTracing(void*) { return 0; }
void* NoRange(void*, const char*) { return nullptr; }
void EndNoRange(void*, void*) {}

}  // namespace

const TenonHost* DefaultHost() {
  static const TenonHost host = {
      .size = sizeof(TenonHost),
      .version = TENON_ABI_VERSION,
      .context = nullptr,
      .allocate = Allocate,
      .deallocate = Deallocate,
      .parallel_for = ParallelFor,
      .num_threads = NumThreads,
      .op_prepare = NoOps,
      .op_release = ReleaseNothing,
      .op_call = CallNothing,
      .tensor_release = ReleaseNothing,
      .tensor_retain = ReleaseNothing,
      .tensor_clone = CloneNothing,
      .cache_release = ReleaseNothing,
      .log = LogNothing,
      .interrupted = NeverInterrupted,
      .functions = 0,
      .tracing = NeverTracing,
      .range_begin = NoRange,
      .range_end = EndNoRange,
      .spaces = host_space::kSpaces,
      .device = host_space::Device,
      .allocate_in = host_space::Allocate,
      .deallocate_in = host_space::Deallocate,
      .stream = host_space::Stream,
      .event_record = host_space::Record,
      .event_wait = host_space::Wait,
      .event_release = host_space::Release,
  };
  return &host;
}

}  // namespace tenon
