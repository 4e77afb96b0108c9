#include "backends/codegen/plan/packing.h"

#include <algorithm>
#include <numeric>

#include "absl/algorithm/container.h"
#include "backends/codegen/emit/emit_types.h"
#include "backends/codegen/index/contraction_index.h"

namespace tenon {
namespace {

// Where parameters are read for element `index` of `op`.
void Offsets(IndexSpace& space, const FusedKernel& fused, const Instruction* op, const IndexTuple& index, std::vector<Index>* offsets) {
  constexpr size_t kEnough = 8;
  if (offsets->size() >= kEnough) return;
  if (op->opcode() == Opcode::kParameter) {
    offsets->push_back(space.Linear(index, fused.operands[static_cast<size_t>(op->parameter_number())].strides));
    return;
  }
  for (int64_t k = 0; k < op->operand_count(); ++k) {
    if (const std::optional<OperandIndex> mapped = MapToOperand(space, *op, k, index)) {
      Offsets(space, fused, op->operand(k), mapped->index, offsets);
    }
  }
}

// `strides` of loops of `extents`, fastest last, if together they are one run.
std::optional<std::vector<size_t>> OrderOfRun(absl::Span<const int64_t> extents, absl::Span<const int64_t> strides) {
  std::vector<size_t> order(extents.size());
  std::iota(order.begin(), order.end(), size_t{0});
  absl::c_sort(order, [&](size_t a, size_t b) { return strides[a] > strides[b]; });
  int64_t run = 1;
  for (size_t k = order.size(); k-- > 0;) {
    if (strides[order[k]] != run) return std::nullopt;
    run *= extents[order[k]];
  }
  return order;
}

const Instruction* OnlyContraction(const FusedKernel& fused) {
  const auto found = absl::c_find_if(fused.order, [](const Instruction* op) { return IsContraction(*op); });
  return found == fused.order.end() ? nullptr : *found;
}

bool IsPackable(PrimitiveType type) {
  switch (type) {
    case PrimitiveType::kF16:
    case PrimitiveType::kBF16:
    case PrimitiveType::kF32:
    case PrimitiveType::kF64: return true;
    default: return false;
  }
}

}  // namespace

int64_t Packing::Bytes(int64_t block) const {
  const int64_t bytes = terms * block * StorageBytes(contraction->operand(1)->shape().element_type());
  return (bytes + 63) / 64 * 64;
}

bool Packing::IsFarApart(int64_t block) const {
  // Of the smaller ones of the processors that are in use; addresses of pages that are at hand, and that take some cycles.
  constexpr int64_t kSecondCache = 1 << 20, kPage = 4096, kAtHand = 512, kRemembered = 2048;
  const int64_t bytes = Bytes(block), row = bytes / terms;
  if (apart <= row) return false;
  // A stride reaches the sets that are multiples of its largest power of two, and each row those of its own bytes.
  const int64_t power = apart & -apart;
  if (power > row && bytes > kSecondCache / power * row) return true;
  const int64_t pages = terms * std::min(apart, kPage) / kPage;
  return pages > kRemembered || (pages > kAtHand && bytes > kSecondCache / 2);
}

std::optional<Packing> PackingOf(const FusedKernel& fused, const KernelPlan& plan) {
  Packing p{.contraction = OnlyContraction(fused)};
  if (p.contraction == nullptr || plan.lanes < 2 || !plan.loops.back().extent.is_constant()) return std::nullopt;
  if (!IsPackable(p.contraction->operand(1)->shape().element_type())) return std::nullopt;
  IndexSpace space;
  Iteration iteration(space, fused, plan.loops);
  std::vector<Index> vars;
  for (Dim extent : SummedExtents(*p.contraction)) {
    if (!extent.is_constant() || extent.constant() < 1) return std::nullopt;
    p.extents.push_back(extent.constant());
    p.terms *= extent.constant();
    if (p.terms > kMaxPackedBytes) return std::nullopt;
    vars.push_back(space.Var(extent));
  }
  const ContractionIndex at = MapContraction(space, *p.contraction, iteration.IndexOf(space, fused, p.contraction->shape()), vars);
  if (at.terms.empty()) return std::nullopt;
  auto depends = [&](int loop) {
    const int var = iteration.vars[static_cast<size_t>(loop)]->var;
    return absl::c_any_of(at.rhs, [&](Index i) { return i->DependsOn(var); });
  };
  if (plan.tile_loop >= 0 && depends(plan.tile_loop)) return std::nullopt;
  for (int i = 0; i < plan.split; ++i) p.by_outer |= depends(i);
  std::vector<Index> offsets;
  Offsets(space, fused, p.contraction->operand(1), at.rhs, &offsets);
  for (Index offset : offsets) {
    const Access::Kind columns = AccessAlong(offset, iteration.vars.back()->var).kind;
    if (columns != Access::Kind::kStrided && columns != Access::Kind::kContiguous) continue;
    std::vector<int64_t> strides;
    for (Index v : vars) {
      const Access along = AccessAlong(offset, v->var);
      const bool moves = along.kind == Access::Kind::kContiguous || along.kind == Access::Kind::kStrided;
      if (moves && along.stride.is_constant()) strides.push_back(along.stride.constant());
    }
    if (strides.size() != vars.size()) continue;
    if (columns == Access::Kind::kContiguous) {
      const int64_t nearest = *absl::c_min_element(strides, [](int64_t a, int64_t b) { return std::abs(a) < std::abs(b); });
      p.apart = std::abs(nearest) * StorageBytes(p.contraction->operand(1)->shape().element_type());
    } else if (std::optional<std::vector<size_t>> order = OrderOfRun(p.extents, strides)) {
      p.apart = 0;
      p.order = *std::move(order);
      return p;
    }
  }
  if (p.apart == 0) return std::nullopt;
  p.order.resize(vars.size());
  absl::c_iota(p.order, size_t{0});
  return p;
}

bool PacksWhereItLies(const Instruction& op, absl::Span<const Dim> strides, int vector_bytes) {
  const Shape& rhs = op.operand(1)->shape();
  if (!IsContraction(op) || !rhs.is_static() || !IsPackable(rhs.element_type())) return false;
  std::vector<int64_t> summed, extents, steps;
  int64_t columns = 1, parts = 1;
  if (op.opcode() == Opcode::kDot) {
    summed = op.int_list(Attr::kRhsContractingDims);
    for (int64_t d : op.int_list(Attr::kRhsBatchDims)) parts *= rhs.constant_dim(d);
  } else {
    const DimLabels& l = op.attrs().get<DimLabels>(Attr::kDimLabels);
    const Window window = op.attrs().get_or<Window>(Attr::kWindow, {});
    if (KnownOne(rhs.dim(l.kernel_input_feature)) || op.attrs().get_or<int64_t>(Attr::kFeatureGroupCount, 1) != 1) return false;
    if (absl::c_any_of(window.dims, [](const WindowDim& w) { return w.reversed; })) return false;
    summed = l.kernel_spatial;
    summed.push_back(l.kernel_input_feature);
  }
  int64_t terms = 1;
  for (int64_t d : summed) {
    if (KnownOne(rhs.dim(d))) continue;
    if (!strides[static_cast<size_t>(d)].is_constant()) return false;
    extents.push_back(rhs.constant_dim(d));
    steps.push_back(strides[static_cast<size_t>(d)].constant());
    terms *= extents.back();
  }
  const int64_t elements = rhs.num_elements_constant();
  if (terms < 2 || elements == 0 || !OrderOfRun(extents, steps)) return false;
  columns = elements / terms / parts;
  const int64_t rows = Typical(op.shape().num_elements()) / columns / parts;
  return rows >= kRowsWorthPacking && terms * vector_bytes <= kMaxPackedBytes;
}

}  // namespace tenon
