// MakePlan: the schedule of one fusion, constructed from its index maps and the target's numbers
// (no search).
#pragma once

#include "absl/status/statusor.h"
#include "backends/codegen/fused/fused_kernel.h"
#include "backends/codegen/plan/kernel_plan.h"
#include "backends/cpu/plan/target.h"

namespace tenon {

absl::StatusOr<KernelPlan> MakePlan(const FusedKernel& fused, const CpuTarget& target);

}  // namespace tenon
