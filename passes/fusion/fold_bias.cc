// FoldBias: a bias added behind a contraction that a library computes becomes part of that call, and so do another value that is added to
// it and an activation of that: all of it is one fusion of form `contraction`. The backend says which provider does them by the way
// (PassContext::folds_bias, folds_behind).
//
// Twice in the pipeline: before fuse the adds that are free wherever they stand, behind it those that nothing else was fused with.
#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "hlo/builder.h"
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
  const Instruction* vector = epilogue->opcode() == Opcode::kFusion ? add->parent()->parameter(epilogue->operand(0) == bias ? 0 : 1) : bias;
  const int64_t spread = add->operand(0)->operand_count() == 1 && add->operand(0)->operand(0) == vector ? 0 : 1;
  Instruction* row = fused->Add(add->operand(spread)->Clone({inside[2]}));
  fused->set_root(fused->Add(add->Clone({product, row})));
  ReplaceByFusion(epilogue, fused, operands, FusionForm::kContraction, *contraction);
  Instruction* left = epilogue->opcode() == Opcode::kFusion ? nullptr : epilogue->operand(spread);
  around->Remove(epilogue);
  around->Remove(contraction);
  if (left != nullptr && left->users().empty()) around->Remove(left);
}

// Nothing but what the last of them hangs on reads `value`, or one of them that hangs on it: of the others copies are made.
bool OnlyInside(const Instruction& value, absl::Span<const Instruction* const> inside) {
  absl::flat_hash_set<const Instruction*> all(inside.begin(), inside.end()), hanging = {&value};
  for (const Instruction* op : inside) {
    if (absl::c_any_of(op->operands(), [&](const Instruction* o) { return hanging.contains(o); })) hanging.insert(op);
  }
  const auto read_inside = [&](const Instruction& op) {
    return op.parent()->root() != &op && absl::c_all_of(op.users(), [&](const Instruction* user) { return all.contains(user); });
  };
  return IsFree(value) && read_inside(value) && absl::c_all_of(inside, [&](const Instruction* op) {
    return IsFree(*op) && (op == inside.back() || !hanging.contains(op) || read_inside(*op));
  });
}

// `value`, a contraction or a fusion of one, and all of `inside` as one fusion. `value` may be a reshape of it: then they are computed on
// what is reshaped, and their result is reshaped.
void FoldBehind(Instruction* value, absl::Span<const Instruction* const> inside) {
  Computation* around = value->parent();
  Instruction* reshape = value->opcode() == Opcode::kReshape ? value : nullptr;
  if (reshape != nullptr) value = reshape->operand(0);
  const Shape shape = value->shape();
  Builder b(around);
  b.set_metadata(value->metadata());
  const auto reshaped = [&](Instruction* x, const Shape& as) {
    Instruction* made = b.Reshape(x, as.dims());
    if (made != x) made->mutable_shape().set_layout(as.minor_to_major());
    return made;
  };

  Computation* fused = around->module()->AddComputation(absl::StrCat("behind_", value->name()));
  absl::flat_hash_map<const Instruction*, Instruction*> made;
  std::vector<Instruction*> operands(value->operands().begin(), value->operands().end()), parameters;
  for (Instruction* o : operands) {
    parameters.push_back(fused->AddParameter(static_cast<int64_t>(parameters.size()), o->shape()));
    made.emplace(o, parameters.back());
  }
  const auto outside = [&](Instruction* o) {  // another value
    operands.push_back(reshape == nullptr || o->shape().rank() == 0 ? o : reshaped(o, shape));
    return fused->AddParameter(static_cast<int64_t>(operands.size()) - 1, operands.back()->shape());
  };
  const auto copy = [&](const Instruction* op) {
    std::vector<Instruction*> from;
    for (Instruction* o : op->operands()) {
      const auto known = made.find(o);
      from.push_back(known != made.end() ? known->second : (made[o] = outside(o)));
    }
    return made[op] = fused->Add(op->Clone(from));
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
  if (reshape != nullptr) made[reshape] = made.at(value);
  for (const Instruction* op : inside) {
    Instruction* inner = copy(op);
    if (reshape == nullptr || inner->shape().rank() == 0) continue;
    Shape as = shape;
    as.set_element_type(op->shape().element_type());
    inner->mutable_shape() = as;
  }
  auto* root = const_cast<Instruction*>(inside.back());
  fused->set_root(made.at(root));
  if (reshape == nullptr) {
    ReplaceByFusion(root, fused, operands, FusionForm::kContraction, *root);
  } else {
    Instruction* flat = b.Copy(value);  // stands for the fusion
    flat->mutable_shape() = shape;
    Instruction* again = reshaped(flat, root->shape());
    root->ReplaceAllUsesWith(again);
    if (around->root() == root) around->set_root(again);
    ReplaceByFusion(flat, fused, operands, FusionForm::kContraction, *root);
    around->Remove(flat);
  }
  for (size_t k = inside.size(); k-- > 0;) {
    if (inside[k]->users().empty()) around->Remove(const_cast<Instruction*>(inside[k]));
  }
  if (reshape != nullptr) around->Remove(reshape);
  around->Remove(value);
}

bool FoldAllBehind(Computation& c, PassContext& context) {
  bool changed = false;
  std::vector<const Instruction*> inside;
  for (Instruction* op : c.PostOrder()) {
    if (!op->IsElementwise()) continue;
    const Instruction* value = context.folds_behind(*op, &inside);
    if (value == nullptr || !OnlyInside(*value, inside)) continue;
    context.Note("fold-bias", "folded", *op, absl::StrCat("the library applies it to ", value->name()));
    FoldBehind(const_cast<Instruction*>(value), inside);
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
    if (context.folds_behind) changed |= FoldAllBehind(*c, context);
  }
  if (changed) module.RemoveUnreachableComputations();
  return changed;
}

}  // namespace tenon
