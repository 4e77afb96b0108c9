#include "passes/memory/value_views.h"

#include "absl/strings/str_cat.h"
#include "hlo/check.h"
#include "passes/expand/control_flow.h"

namespace tenon {

ValueViews::ValueViews(const Module& module, OwnStrides own_strides) : own_strides_(std::move(own_strides)) {
  Visit(*module.entry());
}

const StridedView& ValueViews::at(BufferKey leaf) const {
  auto it = views_.find(leaf);
  TENON_CHECK(it != views_.end(), absl::StrCat("no view of leaf ", leaf.leaf, " of ", leaf.instruction->name()));
  return it->second;
}

bool ValueViews::IsWhole(BufferKey leaf) const {
  const StridedView &view = at(leaf), &whole = at(view.buffer);
  if (!KnownEqual(view.offset, 0) || view.dims.size() != whole.dims.size()) return false;
  for (size_t d = 0; d < view.dims.size(); ++d) {
    if (!KnownEqual(view.dims[d], whole.dims[d])) return false;
    if (!KnownOne(view.dims[d]) && !KnownEqual(view.strides[d], whole.strides[d])) return false;
  }
  return true;
}

void ValueViews::Copy(BufferKey to, BufferKey from) {
  auto it = views_.find(from);
  if (it == views_.end()) return;  // a token
  StridedView view = it->second;   // a copy: the insertion may move it
  views_[to] = std::move(view);
}

void ValueViews::OwnLeaf(const Instruction& op, int64_t leaf, const Shape& shape) {
  if (shape.is_opaque()) {  // somewhere: no kernel reads it
    views_[{&op, leaf}] = StridedView{.buffer = {&op, leaf}};
    return;
  }
  if (!shape.is_array()) return;
  StridedView view = DenseView({&op, leaf}, shape);
  if (std::optional<DimVector> strides = own_strides_ ? own_strides_(op, leaf) : std::nullopt) view.strides = *std::move(strides);
  views_[{&op, leaf}] = std::move(view);
}

void ValueViews::Own(const Instruction& op) {
  int64_t leaf = 0;
  for (const Shape& shape : FlattenShape(op.shape())) OwnLeaf(op, leaf++, shape);
}

// Tuples, their elements, barriers, and movement that is a re-stride of its operand.
bool ValueViews::Alias(const Instruction& op) {
  if (op.opcode() == Opcode::kTuple) {
    int64_t at = 0;
    for (const Instruction* o : op.operands()) {
      const int64_t leaves = LeafCount(o->shape());
      for (int64_t i = 0; i < leaves; ++i) Copy({&op, at++}, {o, i});
    }
    return true;
  }
  if (op.opcode() == Opcode::kGetTupleElement || op.opcode() == Opcode::kOptBarrier) {
    const bool element = op.opcode() == Opcode::kGetTupleElement;
    const int64_t from = element ? LeafOffset(op.operand(0)->shape(), op.tuple_index()) : 0, leaves = LeafCount(op.shape());
    for (int64_t i = 0; i < leaves; ++i) Copy({&op, i}, {op.operand(0), from + i});
    return true;
  }
  if (op.family() != Family::kMovement || op.operand_count() == 0) return false;
  std::optional<StridedView> view = ApplyViewOp(op, Of(op.operand(0)));
  if (view) views_[{&op, 0}] = *std::move(view);
  return view.has_value();
}

void ValueViews::VisitWhile(const Instruction& loop) {
  const std::vector<bool> invariant = InvariantLeaves(loop);
  const std::vector<Shape> leaves = FlattenShape(loop.shape());
  for (int64_t i = 0; i < static_cast<int64_t>(leaves.size()); ++i) {
    if (!leaves[i].is_array()) continue;
    const BufferKey state{&loop, i}, initial{loop.operand(0), i};
    const bool stays = invariant[i] && at(initial).strides == DenseView(state, leaves[i]).strides;
    if (stays) Copy(state, initial);
    else OwnLeaf(loop, i, leaves[i]);
    for (const Computation* c : ControlRegions(loop)) Copy({c->parameter(0), i}, state);
  }
  for (const Computation* c : ControlRegions(loop)) Visit(*c);
}

void ValueViews::VisitConditional(const Instruction& conditional) {
  const std::vector<Computation*> branches = BranchesOf(conditional);
  for (size_t b = 0; b < branches.size(); ++b) {
    const Instruction* operand = conditional.operand(static_cast<int64_t>(b) + 1);
    const int64_t leaves = LeafCount(operand->shape());
    for (int64_t i = 0; i < leaves; ++i) Copy({branches[b]->parameter(0), i}, {operand, i});
    Visit(*branches[b]);
  }
  Own(conditional);
}

void ValueViews::Visit(const Computation& c) {
  for (const Instruction* op : c.instructions()) {
    switch (op->opcode()) {
      case Opcode::kParameter:
        if (&c == c.module()->entry()) Own(*op);  // a region's lie where its caller said
        else aliases_.insert(op);
        break;
      case Opcode::kWhile: VisitWhile(*op); break;
      case Opcode::kConditional: VisitConditional(*op); break;
      default:
        if (Alias(*op)) aliases_.insert(op);
        else Own(*op);
    }
  }
}

}  // namespace tenon
