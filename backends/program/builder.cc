#include "backends/program/builder.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "backends/program/framework_config.h"
#include "backends/program/releases.h"
#include "hlo/check.h"
#include "hlo/library/describe.h"
#include "passes/fused_form.h"

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
  for (const Instruction* op : schedule_) TENON_RETURN_IF_ERROR(EmitStep(*op));
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
  schedule_ = module_.entry()->instructions();
  for (const Instruction* op : schedule_) {
    switch (op->opcode()) {
      case Opcode::kParameter: TENON_RETURN_IF_ERROR(ParameterView(*op)); break;
      case Opcode::kTuple:  // only the root: its leaves are its operands'
        if (op != module_.entry()->root()) return Unexpected(*op);
        break;
      case Opcode::kGetTupleElement: {
        StridedView element = views_.at({op->operand(0), op->tuple_index()});  // a copy: the insertion may move it
        views_[{op, 0}] = std::move(element);
        aliases_.insert(op);
        break;
      }
      default: TENON_RETURN_IF_ERROR(OtherView(*op)); break;
    }
  }
  return absl::OkStatus();
}

absl::Status ProgramBuilder::ParameterView(const Instruction& op) {
  const Binding::Parameter& p = binding_.parameters[op.parameter_number()];
  StridedView view{.buffer = {&op, 0}};
  view.dims.assign(op.shape().dims().begin(), op.shape().dims().end());
  if (p.flat_storage) view.strides = {Dim(1)};
  else view.strides.assign(p.strides.begin(), p.strides.end());
  views_[{&op, 0}] = std::move(view);
  return absl::OkStatus();
}

absl::Status ProgramBuilder::OtherView(const Instruction& op) {
  if (op.family() == Family::kMovement && op.operand_count() > 0) {
    if (auto view = ApplyViewOp(op, views_.at({op.operand(0), 0}))) {
      views_[{&op, 0}] = *view;
      aliases_.insert(&op);
      return absl::OkStatus();
    }
  }
  std::vector<Shape> leaves = FlattenShape(op.shape());
  std::optional<FrameworkConfig> config;
  if (IsFrameworkCall(op)) {
    TENON_ASSIGN_OR_RETURN(config, ConfigOf(op));
  }
  for (int64_t leaf = 0; leaf < static_cast<int64_t>(leaves.size()); ++leaf) {
    StridedView view = DenseView({&op, leaf}, leaves[leaf]);
    if (config && config->strides) {
      const std::vector<int64_t>& given = config->strides->at(leaf);
      view.strides.assign(given.begin(), given.end());
    }
    views_[{&op, leaf}] = std::move(view);
  }
  return absl::OkStatus();
}

absl::Status ProgramBuilder::Unexpected(const Instruction& op) {
  return absl::UnimplementedError(absl::StrCat("the CPU program cannot hold ", std::string(OpcodeName(op.opcode())), " \"",
                                               op.name(), "\" outside of a fusion"));
}

absl::Status ProgramBuilder::EmitStep(const Instruction& op) {
  if (aliases_.contains(&op)) return absl::OkStatus();
  switch (op.opcode()) {
    case Opcode::kParameter:
    case Opcode::kConstant:
    case Opcode::kTuple: return absl::OkStatus();
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
