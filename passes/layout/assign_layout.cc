// AssignLayout: a layout for every array of the entry computation that has none.
//
// Lowering sets the layouts that the framework will see (its strides); what lies between follows: an elementwise op takes the
// layout of its first operand of the same dims, so that channels_last stays channels_last; a transpose is given the layout that
// makes it a view of its operand; everything else is row-major. Before fusion.
#include "passes/pass.h"

namespace tenon {
namespace {

Permutation LayoutFor(const Instruction& op, const Shape& shape) {
  if (op.IsElementwise()) {
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

}  // namespace

absl::StatusOr<bool> AssignLayout(Module& module, PassContext&) {
  bool changed = false;
  for (Instruction* op : module.entry()->PostOrder()) {
    if (op->opcode() == Opcode::kTuple || op->opcode() == Opcode::kGetTupleElement) {
      // A tuple's and an element's layouts are their parts'.
      Shape shape = op->opcode() == Opcode::kGetTupleElement ? op->operand(0)->shape().element(op->tuple_index()) : op->shape();
      for (int64_t i = 0; op->opcode() == Opcode::kTuple && i < op->operand_count(); ++i) shape.mutable_element(i) = op->operand(i)->shape();
      if (!(shape == op->shape())) {
        changed |= shape.ToString(true) != op->shape().ToString(true);  // scalars' layouts aside
        op->mutable_shape() = shape;
      }
      continue;
    }
    changed |= Assign(*op, &op->mutable_shape());
  }
  return changed;
}

}  // namespace tenon
