// MakePlan: the schedule of one fusion, constructed from its index maps and the target's numbers
// (no search).
#pragma once

#include "absl/status/statusor.h"
#include "backends/common/fused_kernel.h"
#include "backends/common/kernel_plan.h"
#include "backends/common/target.h"

namespace tenon {

absl::StatusOr<KernelPlan> MakePlan(const FusedKernel& fused, const CpuTarget& target);
// Whether `plan` describes this fusion: loops cover the iteration space, phases its reductions in
// order, numbers in range.
absl::Status CheckPlan(const FusedKernel& fused, const KernelPlan& plan);

struct WorkEstimate {
  int64_t bytes = 0, flops = 0;  // whole kernel; 0 if sizes are symbolic
  double nanoseconds = 0;        // one thread
  Dim units = 1;                 // size of the outer range
  int64_t grain = 1;             // units that are worth a thread
};
WorkEstimate EstimateWork(const FusedKernel& fused, const KernelPlan& plan);

// How one element of a memory operand is reached by a plan's loops; one entry per load or store.
// For plans and tests.
struct MemoryUse {
  const Instruction* op = nullptr;  // parameter or root
  Index offset = nullptr;           // linear, in elements
  bool store = false;
};
struct AccessTrace {
  std::vector<MemoryUse> uses;
  int divisions = 0;  // floordiv and mod nodes left in all index expressions
};
AccessTrace TraceAccesses(IndexSpace& space, const FusedKernel& fused, const Iteration& iteration);

}  // namespace tenon
