// The CPU code generator's own interface: PlanCpuKernel (backends/cpu/plan/kernel.h) with the plan in
// the caller's hands.
#pragma once

#include <memory>
#include <optional>

#include "backends/codegen/fused/fused_kernel.h"
#include "backends/cpu/plan/kernel.h"
#include "backends/codegen/plan/kernel_plan.h"

namespace tenon {

class ValueViews;

// As PlanCpuKernel, with this plan instead of MakePlan's. InvalidArgument if it does not fit the
// fusion.
absl::StatusOr<std::unique_ptr<CpuPlannedKernel>> PlanCpuKernelWith(
    const KernelRequest& request, const CpuTarget& target, bool excess_precision,
    const std::optional<KernelPlan>& plan);

// How does this fusion run (PassContext::plan_launches)? The plan's half that is the target's is the PlannedKernel.
absl::StatusOr<LaunchPlan> PlanCpuLaunches(const Instruction& fusion, const ValueViews& views, const CpuTarget& target,
                                           bool excess_precision, const std::optional<KernelPlan>& given = std::nullopt);

}  // namespace tenon
