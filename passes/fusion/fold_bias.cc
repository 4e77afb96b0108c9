// FoldBias: a bias added behind a contraction that a library computes becomes part of that call, and so does an activation of that:
// contraction, add and activation are one fusion of form `contraction`. The backend says which provider does them by the way
// (PassContext::folds_bias, folds_activation).
//
// Twice in the pipeline: before fuse the adds that are free wherever they stand, behind it those that nothing else was fused with.
#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
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
  ReplaceByFusion(epilogue, fused, operands, FusionForm::kContraction, *contraction);
  Instruction* left = epilogue->opcode() == Opcode::kFusion ? nullptr : epilogue->operand(spread);
  around->Remove(epilogue);
  around->Remove(contraction);
  if (left != nullptr && left->users().empty()) around->Remove(left);
}

// Nothing but what the last of them hangs on reads `value`, or one of them.
bool OnlyInside(const Instruction& value, absl::Span<const Instruction* const> inside) {
  absl::flat_hash_set<const Instruction*> all(inside.begin(), inside.end());
  auto constant = [](const Instruction& op) { return op.opcode() == Opcode::kConstant || op.opcode() == Opcode::kBroadcast; };
  const auto read_inside = [&](const Instruction& op) {
    return op.parent()->root() != &op && absl::c_all_of(op.users(), [&](const Instruction* user) { return all.contains(user); });
  };
  return IsFree(value) && read_inside(value) && absl::c_all_of(inside, [&](const Instruction* op) {
    return IsFree(*op) && (op == inside.back() || constant(*op) || read_inside(*op));
  });
}

// `value`, a contraction or a fusion of one, and all of `inside` as one fusion.
void FoldActivation(Instruction* value, absl::Span<const Instruction* const> inside) {
  Computation* around = value->parent();
  Computation* fused = around->module()->AddComputation(absl::StrCat("activated_", value->name()));
  absl::flat_hash_map<const Instruction*, Instruction*> made;
  std::vector<Instruction*> operands(value->operands().begin(), value->operands().end()), parameters;
  for (Instruction* o : operands) parameters.push_back(fused->AddParameter(static_cast<int64_t>(parameters.size()), o->shape()));
  const auto copy = [&](const Instruction* op) {
    std::vector<Instruction*> from;
    for (const Instruction* o : op->operands()) from.push_back(made.at(o));
    made[op] = fused->Add(op->Clone(from));
  };
  if (value->opcode() == Opcode::kFusion) {
    const Computation& inner = *value->fused_computation();
    for (size_t p = 0; p < parameters.size(); ++p) made[inner.parameter(static_cast<int64_t>(p))] = parameters[p];
    for (const Instruction* op : inner.PostOrder()) {
      if (op->opcode() != Opcode::kParameter) copy(op);
    }
    made[value] = made.at(inner.root());
  } else {
    made[value] = fused->Add(value->Clone(parameters));
  }
  for (const Instruction* op : inside) copy(op);
  auto* root = const_cast<Instruction*>(inside.back());
  fused->set_root(made.at(root));
  ReplaceByFusion(root, fused, operands, FusionForm::kContraction, *root);
  for (size_t k = inside.size(); k-- > 0;) {
    if (inside[k]->users().empty()) around->Remove(const_cast<Instruction*>(inside[k]));
  }
  around->Remove(value);
}

bool FoldActivations(Computation& c, PassContext& context) {
  bool changed = false;
  std::vector<const Instruction*> inside;
  for (Instruction* op : c.PostOrder()) {
    if (op->opcode() != Opcode::kMaximum && op->opcode() != Opcode::kMultiply && op->opcode() != Opcode::kConvert) continue;
    const Instruction* value = context.folds_activation(*op, &inside);
    if (value == nullptr || !OnlyInside(*value, inside)) continue;
    context.Note("fold-bias", "folded", *op, absl::StrCat("the library applies it to ", value->name()));
    FoldActivation(const_cast<Instruction*>(value), inside);
    changed = true;
  }
  return changed;
}

}  // namespace

absl::StatusOr<bool> FoldBias(Module& module, PassContext& context) {
  if (!context.folds_bias) return false;
  bool changed = false;
  for (Computation* c : ControlComputations(module)) {
    std::vector<Instruction*> contractions = c->PostOrder();  // none of which goes with another
    std::erase_if(contractions, [](const Instruction* op) { return op->family() != Family::kContraction; });
    for (Instruction* op : contractions) {
      if (op->user_count() != 1 || op == c->root() || !IsFree(*op)) continue;
      Instruction* epilogue = op->users().front();
      if (!IsFree(*epilogue)) continue;
      const Instruction* bias = context.folds_bias(*op, *epilogue);
      if (bias == nullptr) continue;
      context.Note("fold-bias", "folded", *op, absl::StrCat("the library adds ", bias->name()));
      Fold(op, epilogue, const_cast<Instruction*>(bias));
      changed = true;
    }
    if (context.folds_activation) changed |= FoldActivations(*c, context);
  }
  if (changed) module.RemoveUnreachableComputations();
  return changed;
}

}  // namespace tenon
