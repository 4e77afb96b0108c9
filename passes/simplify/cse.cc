// CommonSubexpressionElimination: one of several identical instructions without effects. Random and effectful instructions differ
// from each other by definition; opt-barrier is kept apart on purpose (DESIGN D22: re-gathered weights).
// After simplification, before layouts and fusion.
#include "absl/container/flat_hash_map.h"
#include "passes/pass.h"

namespace tenon {
namespace {

size_t KeyOf(const Instruction& op) {
  size_t h = absl::HashOf(static_cast<int>(op.opcode()), op.shape(), op.operand_count());
  for (const Instruction* o : op.operands()) h = absl::HashOf(h, o);
  if (op.opcode() == Opcode::kConstant) h = absl::HashOf(h, op.literal().Hash());
  if (const auto* dims = op.attrs().find(Attr::kDimensions)) h = absl::HashOf(h, std::get<std::vector<int64_t>>(*dims));
  if (const auto* index = op.attrs().find(Attr::kTupleIndex)) h = absl::HashOf(h, std::get<int64_t>(*index));
  return h;
}

bool Mergeable(const Instruction& op) {
  return op.opcode() != Opcode::kParameter && op.opcode() != Opcode::kOptBarrier && !op.IsStateful() &&
         op.control_predecessors().empty() && op.control_successors().empty();
}

bool RunOn(Computation* c) {
  bool changed = false;
  absl::flat_hash_map<size_t, std::vector<Instruction*>> seen;
  for (Instruction* op : c->PostOrder()) {
    if (!Mergeable(*op)) continue;
    std::vector<Instruction*>& bucket = seen[KeyOf(*op)];
    Instruction* twin = nullptr;
    for (Instruction* candidate : bucket) {
      if (Instruction::Identical(*candidate, *op)) twin = candidate;
    }
    if (twin == nullptr) {
      bucket.push_back(op);
      continue;
    }
    op->ReplaceAllUsesWith(twin);
    c->Remove(op);
    changed = true;
  }
  return changed;
}

}  // namespace

absl::StatusOr<bool> CommonSubexpressionElimination(Module& module, PassContext&) {
  bool changed = false;
  for (Computation* c : module.computations()) changed |= RunOn(c);
  return changed;
}

}  // namespace tenon
