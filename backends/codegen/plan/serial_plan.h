// What plans of serial ops (IsSerialOp) are made of.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/codegen/fused/fused_kernel.h"
#include "backends/codegen/plan/kernel_plan.h"

namespace tenon {

// The plans of sort, topk, scan and select-and-scatter, and their nanoseconds on one thread of the host.
absl::StatusOr<KernelPlan> MakeSerialPlan(const FusedKernel& fused, int vector_bytes);
double SerialWork(const FusedKernel& fused, double elements);
// No window of a select-and-scatter crosses dim d: its elements are independent.
bool WindowsStayApart(const Window& window, int64_t d);
// The size of the dim along which a sort or scan runs.
Dim SerialExtent(const FusedKernel& fused);
// A sort's columns in row scratch, of whole rows or of so many elements, operands and for topk the positions: column k has two buffers,
// at byte offsets[k] and offsets[k] + distances[k], of elements as in memory.
struct SortColumns {
  std::vector<PrimitiveType> types;
  std::vector<int64_t> offsets, distances;
  int64_t bytes = 0;
};
SortColumns SortScratch(const FusedKernel& fused);
SortColumns SortScratch(const FusedKernel& fused, int64_t elements);

// What a dim of a scatter's operand is to its updates: walked from end to end by their windows or batches, found by an index, or
// something that pieces cannot share (windows that begin at an index, or that are shorter than the dim).
enum class ScatterDim : uint8_t { kWindow, kBatch, kIndexed, kTied };
ScatterDim ScatterDimOf(const Instruction& scatter, int64_t d);
// The dim of its operand that pieces of a scatter share, if they should.
std::optional<int64_t> ChooseCut(const Instruction& scatter);
// As the plan says it: the first loop, which is the outer range, or the last one, in blocks.
std::optional<int64_t> CutDim(const KernelPlan& plan);

}  // namespace tenon
