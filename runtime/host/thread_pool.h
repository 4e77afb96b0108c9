// A small fork-and-join pool for hosts that have none of their own.
#pragma once

#include <cstdint>

namespace tenon {

// Runs fn(arg, b, e) over [begin, end) in pieces of at least `grain`, on the caller and up to
// PoolThreads() - 1 workers. Any number of threads may call it at once, also from inside fn.
// Workers start on first use, and anew in a forked child.
void PoolParallelFor(int64_t begin, int64_t end, int64_t grain, void (*fn)(void*, int64_t, int64_t),
                     void* arg);
int PoolThreads();
// At most so many from now on (1 or more): a tool's flag, before the first work.
void LimitPoolThreads(int threads);

// Before and after fork(): see runtime/fork.h.
void LockPool();
void UnlockPool(bool in_child);

}  // namespace tenon
