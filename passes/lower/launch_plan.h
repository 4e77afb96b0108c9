// LaunchPlan: how a fusion, or a contraction outside of one, will run. Made once, by the target, between fusion and schedule (pass
// lower-kernels); what is emitted in the end is this plan. What passes need of it is plain data, the rest is the target's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "hlo/module.h"

namespace tenon {

// The target's half of a plan.
class TargetPlan {
 public:
  virtual ~TargetPlan() = default;
};

struct LaunchPlan {
  // An operand of the fusion and a leaf of its result, in FlattenShape order.
  struct Pair {
    int64_t operand = 0, leaf = 0;
    bool operator==(const Pair&) const = default;
  };
  // The result may be made in the operand's memory, if the operand dies here and no other operand shares that memory. The kernel is
  // right when they share it and when they don't.
  std::vector<Pair> may_overwrite;
  // The result begins as a copy of the operand, made before the kernel runs. Where they share memory there is nothing to copy.
  std::vector<Pair> copies;
  bool owned = false;            // the results are the host's: it makes them, in memory of theirs alone
  double nanoseconds = 0;        // one thread, for typical sizes (hlo/dim/dim.h) where they are symbolic
  int64_t bytes = 0, flops = 0;  // 0: unknown
  std::shared_ptr<const TargetPlan> target;

  bool MayOverwrite(int64_t operand, int64_t leaf) const { return absl::c_linear_search(may_overwrite, Pair{operand, leaf}); }
};

using LaunchPlans = absl::flat_hash_map<const Instruction*, LaunchPlan>;  // by fusion or contraction

}  // namespace tenon
