// MakePlan: the schedule of one fusion, constructed from its index maps and the target's numbers
// (no search).
#pragma once

#include "absl/status/statusor.h"
#include "backends/codegen/fused/fused_kernel.h"
#include "backends/codegen/plan/kernel_plan.h"
#include "backends/cpu/plan/target.h"

namespace tenon {

absl::StatusOr<KernelPlan> MakePlan(const FusedKernel& fused, const CpuTarget& target);

struct WorkEstimate {
  int64_t bytes = 0, flops = 0;  // whole kernel; 0 if sizes are symbolic
  double nanoseconds = 0;        // one thread
  Dim units = 1;                 // size of the outer range
  Dim grain = 1;                 // units that are worth a thread
};
WorkEstimate EstimateWork(const FusedKernel& fused, const KernelPlan& plan);

}  // namespace tenon
