// The CPU code generator's own interface: PlanCpuKernel (backends/cpu/plan/kernel.h) with the plan in
// the caller's hands.
#pragma once

#include <memory>
#include <optional>

#include "backends/codegen/fused/fused_kernel.h"
#include "backends/cpu/plan/kernel.h"
#include "backends/cpu/plan/kernel_plan.h"

namespace tenon {

// As PlanCpuKernel, with this plan instead of MakePlan's. InvalidArgument if it does not fit the
// fusion.
absl::StatusOr<std::unique_ptr<PlannedKernel>> PlanCpuKernelWith(
    const KernelRequest& request, const CpuTarget& target, bool excess_precision,
    const std::optional<KernelPlan>& plan);

// What passes ask about plans (PassContext::any_order, WorksByRows of passes/memory/in_place.h): does a kernel take this reduction in one
// pass, its elements in any order? Will the kernel of `request` finish a row's reductions before it stores the row?
bool CpuReducesInAnyOrder(const Instruction& reduce);
bool CpuWorksByRows(const KernelRequest& request, const CpuTarget& target);

// Everything about a fusion that its code depends on, but names, metadata and hoisted literals'
// values.
std::string FingerprintOf(const FusedKernel& fused);

}  // namespace tenon
