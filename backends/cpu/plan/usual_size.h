// A kernel whose fastest dim is a symbol that usually is as short as pixels' colours or pairs are, once more for that very size.
//
// A number there lets vectors go along the next dim, all elements of the fastest one together (`rows` of a loop plan): twice as fast as a
// vector for each pixel, and nothing that a symbolic extent could have. The kernel has code for both and asks the size in each call.
#pragma once

#include <memory>
#include <optional>

#include "backends/codegen/fused/fused_kernel.h"
#include "backends/codegen/plan/kernel_plan.h"
#include "backends/cpu/plan/target.h"

namespace tenon {

struct UsualSize {
  Dim symbol;
  int64_t size = 0;
  std::unique_ptr<Module> module;  // of the fusion with that size, in which `fused` points
  FusedKernel fused;               // its arguments are the other kernel's
  KernelPlan plan;

  // 1 in calls of that size, 0 in others.
  Dim Is() const { return Dim(1) - Min(1, Max(symbol - Dim(size), Dim(size) - symbol)); }
};

// `fused` and `plan` are those for all sizes. None where nothing is gained.
std::optional<UsualSize> PlanUsualSize(const KernelRequest& request, const FusedKernel& fused, const KernelPlan& plan,
                                       const CpuTarget& target);

}  // namespace tenon
