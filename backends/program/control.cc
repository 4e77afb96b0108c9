// ProgramBuilder: while and conditional. Each computation they run becomes a region of its own; the plan says what moves where.
#include "absl/strings/str_cat.h"
#include "backends/program/builder.h"
#include "hlo/check.h"
#include "passes/expand/control_flow.h"

namespace tenon {

absl::Status ProgramBuilder::EmitWhile(const Instruction& op) {
  if (auto moves = plan_.initial_moves.find(&op); moves != plan_.initial_moves.end()) {
    TENON_RETURN_IF_ERROR(
        EmitMoves(op, moves->second, "the loop's state takes its initial value, which is read later or not ours to change"));
  }
  const std::vector<Computation*> regions = ControlRegions(op);
  WhileStep loop;
  TENON_ASSIGN_OR_RETURN(loop.condition, EmitRegion(*regions[0]));
  TENON_ASSIGN_OR_RETURN(loop.body, EmitRegion(*regions[1]));
  TENON_ASSIGN_OR_RETURN(loop.predicate, ViewOf(BufferKey{regions[0]->root(), 0}));
  Step step = NewStep(op);
  step.body = std::move(loop);
  if (op.HasSideEffect()) step.effect = Effect::kRandom;
  steps().push_back(std::move(step));
  return absl::OkStatus();
}

absl::Status ProgramBuilder::EmitConditional(const Instruction& op) {
  ConditionalStep choice;
  for (const Computation* branch : ControlRegions(op)) {
    TENON_ASSIGN_OR_RETURN(const int32_t region, EmitRegion(*branch));
    choice.branches.push_back(region);
  }
  TENON_ASSIGN_OR_RETURN(choice.index, ViewOf(BufferKey{op.operand(0), 0}));
  Step step = NewStep(op);
  step.body = std::move(choice);
  if (op.HasSideEffect()) step.effect = Effect::kRandom;
  steps().push_back(std::move(step));
  return absl::OkStatus();
}

absl::StatusOr<int32_t> ProgramBuilder::EmitRegion(const Computation& c) {
  const int32_t region = static_cast<int32_t>(program().regions.size()), outer = region_;
  program().regions.push_back({.name = c.name()});
  region_ = region;
  for (const Instruction* op : c.instructions()) TENON_RETURN_IF_ERROR(EmitStep(*op));
  if (auto moves = plan_.final_moves.find(&c); moves != plan_.final_moves.end()) {
    TENON_RETURN_IF_ERROR(EmitMoves(*c.root(), moves->second,
                                    "it cannot be made where it is kept: that memory is still read, or it is not a value of its own"));
  }
  region_ = outer;
  return region;
}

absl::Status ProgramBuilder::EmitMoves(const Instruction& op, const std::vector<BufferMove>& moves, std::string_view why) {
  for (const BufferMove& move : moves) {
    const BufferKey shown = move.from_temporary < 0 ? move.from : move.to;
    const PrimitiveType type = FlattenShape(shown.instruction->shape())[shown.leaf].element_type();
    const StridedView& like = views_.at(shown);
    CopyStep copy;
    TENON_ASSIGN_OR_RETURN(copy.from, MoveEnd(move.from, move.from_temporary, like, type));
    TENON_ASSIGN_OR_RETURN(copy.to, MoveEnd(move.to, move.to_temporary, like, type));
    Step step = NewStep(op);
    const ValueLeaf source = SourceOfLeaf(shown.instruction, shown.leaf);
    step.name = absl::StrCat(source.op->name(), source.leaf > 0 ? absl::StrCat("#", source.leaf) : "",
                             move.to_temporary < 0 ? " into place" : " aside");
    step.body = std::move(copy);
    Note(step, "copied", std::string(why));
    steps().push_back(std::move(step));
  }
  return absl::OkStatus();
}

// One end of a move: the leaf's place, or a temporary of `like`'s dims.
absl::StatusOr<View> ProgramBuilder::MoveEnd(BufferKey leaf, int32_t temporary, const StridedView& like, PrimitiveType type) {
  if (temporary < 0) return ViewOf(views_.at(leaf), type);
  const Shape dense(type, like.dims, RowMajor(static_cast<int64_t>(like.dims.size())));
  View view{.value = temporary, .dtype = type};
  TENON_ASSIGN_OR_RETURN(view.dims, dims_.Refs(like.dims));
  TENON_ASSIGN_OR_RETURN(view.strides, dims_.Refs(dense.strides()));
  return view;
}

}  // namespace tenon
