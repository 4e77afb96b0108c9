// SinkMovement: f(transpose(a), transpose(b)) => transpose(f(a, b)) for one permutation, and likewise for reshapes of one shape:
// what moves between two elementwise ops parts them into two kernels, and two moved operands become one moved result.
//
// Operands may also be splats (scalars broadcast). Every moved operand has this one user, so no work is done twice. Not in the
// default list: lowered graphs carry layouts that make these movements views (docs/architecture/passes.md); it is for modules
// without them. After simplify, before assign-layout.
#include "hlo/builder.h"
#include "hlo/own_calls.h"
#include "passes/pass.h"

namespace tenon {
namespace {

bool IsSplatBroadcast(const Instruction* op) {
  return op->opcode() == Opcode::kBroadcast && op->operand(0)->shape().is_scalar();
}

bool SameMovement(const Instruction* a, const Instruction* b) {
  if (a->opcode() != b->opcode() || !Shape::SameDims(a->operand(0)->shape(), b->operand(0)->shape())) return false;
  return a->opcode() != Opcode::kTranspose || a->dimensions() == b->dimensions();
}

// The movement that all operands share, nullptr if there is none.
const Instruction* SharedMovement(const Instruction& op) {
  const Instruction* shared = nullptr;
  for (const Instruction* o : op.operands()) {
    if (IsSplatBroadcast(o)) continue;
    if ((o->opcode() != Opcode::kTranspose && o->opcode() != Opcode::kReshape) || o->user_count() != 1) return nullptr;
    if (shared != nullptr && !SameMovement(shared, o)) return nullptr;
    shared = o;
  }
  return shared;
}

bool SinkBelow(Instruction* op) {
  if (!IsPointwise(*op) || op->opcode() == Opcode::kBitcastConvert || op->IsStateful() || !op->shape().is_array()) return false;
  for (const Instruction* o : op->operands()) {
    if (!Shape::SameDims(o->shape(), op->shape())) return false;  // a scalar clamp bound or predicate
  }
  const Instruction* movement = SharedMovement(*op);
  if (movement == nullptr) return false;
  Builder b(op->parent());
  b.set_metadata(op->metadata());
  const Shape& source = movement->operand(0)->shape();
  std::vector<Instruction*> operands;
  for (Instruction* o : op->operands()) {
    operands.push_back(IsSplatBroadcast(o) ? b.Broadcast(o->operand(0), source.dims(), {}) : o->operand(0));
  }
  Instruction* inner = b.Make(op->opcode(), operands, op->attrs(), Shape(op->shape().element_type(), source.dims()));
  Instruction* moved = movement->opcode() == Opcode::kTranspose ? b.Transpose(inner, movement->dimensions())
                                                                : b.Reshape(inner, op->shape().dims());
  if (op->shape().has_layout()) moved->mutable_shape().set_layout(op->shape().minor_to_major());
  op->parent()->ReplaceAndRemove(op, moved);
  return true;
}

}  // namespace

absl::StatusOr<bool> SinkMovement(Module& module, PassContext&) {
  bool changed = false;
  for (Computation* c : module.computations()) {
    for (Instruction* op : c->PostOrder()) changed |= SinkBelow(op);
  }
  return changed;
}

}  // namespace tenon
