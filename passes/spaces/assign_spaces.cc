// AssignSpaces: which memory each value lies in (docs/architecture/targets.md), and the copies that follow from it.
//
// After insert-copies, before fuse: layouts are fixed, and nothing is fused over a copy between spaces. settle-spaces finishes it.
#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "hlo/check.h"
#include "passes/expand/control_flow.h"
#include "passes/pass.h"
#include "passes/spaces/place.h"
#include "passes/spaces/spaces.h"

namespace tenon {
namespace {

class Assigner : public Placer {
 public:
  Assigner(const Module& module, PassContext& context) : entry_(module.entry()), context_(context), spaces_(*context.spaces) {}

 private:
  void Place(Instruction* op) override {
    switch (op->opcode()) {
      case Opcode::kParameter: return Parameter(op);
      case Opcode::kConstant:
      case Opcode::kIota:
        floats_.insert(op);
        return SetSpace(&op->mutable_shape(), 0);
      case Opcode::kWhile:
        TakeSpaces(&op->mutable_shape(), op->operand(0)->shape());
        PlaceFloatingState(op);
        return While(op);
      case Opcode::kConditional:
        SetSpace(&op->mutable_shape(), 0);
        return Conditional(op);
      case Opcode::kCopy:
        if (IsDevice(op->shape().memory_space()) && ChangesSpace(*op)) return;  // the module wants it there
        break;
      case Opcode::kCustomCall:
        // Made of nothing, on the device that its arguments name: lowering said which.
        if (op->operand_count() == 0 && IsDevice(SpaceOf(op->shape())) && spaces_.runs(*op, SpaceOf(op->shape()))) return;
        break;
      default:
        if (!FollowsOperand(*op)) break;
        if (absl::c_all_of(op->operands(), [&](const Instruction* o) { return floats_.contains(o); })) floats_.insert(op);
        return FollowOperands(op);
    }
    Compute(op);
  }

  bool IsDevice(int64_t space) const { return absl::c_linear_search(spaces_.devices, space); }

  void Parameter(Instruction* op) {
    if (op->parent() != entry_) return;  // its caller said
    size_t leaf = static_cast<size_t>(FirstLeafOf(*op));
    GiveLeaves(&op->mutable_shape(), &leaf);
  }
  void GiveLeaves(Shape* shape, size_t* leaf) {
    if (!shape->is_tuple()) {
      const int64_t space = spaces_.parameters.at((*leaf)++);
      if (shape->is_array()) shape->set_memory_space(space);
      return;
    }
    for (int64_t i = 0; i < static_cast<int64_t>(shape->elements().size()); ++i) GiveLeaves(&shape->mutable_element(i), leaf);
  }

  // What lies nowhere in particular is made anew by each kernel that reads it, where its target can.
  bool Floats(const Instruction* operand, int64_t space) const {
    return floats_.contains(operand) && (space == 0 || spaces_.runs(*operand, space));
  }

  // What a loop begins with and what lies nowhere in particular, zeros say, is the main target's. But whole numbers, counters above all,
  // stay the host's, which decides whether the loop goes on.
  void PlaceFloatingState(Instruction* loop) const {
    const Instruction* start = loop->operand(0);
    if (start->opcode() != Opcode::kTuple) return;
    for (int64_t i = 0; i < start->operand_count(); ++i) {
      const Shape& shape = start->operand(i)->shape();
      const bool counts = shape.is_array() && shape.rank() == 0 && !IsFloat(shape.element_type());
      if (!shape.is_array() || counts || !floats_.contains(start->operand(i))) continue;
      SetSpace(&loop->mutable_shape().mutable_element(i), spaces_.main);
    }
  }

  void Compute(Instruction* op) {
    int64_t space = 0;
    for (const Instruction* o : op->operands()) {
      if (space == 0) space = SpaceOf(o->shape());
    }
    auto floats = [&](const Instruction* o) { return floats_.contains(o); };
    if (op->operand_count() > 0 && absl::c_all_of(op->operands(), floats)) space = spaces_.main;
    if (space != 0 && !spaces_.runs(*op, space)) {
      const std::string opcode(OpcodeName(op->opcode()));
      context_.Note("assign-spaces", "host", *op, absl::StrCat("no code for ", opcode, " in memory space ", space));
      space = 0;
    }
    SetSpace(&op->mutable_shape(), space);
    for (int64_t i = 0; i < op->operand_count(); ++i) {
      if (!Floats(op->operand(i), space)) BringOperandTo(op, i, space);
    }
  }

  const Computation* entry_;
  PassContext& context_;
  const Spaces& spaces_;
  absl::flat_hash_set<const Instruction*> floats_;
};

}  // namespace

absl::StatusOr<bool> AssignSpaces(Module& module, PassContext& context) {
  if (context.spaces == nullptr) return false;
  Assigner assigner(module, context);
  assigner.Visit(module.entry());
  context.spaces->assigned = true;
  return assigner.changed();
}

}  // namespace tenon
