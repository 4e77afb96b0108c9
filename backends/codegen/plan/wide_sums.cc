#include "backends/codegen/plan/wide_sums.h"

#include <algorithm>

namespace tenon {
namespace {

// Additions in a row of one partial result. Columns have one partial result each, rows one per lane and copy, whose errors average.
constexpr int64_t kRowChain = 64, kWideRowChain = 16, kColumnChain = 16;

bool IsSquare(const Instruction& op) { return op.opcode() == Opcode::kMultiply && op.operand(0) == op.operand(1); }

}  // namespace

bool HasWideTotal(const Instruction& reduce) {
  if (reduce.opcode() != Opcode::kReduce || reduce.operand_count() != 2 || !reduce.shape().is_array()) return false;
  if (CombineOf(reduce) != Combine::kIdentity || CombineOpcode(reduce) != Opcode::kAdd) return false;
  const PrimitiveType type = reduce.shape().element_type();
  return type == PrimitiveType::kF32 || type == PrimitiveType::kF64;
}

bool AddsEachStep(const Instruction& reduce, bool row) {
  return !WideUsesOf(reduce).empty() && !(row && IsSquare(*reduce.operand(0)));
}

std::optional<Stretch> StretchOf(const FusedKernel& fused, const KernelPlan& plan, int64_t team) {
  const bool row = plan.kind == PlanKind::kRow;
  bool any = false, wide = false;
  for (const Instruction* r : fused.reduces) {
    if (!HasWideTotal(*r) || AddsEachStep(*r, row)) continue;
    any = true;
    wide = wide || !WideUsesOf(*r).empty();
  }
  if (!any) return std::nullopt;
  const int64_t chain = !row ? kColumnChain : plan.lanes * (wide ? kWideRowChain : kRowChain);
  const int64_t wanted = chain * plan.unroll * team;
  int64_t inside = 1;  // iterations of the loops inside of the one looked at
  for (size_t i = plan.loops.size(); i-- > 0;) {
    if (!plan.loops[i].reduced) continue;
    const Dim extent = plan.loops[i].extent;
    // Up to two stretches are one: the error hardly differs.
    if (!extent.is_constant() || extent.constant() > 2 * wanted / inside) {
      int64_t count = std::max<int64_t>(1, wanted / inside);
      return Stretch{i, count};
    }
    inside *= std::max<int64_t>(1, extent.constant());
  }
  return std::nullopt;
}

}  // namespace tenon
