// CheckPlan: is this a plan of this fusion?
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "backends/codegen/fused/fused_kernel.h"
#include "backends/codegen/plan/kernel_plan.h"

namespace tenon {

// InvalidArgument unless `plan` computes this fusion inside of its memory: loops cover the iteration space; phases name each reduction and
// each full-shaped root once, in an order in which all that they read is finished; numbers fit the kind, scratch is enough. Whoever wrote
// the plan: tests/backends/random_plans_test.cc. `own_scratch`: column kernels have their accumulators in scratch,
// sorts their rows.
absl::Status CheckPlan(const FusedKernel& fused, const KernelPlan& plan, bool own_scratch = true);

// Iterations of the tile loop that a contraction's tile has at most, and the vectors of a block.
inline constexpr int64_t kMaxTileRows = 14, kMaxTileVectors = 6;
// Does a phase leave this value for later ones, in scratch or in a root's memory?
bool Keeps(const PlanPhase& phase, int64_t value);
// A value of the fusion has the place of a root's elements: as many, in memory as they are in registers.
bool CanLend(const FusedKernel& fused, const PlanPhase::Lent& lent);

inline constexpr int64_t kMaxTogether = 8;  // iterations of the tile loop of a loop kernel that are done together

// Bytes of the accumulator rows of all reductions of a column kernel.
int64_t ColumnScratch(const FusedKernel& fused, const KernelPlan& plan);

// Which results the kernel may make in an operand's memory (LaunchPlan::may_overwrite).
std::vector<LaunchPlan::Pair> OverwritesOf(const FusedKernel& fused, const KernelPlan& plan);

}  // namespace tenon
