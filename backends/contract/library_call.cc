#include "backends/contract/library_call.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "hlo/check.h"

namespace tenon {
namespace {

std::vector<int64_t> FreeDims(int64_t rank, absl::Span<const int64_t> batch, absl::Span<const int64_t> contracting) {
  std::vector<int64_t> free;
  for (int64_t i = 0; i < rank; ++i) {
    if (absl::c_linear_search(batch, i) || absl::c_linear_search(contracting, i)) continue;
    free.push_back(i);
  }
  return free;
}

// The view with one dim per group.
absl::StatusOr<StridedView> Grouped(const Instruction& dot, const StridedView& view,
                                    std::initializer_list<absl::Span<const int64_t>> groups) {
  StridedView result{.buffer = view.buffer, .offset = view.offset};
  for (absl::Span<const int64_t> group : groups) {
    auto merged = MergeDims(view, group);
    if (!merged) return absl::UnimplementedError(absl::StrCat(dot.name(), ": dims of an operand don't merge into one stride"));
    result.dims.push_back(merged->first);
    // BLAS wants a usable leading dimension even where the dim has one element.
    result.strides.push_back(KnownEqual(merged->second, 0) && KnownOne(merged->first) ? Dim(1) : merged->second);
  }
  return result;
}

std::vector<int64_t> Range(int64_t begin, int64_t count) {
  std::vector<int64_t> r(count);
  for (int64_t i = 0; i < count; ++i) r[i] = begin + i;
  return r;
}

}  // namespace

absl::StatusOr<MatmulViews> MatmulViewsOf(const Instruction& dot, const StridedView& lhs, const StridedView& rhs,
                                          const StridedView& result) {
  const PrimitiveType type = dot.shape().element_type();
  if (dot.operand(0)->shape().element_type() != type || dot.operand(1)->shape().element_type() != type) {
    return absl::UnimplementedError(absl::StrCat(dot.name(), ": operand and result types differ"));
  }
  const std::vector<int64_t> lhs_batch = dot.int_list(Attr::kLhsBatchDims), rhs_batch = dot.int_list(Attr::kRhsBatchDims);
  const std::vector<int64_t> lhs_k = dot.int_list(Attr::kLhsContractingDims), rhs_k = dot.int_list(Attr::kRhsContractingDims);
  const std::vector<int64_t> m = FreeDims(lhs.dims.size(), lhs_batch, lhs_k);
  const std::vector<int64_t> n = FreeDims(rhs.dims.size(), rhs_batch, rhs_k);
  const int64_t b_count = lhs_batch.size(), m_count = m.size(), n_count = n.size();
  const std::vector<int64_t> out_b = Range(0, b_count), out_m = Range(b_count, m_count), out_n = Range(b_count + m_count, n_count);
  MatmulViews views{.batched = b_count > 0};
  if (views.batched) {
    TENON_ASSIGN_OR_RETURN(views.lhs, Grouped(dot, lhs, {lhs_batch, m, lhs_k}));
    TENON_ASSIGN_OR_RETURN(views.rhs, Grouped(dot, rhs, {rhs_batch, rhs_k, n}));
    TENON_ASSIGN_OR_RETURN(views.result, Grouped(dot, result, {out_b, out_m, out_n}));
  } else {
    TENON_ASSIGN_OR_RETURN(views.lhs, Grouped(dot, lhs, {m, lhs_k}));
    TENON_ASSIGN_OR_RETURN(views.rhs, Grouped(dot, rhs, {rhs_k, n}));
    TENON_ASSIGN_OR_RETURN(views.result, Grouped(dot, result, {out_m, out_n}));
  }
  return views;
}

const Instruction* BiasAddedTo(const Instruction& dot, const Instruction& fusion) {
  if (dot.opcode() != Opcode::kDot || dot.shape().rank() != 2 || fusion.opcode() != Opcode::kFusion) return nullptr;
  if (dot.user_count() != 1 || fusion.operand_count() != 2) return nullptr;
  const Instruction* root = fusion.fused_computation()->root();
  if (root->opcode() != Opcode::kAdd || !Shape::SameWithLayout(root->shape(), dot.shape())) return nullptr;
  for (int64_t side = 0; side < 2; ++side) {
    const Instruction *product = root->operand(side), *row = root->operand(1 - side);
    if (product->opcode() != Opcode::kParameter || row->opcode() != Opcode::kBroadcast) continue;
    const Instruction* bias = row->operand(0);
    if (bias->opcode() != Opcode::kParameter || bias->shape().rank() != 1) continue;
    if (row->int_list(Attr::kDimensions) != std::vector<int64_t>{1}) continue;
    if (fusion.operand(product->parameter_number()) == &dot) return fusion.operand(bias->parameter_number());
  }
  return nullptr;
}

}  // namespace tenon
