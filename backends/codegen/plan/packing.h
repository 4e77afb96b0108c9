// What a contraction packs: the second operand of a block of columns is copied to scratch with the columns side by side, once for all rows
// of a piece. Nothing of it goes to memory beyond the caches. It lies with the summed elements side by side, and is turned; or with the
// columns side by side, and is copied, where a term's columns are so far from the next one's that caches cannot keep them (IsFarApart).
#pragma once

#include <optional>
#include <vector>

#include "backends/codegen/fused/fused_kernel.h"
#include "backends/codegen/plan/kernel_plan.h"

namespace tenon {

inline constexpr int64_t kRowsWorthPacking = 4;      // fewer read what they need where it lies
inline constexpr int64_t kRowsWorthCopying = 96;     // of an operand that needs no turning
inline constexpr int64_t kMaxPackedBytes = 1 << 20;  // of scratch: they share the second cache with what else is read

struct Packing {
  const Instruction* contraction;
  std::vector<int64_t> extents;  // of the summed loops, as they are run: the order in scratch
  std::vector<size_t> order;     // of those loops, slowest to move in the operand's memory first
  int64_t terms = 1;             // their product
  bool by_outer = false;         // what is packed depends on a loop of the outer range, not on the block alone
  int64_t apart = 0;             // bytes from the columns of a term to those of the next, which lie side by side; 0: they don't
  int64_t Bytes(int64_t block) const;
  // Where it lies, `block` columns of all terms share few sets of a cache, or are on more pages than the processor remembers addresses of.
  bool IsFarApart(int64_t block) const;
};

// nullopt: the second operand cannot be packed in kContraction `plan` (whose split and tile loop are set): sizes are not known, or neither
// its columns nor the summed elements of a column are one run.
std::optional<Packing> PackingOf(const FusedKernel& fused, const KernelPlan& plan);

// Before anything is planned: will `contraction`, generated with its columns along vectors, pack its second operand, which has `strides`,
// instead of gathering from it?
bool PacksWhereItLies(const Instruction& contraction, absl::Span<const Dim> strides, int vector_bytes);

}  // namespace tenon
