// Launches: the plan of an operator that several kernels compute, one after the other, with memory of their own between them.
//
// A LaunchPlan whose `target` is one of these has these launches. Any other has one, of its target, that reads all operands, writes all
// results and needs no memory beside.
#pragma once

#include <memory>
#include <vector>

#include "passes/lower/launch_plan.h"

namespace tenon {

struct Launches : TargetPlan {
  struct Memory {
    enum class Kind : uint8_t { kOperand, kResult, kTemporary } kind = Kind::kOperand;
    int64_t index = 0;  // of the operand, of the leaf, into `temporaries`
    bool operator==(const Memory&) const = default;
  };
  // A kernel, and the memory behind its pointers, in order: first what it only reads, then what it writes.
  struct Launch {
    std::shared_ptr<const TargetPlan> target;
    std::vector<Memory> reads, writes;
  };
  std::vector<Launch> launches;
  // Memory of the results' space that the launches alone see, by bytes: the buffer plan gives each a place that overlaps no operand, no
  // result and no other, alive for this operator alone. What it holds before the first launch is anybody's.
  std::vector<Dim> temporaries;
};

// Null: one launch.
inline const Launches* LaunchesOf(const LaunchPlan& plan) { return dynamic_cast<const Launches*>(plan.target.get()); }

}  // namespace tenon
