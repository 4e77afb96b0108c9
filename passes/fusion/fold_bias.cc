// FoldBias: a bias added behind a contraction that a library computes becomes part of that call: contraction and add are one fusion of form
// `contraction`. The backend says which provider adds it by the way (PassContext::folds_bias).
//
// Twice in the pipeline: before fuse the adds that are free wherever they stand, behind it those that nothing else was fused with.
#include "absl/strings/str_cat.h"
#include "hlo/check.h"
#include "passes/expand/control_flow.h"
#include "passes/fusion/fused_form.h"
#include "passes/pass.h"

namespace tenon {
namespace {

bool IsFree(const Instruction& op) { return op.control_predecessors().empty() && op.control_successors().empty(); }

void Fold(Instruction* contraction, Instruction* epilogue, Instruction* bias) {
  Computation* around = contraction->parent();
  Computation* fused = around->module()->AddComputation(absl::StrCat("biased_", contraction->name()));
  std::vector<Instruction*> operands = {contraction->operand(0), contraction->operand(1), bias}, inside;
  for (Instruction* o : operands) inside.push_back(fused->AddParameter(static_cast<int64_t>(inside.size()), o->shape()));
  Instruction* product = fused->Add(contraction->Clone({inside[0], inside[1]}));
  const Instruction* add = epilogue->opcode() == Opcode::kFusion ? epilogue->fused_computation()->root() : epilogue;
  const int64_t spread = add->operand(0)->opcode() == Opcode::kBroadcast ? 0 : 1;
  Instruction* row = fused->Add(add->operand(spread)->Clone({inside[2]}));
  fused->set_root(fused->Add(add->Clone({product, row})));
  Instruction* fusion = around->Add(Opcode::kFusion, epilogue->shape(), operands, absl::StrCat("fusion_", contraction->name()));
  fusion->mutable_attrs().set(Attr::kCalls, fused);
  SetFusionForm(fusion, FusionForm::kContraction);
  fusion->metadata() = epilogue->metadata();
  epilogue->ReplaceAllUsesWith(fusion);
  if (around->root() == epilogue) around->set_root(fusion);
  Instruction* left = epilogue->opcode() == Opcode::kFusion ? nullptr : epilogue->operand(spread);
  around->Remove(epilogue);
  around->Remove(contraction);
  if (left != nullptr && left->users().empty()) around->Remove(left);
}

}  // namespace

absl::StatusOr<bool> FoldBias(Module& module, PassContext& context) {
  if (!context.folds_bias) return false;
  bool changed = false;
  for (Computation* c : ControlComputations(module)) {
    for (Instruction* op : c->PostOrder()) {
      if (op->family() != Family::kContraction || op->user_count() != 1 || op == c->root() || !IsFree(*op)) continue;
      Instruction* epilogue = op->users().front();
      if (!IsFree(*epilogue)) continue;
      const Instruction* bias = context.folds_bias(*op, *epilogue);
      if (bias == nullptr) continue;
      context.Note("fold-bias", "folded", *op, absl::StrCat("the library adds ", bias->name()));
      Fold(op, epilogue, const_cast<Instruction*>(bias));
      changed = true;
    }
  }
  if (changed) module.RemoveUnreachableComputations();
  return changed;
}

}  // namespace tenon
