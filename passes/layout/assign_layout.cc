// AssignLayout: a layout for every array of the entry computation and of its regions that has none.
//
// Lowering sets the layouts that the framework will see (its strides); what lies between follows: an elementwise op takes the
// layout of its first operand of the same dims, so that channels_last stays channels_last; so do windows, slices, pads, concatenations,
// gathers along one dim and reductions, of which dims come from dims of the operand; a transpose or reshape is given the layout that makes
// it a view of its operand; everything else is row-major. Before fusion.
//
// A while, the parameters of its condition and body have one layout (its own, or the initial value's, where given); the parameter of a
// branch has the operand's. What a body or branch returns may differ: a copy brings it into place (insert-copies).
#include <algorithm>
#include <optional>

#include "absl/algorithm/container.h"
#include "hlo/own_calls.h"
#include "passes/expand/control_flow.h"
#include "passes/memory/strided_view.h"
#include "passes/pass.h"

namespace tenon {
namespace {

// Per dim of the result the dim of operand 0 that it runs along, in the order of the dims; empty: not that sort of op. -1: a new dim.
std::vector<int64_t> DimsOfOperand(const Instruction& op) {
  const int64_t rank = op.operand_count() > 0 && op.operand(0)->shape().is_array() ? op.operand(0)->shape().rank() : 0;
  std::vector<int64_t> dims;
  switch (op.opcode()) {
    case Opcode::kSlice:
    case Opcode::kPad:
    case Opcode::kReverse:
    case Opcode::kConcatenate:
    case Opcode::kReduceWindow:
    case Opcode::kSelectAndScatter:
    case Opcode::kDynamicSlice:
    case Opcode::kDynamicUpdateSlice:
    case Opcode::kScatter:
    case Opcode::kScan:
      for (int64_t d = 0; d < rank; ++d) dims.push_back(d);
      return dims;
    case Opcode::kReduce:
      for (int64_t d = 0; d < rank; ++d) {
        if (!absl::c_linear_search(op.dimensions(), d)) dims.push_back(d);
      }
      return dims;
    case Opcode::kGather: {  // x[..., index, ...]: dims of the index stand for the dim that they index
      const std::vector<int64_t> collapsed = op.int_list(Attr::kCollapsedSliceDims), offset = op.int_list(Attr::kOffsetDims);
      if (collapsed.size() != 1 || op.int_list(Attr::kStartIndexMap) != collapsed) return {};
      if (!op.int_list(Attr::kOperandBatchingDims).empty()) return {};
      int64_t next = 0;
      for (int64_t d = 0; d < op.shape().rank(); ++d) {
        if (!absl::c_linear_search(offset, d)) {
          dims.push_back(collapsed[0]);
          continue;
        }
        if (next == collapsed[0]) ++next;
        dims.push_back(next++);
      }
      return absl::c_is_sorted(dims) ? dims : std::vector<int64_t>();
    }
    default: return {};
  }
}

// Dims as they lie in the operand; those that come from one dim, row-major.
Permutation LikeOperand(const std::vector<int64_t>& dims, const Permutation& operand) {
  std::vector<int64_t> place(operand.size());
  for (size_t k = 0; k < operand.size(); ++k) place[operand[k]] = static_cast<int64_t>(k);
  Permutation layout = RowMajor(static_cast<int64_t>(dims.size()));
  std::stable_sort(layout.begin(), layout.end(), [&](int64_t a, int64_t b) { return place[dims[a]] < place[dims[b]]; });
  return layout;
}

// The layout in which a reshape is a view of its operand, if there is one.
std::optional<Permutation> AsView(const Instruction& reshape) {
  const Shape &from = reshape.operand(0)->shape(), &to = reshape.shape();
  const std::optional<DimVector> strides = ReshapeStrides(from.dims(), from.strides(), to.dims());
  return strides ? LayoutOfDense(to.dims(), *strides) : std::nullopt;
}

Permutation LayoutFor(const Instruction& op, const Shape& shape) {
  if (IsPointwise(op)) {
    for (const Instruction* o : op.operands()) {
      if (Shape::SameDims(o->shape(), shape) && o->shape().has_layout()) return o->shape().minor_to_major();
    }
  }
  if (op.opcode() == Opcode::kTranspose && op.operand(0)->shape().has_layout()) {
    const Permutation from = op.operand(0)->shape().minor_to_major();
    Permutation inverse(shape.rank());
    for (int64_t i = 0; i < shape.rank(); ++i) inverse[op.dimensions()[i]] = i;
    Permutation layout(shape.rank());
    for (int64_t i = 0; i < shape.rank(); ++i) layout[i] = inverse[from[i]];
    return layout;
  }
  if (op.operand_count() == 0 || !op.operand(0)->shape().is_array() || !op.operand(0)->shape().has_layout()) return RowMajor(shape.rank());
  if (op.opcode() == Opcode::kReshape) return AsView(op).value_or(RowMajor(shape.rank()));
  const std::vector<int64_t> dims = DimsOfOperand(op);
  if (static_cast<int64_t>(dims.size()) != shape.rank()) return RowMajor(shape.rank());
  return LikeOperand(dims, op.operand(0)->shape().minor_to_major());
}

bool Assign(const Instruction& op, Shape* shape) {
  bool changed = false;
  if (shape->is_tuple()) {
    for (int64_t i = 0; i < static_cast<int64_t>(shape->elements().size()); ++i) changed |= Assign(op, &shape->mutable_element(i));
    return changed;
  }
  if (!shape->is_array() || shape->has_layout()) return false;
  shape->set_layout(LayoutFor(op, *shape));
  return shape->rank() > 0;  // a scalar's layout says nothing
}

bool Set(Instruction* op, const Shape& shape) {
  if (shape == op->shape()) return false;
  const bool changed = shape.ToString(true) != op->shape().ToString(true);  // scalars' layouts aside
  op->mutable_shape() = shape;
  return changed;
}

// `from`'s layouts where `to` has none.
void Fill(Shape* to, const Shape& from) {
  if (to->is_tuple()) {
    for (int64_t i = 0; i < static_cast<int64_t>(to->elements().size()); ++i) Fill(&to->mutable_element(i), from.element(i));
  } else if (to->is_array() && !to->has_layout() && from.has_layout()) {
    to->set_layout(from.minor_to_major());
  }
}

bool AssignWhile(Instruction* loop) {
  Shape state = loop->shape();
  for (const Computation* c : ControlRegions(*loop)) Fill(&state, c->parameter(0)->shape());
  Fill(&state, loop->operand(0)->shape());
  Assign(*loop, &state);
  bool changed = Set(loop, state);
  for (const Computation* c : ControlRegions(*loop)) changed |= Set(c->parameter(0), state);
  return changed;
}

bool AssignBranches(Instruction* conditional) {
  const std::vector<Computation*> branches = BranchesOf(*conditional);
  bool changed = Assign(*conditional, &conditional->mutable_shape());
  for (size_t b = 0; b < branches.size(); ++b) {
    changed |= Set(branches[b]->parameter(0), conditional->operand(static_cast<int64_t>(b) + 1)->shape());
  }
  return changed;
}

bool AssignOne(Instruction* op) {
  switch (op->opcode()) {
    case Opcode::kTuple: {  // a tuple's and an element's layouts are their parts'
      Shape shape = op->shape();
      for (int64_t i = 0; i < op->operand_count(); ++i) shape.mutable_element(i) = op->operand(i)->shape();
      return Set(op, shape);
    }
    case Opcode::kGetTupleElement: return Set(op, op->operand(0)->shape().element(op->tuple_index()));
    case Opcode::kOptBarrier: return Set(op, op->operand(0)->shape());
    case Opcode::kWhile: return AssignWhile(op);
    case Opcode::kConditional: return AssignBranches(op);
    default: return Assign(*op, &op->mutable_shape());
  }
}

}  // namespace

absl::StatusOr<bool> AssignLayout(Module& module, PassContext&) {
  bool changed = false;
  for (Computation* c : ControlComputations(module)) {  // callers first: they say how parameters lie
    for (Instruction* op : c->PostOrder()) changed |= AssignOne(op);
  }
  return changed;
}

}  // namespace tenon
