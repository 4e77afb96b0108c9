// ProgramBuilder: copies, kernels and framework calls.
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/program/builder.h"
#include "backends/program/framework_config.h"
#include "hlo/check.h"
#include "hlo/own_calls.h"
#include "passes/expand/control_flow.h"
#include "passes/lower/launches.h"
#include "passes/memory/free_memory.h"
#include "passes/spaces/spaces.h"

namespace tenon {

void ProgramBuilder::Note(const Step& step, std::string_view kind, std::string reason) {
  if (remarks_ == nullptr) return;
  remarks_->push_back(
      {.pass = "program", .instruction = step.name, .kind = std::string(kind), .reason = std::move(reason), .source = step.source});
}

Step ProgramBuilder::NewStep(const Instruction& op) const { return {.name = op.name(), .source = SourceOf(op)}; }

// A movement op that its operand's strides don't allow as a view: its dense result is filled through a view of it.
absl::Status ProgramBuilder::EmitCopy(const Instruction& op) {
  const StridedView& from = views_.at({op.operand(0), 0});
  const StridedView& dense = views_.at({&op, 0});
  StridedView source = from, to = dense;
  if (op.opcode() == Opcode::kReshape) {
    std::optional<DimVector> strides = ReshapeStrides(dense.dims, dense.strides, from.dims);
    if (!strides) return Unexpected(op);
    to.dims = from.dims;
    to.strides = *strides;
  } else if (op.opcode() != Opcode::kCopy) {
    auto view = ApplyViewOp(op, from);
    if (!view) return Unexpected(op);
    source = *view;
  }
  return AddCopy(op, source, to, op.shape().element_type());
}

absl::Status ProgramBuilder::AddCopy(const Instruction& op, const StridedView& from, const StridedView& to, PrimitiveType type) {
  CopyStep copy;
  TENON_ASSIGN_OR_RETURN(copy.from, ViewOf(from, type));
  TENON_ASSIGN_OR_RETURN(copy.to, ViewOf(to, type));
  Step step = NewStep(op);
  step.body = std::move(copy);
  Note(step, "copied", "its consumer or the caller needs other strides");
  steps().push_back(std::move(step));
  return absl::OkStatus();
}

// What the kernel finds in its results' memory, unless that is the operand's own.
absl::Status ProgramBuilder::EmitCopies(const Instruction& op, const LaunchPlan& plan) {
  const std::vector<Shape> leaves = FlattenShape(op.shape());
  for (const LaunchPlan::Pair& pair : plan.copies) {
    const BufferKey from{op.operand(pair.operand), 0}, to{&op, pair.leaf};
    CopyStep copy;
    TENON_ASSIGN_OR_RETURN(copy.from, ViewOf(from));
    TENON_ASSIGN_OR_RETURN(copy.to, ViewOf(to));
    const StridedView &source = views_.at(from), &result = views_.at(to);
    if (copy.from.value == copy.to.value && KnownEqual(source.offset, result.offset)) continue;
    Step step = NewStep(op);
    step.body = std::move(copy);
    if (update_value_.contains(to)) step.effect = Effect::kMutates;
    else Note(step, "copied", absl::StrCat("the kernel writes into a copy of ", op.operand(pair.operand)->name()));
    steps().push_back(std::move(step));
  }
  return absl::OkStatus();
}

const LaunchPlan& ProgramBuilder::PlanOf(const Instruction& op) const {
  const auto plan = plans_.find(&op);
  TENON_CHECK(plan != plans_.end(), absl::StrCat("no plan for ", op.name()));
  return plan->second;
}

absl::Status ProgramBuilder::EmitPlanned(const Instruction& op) {
  const LaunchPlan& plan = PlanOf(op);
  if (const auto* call = dynamic_cast<const PlannedCall*>(plan.target.get())) return EmitCall(op, plan, *call);
  return EmitLaunches(op, plan);
}

absl::Status ProgramBuilder::EmitCall(const Instruction& op, const LaunchPlan& plan, const PlannedCall& planned) {
  FrameworkStep call{.overload = planned.function, .args = planned.args, .rule = planned.rule, .total = true, .reason = planned.reason};
  for (const StridedView& operand : planned.operands) {
    TENON_ASSIGN_OR_RETURN(View view, ViewOf(operand, planned.type));
    call.operands.push_back(std::move(view));
  }
  TENON_ASSIGN_OR_RETURN(View result, ViewOf(planned.result, planned.type));
  call.results.push_back(std::move(result));
  Step step = NewStep(op);
  step.body = std::move(call);
  step.flops = plan.flops;
  steps().push_back(std::move(step));
  return absl::OkStatus();
}

absl::Status ProgramBuilder::EmitLaunches(const Instruction& op, const LaunchPlan& plan) {
  TENON_RETURN_IF_ERROR(EmitCopies(op, plan));
  if (const Launches* several = LaunchesOf(plan)) {
    for (const Launches::Launch& launch : several->launches) TENON_RETURN_IF_ERROR(EmitKernel(op, launch));
    return absl::OkStatus();
  }
  Launches::Launch whole{.target = plan.target};
  const int64_t leaves = LeafCount(op.shape());
  for (int64_t i = 0; i < op.operand_count(); ++i) whole.reads.push_back({Launches::Memory::Kind::kOperand, i});
  for (int64_t leaf = 0; leaf < leaves; ++leaf) whole.writes.push_back({Launches::Memory::Kind::kResult, leaf});
  return EmitKernel(op, whole);
}

absl::StatusOr<View> ProgramBuilder::MemoryOf(const Instruction& op, const Launches::Memory& memory) {
  switch (memory.kind) {
    case Launches::Memory::Kind::kOperand:
      return ViewOf(BufferKey{op.operand(memory.index), 0});
    case Launches::Memory::Kind::kResult:
      return ViewOf(BufferKey{&op, memory.index});
    case Launches::Memory::Kind::kTemporary:
      break;
  }
  View view{.value = plan_.temporaries.at(&op).at(static_cast<size_t>(memory.index)), .dtype = PrimitiveType::kU8, .strides = {1}};
  view.dims.push_back(program().values[static_cast<size_t>(view.value)].bytes);
  return view;
}

absl::Status ProgramBuilder::EmitKernel(const Instruction& op, const Launches::Launch& launch) {
  auto planned = std::dynamic_pointer_cast<const PlannedKernel>(launch.target);
  const KernelInfo& info = planned->info();
  KernelStep kernel;
  for (const auto* memory : {&launch.reads, &launch.writes}) {
    for (const Launches::Memory& m : *memory) {
      TENON_ASSIGN_OR_RETURN(View v, MemoryOf(op, m));
      kernel.operands.push_back(std::move(v));
    }
  }
  kernel.num_results = static_cast<int32_t>(launch.writes.size());
  if (info.has_error_word) kernel.operands.push_back(ErrorWord());
  TENON_ASSIGN_OR_RETURN(kernel.args, dims_.Refs(info.size_args));
  TENON_ASSIGN_OR_RETURN(kernel.begin, dims_.Ref(info.begin));
  TENON_ASSIGN_OR_RETURN(kernel.end, dims_.Ref(info.end));
  kernel.literals = info.literals;
  TENON_ASSIGN_OR_RETURN(kernel.grain, dims_.Ref(info.grain));
  kernel.joins_units = info.joins_units;
  if (info.launch) {
    TENON_ASSIGN_OR_RETURN(kernel.launch, LaunchOf(*info.launch));
  }
  constexpr int64_t kLarge = 4096;  // less is not worth looking
  if (!info.launch && info.scratch_bytes >= kLarge) kernel.room = RoomFor(op);
  kernel.kernel = KernelIndex(std::move(planned), targets_.size() == 1 ? 0 : SpaceOf(op.shape()));
  Step step = NewStep(op);
  step.body = std::move(kernel);
  step.effect = info.has_error_word ? Effect::kError : Effect::kPure;
  for (const Launches::Memory& m : launch.writes) {
    if (m.kind != Launches::Memory::Kind::kResult || !update_value_.contains(BufferKey{&op, m.index})) continue;
    TENON_CHECK(!info.has_error_word, op.name());
    step.effect = Effect::kMutates;
    Note(step, "updated-in-place", "the input that this result is written back to dies here");
  }
  step.estimated_ns = info.estimated_ns;
  step.bytes = info.bytes;
  step.flops = info.flops;
  steps().push_back(std::move(step));
  return absl::OkStatus();
}

FreeMemory ProgramBuilder::RoomFor(const Instruction& op) const {
  const MemoryRun found = FreeMemoryAt(plan_, &op);
  const int64_t output = found.lender < 0 ? -1 : direct_.at(plan_.allocations[static_cast<size_t>(found.lender)].index);
  return {.output = static_cast<int32_t>(output), .offset = found.offset, .bytes = found.bytes};
}

View ProgramBuilder::ErrorWord() {
  if (error_value_ < 0) {
    error_value_ = static_cast<int32_t>(program().values.size());
    program().values.push_back({.kind = ValueKind::kErrorWord, .bytes = 8});
  }
  return {.value = error_value_, .dtype = PrimitiveType::kS64};
}

absl::StatusOr<LaunchShape> ProgramBuilder::LaunchOf(const LaunchDims& dims) {
  LaunchShape launch{.block = dims.block, .shared_bytes = dims.shared_bytes};
  for (size_t d = 0; d < dims.grid.size(); ++d) {
    TENON_ASSIGN_OR_RETURN(launch.grid[d], dims_.Ref(dims.grid[d]));
  }
  return launch;
}

// The image of the target that works on a space.
int32_t ProgramBuilder::ImageOf(int64_t space) {
  std::vector<CodeImage>& code = program().code;
  for (size_t i = 0; i < code.size(); ++i) {
    if (code[i].space == space) return static_cast<int32_t>(i);
  }
  for (const std::shared_ptr<const Target>& target : targets_) {
    if (target->facts().space == space) code.push_back({.target = target->facts().name, .space = target->facts().space});
  }
  TENON_CHECK(!code.empty() && code.back().space == space, absl::StrCat("no target works on memory space ", space));
  return static_cast<int32_t>(code.size()) - 1;
}

int32_t ProgramBuilder::KernelIndex(std::shared_ptr<const PlannedKernel> planned, int64_t space) {
  auto [it, fresh] = kernel_of_.try_emplace({space, planned->fingerprint()}, static_cast<int32_t>(built_.kernels.size()));
  if (fresh) {
    program().kernels.push_back({.symbol = absl::StrCat("k", it->second),
                                 .plan = planned->info().plan_text,
                                 .scratch_bytes = planned->info().scratch_bytes,
                                 .fingerprint = planned->fingerprint(),
                                 .code = ImageOf(space)});
    built_.kernels.push_back(std::move(planned));
  }
  return it->second;
}

// A number that is an expression is one of the call's, which the dim program evaluates in each run.
absl::Status ProgramBuilder::NumberArg(FrameworkArg* arg, FrameworkStep* call) {
  for (FrameworkArg& element : arg->list) TENON_RETURN_IF_ERROR(NumberArg(&element, call));
  if (arg->kind != FrameworkArg::Kind::kSymInt) return absl::OkStatus();
  TENON_ASSIGN_OR_RETURN(const Dim size, module_.dims().Parse(arg->s));
  TENON_ASSIGN_OR_RETURN(const SizeRef number, dims_.Ref(size));
  arg->i = static_cast<int64_t>(call->numbers.size());
  call->numbers.push_back(number);
  return absl::OkStatus();
}

absl::Status ProgramBuilder::EmitFrameworkCall(const Instruction& op) {
  FrameworkCallSite read;
  TENON_ASSIGN_OR_RETURN(const FrameworkCallSite* found, CallSiteOf(op, &read));
  const FrameworkCallSite& site = *found;
  FrameworkStep call{.overload = op.custom_call_target(), .args = site.args, .rule = site.rule, .total = site.total,
                     .reason = site.reason};
  for (FrameworkArg& arg : call.args) TENON_RETURN_IF_ERROR(NumberArg(&arg, &call));
  for (const Instruction* operand : op.operands()) {
    TENON_ASSIGN_OR_RETURN(View v, ViewOf(BufferKey{operand, 0}));
    call.operands.push_back(std::move(v));
  }
  const int64_t leaves = static_cast<int64_t>(FlattenShape(op.shape()).size());
  for (int64_t leaf = 0; leaf < leaves; ++leaf) {
    TENON_ASSIGN_OR_RETURN(View v, ViewOf(BufferKey{&op, leaf}));
    call.results.push_back(std::move(v));
  }
  // What the call writes is the result's memory, which holds the operand's value by then; nothing of that comes back.
  bool updates = false;
  for (const WrittenOperand& w : WrittenOperands(op)) {
    call.operands[w.operand] = std::exchange(call.results[w.leaf], View{});
    updates = updates || update_value_.contains(views_.at({&op, w.leaf}).buffer);
  }
  if (const auto plan = plans_.find(&op); plan != plans_.end()) TENON_RETURN_IF_ERROR(EmitCopies(op, plan->second));
  if (site.num_results) {
    TENON_CHECK(site.results.size() == call.results.size(), op.name());
    std::vector<View> all(*site.num_results);
    for (size_t i = 0; i < site.results.size(); ++i) all.at(site.results[i]) = std::move(call.results[i]);
    call.results = std::move(all);
  }
  Step step = NewStep(op);
  step.body = std::move(call);
  step.effect = updates ? Effect::kMutates : op.HasSideEffect() ? Effect::kRandom : Effect::kPure;
  if (updates) Note(step, "updated-in-place", "the operator writes the input itself");
  Note(step, "framework-call", absl::StrCat(op.custom_call_target(), ": ", site.reason));
  steps().push_back(std::move(step));
  return absl::OkStatus();
}

}  // namespace tenon
