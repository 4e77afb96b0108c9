// What a contraction packs: the second operand of a block of columns, which lies with the summed elements side by side, is copied to
// scratch with the columns side by side, once for all rows of a piece. Nothing of it goes to memory beyond the caches.
#pragma once

#include <optional>
#include <vector>

#include "backends/codegen/fused/fused_kernel.h"
#include "backends/codegen/plan/kernel_plan.h"

namespace tenon {

inline constexpr int64_t kRowsWorthPacking = 4;  // fewer read what they need where it lies
inline constexpr int64_t kMaxPackedBytes = 1 << 20;  // of scratch: they share the second cache with what else is read

struct Packing {
  const Instruction* contraction;
  std::vector<int64_t> extents;  // of the summed loops, as they are run: the order in scratch
  std::vector<size_t> order;     // of those loops, slowest to move in the operand's memory first
  int64_t terms = 1;             // their product
  bool by_outer = false;         // what is packed depends on a loop of the outer range, not on the block alone
  int64_t Bytes(int64_t block) const;
};

// nullopt: the second operand cannot be packed in kContraction `plan` (whose split and tile loop are set), or would not gain by it: sizes
// are not known, its vectors lie side by side already, or the summed elements of a column are not one run.
std::optional<Packing> PackingOf(const FusedKernel& fused, const KernelPlan& plan);

// Before anything is planned: will `contraction`, generated with its columns along vectors, pack its second operand, which has `strides`,
// instead of gathering from it?
bool PacksWhereItLies(const Instruction& contraction, absl::Span<const Dim> strides, int vector_bytes);

}  // namespace tenon
