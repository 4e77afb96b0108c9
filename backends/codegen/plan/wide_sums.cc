#include "backends/codegen/plan/wide_sums.h"

#include <algorithm>

namespace tenon {
namespace {

// Additions in a row of one partial result. Columns have one partial result each, rows one per lane and copy, whose errors average.
constexpr int64_t kRowChain = 64, kWideRowChain = 16, kColumnChain = 16;

bool IsSquare(const Instruction& op) { return op.opcode() == Opcode::kMultiply && op.operand(0) == op.operand(1); }

// Iterations of all reduced loops that are a stretch; 0: nothing has totals.
int64_t WantedIterations(const FusedKernel& fused, const KernelPlan& plan, int64_t team) {
  const bool row = plan.kind == PlanKind::kRow;
  bool any = false, wide = false;
  for (const Instruction* r : fused.reduces) {
    if (!HasWideTotal(*r) || AddsEachStep(*r, row)) continue;
    any = true;
    wide = wide || !WideUsesOf(*r).empty();
  }
  const int64_t chain = !row ? kColumnChain : plan.lanes * (wide ? kWideRowChain : kRowChain);
  return any ? chain * plan.unroll * team : 0;
}

// typical: sizes that are symbols are taken for their typical ones.
UsualStretch Find(const KernelPlan& plan, int64_t wanted, bool typical) {
  UsualStretch found;
  int64_t inside = 1;  // iterations of `found.whole`
  for (size_t i = plan.loops.size(); i-- > 0;) {
    if (!plan.loops[i].reduced) continue;
    const Dim extent = plan.loops[i].extent;
    const bool known = typical || extent.is_constant();
    const int64_t iterations = std::max<int64_t>(1, known ? Typical(extent) : 0);
    // Up to two stretches are one: the error hardly differs.
    if (!known || iterations > 2 * wanted / inside) {
      found.stretch = Stretch{i, std::max<int64_t>(1, wanted / inside)};
      break;
    }
    inside *= iterations;
    found.whole *= extent;
  }
  return found;
}

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
  const int64_t wanted = WantedIterations(fused, plan, team);
  return wanted == 0 ? std::nullopt : Find(plan, wanted, /*typical=*/false).stretch;
}

std::optional<UsualStretch> UsualStretchOf(const FusedKernel& fused, const KernelPlan& plan, int64_t team) {
  const int64_t wanted = WantedIterations(fused, plan, team);
  if (wanted == 0) return std::nullopt;
  UsualStretch usual = Find(plan, wanted, /*typical=*/true);
  if (usual.whole.is_constant()) return std::nullopt;
  usual.longest = 2 * wanted / (usual.stretch ? usual.stretch->count : 1);
  return usual;
}

}  // namespace tenon
