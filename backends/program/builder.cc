#include "backends/program/builder.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "backends/program/framework_config.h"
#include "backends/program/releases.h"
#include "hlo/check.h"
#include "hlo/library/describe.h"
#include "passes/expand/control_flow.h"
#include "passes/fusion/fused_form.h"

namespace tenon {

absl::StatusOr<BuiltProgram> ProgramBuilder::Build() {
  built_.program.name = module_.name();
  built_.program.checks = binding_.checks;
  built_.program.regions.push_back({.name = "main"});
  TENON_RETURN_IF_ERROR(dims_.DefineSymbols(binding_));
  TENON_RETURN_IF_ERROR(DeclareInputs());
  views_ = ValueViews(module_, OwnStridesOf(module_, binding_));
  TENON_RETURN_IF_ERROR(Plan());
  for (const Instruction* op : module_.entry()->instructions()) TENON_RETURN_IF_ERROR(EmitStep(*op));
  TENON_RETURN_IF_ERROR(EmitOutputs());
  TENON_RETURN_IF_ERROR(EmitMutations());
  FindReleases(&program());
  return std::move(built_);
}

absl::Status ProgramBuilder::DeclareInputs() {
  for (const Binding::Input& in : binding_.inputs) {
    InputSpec spec{.kind = in.kind, .dtype = in.dtype, .name = in.name, .mutated = in.mutated, .space = in.space,
                   .packed_by = in.packed_by, .packing = in.packing};
    if (in.space != 0) ImageOf(in.space);
    TENON_ASSIGN_OR_RETURN(spec.dims, dims_.Refs(in.sizes));
    TENON_ASSIGN_OR_RETURN(spec.strides, dims_.Refs(in.strides));
    program().inputs.push_back(std::move(spec));
  }
  return absl::OkStatus();
}

absl::Status ProgramBuilder::Unexpected(const Instruction& op) {
  return absl::UnimplementedError(absl::StrCat("the CPU program cannot hold ", std::string(OpcodeName(op.opcode())), " \"",
                                               op.name(), "\" outside of a fusion"));
}

absl::Status ProgramBuilder::EmitStep(const Instruction& op) {
  if (views_.IsAlias(op)) return absl::OkStatus();
  switch (op.opcode()) {
    case Opcode::kParameter:
    case Opcode::kConstant:
    case Opcode::kAfterAll: return absl::OkStatus();
    case Opcode::kWhile: return EmitWhile(op);
    case Opcode::kConditional: return EmitConditional(op);
    case Opcode::kFusion:
    case Opcode::kDot:
    case Opcode::kConvolution: return EmitPlanned(op);
    case Opcode::kCopy:
    case Opcode::kReshape:
    case Opcode::kTranspose:
    case Opcode::kSlice:
    case Opcode::kBroadcast: return EmitCopy(op);
    default:
      if (IsFrameworkCall(op)) return EmitFrameworkCall(op);
      if (library::IsLibraryCall(op)) return EmitLibrary(op);
      return Unexpected(op);
  }
}

}  // namespace tenon
