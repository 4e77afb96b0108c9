// FuseAttention: attention that the target computes in one kernel becomes a fusion of form `attention` (passes/fusion/attention.h), so that
// its scores and weights never lie in memory.
//
// Behind assign-spaces, which says whose it is to compute. Before fuse, which would make three kernels of it: what the target does not take
// stays as it is.
#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "passes/expand/control_flow.h"
#include "passes/fusion/attention.h"
#include "passes/fusion/fused_form.h"
#include "passes/pass.h"
#include "passes/spaces/spaces.h"

namespace tenon {
namespace {

void Replace(const Attention& attention) {
  Computation* around = attention.result->parent();
  Computation* fused = around->module()->AddComputation(absl::StrCat("fused_", attention.result->name()));
  absl::flat_hash_map<const Instruction*, Instruction*> made;
  std::vector<Instruction*> operands;
  for (const Instruction* op : attention.inside) {
    std::vector<Instruction*> from;
    for (Instruction* o : op->operands()) {
      if (!absl::c_linear_search(attention.inside, o) && made.emplace(o, nullptr).second) {
        made[o] = fused->AddParameter(static_cast<int64_t>(operands.size()), o->shape());
        operands.push_back(o);
      }
      from.push_back(made.at(o));
    }
    made[op] = fused->Add(op->Clone(from));
  }
  fused->set_root(made.at(attention.result));
  ReplaceByFusion(attention.result, fused, operands, FusionForm::kAttention, *attention.result);
  for (size_t i = attention.inside.size(); i-- > 0;) {
    if (attention.inside[i]->users().empty()) around->Remove(attention.inside[i]);
  }
}

}  // namespace

absl::StatusOr<bool> FuseAttention(Module& module, PassContext& context) {
  if (!context.takes_attention) return false;
  bool changed = false;
  for (Computation* c : ControlComputations(module)) {
    std::vector<Instruction*> dots = c->PostOrder();
    std::erase_if(dots, [](const Instruction* op) { return op->opcode() != Opcode::kDot; });
    for (Instruction* op : dots) {
      const std::optional<Attention> attention = AttentionOf(*op);
      if (!attention) continue;
      const bool here = absl::c_none_of(attention->inside, [](const Instruction* i) { return ChangesSpace(*i); });
      if (!here || !context.takes_attention(*attention)) {
        context.Note("fuse-attention", "not-fused", *op, "the target has no kernel for attention of these sizes and types");
        continue;
      }
      context.Note("fuse-attention", "fused", *attention->result, "attention in one kernel",
                   {{"instructions", static_cast<double>(attention->inside.size())}});
      Replace(*attention);
      changed = true;
    }
  }
  if (changed) module.RemoveUnreachableComputations();
  return changed;
}

}  // namespace tenon
