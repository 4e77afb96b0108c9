#include "runtime/host/thread_pool.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/fork.h"
#include "runtime/thread.h"

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
    std::unique_lock lock(mutex_);
    StartWorkers();
    jobs_.push_back(job);
    has_jobs_->notify_all();
    WorkOn(job, lock);
    // Others may still be at work on the last pieces.
    job_done_->wait(lock, [&] { return job->done == job->pieces; });
  }
  void Lock() { mutex_.lock(); }
  void Unlock(bool in_child) {
    if (in_child) {  // workers, and those who waited for them, exist in the parent only
      workers_ = 0;
      jobs_.clear();
      has_jobs_ = new std::condition_variable;
      job_done_ = new std::condition_variable;
    }
    mutex_.unlock();
  }

 private:
  // As many as can be had: the caller works too, so none is enough.
  void StartWorkers() {
    for (; workers_ < PoolThreads() - 1; ++workers_) {
      if (!StartThread([this] { Worker(); }).ok()) return;
    }
  }
  void Worker() {
    std::unique_lock lock(mutex_);
    while (true) {
      has_jobs_->wait(lock, [&] { return !jobs_.empty(); });
      WorkOn(jobs_.front(), lock);
    }
  }
  // Takes pieces until none is left.
  void WorkOn(Job* job, std::unique_lock<std::mutex>& lock) {
    while (job->next < job->pieces) {
      const int64_t piece = job->next++;
      if (job->next == job->pieces) jobs_.erase(std::find(jobs_.begin(), jobs_.end(), job));
      lock.unlock();
      job->RunPiece(piece);
      lock.lock();
      if (++job->done == job->pieces) {
        job_done_->notify_all();
        return;  // the owner may drop the job from here on
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable* has_jobs_ =
      new std::condition_variable;  // never destroyed: a child's copy may have waiters
  std::condition_variable* job_done_ = new std::condition_variable;
  std::deque<Job*> jobs_;  // with pieces left
  int workers_ = 0;
};

Pool& ThePool() {
  static Pool* pool = new Pool;  // workers are never joined, so it never dies
  return *pool;
}

}  // namespace

static std::atomic<int> most_threads{16};

int PoolThreads() {
  static const int threads =
      std::clamp<int>(static_cast<int>(std::thread::hardware_concurrency()), 1, 16);
  return std::min(threads, most_threads.load(std::memory_order_relaxed));
}

void LimitPoolThreads(int threads) { most_threads.store(std::max(1, threads)); }

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

void LockPool() { ThePool().Lock(); }
void UnlockPool(bool in_child) { ThePool().Unlock(in_child); }

}  // namespace tenon
