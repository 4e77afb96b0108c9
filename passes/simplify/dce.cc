// DeadCodeElimination: instructions without users (parameters and effects stay), then computations without callers.
// Anywhere; cheap.
#include "passes/pass.h"

namespace tenon {

absl::StatusOr<bool> DeadCodeElimination(Module& module, PassContext&) {
  bool changed = false;
  for (Computation* c : module.computations()) {
    std::vector<Instruction*> order = c->PostOrder();
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      Instruction* op = *it;
      const bool dead = op->users().empty() && op != c->root() && op->opcode() != Opcode::kParameter && !op->HasSideEffect() &&
                        op->control_successors().empty();
      if (!dead) continue;
      op->ClearControlEdges();
      c->Remove(op);
      changed = true;
    }
  }
  return module.RemoveUnreachableComputations() > 0 || changed;
}

}  // namespace tenon
