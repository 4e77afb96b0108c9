#include <new>
#include <set>
#include <utility>

#include "runtime/clock.h"
#include "runtime/execute/frame.h"

namespace tenon {
namespace {

constexpr double kIdleSeconds = 5;

// Never destroyed: executables may die after static destructors ran.
struct Registry {
  std::mutex mutex;
  std::set<FramePool*> pools;  // their locks are taken in one order at every fork
  std::atomic<uint64_t> next_trim{0};
};
Registry& TheRegistry() {
  static Registry* registry = new Registry;
  return *registry;
}

}  // namespace

FramePool::FramePool(const BoundProgram* bound) : bound_(bound), last_use_(Ticks()) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  registry.pools.insert(this);
}

FramePool::~FramePool() {
  Registry& registry = TheRegistry();
  {
    const std::lock_guard lock(registry.mutex);
    registry.pools.erase(this);
  }
  delete hot_.exchange(nullptr);
}

std::unique_ptr<Frame> FramePool::Take() {
  if (Frame* frame = hot_.exchange(nullptr, std::memory_order_acquire))
    return std::unique_ptr<Frame>(frame);
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Frame> frame = std::move(idle_.back());
      idle_.pop_back();
      return frame;
    }
  }
  return std::make_unique<Frame>(bound_);
}

void FramePool::Give(std::unique_ptr<Frame> frame) {
  const uint64_t now = Ticks();
  last_use_.store(now, std::memory_order_relaxed);
  Frame* none = nullptr;
  if (hot_.compare_exchange_strong(none, frame.get(), std::memory_order_release,
                                   std::memory_order_relaxed)) {
    frame.release();
  } else {
    const std::lock_guard lock(mutex_);
    try {
      idle_.push_back(std::move(frame));
    } catch (const std::bad_alloc&) {  // the next run makes another
    }
  }
  MaybeTrimOthers(now);
}

int64_t FramePool::idle_frames() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(idle_.size()) +
         (hot_.load(std::memory_order_relaxed) != nullptr ? 1 : 0);
}

std::vector<std::unique_ptr<Frame>> FramePool::TakeIdle(uint64_t before) {
  std::vector<std::unique_ptr<Frame>> taken;
  if (last_use_.load(std::memory_order_relaxed) >= before) return taken;
  const std::lock_guard lock(mutex_);
  taken.swap(idle_);
  taken.reserve(taken.size() + 1);
  if (Frame* frame = hot_.exchange(nullptr, std::memory_order_acquire)) taken.emplace_back(frame);
  return taken;
}

void FramePool::TrimIdle(double seconds) {
  const uint64_t now = Ticks(), age = NsToTicks(seconds * 1e9);
  const uint64_t before = seconds <= 0 ? UINT64_MAX : (now > age ? now - age : 0);
  std::vector<std::unique_ptr<Frame>> dead;
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);  // held to the end: a pool's program must outlive its frames
  for (FramePool* pool : registry.pools) {
    for (std::unique_ptr<Frame>& frame : pool->TakeIdle(before)) dead.push_back(std::move(frame));
  }
  dead.clear();
}

void FramePool::LockAll() {
  Registry& registry = TheRegistry();
  registry.mutex.lock();
  for (FramePool* pool : registry.pools) pool->mutex_.lock();
}

void FramePool::UnlockAll() {
  Registry& registry = TheRegistry();
  for (FramePool* pool : registry.pools) pool->mutex_.unlock();
  registry.mutex.unlock();
}

void FramePool::MaybeTrimOthers(uint64_t now) {
  std::atomic<uint64_t>& next = TheRegistry().next_trim;
  uint64_t due = next.load(std::memory_order_relaxed);
  if (now < due) return;
  const uint64_t again = now + NsToTicks(1e9);
  if (!next.compare_exchange_strong(due, again, std::memory_order_relaxed)) return;
  try {
    TrimIdle(kIdleSeconds);
  } catch (const std::bad_alloc&) {  // another time
  }
}

}  // namespace tenon
