// What an executable's runs cost, per step. Counters are atomics: any number of threads add to them
// while one reads.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "runtime/bound_program.h"

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
  explicit RunCounters(const BoundProgram& bound)
      : calls(bound.calls.size()), kernels(bound.kernels.size()), copies(bound.copies.size()) {}
  // {"calls":..,"run_ns":..,"steps":[{"op","count","ns","reason","source","name"}],"kernels":[...],"copies":..}:
  // framework steps always; kernels and copies as far as profiling was on.
  std::string Json(const BoundProgram& bound, bool reset);

  Counter runs;
  std::vector<Counter> calls, kernels, copies;  // by index in BoundProgram
};

// {"tier","reason","inputs","outputs","kernels","steps","memory","compile_ms","remarks","program"}
std::string InfoJson(const BoundProgram& bound);

extern std::atomic<bool> profiling;  // kernels and copies are timed too

}  // namespace tenon
