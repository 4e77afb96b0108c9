#include "passes/fusion/fused_form.h"

#include <array>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hlo/check.h"
#include "hlo/json.h"
#include "hlo/library/describe.h"
#include "passes/expand/control_flow.h"
#include "passes/memory/strided_view.h"

namespace tenon {
namespace {

constexpr std::array<std::string_view, 13> kNames = {"loop", "row", "column", "transpose", "reduce", "gather", "scatter",
                                                     "window", "concat", "sort", "scan", "contraction", "attention"};

bool AllowedOutside(const Instruction& op, ViewCache& views) {
  switch (op.opcode()) {
    case Opcode::kParameter:
    case Opcode::kConstant:
    case Opcode::kTuple:
    case Opcode::kGetTupleElement:
    case Opcode::kWhile:
    case Opcode::kConditional:
    case Opcode::kOptBarrier:
    case Opcode::kAfterAll:
    case Opcode::kCopy:
    case Opcode::kDot:
    case Opcode::kConvolution:
    case Opcode::kFusion: return true;
    default: return IsFrameworkCall(op) || library::IsLibraryCall(op) || views.IsView(op);
  }
}

absl::Status CheckFusion(const Instruction& fusion) {
  TENON_RETURN_IF_ERROR(FusionFormOf(fusion).status());
  const Instruction* root = fusion.fused_computation()->root();
  for (const Instruction* op : fusion.fused_computation()->instructions()) {
    const bool bad = op->opcode() == Opcode::kFusion || (op->opcode() == Opcode::kTuple && op != root) ||
                     !op->control_predecessors().empty() ||
                     (op->HasSideEffect() && !(op->opcode() == Opcode::kCustomCall && op->custom_call_target() == "tenon.check")) ||
                     (op->opcode() == Opcode::kConstant && UpperBound(op->shape().num_elements()) > 16);
    if (bad) return absl::InternalError(absl::StrCat("fusion ", fusion.name(), " must not contain ", op->ToString()));
  }
  return absl::OkStatus();
}

absl::Status CheckOutside(const Instruction& op, ViewCache& views) {
  if (!AllowedOutside(op, views)) {
    if (op.opcode() == Opcode::kCustomCall) {
      return absl::UnimplementedError(absl::StrCat("custom-call ", op.name(), ": custom-call target \"", op.custom_call_target(),
                                                   "\" is not registered"));
    }
    return absl::UnimplementedError(absl::StrCat("no CPU code for ", std::string(OpcodeName(op.opcode())), " \"", op.name(),
                                                 "\" (", op.shape().ToString(), ")"));
  }
  if (op.shape().is_array() && !op.shape().has_layout()) {
    return absl::InternalError(absl::StrCat("fused form: ", op.name(), " has no layout"));
  }
  return op.opcode() == Opcode::kFusion ? CheckFusion(op) : absl::OkStatus();
}

}  // namespace

std::string_view FusionFormName(FusionForm form) { return kNames[static_cast<size_t>(form)]; }

absl::StatusOr<FusionForm> FusionFormOf(const Instruction& fusion) {
  const Json json = Json::Parse(fusion.backend_config()).value_or(Json());
  if (json.contains("tenon") && json["tenon"].contains("kind")) {
    for (size_t i = 0; i < kNames.size(); ++i) {
      if (json["tenon"]["kind"] == kNames[i]) return static_cast<FusionForm>(i);
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("fusion ", fusion.name(),
                                                 ": wanted backend_config={\"tenon\":{\"kind\":<form>}}, got \"",
                                                 fusion.backend_config(), "\""));
}

void SetFusionForm(Instruction* fusion, FusionForm form) {
  const bool loop = form == FusionForm::kLoop || form == FusionForm::kTranspose || form == FusionForm::kConcat;
  const bool input = form == FusionForm::kRow || form == FusionForm::kColumn || form == FusionForm::kReduce;
  fusion->mutable_attrs().set(Attr::kFusionKind, std::string(loop ? "kLoop" : input ? "kInput" : "kCustom"));
  fusion->set_backend_config_json(Json({{"tenon", Json({{"kind", FusionFormName(form)}})}}).dump());
}

void ReplaceByFusion(Instruction* result, Computation* fused, absl::Span<Instruction* const> operands, FusionForm form,
                     const Instruction& lead) {
  Computation* around = result->parent();
  Instruction* fusion = around->Add(Opcode::kFusion, result->shape(), operands, absl::StrCat("fusion_", lead.name()));
  fusion->mutable_attrs().set(Attr::kCalls, fused);
  SetFusionForm(fusion, form);
  fusion->metadata() = result->metadata();
  result->ReplaceAllUsesWith(fusion);
  if (around->root() == result) around->set_root(fusion);
}

bool IsViewOp(const Instruction& op) { return ViewCache().IsView(op); }

absl::Status CheckFusedForm(const Module& module) {
  if (!module.is_scheduled) return absl::InternalError("fused form: the module is not scheduled");
  ViewCache views;
  absl::flat_hash_set<const Computation*> called;
  for (const Computation* c : ControlComputations(module)) {
    for (const Instruction* op : c->instructions()) {
      TENON_RETURN_IF_ERROR(CheckOutside(*op, views));
      for (const Computation* region : ControlRegions(*op)) {
        if (called.insert(region).second) continue;
        return absl::InternalError(absl::StrCat("fused form: ", region->name(), " has several callers, ", op->name(), " is one"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace tenon
