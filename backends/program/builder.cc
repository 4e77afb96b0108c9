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
  dims_.DefineSymbols(binding_);
  TENON_RETURN_IF_ERROR(DeclareInputs());
  TENON_RETURN_IF_ERROR(FindViews());
  TENON_RETURN_IF_ERROR(Plan());
  FoldBiases();
  for (const Instruction* op : module_.entry()->instructions()) TENON_RETURN_IF_ERROR(EmitStep(*op));
  TENON_RETURN_IF_ERROR(EmitOutputs());
  TENON_RETURN_IF_ERROR(EmitMutations());
  FindReleases(&program());
  return std::move(built_);
}

absl::Status ProgramBuilder::DeclareInputs() {
  for (const Binding::Input& in : binding_.inputs) {
    InputSpec spec{.kind = in.kind, .dtype = in.dtype, .name = in.name, .mutated = in.mutated};
    TENON_ASSIGN_OR_RETURN(spec.dims, dims_.Refs(in.sizes));
    TENON_ASSIGN_OR_RETURN(spec.strides, dims_.Refs(in.strides));
    program().inputs.push_back(std::move(spec));
  }
  return absl::OkStatus();
}

// Views of every value, symbolic, before memory is known.
absl::Status ProgramBuilder::FindViews() {
  absl::flat_hash_map<BufferKey, DimVector> given;  // strides that no layout says
  for (const Instruction* op : module_.entry()->parameters()) {
    const int64_t leaves = LeafCount(op->shape());
    for (int64_t leaf = 0; leaf < leaves; ++leaf) {
      const Binding::Parameter& p = ParameterOf(FirstLeaf(*op) + leaf);
      DimVector& strides = given[{op, leaf}];
      if (p.flat_storage) strides = {Dim(1)};
      else strides.assign(p.strides.begin(), p.strides.end());
    }
  }
  for (const Computation* c : ControlComputations(module_)) {
    for (const Instruction* op : c->instructions()) {
      if (!IsFrameworkCall(*op)) continue;
      TENON_ASSIGN_OR_RETURN(const FrameworkConfig config, ConfigOf(*op));
      for (size_t leaf = 0; config.strides && leaf < config.strides->size(); ++leaf) {
        given[{op, static_cast<int64_t>(leaf)}].assign((*config.strides)[leaf].begin(), (*config.strides)[leaf].end());
      }
    }
  }
  views_ = ValueViews(module_, [&](const Instruction& op, int64_t leaf) -> std::optional<DimVector> {
    auto it = given.find({&op, leaf});
    return it == given.end() ? std::nullopt : std::make_optional(it->second);
  });
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
    case Opcode::kFusion: return folded_.contains(&op) ? absl::OkStatus() : EmitKernel(op);
    case Opcode::kDot: return EmitDot(op);
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
