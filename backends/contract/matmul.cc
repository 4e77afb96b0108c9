// host.matmul: dots by the library of the host, on strided views.
#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "backends/contract/provider.h"
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
  // A single row is one that lies dense, as in the framework: with another stride it could pass for a column, and MKL reads the matrix
  // that it is multiplied with at a quarter of the speed.
  const size_t row = result.dims.size() - 2, column = row + 1;
  if (KnownOne(result.dims[row]) && KnownOne(result.strides[column])) result.strides[row] = result.dims[column];
  return result;
}

std::vector<int64_t> Range(int64_t begin, int64_t count) {
  std::vector<int64_t> r(count);
  for (int64_t i = 0; i < count; ++i) r[i] = begin + i;
  return r;
}

// Operands and result of a dot, each as a [batch,] rows, columns view.
struct MatmulViews {
  StridedView lhs, rhs, result;  // rank 3 if batched, else 2
  bool batched = false;
};

// Unimplemented if a group of dims doesn't merge into one stride.
absl::StatusOr<MatmulViews> MatmulViewsOf(const Instruction& dot, const StridedView& lhs, const StridedView& rhs,
                                          const StridedView& result) {
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

}  // namespace

absl::Status MatmulTakes(const Instruction& contraction, const ContractionSite& site) {
  if (contraction.opcode() != Opcode::kDot) return absl::UnimplementedError("not a dot");
  if (contraction.operand_count() != 2) return absl::UnimplementedError("a dot with sparsity metadata");
  return HostHas(HostFunction::kMatmul, contraction, site);
}

absl::StatusOr<LaunchPlan> LowerMatmul(const Instruction& op, const ValueViews& views) {
  TENON_ASSIGN_OR_RETURN(const ContractionOperands c, OperandsOf(op));
  if (c.activation != Activation::kNone || c.other != nullptr) return absl::UnimplementedError(absl::StrCat(op.name(), ": an epilogue"));
  return LowerActivatedMatmul(op, views);
}

absl::StatusOr<LaunchPlan> LowerActivatedMatmul(const Instruction& op, const ValueViews& views) {
  TENON_ASSIGN_OR_RETURN(const ContractionOperands c, OperandsOf(op));
  TENON_ASSIGN_OR_RETURN(const MatmulViews m, MatmulViewsOf(*c.contraction, views.Of(c.lhs), views.Of(c.rhs), views.Of(&op)));
  auto call = std::make_shared<PlannedCall>();
  call->function = HostFunctionName(HostFunction::kMatmul);
  call->args = {FrameworkArg::Tensor(0), FrameworkArg::Tensor(1)};
  call->operands = {m.lhs, m.rhs};
  call->result = m.result;
  call->type = op.shape().element_type();
  call->reason = "library: dot";
  if (c.bias != nullptr) {
    call->args.push_back(FrameworkArg::Tensor(2));
    call->operands.push_back(views.Of(c.bias));
    call->reason = "library: dot and its bias";
  }
  const Dim flops = op.shape().num_elements() * m.lhs.dims.back() * 2;
  return LaunchPlan{.flops = flops.constant_or(0), .target = std::move(call)};
}

}  // namespace tenon
