// LowerKernels: every fusion's kernel, and every contraction of a library, is planned, once, by the strides that its operands and results
// will have.
//
// After fuse, before schedule, which like the buffer plan asks the plans. A fusion that the target cannot plan is split into kernels of one
// instruction each, with a remark.
#include "absl/strings/str_cat.h"
#include "hlo/own_calls.h"
#include "passes/expand/control_flow.h"
#include "passes/fusion/cluster.h"
#include "passes/lower/launch_plan.h"
#include "passes/memory/value_views.h"
#include "passes/pass.h"
#include "passes/spaces/spaces.h"

namespace tenon {
namespace {

bool Trivial(const Instruction& op) {
  return op.opcode() == Opcode::kConstant || op.opcode() == Opcode::kParameter || op.opcode() == Opcode::kTuple;
}

bool IsSingle(const Instruction& fusion) {
  return absl::c_count_if(fusion.fused_computation()->instructions(), [](const Instruction* op) {
    return !Trivial(*op) && op->opcode() != Opcode::kGetTupleElement;
  }) <= 1;
}

// One instruction of `fused` as a kernel of its own (constants inside), of operands that stand outside.
Instruction* Wrap(const Instruction& op, Computation* around, const absl::flat_hash_map<const Instruction*, Instruction*>& outside,
                  const PassContext& context) {
  Computation* c = around->module()->AddComputation(absl::StrCat("single_", op.name()));
  std::vector<Instruction*> operands, inner;
  for (Instruction* o : op.operands()) {
    if (o->opcode() == Opcode::kConstant) {
      inner.push_back(c->Add(o->Clone({})));
      continue;
    }
    inner.push_back(c->AddParameter(static_cast<int64_t>(operands.size()), o->shape()));
    operands.push_back(outside.at(o));
  }
  c->set_root(c->Add(op.Clone(inner)));
  Instruction* single = around->Add(Opcode::kFusion, op.shape(), operands, absl::StrCat("fusion_", op.name()));
  single->mutable_attrs().set(Attr::kCalls, c);
  SetFusionForm(single, SingleForm(op, context));
  single->metadata() = op.metadata();
  return single;
}

// Puts a fusion's instructions back, each in a kernel of its own.
std::vector<Instruction*> Split(Instruction* fusion, const PassContext& context) {
  Computation *around = fusion->parent(), *fused = fusion->fused_computation();
  absl::flat_hash_map<const Instruction*, Instruction*> outside;
  std::vector<Instruction*> singles;
  for (Instruction* p : fused->parameters()) outside[p] = fusion->operand(p->parameter_number());
  for (Instruction* op : fused->PostOrder()) {
    if (Trivial(*op)) continue;
    if (op->opcode() == Opcode::kGetTupleElement) {
      Instruction* element = around->Add(Opcode::kGetTupleElement, op->shape(), {outside.at(op->operand(0))});
      element->mutable_attrs().set(Attr::kTupleIndex, op->tuple_index());
      outside[op] = element;
    } else {
      singles.push_back(outside[op] = Wrap(*op, around, outside, context));
    }
  }
  Instruction* root = fused->root();
  if (root->opcode() == Opcode::kTuple) {
    for (Instruction* user : std::vector<Instruction*>(fusion->users().begin(), fusion->users().end())) {
      user->ReplaceAllUsesWith(outside.at(root->operand(user->tuple_index())));
      around->Remove(user);
    }
  } else {
    fusion->ReplaceAllUsesWith(outside.at(root));
  }
  around->Remove(fusion);
  around->set_schedule(around->PostOrder());
  return singles;
}

std::vector<Instruction*> Planned(const Module& module) {
  std::vector<Instruction*> planned;
  for (const Computation* c : ControlComputations(module)) {
    absl::c_copy_if(c->instructions(), std::back_inserter(planned), [](const Instruction* op) {
      return op->opcode() == Opcode::kFusion || op->opcode() == Opcode::kDot || op->opcode() == Opcode::kConvolution;
    });
  }
  return planned;
}

// Calls that write operands have no kernel, but where their results may lie is said as of one.
void PlanWrittenOperands(const Module& module, LaunchPlans* plans) {
  for (const Computation* c : ControlComputations(module)) {
    for (const Instruction* op : c->instructions()) {
      LaunchPlan plan;
      for (const WrittenOperand& w : WrittenOperands(*op)) plan.may_overwrite.push_back({w.operand, w.leaf});
      plan.copies = plan.may_overwrite;
      if (!plan.copies.empty()) (*plans)[op] = std::move(plan);
    }
  }
}

// A fusion that a device refuses is split; what it refuses of that is the host's. Copies between the spaces change what lies where, so all
// is planned again.
absl::StatusOr<bool> LowerForDevices(Module& module, PassContext& context) {
  for (bool changed = false;; changed = true) {
    context.launch_plans->clear();
    std::vector<std::pair<Instruction*, absl::Status>> refused;
    {
      const ValueViews views(module, context.own_strides);
      for (Instruction* op : Planned(module)) {
        absl::StatusOr<LaunchPlan> plan = context.plan_launches(*op, views);
        if (plan.ok()) (*context.launch_plans)[op] = *std::move(plan);
        else refused.emplace_back(op, plan.status());
      }
    }
    if (refused.empty()) {
      PlanWrittenOperands(module, context.launch_plans);
      return changed;
    }
    for (const auto& [op, why] : refused) {
      if (op->opcode() == Opcode::kFusion && !IsSingle(*op)) {
        context.Note("lower-kernels", "split", *op, std::string(why.message()));
        const int64_t space = SpaceOf(op->shape());  // of what lay nowhere in particular, too
        for (Instruction* single : Split(op, context)) MoveTo(single, space);
      } else if (SpaceOf(op->shape()) != 0) {
        context.Note("lower-kernels", "host", *op, std::string(why.message()));
        MoveTo(op, 0);
      } else {
        return why;
      }
    }
    module.RemoveUnreachableComputations();
    SettleSpaces(module);
  }
}

}  // namespace

absl::StatusOr<bool> LowerKernels(Module& module, PassContext& context) {
  if (!context.plan_launches) return false;
  if (context.spaces != nullptr) return LowerForDevices(module, context);
  LaunchPlans& plans = *context.launch_plans;
  plans.clear();
  // Split only when all is planned: what reads a split fusion's results is planned by views that know nothing of what makes them then.
  std::vector<Instruction*> refused, singles;
  {
    const ValueViews views(module, context.own_strides);
    for (Instruction* op : Planned(module)) {
      absl::StatusOr<LaunchPlan> plan = context.plan_launches(*op, views);
      if (plan.ok()) {
        plans[op] = *std::move(plan);
        continue;
      }
      if (op->opcode() != Opcode::kFusion || IsSingle(*op)) return plan.status();
      context.Note("lower-kernels", "split", *op, std::string(plan.status().message()));
      refused.push_back(op);
    }
  }
  for (Instruction* op : refused) {
    for (Instruction* single : Split(op, context)) singles.push_back(single);
  }
  PlanWrittenOperands(module, &plans);
  if (singles.empty()) return false;
  module.RemoveUnreachableComputations();
  const ValueViews views(module, context.own_strides);
  for (Instruction* single : singles) {
    TENON_ASSIGN_OR_RETURN(plans[single], context.plan_launches(*single, views));
  }
  return true;
}

}  // namespace tenon
