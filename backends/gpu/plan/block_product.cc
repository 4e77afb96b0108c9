#include "backends/gpu/plan/block_product.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "backends/codegen/emit/elementwise.h"
#include "backends/codegen/emit/emit_types.h"
#include "backends/codegen/index/contraction_index.h"
#include "hlo/own_calls.h"

namespace tenon::gpu {
namespace {

// One operand's elements, moved or computed one by one.
bool IsUnary(const Instruction& op) {
  return op.operand_count() == 1 && op.shape().is_array() && (op.family() == Family::kElementwise || op.family() == Family::kMovement);
}

// All that is computed of the sums is so element by element, at their places.
bool IsReadInPlace(const FusedKernel& f, const Instruction& product) {
  absl::flat_hash_set<const Instruction*> below = {&product};
  for (const Instruction* op : f.order) {
    if (absl::c_none_of(op->operands(), [&](const Instruction* o) { return below.contains(o); })) continue;
    if (op->opcode() == Opcode::kTuple) continue;  // of results
    if (!IsPointwise(*op) || !Shape::SameDims(op->shape(), product.shape())) return false;
    below.insert(op);
  }
  return absl::c_all_of(f.roots, [&](const Instruction* r) { return !below.contains(r) || Shape::SameDims(r->shape(), product.shape()); });
}

bool DependOn(const IndexTuple& index, Index variable) {
  return absl::c_any_of(index, [&](Index i) { return i->DependsOn(variable->var); });
}

bool AreSummed(PrimitiveType type) { return type == PrimitiveType::kF32 || type == PrimitiveType::kF64 || IsIntegral(type); }

}  // namespace

std::optional<BlockProduct> BlockProductOf(const FusedKernel& f, const std::vector<PlanLoop>& loops) {
  if (loops.size() < 2 || !f.reduces.empty() || f.serial != nullptr) return std::nullopt;
  BlockProduct product;
  for (const Instruction* op : f.order) {
    if (!IsContraction(*op)) continue;
    if (product.op != nullptr) return std::nullopt;
    product.op = op;
  }
  if (product.op == nullptr || f.RoleOf(product.op->shape()) != Role::kFull || !IsReadInPlace(f, *product.op)) return std::nullopt;
  if (!AreSummed(product.op->shape().element_type()) || !OfOneType(*product.op)) return std::nullopt;
  if (SummedExtents(*product.op).empty()) return std::nullopt;
  IndexSpace space;
  const Iteration iteration(space, f, loops);
  std::vector<Index> terms;
  for (Dim extent : SummedExtents(*product.op)) terms.push_back(space.Var(extent));
  const ContractionIndex at = MapContraction(space, *product.op, iteration.IndexOf(space, f, product.op->shape()), terms);
  if (absl::c_any_of(at.bounds, [](const IndexBound& b) { return Decide(b) != true; })) return std::nullopt;
  const Index row = iteration.vars[loops.size() - 2], column = iteration.vars.back();
  product.row_operand = DependOn(at.rhs, row) ? 1 : 0;
  const IndexTuple &of_rows = product.row_operand == 0 ? at.lhs : at.rhs, &of_columns = product.row_operand == 0 ? at.rhs : at.lhs;
  if (!DependOn(of_rows, row) || DependOn(of_rows, column)) return std::nullopt;
  if (DependOn(of_columns, row) || !DependOn(of_columns, column)) return std::nullopt;
  return product;
}

bool BlocksTake(const Instruction& dot) {
  const Shape& shape = dot.shape();
  if (dot.opcode() != Opcode::kDot || dot.operand_count() != 2 || shape.rank() == 0) return false;
  if (!AreSummed(shape.element_type()) || !OfOneType(dot)) return false;
  int64_t terms = 1;
  for (Dim d : SummedExtents(dot)) terms *= std::max<int64_t>(Typical(d), 1);
  // Result: batch, the first operand's, the second operand's dims. Columns are along the fastest.
  const int64_t batch = static_cast<int64_t>(dot.int_list(Attr::kLhsBatchDims).size());
  const int64_t second = dot.operand(0)->shape().rank() - static_cast<int64_t>(dot.int_list(Attr::kLhsContractingDims).size());
  int64_t most[2] = {1, 1};
  for (int64_t d = batch; d < shape.rank(); ++d) most[d >= second] = std::max(most[d >= second], Typical(shape.dim(d)));
  const int64_t minor = shape.has_layout() ? shape.minor_to_major()[0] : shape.rank() - 1;
  return std::min({terms, most[0], most[1], Typical(shape.dim(minor))}) >= kFewest && minor >= batch;
}

std::optional<PrimitiveType> HalvesOf(const FusedKernel& f, const BlockProduct& product) {
  if (product.op->shape().element_type() != PrimitiveType::kF32) return std::nullopt;
  PrimitiveType halves = PrimitiveType::kF32;
  for (const Instruction* op : product.op->operands()) {
    IndexSpace space;
    IndexTuple any;
    for (Dim d : op->shape().dims()) any.push_back(space.Var(d));
    if (!SourceOf(space, f, *op, any)) return std::nullopt;
    int converts = 0;
    for (; op->opcode() != Opcode::kParameter; op = op->operand(0)) {
      if (op->shape().element_type() == op->operand(0)->shape().element_type() && op->family() == Family::kMovement) continue;
      if (op->opcode() != Opcode::kConvert || ++converts > 1) return std::nullopt;
    }
    const PrimitiveType type = op->shape().element_type();
    if (!IsHalf(type) || (halves != PrimitiveType::kF32 && halves != type)) return std::nullopt;
    halves = type;
  }
  return halves;
}

bool LieAsVectors(const FusedKernel& f, const std::vector<PlanLoop>& loops, const BlockProduct& product) {
  constexpr int64_t kLanes = 8;
  IndexSpace space;
  const Iteration iteration(space, f, loops);
  const std::vector<Dim> extents = SummedExtents(*product.op);
  IndexTuple terms;
  for (Dim d : extents) terms.push_back(space.Var(d));
  const ContractionIndex at = MapContraction(space, *product.op, iteration.IndexOf(space, f, product.op->shape()), terms);
  auto whole = [](Dim extent) { return extent.is_constant() && extent.constant() % kLanes == 0; };
  for (int64_t k = 0; k < 2; ++k) {
    const std::optional<OperandSource> source = SourceOf(space, f, *product.op->operand(k), k == 0 ? at.lhs : at.rhs);
    const size_t own = loops.size() - (k == product.row_operand ? 2 : 1);
    const bool along_terms = LiesAlong(source, terms.back()) && whole(extents.back());
    if (!along_terms && !(LiesAlong(source, iteration.vars[own]) && whole(loops[own].extent))) return false;
  }
  return true;
}

std::optional<OperandSource> SourceOf(IndexSpace& space, const FusedKernel& f, const Instruction& operand, const IndexTuple& index) {
  const Instruction* op = &operand;
  IndexTuple at = index;
  for (; op->opcode() != Opcode::kParameter; op = op->operand(0)) {
    if (!IsUnary(*op) || ChangesWidth(*op)) return std::nullopt;
    std::optional<OperandIndex> mapped = MapToOperand(space, *op, 0, at);
    if (!mapped || !mapped->bounds.empty()) return std::nullopt;
    at = std::move(mapped->index);
  }
  return OperandSource{op, space.Linear(at, f.operands[static_cast<size_t>(op->parameter_number())].strides)};
}

bool LiesAlong(const std::optional<OperandSource>& source, Index variable) {
  return source && AccessAlong(source->offset, variable->var).kind == Access::Kind::kContiguous;
}

}  // namespace tenon::gpu
