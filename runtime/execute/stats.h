// What an executable's runs cost, per step. Counters are atomics: any number of threads add to them
// while one reads. A step's time is what its region waited for it: a loop's holds those of its body.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "hlo/json.h"
#include "runtime/execute/bound_program.h"
#include "runtime/profile/run_trace.h"

namespace tenon {

struct Counter {
  std::atomic<uint64_t> count{0}, ticks{0};
  void Add(uint64_t t) {
    count.fetch_add(1, std::memory_order_relaxed);
    ticks.fetch_add(t, std::memory_order_relaxed);
  }
  void Reset() {
    count.store(0, std::memory_order_relaxed);
    ticks.store(0, std::memory_order_relaxed);
  }
};

class RunCounters {
 public:
  explicit RunCounters(const BoundProgram& bound);
  // {"calls":..,"run_ns":..,"arena_bytes":..,"steps":[{"op","count","ns","reason","source","name"}],"kernels":[...],"copies":..,
  // "library":..}: framework and library steps always; kernels and copies as far as profiling was on.
  std::string Json(const BoundProgram& bound, bool reset);
  // {"calls","run_ns","threads","regions":[runs of each],"steps":[{"region","step","kind","name","source","op","kernel",
  // "count","ns","bytes","flops"}],"trace":[[step, begin ns, end ns]...],"pieces":[[step, thread, begin ns, end ns]...]}: every step in
  // program order, and the last profiled run, in which the calling thread is number 0. What only profiling counts is 0 without it.
  std::string ProfileJson(const BoundProgram& bound);
  void SetTrace(const std::vector<TraceEvent>& trace);

  const uint64_t id;  // no two in a process are alike
  std::string name;   // whose runs these are, in profiles; "": the program's
  Counter runs;
  std::atomic<int64_t> arena_bytes{0};  // what the last run's sizes needed of the host's memory for intermediate results
  std::vector<Counter> steps;                  // by BoundStep::counter
  std::vector<std::atomic<uint64_t>> regions;  // how often each ran while profiling was on

 private:
  absl::Mutex trace_mutex_;
  std::vector<TraceEvent> trace_ ABSL_GUARDED_BY(trace_mutex_);
};

// What a program keeps or allocates of known size.
struct MemoryPlan {
  int64_t arena = 0, outputs = 0, constants = 0;
  int64_t total() const { return arena + outputs + constants; }
};
MemoryPlan PlannedBytes(const Program& program);

// {"kind","name","source","bytes","flops","estimated_ns", and as it has them "op","reason","rule","kernel"}.
Json DescribeStep(const BoundProgram& bound, const BoundStep& step);

// {"tier","reason","inputs","outputs","kernels","steps","launch_groups":[kernels of each],"memory","compile_ms","remarks","program"}
std::string InfoJson(const BoundProgram& bound);

extern std::atomic<bool> profiling;  // every step is timed, and runs are traced

}  // namespace tenon
