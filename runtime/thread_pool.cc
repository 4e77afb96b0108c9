#include "runtime/thread_pool.h"

#include <algorithm>
#include <deque>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "runtime/fork.h"

namespace tenon {
namespace {

// Lives on the caller's stack until every piece is done.
struct Job {
  void (*fn)(void*, int64_t, int64_t);
  void* arg;
  int64_t begin, end, pieces;
  int64_t next = 0, done = 0;  // guarded by the pool's mutex

  void RunPiece(int64_t k) const {
    const int64_t n = end - begin;
    fn(arg, begin + n * k / pieces, begin + n * (k + 1) / pieces);
  }
};

class Pool {
 public:
  void Run(Job* job) {
    mutex_.Lock();
    StartWorkers();
    jobs_.push_back(job);
    WorkOn(job);
    // Others may still be at work on the last pieces.
    mutex_.Await(absl::Condition(+[](Job* j) { return j->done == j->pieces; }, job));
    mutex_.Unlock();
  }
  void Lock() { mutex_.Lock(); }
  void Unlock(bool in_child) {
    if (in_child) workers_ = 0;  // they exist in the parent only
    mutex_.Unlock();
  }

 private:
  void StartWorkers() {
    while (workers_ < PoolThreads() - 1) {
      ++workers_;
      std::thread([this] { Worker(); }).detach();
    }
  }
  void Worker() {
    mutex_.Lock();
    while (true) {
      mutex_.Await(absl::Condition(+[](std::deque<Job*>* jobs) { return !jobs->empty(); }, &jobs_));
      WorkOn(jobs_.front());
    }
  }
  // Takes pieces until none is left. The mutex is held on entry and on return.
  void WorkOn(Job* job) {
    while (job->next < job->pieces) {
      const int64_t piece = job->next++;
      if (job->next == job->pieces) jobs_.erase(std::find(jobs_.begin(), jobs_.end(), job));
      mutex_.Unlock();
      job->RunPiece(piece);
      mutex_.Lock();
      const bool last = ++job->done == job->pieces;
      if (last) return;  // the owner may drop the job now
    }
  }

  absl::Mutex mutex_;
  std::deque<Job*> jobs_;  // with pieces left
  int workers_ = 0;
};

Pool& ThePool() {
  static Pool* pool = new Pool;  // workers are never joined, so it never dies
  return *pool;
}

}  // namespace

int PoolThreads() {
  static const int threads =
      std::clamp<int>(static_cast<int>(std::thread::hardware_concurrency()), 1, 16);
  return threads;
}

void PoolParallelFor(int64_t begin, int64_t end, int64_t grain, void (*fn)(void*, int64_t, int64_t),
                     void* arg) {
  if (begin >= end) return;
  const int64_t pieces =
      std::min<int64_t>(PoolThreads(), (end - begin) / std::max<int64_t>(grain, 1));
  if (pieces <= 1) return fn(arg, begin, end);
  InstallForkHandlers();
  Job job{fn, arg, begin, end, pieces};
  ThePool().Run(&job);
}

void LockPool() ABSL_NO_THREAD_SAFETY_ANALYSIS { ThePool().Lock(); }
void UnlockPool(bool in_child) ABSL_NO_THREAD_SAFETY_ANALYSIS { ThePool().Unlock(in_child); }

}  // namespace tenon
