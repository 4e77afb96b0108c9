#include "backends/program_builder.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "backends/dim_slots.h"
#include "backends/library_call.h"
#include "passes/memory/strided_view.h"
#include "hlo/check.h"
#include "passes/fused_form.h"
#include "passes/memory/buffer_plan.h"

namespace tenon {
namespace {

using Json = nlohmann::json;

// backend_config of custom-call "aten.*" (torch_plugin/aten/lower.h).
struct FrameworkConfig {
  std::vector<FrameworkArg> args;
  ResultRule rule = ResultRule::kOwned;
  std::string reason;
  std::optional<std::vector<std::vector<int64_t>>> strides;  // per result, where the layout cannot say it
  // Where some results are None (undefined tensors): how many there are, and which of them are the leaves of the shape.
  std::optional<int64_t> num_results;
  std::vector<int64_t> results;
};

absl::StatusOr<FrameworkConfig> ConfigOf(const Instruction& op) {
  const Json json = Json::parse(op.backend_config(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("args")) {
    return absl::InvalidArgumentError(absl::StrCat(op.name(), ": wanted backend_config={\"args\":...}, got \"",
                                                   op.backend_config(), "\""));
  }
  FrameworkConfig config;
  TENON_ASSIGN_OR_RETURN(config.args, ParseFrameworkArgs(json["args"].get<std::string>()));
  const std::string rule = json.value("rule", "owned");
  if (rule != "owned" && rule != "view") {
    return absl::InvalidArgumentError(absl::StrCat(op.name(), ": unknown result rule \"", rule, "\""));
  }
  config.rule = rule == "view" ? ResultRule::kView : ResultRule::kOwned;
  config.reason = json.value("reason", "");
  if (json.contains("strides")) config.strides = json["strides"].get<std::vector<std::vector<int64_t>>>();
  if (json.contains("num_results")) {
    config.num_results = json["num_results"].get<int64_t>();
    config.results = json["results"].get<std::vector<int64_t>>();
  }
  return config;
}

class ProgramBuilder {
 public:
  ProgramBuilder(const Module& module, const Binding& binding, const CpuTarget& target, bool excess_precision)
      : module_(module), binding_(binding), target_(target), excess_precision_(excess_precision), dims_(&built_.program) {}

  absl::StatusOr<BuiltProgram> Build() {
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
    FindReleases();
    return std::move(built_);
  }

 private:
  Program& program() { return built_.program; }
  std::vector<Step>& steps() { return program().regions[0].steps; }

  // ---- declarations ------------------------------------------------------------------------------------------------
  absl::Status DeclareInputs() {
    for (const Binding::Input& in : binding_.inputs) {
      InputSpec spec{.kind = in.kind, .dtype = in.dtype, .name = in.name, .mutated = in.mutated};
      TENON_ASSIGN_OR_RETURN(spec.dims, dims_.Refs(in.sizes));
      TENON_ASSIGN_OR_RETURN(spec.strides, dims_.Refs(in.strides));
      program().inputs.push_back(std::move(spec));
    }
    return absl::OkStatus();
  }

  // Views of every value, symbolic, before memory is known.
  absl::Status FindViews() {
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

  absl::Status ParameterView(const Instruction& op) {
    const Binding::Parameter& p = binding_.parameters[op.parameter_number()];
    StridedView view{.buffer = {&op, 0}};
    view.dims.assign(op.shape().dims().begin(), op.shape().dims().end());
    if (p.flat_storage) view.strides = {Dim(1)};
    else view.strides.assign(p.strides.begin(), p.strides.end());
    views_[{&op, 0}] = std::move(view);
    return absl::OkStatus();
  }

  absl::Status OtherView(const Instruction& op) {
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

  static absl::Status Unexpected(const Instruction& op) {
    return absl::UnimplementedError(absl::StrCat("the CPU program cannot hold ", std::string(OpcodeName(op.opcode())), " \"",
                                                 op.name(), "\" outside of a fusion"));
  }

  // ---- memory ------------------------------------------------------------------------------------------------------
  BufferKey RootLeaf(int64_t leaf) const {
    const Instruction* root = module_.entry()->root();
    if (root->opcode() != Opcode::kTuple) return {root, leaf};
    return {root->operand(leaf), 0};
  }

  // Fresh outputs that their producer can write directly: whole buffers, dense as asked for, each once.
  void FindDirectOutputs() {
    absl::flat_hash_set<BufferKey> taken;
    for (int64_t k = 0; k < static_cast<int64_t>(binding_.outputs.size()); ++k) {
      const Binding::Output& out = binding_.outputs[k];
      if (out.kind != OutputKind::kFresh) continue;
      const StridedView& view = views_.at(RootLeaf(out.root_index));
      const Instruction* producer = view.buffer.instruction;
      if (producer->opcode() == Opcode::kParameter || producer->opcode() == Opcode::kConstant || IsFrameworkCall(*producer)) continue;
      const Shape leaf = FlattenShape(producer->shape())[view.buffer.leaf];
      Dim elements = 1;
      for (Dim d : view.dims) elements *= d;
      bool same = KnownEqual(view.offset, 0) && KnownEqual(elements, leaf.num_elements());
      for (size_t d = 0; d < view.dims.size() && same; ++d) {
        same = KnownOne(view.dims[d]) || KnownEqual(view.strides[d], out.strides[d]);
      }
      if (same && taken.insert(view.buffer).second) direct_[out.root_index] = k;
    }
  }

  absl::Status Plan() {
    FindDirectOutputs();
    BufferPlanOptions options;
    options.in_slot = [](const Instruction& op, int64_t) { return IsFrameworkCall(op); };
    // A convolution's result is its own memory, and its consumers are elementwise: normalization, activation, residual.
    options.exclusive_slot = [this](const Instruction& op) {
      return op.custom_call_target() == "aten.convolution.default" && views_.at({&op, 0}).strides == op.shape().strides();
    };
    options.direct_output = [this](int64_t leaf) { return direct_.contains(leaf); };
    options.is_view = [this](const Instruction& op) { return aliases_.contains(&op) && op.opcode() != Opcode::kGetTupleElement; };
    TENON_ASSIGN_OR_RETURN(plan_, PlanBuffers(module_, options));
    built_.buffer_plan = plan_.ToString();
    TENON_ASSIGN_OR_RETURN(program().arena_bytes, dims_.Ref(plan_.arena_bytes));
    for (const Allocation& a : plan_.allocations) {
      TENON_ASSIGN_OR_RETURN(Value value, ValueOf(a));
      program().values.push_back(value);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Value> ValueOf(const Allocation& a) {
    Value value{.index = a.index};
    TENON_ASSIGN_OR_RETURN(value.bytes, dims_.Ref(a.bytes));
    switch (a.kind) {
      case Allocation::Kind::kParameter: {
        const Binding::Parameter& p = binding_.parameters[a.index];
        if (p.kind == Binding::Parameter::Kind::kInput) {
          value.kind = ValueKind::kInput;
          value.index = p.index;
        } else {
          value.kind = ValueKind::kConstant;
          TENON_ASSIGN_OR_RETURN(value.index, FrameworkConstant(p));
        }
        return value;
      }
      case Allocation::Kind::kConstant:
        value.kind = ValueKind::kConstant;
        value.index = static_cast<int64_t>(program().constants.size());
        program().constants.push_back({.literal = a.constant->literal(),
                                       .dims = a.constant->shape().constant_dims(),
                                       .dtype = a.constant->shape().element_type()});
        return value;
      case Allocation::Kind::kArena: {
        value.kind = ValueKind::kArena;
        TENON_ASSIGN_OR_RETURN(value.offset, dims_.Ref(a.offset));
        return value;
      }
      case Allocation::Kind::kOutput:
        value.kind = ValueKind::kOutput;
        value.index = direct_.at(a.index);
        return value;
      case Allocation::Kind::kSlot:
        value.kind = ValueKind::kSlot;
        program().num_slots = std::max<int32_t>(program().num_slots, static_cast<int32_t>(a.index) + 1);
        return value;
    }
    return absl::InternalError("unknown allocation kind");
  }

  absl::StatusOr<int64_t> FrameworkConstant(const Binding::Parameter& p) {
    ConstantSpec spec{.kind = ConstantSpec::Kind::kFramework, .index = p.index, .dtype = p.dtype};
    for (size_t d = 0; d < p.sizes.size(); ++d) {
      spec.dims.push_back(p.sizes[d].constant());
      spec.strides.push_back(p.strides[d].constant());
    }
    program().constants.push_back(std::move(spec));
    return static_cast<int64_t>(program().constants.size()) - 1;
  }

  absl::StatusOr<View> ViewOf(const StridedView& strided, PrimitiveType type) {
    auto it = plan_.of.find(strided.buffer);
    TENON_CHECK(it != plan_.of.end(), absl::StrCat("no buffer for ", strided.buffer.instruction->name()));
    View view{.value = it->second, .dtype = type};
    TENON_ASSIGN_OR_RETURN(view.byte_offset, dims_.Ref(strided.offset * ByteWidth(type)));
    TENON_ASSIGN_OR_RETURN(view.dims, dims_.Refs(strided.dims));
    TENON_ASSIGN_OR_RETURN(view.strides, dims_.Refs(strided.strides));
    return view;
  }
  absl::StatusOr<View> ViewOf(BufferKey key) {
    return ViewOf(views_.at(key), FlattenShape(key.instruction->shape())[key.leaf].element_type());
  }

  // ---- steps -------------------------------------------------------------------------------------------------------
  absl::Status EmitStep(const Instruction& op) {
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
      case Opcode::kCustomCall:
        if (IsFrameworkCall(op)) return EmitFrameworkCall(op);
        [[fallthrough]];
      default: return Unexpected(op);
    }
  }

  Step NewStep(const Instruction& op) const { return {.name = op.name(), .source = SourceOf(op)}; }

  // A movement op that its operand's strides don't allow as a view: its dense result is filled through a view of it.
  absl::Status EmitCopy(const Instruction& op) {
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
    return AddCopy(op, source, to, op.shape().element_type(), 0);
  }

  absl::Status AddCopy(const Instruction& op, const StridedView& from, const StridedView& to, PrimitiveType type, int32_t region) {
    CopyStep copy;
    TENON_ASSIGN_OR_RETURN(copy.from, ViewOf(from, type));
    TENON_ASSIGN_OR_RETURN(copy.to, ViewOf(to, type));
    Step step = NewStep(op);
    step.body = std::move(copy);
    program().regions[region].steps.push_back(std::move(step));
    return absl::OkStatus();
  }

  absl::Status EmitKernel(const Instruction& op) {
    KernelRequest request{.fusion = &op};
    KernelStep kernel;
    absl::flat_hash_set<int32_t> result_values;
    const std::vector<Shape> leaves = FlattenShape(op.shape());
    for (int64_t leaf = 0; leaf < static_cast<int64_t>(leaves.size()); ++leaf) result_values.insert(plan_.of.at({&op, leaf}));
    for (const Instruction* operand : op.operands()) {
      const StridedView& view = views_.at({operand, 0});
      request.operands.push_back({.strides = {view.strides.begin(), view.strides.end()},
                                  .may_alias_result = result_values.contains(plan_.of.at(view.buffer))});
      TENON_ASSIGN_OR_RETURN(View v, ViewOf(BufferKey{operand, 0}));
      kernel.operands.push_back(std::move(v));
    }
    for (int64_t leaf = 0; leaf < static_cast<int64_t>(leaves.size()); ++leaf) {
      const StridedView& view = views_.at({&op, leaf});
      request.results.push_back({.strides = {view.strides.begin(), view.strides.end()}});
      TENON_ASSIGN_OR_RETURN(View v, ViewOf(BufferKey{&op, leaf}));
      kernel.operands.push_back(std::move(v));
    }
    kernel.num_results = static_cast<int32_t>(leaves.size());
    TENON_ASSIGN_OR_RETURN(std::unique_ptr<PlannedKernel> planned, PlanCpuKernel(request, target_, excess_precision_));
    const KernelInfo info = planned->info();
    if (info.has_error_word) kernel.operands.push_back(ErrorWord());
    TENON_ASSIGN_OR_RETURN(kernel.args, dims_.Refs(info.size_args));
    TENON_ASSIGN_OR_RETURN(kernel.begin, dims_.Ref(info.begin));
    TENON_ASSIGN_OR_RETURN(kernel.end, dims_.Ref(info.end));
    kernel.literals = info.literals;
    kernel.grain = info.grain;
    kernel.kernel = KernelIndex(std::move(planned));
    Step step = NewStep(op);
    step.body = std::move(kernel);
    step.effect = info.has_error_word ? Effect::kError : Effect::kPure;
    step.estimated_ns = info.estimated_ns;
    step.bytes = info.bytes;
    step.flops = info.flops;
    steps().push_back(std::move(step));
    return absl::OkStatus();
  }

  View ErrorWord() {
    if (error_value_ < 0) {
      error_value_ = static_cast<int32_t>(program().values.size());
      program().values.push_back({.kind = ValueKind::kErrorWord, .bytes = 8});
    }
    return {.value = error_value_, .dtype = PrimitiveType::kS64};
  }

  int32_t KernelIndex(std::unique_ptr<PlannedKernel> planned) {
    auto [it, fresh] = kernel_of_.try_emplace(planned->fingerprint(), static_cast<int32_t>(built_.kernels.size()));
    if (fresh) {
      program().kernels.push_back({.symbol = absl::StrCat("k", it->second),
                                   .plan = planned->info().plan_text,
                                   .scratch_bytes = planned->info().scratch_bytes,
                                   .fingerprint = planned->fingerprint()});
      built_.kernels.push_back(std::move(planned));
    }
    return it->second;
  }

  // mm(x, y) + b whose sum nothing else could be fused into: the library adds b. The sum is written when the product would
  // be, so its memory must be its own by then: the product's, or an output.
  void FoldBiases() {
    absl::flat_hash_map<const Instruction*, size_t> position;
    for (size_t i = 0; i < schedule_.size(); ++i) position[schedule_[i]] = i;
    for (const Instruction* dot : schedule_) {
      if (dot->opcode() != Opcode::kDot || dot->user_count() != 1) continue;
      const Instruction* sum = dot->users().front();
      const Instruction* bias = BiasAddedTo(*dot, *sum);
      if (bias == nullptr || position.at(views_.at({bias, 0}).buffer.instruction) > position.at(dot)) continue;
      const int32_t to = plan_.of.at({sum, 0});
      if (to != plan_.of.at({dot, 0}) && plan_.allocations[to].kind != Allocation::Kind::kOutput) continue;
      sum_of_[dot] = {sum, bias};
      folded_.insert(sum);
    }
  }

  absl::Status EmitDot(const Instruction& op) {
    const StridedView &lhs = views_.at({op.operand(0), 0}), &rhs = views_.at({op.operand(1), 0});
    const auto sum = sum_of_.find(&op);
    const Instruction& result = sum == sum_of_.end() ? op : *sum->second.sum;
    TENON_ASSIGN_OR_RETURN(MatmulViews m, MatmulViewsOf(op, lhs, rhs, views_.at({&result, 0})));
    const PrimitiveType type = op.shape().element_type();
    FrameworkStep call{.overload = m.batched ? "aten.bmm.out" : "aten.mm.out",
                       .args = {FrameworkArg::Tensor(0), FrameworkArg::Tensor(1)},
                       .rule = ResultRule::kOut,
                       .reason = "library: dot"};
    TENON_ASSIGN_OR_RETURN(View l, ViewOf(m.lhs, type));
    TENON_ASSIGN_OR_RETURN(View r, ViewOf(m.rhs, type));
    TENON_ASSIGN_OR_RETURN(View out, ViewOf(m.result, type));
    call.operands = {std::move(l), std::move(r)};
    call.results = {std::move(out)};
    if (sum != sum_of_.end()) {
      call.overload = "aten.addmm.out";
      call.args = {FrameworkArg::Tensor(2), FrameworkArg::Tensor(0), FrameworkArg::Tensor(1), FrameworkArg::Int(1), FrameworkArg::Int(1)};
      call.reason = "library: dot and its bias";
      TENON_ASSIGN_OR_RETURN(View bias, ViewOf(BufferKey{sum->second.bias, 0}));
      call.operands.push_back(std::move(bias));
    }
    Step step = NewStep(result);
    step.body = std::move(call);
    steps().push_back(std::move(step));
    return absl::OkStatus();
  }

  absl::Status EmitFrameworkCall(const Instruction& op) {
    TENON_ASSIGN_OR_RETURN(FrameworkConfig config, ConfigOf(op));
    FrameworkStep call{.overload = op.custom_call_target(), .args = std::move(config.args), .rule = config.rule,
                       .reason = config.reason};
    for (const Instruction* operand : op.operands()) {
      TENON_ASSIGN_OR_RETURN(View v, ViewOf(BufferKey{operand, 0}));
      call.operands.push_back(std::move(v));
    }
    const int64_t leaves = static_cast<int64_t>(FlattenShape(op.shape()).size());
    for (int64_t leaf = 0; leaf < leaves; ++leaf) {
      TENON_ASSIGN_OR_RETURN(View v, ViewOf(BufferKey{&op, leaf}));
      call.results.push_back(std::move(v));
    }
    if (config.num_results) {
      TENON_CHECK(config.results.size() == call.results.size(), op.name());
      std::vector<View> all(*config.num_results);
      for (size_t i = 0; i < config.results.size(); ++i) all.at(config.results[i]) = std::move(call.results[i]);
      call.results = std::move(all);
    }
    Step step = NewStep(op);
    step.body = std::move(call);
    step.effect = op.HasSideEffect() ? Effect::kRandom : Effect::kPure;
    steps().push_back(std::move(step));
    return absl::OkStatus();
  }

  // ---- outputs -----------------------------------------------------------------------------------------------------
  absl::Status EmitOutputs() {
    absl::flat_hash_set<int64_t> slots_given;
    for (int64_t k = 0; k < static_cast<int64_t>(binding_.outputs.size()); ++k) {
      const Binding::Output& out = binding_.outputs[k];
      OutputSpec spec{.kind = out.kind, .index = out.index, .dtype = out.dtype};
      TENON_ASSIGN_OR_RETURN(spec.dims, dims_.Refs(out.sizes));
      TENON_ASSIGN_OR_RETURN(spec.strides, dims_.Refs(out.strides));
      TENON_ASSIGN_OR_RETURN(spec.size, dims_.Ref(out.symint));
      if (out.kind == OutputKind::kFresh || out.kind == OutputKind::kSlot) {
        TENON_RETURN_IF_ERROR(PlaceOutput(k, out, &spec, &slots_given));
      }
      program().outputs.push_back(std::move(spec));
    }
    return absl::OkStatus();
  }

  absl::Status PlaceOutput(int64_t k, const Binding::Output& out, OutputSpec* spec, absl::flat_hash_set<int64_t>* slots_given) {
    spec->kind = OutputKind::kFresh;
    if (auto it = direct_.find(out.root_index); it != direct_.end() && it->second == k) return absl::OkStatus();
    const BufferKey key = RootLeaf(out.root_index);
    const StridedView& view = views_.at(key);
    const Value& value = program().values[plan_.of.at(view.buffer)];
    if (value.kind == ValueKind::kSlot && view.buffer == key && SameStrides(view, out) && slots_given->insert(value.index).second) {
      spec->kind = OutputKind::kSlot;
      spec->index = value.index;
      return absl::OkStatus();
    }
    // A copy into fresh memory, through the strides asked for (dims of stride 0 have one element in the view).
    StridedView to{.dims = view.dims};
    to.strides.assign(out.strides.begin(), out.strides.end());
    CopyStep copy;
    TENON_ASSIGN_OR_RETURN(copy.from, ViewOf(view, out.dtype));
    copy.to = {.value = static_cast<int32_t>(program().values.size()), .dtype = out.dtype, .dims = copy.from.dims};
    TENON_ASSIGN_OR_RETURN(copy.to.strides, dims_.Refs(to.strides));
    TENON_ASSIGN_OR_RETURN(SizeRef bytes, dims_.Ref(StorageBytes(out)));
    program().values.push_back({.kind = ValueKind::kOutput, .index = k, .bytes = bytes});
    Step step = NewStep(*key.instruction);
    step.name = absl::StrCat("output ", k);
    step.body = std::move(copy);
    steps().push_back(std::move(step));
    return absl::OkStatus();
  }

  static bool SameStrides(const StridedView& view, const Binding::Output& out) {
    for (size_t d = 0; d < view.dims.size(); ++d) {
      if (!KnownEqual(view.dims[d], out.sizes[d])) return false;
      if (!KnownOne(view.dims[d]) && !KnownEqual(view.strides[d], out.strides[d])) return false;
    }
    return true;
  }

  static Dim StorageBytes(const Binding::Output& out) {
    Dim extent = 1;
    for (size_t d = 0; d < out.sizes.size(); ++d) {
      if (KnownEqual(out.sizes[d], 0)) return 0;
      extent += (out.sizes[d] - 1) * out.strides[d];
    }
    return extent * ByteWidth(out.dtype);
  }

  absl::Status EmitMutations() {
    if (binding_.mutations.empty()) return absl::OkStatus();
    program().commit_region = static_cast<int32_t>(program().regions.size());
    program().regions.push_back({.name = "commit"});
    for (const Binding::Mutation& m : binding_.mutations) {
      const Binding::Input& input = binding_.inputs[m.input];
      const BufferKey key = RootLeaf(m.root_index);
      TENON_RETURN_IF_ERROR(RefuseIfOverwritten(m, views_.at(key)));
      CopyStep copy;
      TENON_ASSIGN_OR_RETURN(copy.from, ViewOf(key));
      copy.to = copy.from;
      copy.to.value = InputValue(m.input);
      copy.to.byte_offset = 0;
      TENON_ASSIGN_OR_RETURN(copy.to.dims, dims_.Refs(input.sizes));
      TENON_ASSIGN_OR_RETURN(copy.to.strides, dims_.Refs(input.strides));
      Step step{.body = std::move(copy), .name = absl::StrCat("write-back ", input.name), .effect = Effect::kMutates};
      program().regions[program().commit_region].steps.push_back(std::move(step));
    }
    return absl::OkStatus();
  }

  // x, y = y, x as write-backs: the source of one is the memory of another.
  absl::Status RefuseIfOverwritten(const Binding::Mutation& m, const StridedView& source) const {
    const Instruction* producer = source.buffer.instruction;
    if (producer->opcode() != Opcode::kParameter) return absl::OkStatus();
    const Binding::Parameter& p = binding_.parameters[producer->parameter_number()];
    for (const Binding::Mutation& other : binding_.mutations) {
      if (p.kind == Binding::Parameter::Kind::kInput && p.index == other.input) {
        return absl::UnimplementedError(absl::StrCat("the write-back of ", binding_.inputs[m.input].name,
                                                     " reads an input that is written back too"));
      }
    }
    return absl::OkStatus();
  }

  int32_t InputValue(int64_t input) {
    for (size_t v = 0; v < program().values.size(); ++v) {
      if (program().values[v].kind == ValueKind::kInput && program().values[v].index == input) return static_cast<int32_t>(v);
    }
    program().values.push_back({.kind = ValueKind::kInput, .index = input, .bytes = 0});
    return static_cast<int32_t>(program().values.size()) - 1;
  }

  // ---- last uses -----------------------------------------------------------------------------------------------------
  void FindReleases() {
    absl::flat_hash_set<int64_t> kept_slots, kept_inputs, seen_slots, seen_inputs;
    for (const OutputSpec& out : program().outputs) {
      if (out.kind == OutputKind::kSlot) kept_slots.insert(out.index);
      if (out.kind == OutputKind::kInput) kept_inputs.insert(out.index);
    }
    for (int64_t r = static_cast<int64_t>(program().regions.size()) - 1; r >= 0; --r) {
      std::vector<Step>& region = program().regions[r].steps;
      for (auto step = region.rbegin(); step != region.rend(); ++step) {
        // A result of rule `view` may share an operand's memory: then neither operands nor slots go before the run ends.
        ForEachView(*step, [&](const View& view) {
          if (view.value < 0) return;
          const Value& value = program().values[view.value];
          if (value.kind == ValueKind::kSlot && !kept_slots.contains(value.index) && seen_slots.insert(value.index).second) {
            step->release_slots.push_back(static_cast<int32_t>(value.index));
          }
          if (value.kind == ValueKind::kInput && !kept_inputs.contains(value.index) && seen_inputs.insert(value.index).second) {
            step->release_inputs.push_back(static_cast<int32_t>(value.index));
          }
        });
        if (const auto* call = std::get_if<FrameworkStep>(&step->body); call != nullptr && call->rule == ResultRule::kView) {
          for (const View& operand : call->operands) {
            if (operand.value < 0) continue;
            const Value& value = program().values[operand.value];
            if (value.kind == ValueKind::kSlot) KeepUntilEnd(static_cast<int32_t>(value.index), /*slot=*/true);
            if (value.kind == ValueKind::kInput) KeepUntilEnd(static_cast<int32_t>(value.index), /*slot=*/false);
          }
        }
      }
    }
  }

  void KeepUntilEnd(int32_t index, bool slot) {
    for (Region& region : program().regions) {
      for (Step& step : region.steps) std::erase(slot ? step.release_slots : step.release_inputs, index);
    }
  }

  static void ForEachView(const Step& step, const std::function<void(const View&)>& fn) {
    if (const auto* k = std::get_if<KernelStep>(&step.body)) {
      for (const View& v : k->operands) fn(v);
    } else if (const auto* f = std::get_if<FrameworkStep>(&step.body)) {
      for (const View& v : f->operands) fn(v);
      for (const View& v : f->results) fn(v);
    } else if (const auto* c = std::get_if<CopyStep>(&step.body)) {
      fn(c->from);
      fn(c->to);
    }
  }

  const Module& module_;
  const Binding& binding_;
  const CpuTarget& target_;
  const bool excess_precision_;
  BuiltProgram built_;
  DimSlots dims_;
  std::vector<Instruction*> schedule_;
  absl::flat_hash_map<BufferKey, StridedView> views_;
  absl::flat_hash_set<const Instruction*> aliases_;       // values without a buffer of their own
  absl::flat_hash_map<int64_t, int64_t> direct_;          // root leaf -> graph output written in place
  struct Sum { const Instruction *sum, *bias; };
  absl::flat_hash_map<const Instruction*, Sum> sum_of_;   // dot -> the fusion that its addmm computes
  absl::flat_hash_set<const Instruction*> folded_;        // those fusions
  absl::flat_hash_map<std::string, int32_t> kernel_of_;   // fingerprint -> kernel
  BufferPlan plan_;
  int32_t error_value_ = -1;
};

}  // namespace

absl::StatusOr<BuiltProgram> BuildProgram(const Module& module, const Binding& binding, const CpuTarget& target,
                                          bool excess_precision, std::vector<Remark>* remarks) {
  TENON_ASSIGN_OR_RETURN(BuiltProgram built, ProgramBuilder(module, binding, target, excess_precision).Build());
  if (remarks != nullptr) {
    for (const Region& region : built.program.regions) {
      for (const Step& step : region.steps) {
        if (const auto* call = std::get_if<FrameworkStep>(&step.body)) {
          remarks->push_back({.pass = "program", .instruction = step.name, .kind = "framework-call",
                              .reason = absl::StrCat(call->overload, ": ", call->reason), .source = step.source});
        } else if (std::holds_alternative<CopyStep>(step.body)) {
          remarks->push_back({.pass = "program", .instruction = step.name, .kind = "copied",
                              .reason = "its consumer or the caller needs other strides", .source = step.source});
        }
      }
    }
  }
  return built;
}

}  // namespace tenon
