// InlineCalls: a call becomes the instructions of what it calls. (JAX writes its jitted functions as calls.)
//
//   call                         as it stands
//   async-start, -update, -done  the result is there at once: start is the tuple ((operands), result, zeros...), done its element 1
//   fusion without our form      what another compiler fused (XLA's optimised dumps) is taken apart and fused again by us
//
// First, before everything that looks at one computation at a time. Computations are visited callees first, so one round does it.
// Refused (kResourceExhausted): a module that copies of what is called would make larger by more than kMaxGrowth instructions.
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "hlo/builder.h"
#include "passes/fusion/fused_form.h"
#include "passes/pass.h"

namespace tenon {
namespace {

// The root of a copy of `called` in the caller.
Instruction* Inlined(Instruction* call, const Computation* called) {
  Computation* c = call->parent();
  absl::flat_hash_map<const Instruction*, Instruction*> here;
  for (Instruction* op : called->PostOrder()) {
    if (op->opcode() == Opcode::kParameter) {
      here[op] = call->operand(op->parameter_number());
      continue;
    }
    std::vector<Instruction*> operands;
    for (Instruction* o : op->operands()) operands.push_back(here.at(o));
    Instruction* copy = c->Add(op->Clone(operands));
    if (copy->metadata().empty()) copy->metadata() = call->metadata();
    for (Instruction* before : op->control_predecessors()) copy->AddControlPredecessor(here.at(before));
    here[op] = copy;
    if (!copy->HasSideEffect()) continue;  // when the others run is nobody's business, and an edge keeps them from being fused
    for (Instruction* before : call->control_predecessors()) copy->AddControlPredecessor(before);
    for (Instruction* after : call->control_successors()) after->AddControlPredecessor(copy);
  }
  for (Instruction* after : call->control_successors()) {
    for (Instruction* before : call->control_predecessors()) after->AddControlPredecessor(before);
  }
  return here.at(called->root());
}

Instruction* Started(Instruction* start) {
  Instruction* result = Inlined(start, start->fused_computation());
  Builder b(start->parent());
  b.set_metadata(start->metadata());
  std::vector<Instruction*> parts = {b.Tuple(start->operands()), result};
  for (size_t i = 2; i < start->shape().elements().size(); ++i) {
    const Shape& shape = start->shape().element(i);
    parts.push_back(shape.is_array()
                        ? start->parent()->AddConstant(Literal(Shape::Array(shape.element_type(), shape.constant_dims())))
                        : start->parent()->Add(Opcode::kAfterAll, shape, {}));
  }
  return b.Tuple(parts);
}

// What is copied in the place of `op`, or null.
const Computation* CopiedFor(const Instruction& op) {
  switch (op.opcode()) {
    case Opcode::kCall: return op.to_apply();
    case Opcode::kFusion: return FusionFormOf(op).ok() ? nullptr : op.fused_computation();
    case Opcode::kAsyncStart: return op.fused_computation();
    default: return nullptr;
  }
}

constexpr int64_t kMaxGrowth = 1'000'000;

// Counted before anything is copied: forty computations that call the one before them twice are 2^40 instructions.
absl::Status CheckGrowth(const Module& module) {
  absl::flat_hash_map<const Computation*, int64_t> size;  // with all calls inlined
  int64_t growth = 0;
  for (const Computation* c : module.computations()) {
    int64_t total = c->instruction_count();
    for (const Instruction* op : c->instructions()) {
      const Computation* copied = CopiedFor(*op);
      if (copied == nullptr) continue;
      total += size.at(copied);
      growth += size.at(copied);
      if (growth <= kMaxGrowth) continue;
      return absl::ResourceExhaustedError(
          absl::StrCat("inlining ", op->name(), " of computation ", c->name(), ": calls would grow to more than ", kMaxGrowth,
                       " instructions, the budget of inline-calls"));
    }
    size[c] = total;
  }
  return absl::OkStatus();
}

// What stands for `op`, or null if it stays.
Instruction* Replacement(Instruction* op) {
  if (op->opcode() == Opcode::kAsyncStart) return Started(op);
  if (const Computation* copied = CopiedFor(*op)) return Inlined(op, copied);
  switch (op->opcode()) {
    case Opcode::kAsyncUpdate: return op->operand(0);
    case Opcode::kAsyncDone: {
      Builder b(op->parent());
      b.set_metadata(op->metadata());
      return b.GetTupleElement(op->operand(0), 1);
    }
    default: return nullptr;
  }
}

}  // namespace

absl::StatusOr<bool> InlineCalls(Module& module, PassContext&) {
  TENON_RETURN_IF_ERROR(CheckGrowth(module));
  bool changed = false;
  for (Computation* c : module.computations()) {
    for (Instruction* op : c->PostOrder()) {
      Instruction* with = Replacement(op);
      if (with == nullptr) continue;
      op->ClearControlEdges();
      op->ReplaceAllUsesWith(with);
      c->Remove(op);
      changed = true;
    }
  }
  if (changed) module.RemoveUnreachableComputations();
  return changed;
}

}  // namespace tenon
