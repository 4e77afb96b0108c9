// Workers: a stream of numbers worked on by forked processes, so that a crash or a hang loses one number and not the run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tenon::lab {

struct WorkersOptions {
  int jobs = 1;
  int64_t count = 0;              // numbers 0 .. count-1; negative: no end
  double seconds = 0;             // 0: no limit. New numbers aren't begun after it
  double seconds_per_number = 60; // a worker that needs longer is killed
  const bool* stop = nullptr;     // once true, no new numbers are begun
  // Asked in the worker behind each number; true ends it, and another takes its place (a GPU that a failed kernel took from its process).
  std::function<bool()> worn_out = [] { return false; };
};

// Runs work(k) in a worker for each k; what it returns (one line) is given to on_line(k, line) here. on_death(k, how) for a k whose
// worker died ("signal 11 (Segmentation fault)", "no answer in 60 s"). on_tick() about every two seconds. Returns numbers finished.
int64_t RunWorkers(const WorkersOptions& options, const std::function<std::string(int64_t)>& work,
                   const std::function<void(int64_t, const std::string&)>& on_line,
                   const std::function<void(int64_t, const std::string&)>& on_death, const std::function<void()>& on_tick);

}  // namespace tenon::lab
