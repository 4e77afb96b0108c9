#include "runtime/fork.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "runtime/cache/memory_cache.h"
#include "runtime/execute/frame.h"
#include "runtime/host/thread_pool.h"
#include "runtime/profile/recorder.h"

namespace tenon {
namespace {

constexpr auto kLongestWait = std::chrono::seconds(5);

// Sections are readers, forks are writers that go first. Never destroyed.
struct Gate {
  std::mutex mutex;
  // A child's copy may have waiters that the child doesn't have: it makes a new one.
  std::condition_variable* changed = new std::condition_variable;
  int open = 0;   // threads with an open section
  int forks = 0;  // waiting or under way
  std::atomic<bool> cut = false;
  std::atomic<int64_t> generation = 0;
};
Gate& TheGate() {
  static Gate* gate = new Gate;
  return *gate;
}

thread_local int depth = 0;

void Open() {
  Gate& gate = TheGate();
  std::unique_lock lock(gate.mutex);
  gate.changed->wait(lock, [&] { return gate.forks == 0; });
  ++gate.open;
}
void Close() {
  Gate& gate = TheGate();
  std::lock_guard lock(gate.mutex);
  --gate.open;
  if (gate.forks > 0) gate.changed->notify_all();
}

// Leaves the gate's mutex locked.
void WaitForSections() {
  Gate& gate = TheGate();
  std::unique_lock lock(gate.mutex);
  ++gate.forks;
  const int own = depth > 0 ? 1 : 0;
  gate.changed->wait_for(lock, kLongestWait, [&] { return gate.open <= own; });
  lock.release();
}
void ReleaseSections(bool in_child) {
  Gate& gate = TheGate();
  if (in_child) {
    const int own = depth > 0 ? 1 : 0;
    if (gate.open > own) gate.cut = true;
    gate.open = own;
    gate.forks = 0;
    ++gate.generation;
    gate.changed = new std::condition_variable;
  } else {
    --gate.forks;
    gate.changed->notify_all();
  }
  gate.mutex.unlock();
}

// Sections first, since they are what takes time. Then the order is that of nesting: a cache may
// free executables, they their frames.
void Prepare() {
  WaitForSections();
  MemoryCache::LockAll();
  FramePool::LockAll();
  Recorder::Lock();
  LockPool();
}
void Release(bool in_child) {
  UnlockPool(in_child);
  Recorder::Unlock(in_child);
  FramePool::UnlockAll();
  MemoryCache::UnlockAll(in_child);
  ReleaseSections(in_child);
}

}  // namespace

void InstallForkHandlers() {
  static std::once_flag once;
  std::call_once(once,
                 [] { pthread_atfork(Prepare, [] { Release(false); }, [] { Release(true); }); });
}

ForkSection::ForkSection() {
  InstallForkHandlers();
  if (depth == 0) Open();
  ++depth;
}
ForkSection::~ForkSection() {
  if (--depth == 0) Close();
}
void ForkSection::Yield(const std::function<void()>& meanwhile) {
  struct Outside {  // opens again also if `meanwhile` throws
    const int before = std::exchange(depth, 0);
    Outside() { Close(); }
    ~Outside() {
      Open();
      depth = before;
    }
  } outside;
  if (meanwhile != nullptr) meanwhile();
}
void ForkSection::Abandon() {
  if (depth == 0) return;
  depth = 0;
  Close();
}

int64_t ForkGeneration() { return TheGate().generation; }
bool ForkedInsideSection() { return TheGate().cut; }

}  // namespace tenon
