// OrderRandom: control edges between the ops that draw from the run's random state (rng, rng-get-and-update-state and callers
// of such), in the order in which the evaluator runs them, so that every later order of steps draws the same values.
//
// First, before calls are inlined: the order is that of the program as it was given. One such op needs no edge.
#include "absl/container/flat_hash_map.h"
#include "passes/pass.h"

namespace tenon {
namespace {

class Draws {
 public:
  bool By(const Instruction& op) {
    if (op.opcode() == Opcode::kRng || op.opcode() == Opcode::kRngGetAndUpdateState) return true;
    for (const Computation* called : op.called_computations()) {
      if (In(*called)) return true;
    }
    return false;
  }

 private:
  bool In(const Computation& c) {
    auto [it, fresh] = known_.try_emplace(&c, false);
    if (!fresh) return it->second;
    bool found = false;
    for (const Instruction* op : c.instructions()) found = found || By(*op);
    return known_[&c] = found;
  }
  absl::flat_hash_map<const Computation*, bool> known_;
};

bool Has(const Instruction& op, const Instruction* predecessor) {
  for (const Instruction* p : op.control_predecessors()) {
    if (p == predecessor) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<bool> OrderRandom(Module& module, PassContext&) {
  bool changed = false;
  Draws draws;
  for (Computation* c : module.computations()) {
    Instruction* last = nullptr;
    for (Instruction* op : c->PostOrder()) {
      if (!draws.By(*op)) continue;
      if (last != nullptr && !Has(*op, last)) {
        op->AddControlPredecessor(last);
        changed = true;
      }
      last = op;
    }
  }
  return changed;
}

}  // namespace tenon
