// AssignLayout: a layout for every array of the entry computation and of its regions that has none.
//
// Lowering sets the layouts that the framework will see (its strides); what lies between follows: an elementwise op takes the
// layout of its first operand of the same dims, so that channels_last stays channels_last; a transpose is given the layout that
// makes it a view of its operand; everything else is row-major. Before fusion.
//
// A while, the parameters of its condition and body have one layout (its own, or the initial value's, where given); the parameter of a
// branch has the operand's. What a body or branch returns may differ: a copy brings it into place (insert-copies).
#include "hlo/own_calls.h"
#include "passes/expand/control_flow.h"
#include "passes/pass.h"

namespace tenon {
namespace {

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
  return RowMajor(shape.rank());
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
