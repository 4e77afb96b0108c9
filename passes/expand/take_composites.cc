// TakeComposites: a composite (hlo/composite.h) that a provider takes becomes a call of the host's function, any other an ordinary call.
//
// Before inline-calls, which would put the body in its place. The choice is the backend's (PassContext::provide_composite), and a remark.
#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "hlo/builder.h"
#include "hlo/composite.h"
#include "passes/pass.h"

namespace tenon {
namespace {

// The call has the composite's name. An operand that stands twice among the composite's is one of the call's.
void Replace(Instruction* composite, ProvidedCall provided) {
  std::vector<Instruction*> operands;
  for (FrameworkArg& arg : provided.site.args) {
    if (!arg.is_tensor()) continue;
    Instruction* operand = composite->operand(arg.i);
    auto at = absl::c_find(operands, operand);
    arg.i = at - operands.begin();
    if (at == operands.end()) operands.push_back(operand);
  }
  Builder b(composite->parent());
  b.set_metadata(composite->metadata());
  Instruction* call =
      b.CustomCall(provided.function, composite->shape(), operands, FrameworkCallRef(std::move(provided.site)), /*side_effect=*/false);
  for (Instruction* before : composite->control_predecessors()) call->AddControlPredecessor(before);
  for (Instruction* after : composite->control_successors()) after->AddControlPredecessor(call);
  composite->ClearControlEdges();
  composite->ReplaceAllUsesWith(call);
  std::string name = composite->name();
  composite->parent()->Remove(composite);
  call->set_name(std::move(name));
}

absl::StatusOr<ProvidedCall> Provided(const Instruction& op, const PassContext& context, std::string* name) {
  TENON_ASSIGN_OR_RETURN(const Composite composite, CompositeOf(op));
  *name = composite.name;
  if (!context.provide_composite) return absl::UnimplementedError("nobody provides composites");
  return context.provide_composite(op);
}

void Take(Instruction* op, PassContext& context) {
  std::string name = "a composite";
  absl::StatusOr<ProvidedCall> provided = Provided(*op, context, &name);
  if (provided.ok()) {
    context.Note("take-composites", "provider", *op, absl::StrCat(name, " by ", std::string(provided->function)));
    return Replace(op, *std::move(provided));
  }
  context.Note("take-composites", "provider", *op, absl::StrCat(name, " by its body; ", std::string(provided.status().message())));
  UnmarkComposite(op);
}

}  // namespace

absl::StatusOr<bool> TakeComposites(Module& module, PassContext& context) {
  bool changed = false;
  for (Computation* c : module.computations()) {
    for (Instruction* op : c->PostOrder()) {
      if (!IsComposite(*op)) continue;
      Take(op, context);
      changed = true;
    }
  }
  if (changed) module.RemoveUnreachableComputations();
  return changed;
}

}  // namespace tenon
