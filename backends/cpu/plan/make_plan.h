// MakePlan: the schedule of one fusion, constructed from its index maps and the target's numbers
// (no search).
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "backends/codegen/fused/fused_kernel.h"
#include "backends/codegen/index/access_trace.h"
#include "backends/cpu/plan/kernel_plan.h"
#include "backends/cpu/plan/target.h"

namespace tenon {

inline constexpr int64_t kCachedBytes = 2 << 20;  // a kernel that moves less finds its data in a cache

absl::StatusOr<KernelPlan> MakePlan(const FusedKernel& fused, const CpuTarget& target);
// InvalidArgument unless `plan` computes this fusion inside of its memory: loops cover the iteration space; phases name each reduction and
// each full-shaped root once, in an order in which all that they read is finished; numbers fit the kind, scratch is enough. Whoever wrote
// the plan: tests/backends/random_plans_test.cc.
absl::Status CheckPlan(const FusedKernel& fused, const KernelPlan& plan);

// Which results the kernel may make in an operand's memory (LaunchPlan::may_overwrite).
std::vector<LaunchPlan::Pair> OverwritesOf(const FusedKernel& fused, const KernelPlan& plan);

// The plans of sort, topk, scan and select-and-scatter (serial_plan.cc), and their nanoseconds on
// one thread.
absl::StatusOr<KernelPlan> MakeSerialPlan(const FusedKernel& fused, const CpuTarget& target);
double SerialWork(const FusedKernel& fused, double elements);
// No window of a select-and-scatter crosses dim d: its elements are independent.
bool WindowsStayApart(const Window& window, int64_t d);
// The size of the dim along which a sort or scan runs.
Dim SerialExtent(const FusedKernel& fused);
// A sort's columns in row scratch, operands and for topk the positions: column k has two buffers,
// at byte offsets[k] and offsets[k] + distances[k], of elements as in memory.
struct SortColumns {
  std::vector<PrimitiveType> types;
  std::vector<int64_t> offsets, distances;
  int64_t bytes = 0;
};
SortColumns SortScratch(const FusedKernel& fused);

// What a dim of a scatter's operand is to its updates: walked from end to end by their windows or batches, found by an index, or
// something that pieces cannot share (windows that begin at an index, or that are shorter than the dim).
enum class ScatterDim : uint8_t { kWindow, kBatch, kIndexed, kTied };
ScatterDim ScatterDimOf(const Instruction& scatter, int64_t d);
// The dim of its operand that pieces of a scatter share, if they should.
std::optional<int64_t> ChooseCut(const Instruction& scatter);
// As the plan says it: the first loop, which is the outer range, or the last one, in blocks.
std::optional<int64_t> CutDim(const KernelPlan& plan);

struct WorkEstimate {
  int64_t bytes = 0, flops = 0;  // whole kernel; 0 if sizes are symbolic
  double nanoseconds = 0;        // one thread
  Dim units = 1;                 // size of the outer range
  Dim grain = 1;                 // units that are worth a thread
};
WorkEstimate EstimateWork(const FusedKernel& fused, const KernelPlan& plan);

}  // namespace tenon
