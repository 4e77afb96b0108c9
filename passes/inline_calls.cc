// InlineCalls: a call becomes the instructions of what it calls. (JAX writes its jitted functions as calls.) So does a fusion that
// isn't ours: another compiler's module is fused anew.
//
// First, before everything that looks at one computation at a time. Computations are visited callees first, so one round does it.
#include "absl/container/flat_hash_map.h"
#include "passes/pass.h"

namespace tenon {
namespace {

// What an instruction to be inlined calls; else null.
Computation* CalleeOf(const Instruction& op) {
  if (op.opcode() == Opcode::kCall) return op.to_apply();
  const bool foreign = op.opcode() == Opcode::kFusion && op.backend_config().find("\"tenon\"") == std::string::npos;
  return foreign ? op.fused_computation() : nullptr;
}

void Inline(Instruction* call, Computation* callee) {
  Computation* c = call->parent();
  absl::flat_hash_map<const Instruction*, Instruction*> here;
  for (Instruction* op : callee->PostOrder()) {
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
  call->ClearControlEdges();
  call->ReplaceAllUsesWith(here.at(callee->root()));
  c->Remove(call);
}

}  // namespace

absl::StatusOr<bool> InlineCalls(Module& module, PassContext&) {
  bool changed = false;
  for (Computation* c : module.computations()) {
    for (Instruction* op : c->PostOrder()) {
      Computation* callee = CalleeOf(*op);
      if (callee == nullptr) continue;
      Inline(op, callee);
      changed = true;
    }
  }
  if (changed) module.RemoveUnreachableComputations();
  return changed;
}

}  // namespace tenon
