// Every node a framework step on framework-owned tensors.
//
// Lifetimes: a view keeps its base alive. The framework's reference counts would do the same for its own tensors; the
// program says it too, so that it stays right for a host whose operands are plain memory.
#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "runtime/program/dim_program.h"
#include "torch_plugin/aten/lower.h"
#include "torch_plugin/aten/op_table.h"

namespace tenon::aten {
namespace {

class EagerBuilder {
 public:
  EagerBuilder(const Graph& graph, std::string reason) : graph_(graph) {
    program_.name = graph.name;
    program_.tier = Program::Tier::kEagerProgram;
    program_.tier_reason = std::move(reason);
    program_.regions.push_back({.name = "main"});
    value_of_.assign(graph.values.size(), -1);
    storage_.resize(graph.values.size());
    for (size_t v = 0; v < storage_.size(); ++v) storage_[v] = static_cast<ValueId>(v);
    last_use_.assign(graph.values.size(), -1);
  }
  absl::StatusOr<Program> Run();

 private:
  absl::Status AddInputs();
  void AddConstants();
  absl::Status AddNode(const Node& node);
  absl::Status CloneWritten(const Node& node, size_t w, FrameworkStep* step);
  absl::Status AddOutputs();
  void AddReleases();
  absl::StatusOr<FrameworkArg> ResolveArg(const FrameworkArg& arg, const Node& node, FrameworkStep* step);
  absl::StatusOr<View> ViewOf(ValueId v);
  absl::StatusOr<View> MetaView(const Meta& meta, const std::string& name);
  absl::Status NotStatic(const std::string& name) const {
    return absl::FailedPreconditionError(absl::StrCat(
        "eager program of graph \"", graph_.name, "\": %", name, " has a symbolic size; specialise the graph first"));
  }
  ValueId Storage(ValueId v) const { return storage_[v]; }
  int32_t AddValue(ValueKind kind, int64_t index, SizeRef bytes) {
    program_.values.push_back({.kind = kind, .index = index, .bytes = bytes});
    return static_cast<int32_t>(program_.values.size()) - 1;
  }

  const Graph& graph_;
  Program program_;
  std::vector<int32_t> value_of_;   // program value of a graph value
  std::vector<ValueId> storage_;    // the graph value whose memory this one is or may be
  std::vector<int32_t> last_use_;   // step number, by storage
  std::vector<int32_t> made_by_;    // slot -> step
  std::vector<ValueId> slot_value_; // slot -> graph value
};

int64_t ExtentBytes(const View& view) {
  int64_t last = 0;
  for (size_t i = 0; i < view.dims.size(); ++i) {
    if (view.dims[i] == 0) return 0;
    last += (view.dims[i] - 1) * view.strides[i];
  }
  return (last + 1) * ByteWidth(view.dtype);
}

absl::StatusOr<View> EagerBuilder::MetaView(const Meta& meta, const std::string& name) {
  View view{.dtype = meta.dtype};
  for (size_t i = 0; i < meta.sizes.size(); ++i) {
    if (!meta.sizes[i].is_constant() || !meta.strides[i].is_constant()) return NotStatic(name);
    view.dims.push_back(meta.sizes[i].constant());
    view.strides.push_back(meta.strides[i].constant());
  }
  return view;
}

absl::StatusOr<View> EagerBuilder::ViewOf(ValueId v) {
  const GraphValue& value = graph_.values[v];
  TENON_ASSIGN_OR_RETURN(View view, MetaView(value.meta, value.name));
  view.value = value_of_[v];
  TENON_CHECK(view.value >= 0, value.name);
  return view;
}

absl::Status EagerBuilder::AddInputs() {
  for (size_t i = 0; i < graph_.inputs.size(); ++i) {
    const GraphValue& value = graph_.values[graph_.inputs[i]];
    InputSpec spec{.dtype = value.meta.dtype, .name = value.name};
    int64_t bytes = 0;
    switch (value.meta.kind) {
      case Meta::Kind::kSymInt: spec.kind = InputSpec::Kind::kSymInt; break;
      case Meta::Kind::kNone: spec.kind = InputSpec::Kind::kNone; break;
      case Meta::Kind::kOther: spec.kind = InputSpec::Kind::kOther; break;
      case Meta::Kind::kTensor: {
        TENON_ASSIGN_OR_RETURN(View view, MetaView(value.meta, value.name));
        bytes = ExtentBytes(view);
        spec.dims = std::move(view.dims);
        spec.strides = std::move(view.strides);
      }
    }
    value_of_[graph_.inputs[i]] = AddValue(ValueKind::kInput, static_cast<int64_t>(i), bytes);
    program_.inputs.push_back(std::move(spec));
  }
  return absl::OkStatus();
}

void EagerBuilder::AddConstants() {
  auto add = [&](ValueId v, ConstantSpec spec) {
    const Meta& meta = graph_.meta(v);
    spec.dtype = meta.dtype;
    for (size_t i = 0; i < meta.sizes.size(); ++i) {
      spec.dims.push_back(meta.sizes[i].constant());
      spec.strides.push_back(meta.strides[i].constant());
    }
    int64_t bytes = ExtentBytes({.dtype = spec.dtype, .dims = spec.dims, .strides = spec.strides});
    value_of_[v] = AddValue(ValueKind::kConstant, static_cast<int64_t>(program_.constants.size()), bytes);
    program_.constants.push_back(std::move(spec));
  };
  for (size_t k = 0; k < graph_.constants.size(); ++k) {
    add(graph_.constants[k], {.kind = ConstantSpec::Kind::kFramework, .index = static_cast<int64_t>(k)});
  }
  for (const auto& [v, literal] : graph_.literals) add(v, {.kind = ConstantSpec::Kind::kLiteral, .literal = literal});
}

// SymInts become numbers, tensors operands of the step, numbered as they come.
absl::StatusOr<FrameworkArg> EagerBuilder::ResolveArg(const FrameworkArg& arg, const Node& node, FrameworkStep* step) {
  if (arg.kind == FrameworkArg::Kind::kSymInt) {
    TENON_ASSIGN_OR_RETURN(Dim dim, graph_.dims->Parse(arg.s));
    if (!dim.is_constant()) return NotStatic(node.op);
    return FrameworkArg::Int(dim.constant());
  }
  if (arg.is_tensor()) {
    const auto tensor = [&](size_t k) {
      FrameworkArg out = arg;
      out.i = static_cast<int64_t>(k);
      return out;
    };
    ValueId v = node.operands[arg.i];
    const Meta& meta = graph_.meta(v);
    if (meta.kind == Meta::Kind::kNone) return FrameworkArg::None();
    if (meta.kind == Meta::Kind::kSymInt) {
      if (!meta.symint.is_constant()) return NotStatic(graph_.values[v].name);
      return FrameworkArg::Int(meta.symint.constant());
    }
    TENON_ASSIGN_OR_RETURN(View view, ViewOf(v));
    for (size_t k = 0; k < step->operands.size(); ++k) {
      const View& seen = step->operands[k];
      if (seen.value == view.value && seen.dims == view.dims && seen.strides == view.strides) {
        return tensor(k);
      }
    }
    step->operands.push_back(std::move(view));
    return tensor(step->operands.size() - 1);
  }
  if (arg.kind != FrameworkArg::Kind::kList) return arg;
  FrameworkArg list{.kind = FrameworkArg::Kind::kList};
  for (const FrameworkArg& element : arg.list) {
    TENON_ASSIGN_OR_RETURN(FrameworkArg resolved, ResolveArg(element, node, step));
    list.list.push_back(std::move(resolved));
  }
  return list;
}

int64_t Elements(const View& view) {
  int64_t elements = 1;
  for (int64_t d : view.dims) elements *= d;
  return elements;
}

// Operators that multiply operands, for profiles: two flops a product.
struct KnownCall {
  const char* overload;
  size_t lhs, rhs;
  bool convolution;
};
constexpr KnownCall kKnownCalls[] = {
    {"aten.mm.default", 0, 1, false},        {"aten.bmm.default", 0, 1, false},         {"aten.addmm.default", 1, 2, false},
    {"aten.baddbmm.default", 1, 2, false},   {"aten.mv.default", 0, 1, false},          {"aten.dot.default", 0, 1, false},
    {"aten.linear.default", 0, 1, false},    {"aten.matmul.default", 0, 1, false},      {"aten.convolution.default", 0, 1, true},
};
constexpr size_t kTransposedArg = 6;  // of aten.convolution

int64_t FlopsOf(const FrameworkStep& call) {
  const auto* known =
      absl::c_find_if(kKnownCalls, [&](const KnownCall& k) { return call.overload == k.overload; });
  if (known == std::end(kKnownCalls) || call.operands.size() <= std::max(known->lhs, known->rhs) || call.results.empty()) return 0;
  const View &lhs = call.operands[known->lhs], &rhs = call.operands[known->rhs], &out = call.results[0];
  for (const View* v : {&lhs, &rhs, &out}) {
    if (!IsStatic(v->dims) || (v != &out && v->dims.empty())) return 0;
  }
  if (!known->convolution) return 2 * Elements(out) * lhs.dims.back();
  // Of a kernel of [features, ...] each place of the result takes the rest; each place of x gives it, if transposed.
  const bool transposed = call.args.size() > kTransposedArg && call.args[kTransposedArg].i != 0;
  return rhs.dims[0] == 0 ? 0 : 2 * Elements(transposed ? lhs : out) * (Elements(rhs) / rhs.dims[0]);
}

// The node's last results: what the operands that it writes hold then. The operator works on copies, which are them.
absl::Status EagerBuilder::CloneWritten(const Node& node, size_t w, FrameworkStep* step) {
  const ValueId old = node.operands[node.writes[w]], made = node.results[node.results.size() - node.writes.size() + w];
  TENON_ASSIGN_OR_RETURN(const View from, ViewOf(old));
  TENON_ASSIGN_OR_RETURN(View to, MetaView(graph_.meta(made), graph_.values[made].name));
  value_of_[made] = to.value = AddValue(ValueKind::kSlot, program_.num_slots++, ExtentBytes(to));
  const int32_t number = static_cast<int32_t>(program_.regions[0].steps.size());
  made_by_.push_back(number);
  slot_value_.push_back(made);
  last_use_[Storage(old)] = number;
  last_use_[made] = number + 1;
  for (View& operand : step->operands) {
    if (operand.value == from.value) operand.value = to.value;
  }
  FrameworkStep clone{.overload = "aten.clone.default",
                      .args = {FrameworkArg::Tensor(0), FrameworkArg::None()},
                      .operands = {from},
                      .results = {std::move(to)},
                      .reason = "written by " + node.op};
  program_.regions[0].steps.push_back({.body = std::move(clone), .name = graph_.values[made].name});
  return absl::OkStatus();
}

bool OnlySymInts(const Graph& graph, const Node& node) {
  return !node.results.empty() && std::all_of(node.results.begin(), node.results.end(), [&](ValueId r) {
    return graph.meta(r).kind == Meta::Kind::kSymInt && graph.meta(r).symint.is_constant();
  });
}

absl::Status EagerBuilder::AddNode(const Node& node) {
  if (OnlySymInts(graph_, node)) return absl::OkStatus();  // known from the metas
  FrameworkStep step{.overload = node.op, .rule = RuleOf(node.op), .reason = "eager program"};
  if (node.mutates_first) step.rule = ResultRule::kView;
  for (const FrameworkArg& arg : node.args) {
    TENON_ASSIGN_OR_RETURN(FrameworkArg resolved, ResolveArg(arg, node, &step));
    step.args.push_back(std::move(resolved));
  }
  for (size_t w = 0; w < node.writes.size(); ++w) {
    TENON_RETURN_IF_ERROR(CloneWritten(node, w, &step));
  }
  const int32_t number = static_cast<int32_t>(program_.regions[0].steps.size());
  ValueId base = -1;  // the storage a view result is charged to: that of the first tensor operand
  for (ValueId v : node.operands) {
    if (value_of_[v] < 0) continue;
    last_use_[Storage(v)] = number;
    if (base < 0) base = Storage(v);
  }
  const Effect effect = node.mutates_first ? Effect::kMutates : EffectOf(node.op);
  if (effect == Effect::kMutates && base >= 0) {
    const Value& value = program_.values[value_of_[base]];
    if (value.kind == ValueKind::kInput) program_.inputs[value.index].mutated = true;
  }
  for (size_t i = 0; i < node.results.size(); ++i) {
    const ValueId r = node.results[i];
    const Meta& meta = graph_.meta(r);
    if (i + node.writes.size() >= node.results.size()) {
      step.results.push_back({});  // it is there already
      continue;
    }
    if (meta.kind == Meta::Kind::kNone || meta.kind == Meta::Kind::kSymInt) {
      step.results.push_back({});
      continue;
    }
    TENON_ASSIGN_OR_RETURN(View view, MetaView(meta, graph_.values[r].name));
    if (node.mutates_first && i == 0) {
      value_of_[r] = value_of_[node.operands[0]];
      storage_[r] = Storage(node.operands[0]);
      step.results.push_back(std::move(view));  // value -1: the operand itself
      continue;
    }
    if (step.rule == ResultRule::kView && base >= 0) storage_[r] = base;
    value_of_[r] = view.value = AddValue(ValueKind::kSlot, program_.num_slots++, ExtentBytes(view));
    made_by_.push_back(number);
    slot_value_.push_back(r);
    step.results.push_back(std::move(view));
  }
  std::string source = node.module_path;
  if (!node.source.empty()) absl::StrAppend(&source, source.empty() ? "" : " @ ", node.source);
  std::string name = node.results.empty() ? node.op : graph_.values[node.results[0]].name;
  const int64_t flops = FlopsOf(step);
  program_.regions[0].steps.push_back(
      {.body = std::move(step), .name = std::move(name), .source = std::move(source), .effect = effect, .flops = flops});
  return absl::OkStatus();
}

absl::Status EagerBuilder::AddOutputs() {
  for (const GraphOutput& output : graph_.outputs) {
    OutputSpec spec;
    if (output.kind == GraphOutput::Kind::kNone) {
      spec.kind = OutputKind::kNone;
    } else if (output.kind == GraphOutput::Kind::kSymInt) {
      if (!output.symint.is_constant()) return NotStatic("output");
      spec = {.kind = OutputKind::kSymInt, .size = output.symint.constant()};
    } else {
      TENON_ASSIGN_OR_RETURN(View view, ViewOf(output.value));
      const Value& value = program_.values[view.value];
      spec = {.dtype = view.dtype, .dims = std::move(view.dims), .strides = std::move(view.strides)};
      spec.index = value.index;
      spec.kind = value.kind == ValueKind::kInput  ? OutputKind::kInput
                  : value.kind == ValueKind::kSlot ? OutputKind::kSlot
                                                   : OutputKind::kConstant;
      if (value.kind == ValueKind::kConstant) {
        const ConstantSpec& constant = program_.constants[value.index];
        if (constant.kind == ConstantSpec::Kind::kFramework) {
          spec.index = constant.index;
        } else {  // a literal has no framework tensor: make one
          View whole = *ViewOf(output.value);
          View made = whole;
          spec = {.kind = OutputKind::kSlot, .index = program_.num_slots, .dtype = whole.dtype, .dims = whole.dims,
                  .strides = whole.strides};
          made.value = AddValue(ValueKind::kSlot, program_.num_slots++, ExtentBytes(whole));
          made_by_.push_back(static_cast<int32_t>(program_.regions[0].steps.size()));
          slot_value_.push_back(-1);
          FrameworkStep clone{.overload = "aten.clone.default",
                              .args = {FrameworkArg::Tensor(0), FrameworkArg::None()},
                              .operands = {std::move(whole)},
                              .results = {std::move(made)},
                              .reason = "a literal is returned"};
          program_.regions[0].steps.push_back({.body = std::move(clone), .name = "literal"});
        }
      }
      last_use_[Storage(output.value)] = INT32_MAX;
    }
    program_.outputs.push_back(std::move(spec));
  }
  return absl::OkStatus();
}

void EagerBuilder::AddReleases() {
  std::vector<Step>& steps = program_.regions[0].steps;
  for (size_t slot = 0; slot < slot_value_.size(); ++slot) {
    if (slot_value_[slot] < 0) continue;
    const int32_t last = std::max(last_use_[Storage(slot_value_[slot])], made_by_[slot]);
    if (last != INT32_MAX) steps[last].release_slots.push_back(static_cast<int32_t>(slot));
  }
  for (size_t i = 0; i < graph_.inputs.size(); ++i) {
    const int32_t last = last_use_[graph_.inputs[i]];
    if (last >= 0 && last != INT32_MAX) steps[last].release_inputs.push_back(static_cast<int32_t>(i));
  }
}

absl::StatusOr<Program> EagerBuilder::Run() {
  for (ValueId v = 0; v < static_cast<ValueId>(graph_.values.size()); ++v) {
    const Meta& meta = graph_.meta(v);
    if (meta.kind == Meta::Kind::kTensor) TENON_RETURN_IF_ERROR(MetaView(meta, graph_.values[v].name).status());
  }
  TENON_RETURN_IF_ERROR(AddInputs());
  AddConstants();
  for (const Node& node : graph_.nodes) TENON_RETURN_IF_ERROR(AddNode(node));
  TENON_RETURN_IF_ERROR(AddOutputs());
  AddReleases();
  return std::move(program_);
}

}  // namespace

absl::StatusOr<Program> EagerProgram(const Graph& graph, std::string reason) {
  return EagerBuilder(graph, std::move(reason)).Run();
}

}  // namespace tenon::aten
