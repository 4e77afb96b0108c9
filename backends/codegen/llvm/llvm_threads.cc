#include "backends/codegen/llvm/llvm_threads.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "llvm/Support/ErrorHandling.h"
#include "runtime/fork.h"
#include "runtime/thread.h"

namespace tenon {
namespace {

constexpr size_t kStackBytes = size_t{16} << 20;  // LLVM recurses; address space only, until it is used

std::atomic<int> parked{0};

// Shared by the caller and its threads; a parked thread keeps it.
struct Batch {
  std::vector<std::function<absl::Status()>> tasks;
  std::vector<absl::Status> results;
  std::mutex mutex;
  std::condition_variable changed;
  size_t next = 0;   // the first task that nobody has taken
  int threads = 0;   // at work
};

// What this thread is at; null on threads that are not ours.
struct Current {
  Batch* batch;
  size_t task;
};
thread_local Current* current = nullptr;

// Made without memory: a code alone.
absl::Status OutOfMemory() { return absl::Status(absl::StatusCode::kResourceExhausted, ""); }

// Without a call frame of ours above it that could be returned to.
[[noreturn]] void Park(const char* reason) {
  Batch& batch = *current->batch;
  ForkSection::Abandon();
  {
    std::lock_guard lock(batch.mutex);
    const int count = ++parked;
    try {
      batch.results[current->task] =
          absl::InternalError(absl::StrCat("LLVM gave up: ", reason, " (its thread is parked, ", count, " of at most ", kMostParked, ")"));
    } catch (...) {
      batch.results[current->task] = OutOfMemory();
    }
    --batch.threads;
    batch.changed.notify_all();
  }
  current = nullptr;
  while (true) pause();
}

// On a thread that is not ours (another user of the same LLVM) it returns, and LLVM ends the process as it would without us.
void OnFatalError(void*, const char* reason, bool) {
  if (current != nullptr) Park(reason);
}
void OnNoMemory(void*, const char* reason, bool) {
  if (current != nullptr) Park(reason);
}

absl::Status RunOne(const std::function<absl::Status()>& task) {
  ForkSection section;
  try {
    try {
      return task();
    } catch (const std::bad_alloc&) {
      return OutOfMemory();
    } catch (const std::exception& e) {
      return absl::InternalError(e.what());
    } catch (...) {
      return absl::InternalError("something unknown was thrown");
    }
  } catch (...) {
    return OutOfMemory();
  }
}

void Work(const std::shared_ptr<Batch>& batch) {
  std::unique_lock lock(batch->mutex);
  while (batch->next < batch->tasks.size()) {
    Current mine{batch.get(), batch->next++};
    lock.unlock();
    current = &mine;
    absl::Status result = RunOne(batch->tasks[mine.task]);
    current = nullptr;
    lock.lock();
    batch->results[mine.task] = std::move(result);
  }
  --batch->threads;
  batch->changed.notify_all();
}

// One thread more, if there is one. With batch's mutex held.
absl::Status AddThread(const std::shared_ptr<Batch>& batch) {
  ++batch->threads;
  absl::Status started = OutOfMemory();
  try {
    started = StartThread([batch] { Work(batch); }, kStackBytes);
  } catch (const std::bad_alloc&) {
  }
  if (!started.ok()) --batch->threads;
  return started;
}

// The tasks refer to what their caller has: it does not leave while one is at work, whatever is thrown.
class Awaited {
 public:
  Awaited(std::shared_ptr<Batch> batch, int64_t generation) : batch_(std::move(batch)), generation_(generation) {}
  ~Awaited() {
    if (ForkGeneration() != generation_) return;  // nobody is at work here
    std::unique_lock lock(batch_->mutex);
    batch_->next = batch_->tasks.size();
    batch_->changed.wait(lock, [&] { return batch_->threads == 0; });
  }
  Awaited(const Awaited&) = delete;

 private:
  const std::shared_ptr<Batch> batch_;
  const int64_t generation_;
};

absl::Status MayCompile() {
  if (ForkedInsideSection()) {
    return absl::ResourceExhaustedError(
        "this process was forked while another thread was inside LLVM, whose locks may be held for ever: nothing is compiled here");
  }
  if (parked >= kMostParked) {
    return absl::ResourceExhaustedError(
        absl::StrCat("LLVM gave up ", parked.load(), " times in this process: nothing more is compiled here"));
  }
  return absl::OkStatus();
}

}  // namespace

int ParkedLlvmThreads() { return parked; }

std::vector<absl::Status> RunOnLlvmThreads(std::vector<std::function<absl::Status()>> tasks, int threads,
                                           const std::function<void()>& while_waiting) {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::install_fatal_error_handler(OnFatalError);
    llvm::install_bad_alloc_error_handler(OnNoMemory);
  });
  const size_t count = tasks.size();
  if (absl::Status may = MayCompile(); !may.ok()) return std::vector<absl::Status>(count, may);
  const int64_t generation = ForkGeneration();
  auto batch = std::make_shared<Batch>();
  batch->tasks = std::move(tasks);
  batch->results.resize(count);
  const Awaited awaited(batch, generation);
  {
    std::unique_lock lock(batch->mutex);
    for (size_t k = 0; k < std::min(count, static_cast<size_t>(std::max(threads, 1))); ++k) {
      if (!AddThread(batch).ok()) break;
    }
    while (true) {
      if (batch->threads == 0) {  // done, or no thread yet, or the last one was parked before the last task was taken
        if (batch->next == count) break;
        if (absl::Status started = AddThread(batch); !started.ok()) {
          for (; batch->next < count; ++batch->next) batch->results[batch->next] = started;
          break;
        }
      }
      batch->changed.wait_for(lock, std::chrono::milliseconds(50));
      if (while_waiting == nullptr || batch->threads == 0) continue;
      lock.unlock();
      while_waiting();
      // It may have forked, and then nobody is at work here: neither the results nor the mutex will change any more.
      if (ForkGeneration() != generation) return std::vector<absl::Status>(count, absl::AbortedError("forked during a compile"));
      lock.lock();
    }
  }
  return batch->results;  // a copy: parked threads keep theirs
}

}  // namespace tenon
