// SettleSpaces: operands in another space than what reads them are copied.
//
// The pass settle-spaces comes behind fuse: constants and the like, which lie nowhere in particular, are then inside of kernels, or they
// are the host's. lower-kernels does the same where it splits a fusion or gives one to the host.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "hlo/check.h"
#include "passes/expand/control_flow.h"
#include "passes/pass.h"
#include "passes/spaces/place.h"
#include "passes/spaces/spaces.h"

namespace tenon {

int64_t SpaceOf(const Shape& shape) {
  if (shape.is_array()) return shape.memory_space();
  for (const Shape& element : shape.elements()) {
    for (const Shape& leaf : FlattenShape(element)) {
      if (leaf.is_array()) return leaf.memory_space();
    }
  }
  return 0;
}

bool ChangesSpace(const Instruction& op) {
  return op.opcode() == Opcode::kCopy && op.shape().memory_space() != op.operand(0)->shape().memory_space();
}

void SetSpace(Shape* shape, int64_t space) {
  if (shape->is_array()) shape->set_memory_space(space);
  for (int64_t i = 0; i < static_cast<int64_t>(shape->elements().size()); ++i) SetSpace(&shape->mutable_element(i), space);
}

void TakeSpaces(Shape* to, const Shape& from) {
  if (to->is_array() && from.is_array()) to->set_memory_space(from.memory_space());
  const size_t elements = std::min(to->elements().size(), from.elements().size());
  for (size_t i = 0; i < elements; ++i) TakeSpaces(&to->mutable_element(static_cast<int64_t>(i)), from.element(static_cast<int64_t>(i)));
}

bool SameSpaces(const Shape& a, const Shape& b) {
  if (a.is_array()) return a.memory_space() == b.memory_space();
  for (size_t i = 0; i < a.elements().size(); ++i) {
    if (!SameSpaces(a.element(static_cast<int64_t>(i)), b.element(static_cast<int64_t>(i)))) return false;
  }
  return true;
}

bool FollowsOperand(const Instruction& op) {
  if (op.opcode() == Opcode::kGetTupleElement || op.opcode() == Opcode::kTuple || op.opcode() == Opcode::kOptBarrier) return true;
  switch (op.opcode()) {
    case Opcode::kBitcast:
    case Opcode::kReshape:
    case Opcode::kTranspose:
    case Opcode::kBroadcast:
    case Opcode::kSlice: return true;
    default: return false;
  }
}

void FollowOperands(Instruction* op) {
  Shape* shape = &op->mutable_shape();
  if (op->opcode() == Opcode::kTuple) {
    for (int64_t i = 0; i < op->operand_count(); ++i) TakeSpaces(&shape->mutable_element(i), op->operand(i)->shape());
  } else if (op->opcode() == Opcode::kGetTupleElement) {
    TakeSpaces(shape, op->operand(0)->shape().element(op->tuple_index()));
  } else if (op->opcode() == Opcode::kOptBarrier) {
    TakeSpaces(shape, op->operand(0)->shape());
  } else {
    SetSpace(shape, SpaceOf(op->operand(0)->shape()));
  }
}

Instruction* Placer::Bring(Instruction* value, const Shape& like) {
  if (SameSpaces(value->shape(), like)) return value;
  changed_ = true;
  Computation* c = value->parent();
  if (value->shape().is_array()) {
    Instruction*& copy = copies_[{value, like.memory_space()}];
    if (copy != nullptr) return copy;
    copy = c->Add(Opcode::kCopy, value->shape(), {value}, absl::StrCat(value->name(), ".s", like.memory_space()));
    copy->mutable_shape().set_memory_space(like.memory_space());
    copy->metadata() = value->metadata();
    return copy;
  }
  std::vector<Instruction*> elements;
  std::vector<Shape> shapes;
  for (int64_t i = 0; i < static_cast<int64_t>(value->shape().elements().size()); ++i) {
    Instruction* element = nullptr;
    if (value->opcode() == Opcode::kTuple) {
      element = value->operand(i);
    } else {
      element = c->Add(Opcode::kGetTupleElement, value->shape().element(i), {value});
      element->mutable_attrs().set(Attr::kTupleIndex, i);
    }
    elements.push_back(Bring(element, like.element(i)));
    shapes.push_back(elements.back()->shape());
  }
  return c->Add(Opcode::kTuple, Shape::Tuple(std::move(shapes)), elements);
}

void Placer::BringOperand(Instruction* op, int64_t i, const Shape& like) {
  Instruction* brought = Bring(op->operand(i), like);
  if (brought != op->operand(i)) op->ReplaceOperand(i, brought);
}

void Placer::BringOperandTo(Instruction* op, int64_t i, int64_t space) {
  Shape like = op->operand(i)->shape();
  SetSpace(&like, space);
  BringOperand(op, i, like);
}

void Placer::BringRoot(Computation* c, const Shape& like) {
  Instruction *root = c->root(), *brought = Bring(root, like);
  if (brought == root) return;
  c->set_root(brought);
  if (root->opcode() == Opcode::kTuple && root->users().empty()) c->Remove(root);
}

void Placer::While(Instruction* loop) {
  BringOperand(loop, 0, loop->shape());
  const std::vector<Computation*> regions = ControlRegions(*loop);
  for (Computation* region : regions) {
    GiveParameter(region, loop->shape());
    Visit(region);
  }
  Shape host = regions[0]->root()->shape();
  SetSpace(&host, 0);
  BringRoot(regions[0], host);
  BringRoot(regions[1], loop->shape());
}

void Placer::Conditional(Instruction* conditional) {
  BringOperandTo(conditional, 0, 0);
  const std::vector<Computation*> branches = BranchesOf(*conditional);
  for (size_t b = 0; b < branches.size(); ++b) {
    GiveParameter(branches[b], conditional->operand(static_cast<int64_t>(b) + 1)->shape());
    Visit(branches[b]);
    BringRoot(branches[b], conditional->shape());
  }
}

void Placer::Visit(Computation* c) {
  for (Instruction* op : c->PostOrder()) {
    const Shape before = op->shape();
    Place(op);
    changed_ |= !SameSpaces(before, op->shape());
  }
  c->set_schedule(c->PostOrder());
}

void Placer::GiveParameter(Computation* region, const Shape& like) {
  Shape* shape = &region->parameter(0)->mutable_shape();
  changed_ |= !SameSpaces(*shape, like);
  TakeSpaces(shape, like);
}

namespace {

class Settler : public Placer {
 private:
  void Place(Instruction* op) override {
    if (op->opcode() == Opcode::kParameter || op->opcode() == Opcode::kCopy) return;
    if (op->operand_count() == 0 && op->opcode() != Opcode::kFusion) return;
    if (FollowsOperand(*op)) return FollowOperands(op);
    if (op->opcode() == Opcode::kWhile) return While(op);
    if (op->opcode() == Opcode::kConditional) return Conditional(op);
    // A kernel may give, among others, a result that lies nowhere in particular (Floats): it lies where the kernel works.
    int64_t space = 0;
    for (const Shape& leaf : FlattenShape(op->shape())) space = std::max<int64_t>(space, leaf.is_array() ? leaf.memory_space() : 0);
    SetSpace(&op->mutable_shape(), space);
    for (int64_t i = 0; i < op->operand_count(); ++i) BringOperandTo(op, i, space);
  }
};

}  // namespace

bool SettleSpaces(Module& module) {
  Settler settler;
  settler.Visit(module.entry());
  return settler.changed();
}

void MoveTo(Instruction* op, int64_t space) { SetSpace(&op->mutable_shape(), space); }

void MoveSignature(Module& module, int64_t space) {
  for (Instruction* p : module.entry()->parameters()) MoveTo(p, space);
  MoveTo(module.entry()->root(), space);
}

absl::StatusOr<bool> SettleSpaces(Module& module, PassContext& context) {
  if (context.spaces == nullptr) return false;
  return SettleSpaces(module);
}

}  // namespace tenon
