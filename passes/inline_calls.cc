// InlineCalls: a call becomes the instructions of what it calls. (JAX writes its jitted functions as calls.)
//
// First, before everything that looks at one computation at a time. Computations are visited callees first, so one round does it.
#include "absl/container/flat_hash_map.h"
#include "passes/pass.h"

namespace tenon {
namespace {

void Inline(Instruction* call) {
  Computation* c = call->parent();
  absl::flat_hash_map<const Instruction*, Instruction*> here;
  for (Instruction* op : call->to_apply()->PostOrder()) {
    if (op->opcode() == Opcode::kParameter) {
      here[op] = call->operand(op->parameter_number());
      continue;
    }
    std::vector<Instruction*> operands;
    for (Instruction* o : op->operands()) operands.push_back(here.at(o));
    Instruction* copy = c->Add(op->Clone(operands));
    if (copy->metadata().empty()) copy->metadata() = call->metadata();
    for (Instruction* before : op->control_predecessors()) copy->AddControlPredecessor(here.at(before));
    for (Instruction* before : call->control_predecessors()) copy->AddControlPredecessor(before);
    for (Instruction* after : call->control_successors()) after->AddControlPredecessor(copy);
    here[op] = copy;
  }
  call->ClearControlEdges();
  call->ReplaceAllUsesWith(here.at(call->to_apply()->root()));
  c->Remove(call);
}

}  // namespace

absl::StatusOr<bool> InlineCalls(Module& module, PassContext&) {
  bool changed = false;
  for (Computation* c : module.computations()) {
    for (Instruction* op : c->PostOrder()) {
      if (op->opcode() != Opcode::kCall) continue;
      Inline(op);
      changed = true;
    }
  }
  if (changed) module.RemoveUnreachableComputations();
  return changed;
}

}  // namespace tenon
