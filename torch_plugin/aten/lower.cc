// The driver of lowering: parameters, one node after the other, root tuple. What an op means is in lower/<family>.cc.
#include "torch_plugin/aten/lower.h"

#include <algorithm>
#include <charconv>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "hlo/own_calls.h"
#include "torch_plugin/aten/lower/op_context.h"

namespace tenon::aten {
namespace {

std::string JsonString(std::string_view s) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (unsigned char c : s) {
    if (c == '"' || c == '\\') {
      out += {'\\', static_cast<char>(c)};
    } else if (c < 0x20) {
      out += {'\\', 'u', '0', '0', kHex[c >> 4], kHex[c & 15]};
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + "\"";
}

// The parameter's layout follows the caller's strides even when they have gaps: the stride order is what matters to
// vectorisation, and a dense copy of it, should one be needed, keeps that order.
Permutation StrideOrder(const Meta& meta) {
  Permutation dense = LayoutOf(meta);
  if (!dense.empty() || IsDense(meta)) return dense;
  Permutation order;
  for (int64_t i = static_cast<int64_t>(meta.sizes.size()) - 1; i >= 0; --i) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    if (KnownOne(meta.sizes[a]) || KnownOne(meta.sizes[b])) return false;
    if (KnownEqual(meta.strides[a], 0) || KnownEqual(meta.strides[b], 0)) return false;
    return Less(meta.strides[a], meta.strides[b]) == Ternary::kYes;
  });
  return order == RowMajor(static_cast<int64_t>(order.size())) ? Permutation() : order;
}

PrimitiveType DtypeOf(const Meta& meta) { return meta.kind == Meta::Kind::kOther ? PrimitiveType::kOpaque : meta.dtype; }

// An HLO value stands for it.
bool HasValue(const Meta& meta) { return meta.kind == Meta::Kind::kTensor || meta.kind == Meta::Kind::kOther; }

Shape ShapeOf(const Meta& meta, const Permutation& layout) {
  if (meta.kind == Meta::Kind::kOther) return Shape::Opaque();
  Shape shape(meta.dtype, meta.sizes);
  if (!layout.empty()) shape.set_layout(layout);
  return shape;
}

bool OnlySymInts(const Graph& graph, const Node& node) {
  return !node.results.empty() && std::all_of(node.results.begin(), node.results.end(), [&](ValueId r) {
    return graph.meta(r).kind == Meta::Kind::kSymInt;
  });
}

class Lowerer {
 public:
  Lowerer(const Graph& graph, std::unique_ptr<Module> module, const LowerOptions& options)
      : graph_(graph),
        options_(options),
        module_(std::move(module)),
        builder_(module_->AddComputation("main")),
        values_(graph.values.size(), nullptr),
        use_count_(graph.values.size(), 0),
        shared_{graph, builder_, values_, binding_, use_count_, options} {
    module_->set_entry(builder_.computation());
  }
  absl::StatusOr<Lowered> Run();

 private:
  absl::Status CheckSupported() const;
  void CountUses();
  void AddParameters();
  void AddParameter(ValueId v, Binding::Parameter::Kind kind, int64_t index);
  absl::Status LowerNode(const Node& node);
  absl::Status LowerMutation(const Node& node);
  std::string UnlikeDims(const Node& node, const Values& results) const;
  absl::StatusOr<Values> TryLower(const Node& node, const OpRow* row);
  Values FrameworkCall(const Node& node, const OpRow* row, const std::string& reason);
  absl::Status SetResults(const Node& node, Values results);
  Instruction* WithLayout(Instruction* x, const Meta& meta);
  void SetProvenance(const Node& node);
  void AddOutputs();
  bool Disabled(const std::string& op) const {
    const auto& d = options_.disable;
    return std::find(d.begin(), d.end(), op) != d.end() || std::find(d.begin(), d.end(), "*") != d.end();
  }
  int64_t InputNumber(ValueId v) const {
    auto it = std::find(graph_.inputs.begin(), graph_.inputs.end(), v);
    return it == graph_.inputs.end() ? -1 : it - graph_.inputs.begin();
  }

  ValueId MemoryOf(ValueId v);

  const Graph& graph_;
  const LowerOptions& options_;
  std::unique_ptr<Module> module_;
  Builder builder_;
  std::vector<Instruction*> values_;
  std::vector<int32_t> use_count_;
  absl::flat_hash_set<Instruction*> named_;                  // instructions that stand for a graph value
  Binding binding_;
  std::vector<std::string> remarks_;
  std::vector<std::pair<int64_t, Instruction*>> mutations_;  // input number, its new value
  std::vector<ValueId> alias_of_;                            // by value: the mutated input it is, or -1
  std::vector<const Node*> maker_;                           // by value, once something is mutated; nullptr: an input
  Instruction* last_effect_ = nullptr;                       // order of random steps
  OpContext::Shared shared_;
};

std::string SourceOf(const Node& node) {
  return node.source.empty() ? "" : absl::StrCat(" (", node.source, ")");
}

// " of aten.sgn.default (model.py:12)" for what a node makes, "" for an input or a constant.
std::string MakerOf(const Graph& graph, ValueId v) {
  for (const Node& node : graph.nodes) {
    if (std::find(node.results.begin(), node.results.end(), v) != node.results.end())
      return absl::StrCat(" of ", node.op, SourceOf(node));
  }
  return "";
}

// What framework steps may hand to one another, and out of the graph: an opaque value of HLO. Tensors that share others' memory (views with
// a bit), or whose operators are not ATen's kernels on the CPU (subclasses, devices), make the graph one for the eager program.
bool CanPass(const Meta& meta) { return meta.other.starts_with("layout ") || meta.other.starts_with("size "); }

// What no HLO program carries: the eager program takes the whole graph.
absl::Status Lowerer::CheckSupported() const {
  for (size_t v = 0; v < graph_.values.size(); ++v) {
    const GraphValue& value = graph_.values[v];
    const auto refuse = [&](const std::string& what) {
      return absl::UnimplementedError(
          absl::StrCat("%", value.name, MakerOf(graph_, static_cast<ValueId>(v)), " is ", what));
    };
    if (value.meta.kind == Meta::Kind::kOther && !CanPass(value.meta)) return refuse(value.meta.other);
    if (value.meta.kind == Meta::Kind::kTensor && value.meta.device != options_.device)
      return refuse("on device " + value.meta.device);
  }
  return absl::OkStatus();
}

void Lowerer::CountUses() {
  for (const Node& node : graph_.nodes) {
    for (ValueId v : node.operands) ++use_count_[v];
  }
  for (const GraphOutput& output : graph_.outputs) {
    if (output.kind == GraphOutput::Kind::kValue) ++use_count_[output.value];
  }
}

void Lowerer::AddParameter(ValueId v, Binding::Parameter::Kind kind, int64_t index) {
  const Meta& meta = graph_.meta(v);
  if (!HasValue(meta)) return;
  const int64_t number = static_cast<int64_t>(binding_.parameters.size());
  values_[v] = builder_.Parameter(number, ShapeOf(meta, StrideOrder(meta)), graph_.values[v].name);
  binding_.parameters.push_back(
      {.kind = kind, .index = index, .dtype = DtypeOf(meta), .sizes = meta.sizes, .strides = meta.strides});
}

void Lowerer::AddParameters() {
  for (size_t i = 0; i < graph_.inputs.size(); ++i) {
    const GraphValue& value = graph_.values[graph_.inputs[i]];
    Binding::Input input{.dtype = DtypeOf(value.meta), .sizes = value.meta.sizes, .strides = value.meta.strides,
                         .symint = value.meta.symint, .name = value.name};
    if (value.meta.kind == Meta::Kind::kTensor) input.space = options_.space;
    if (value.meta.kind == Meta::Kind::kSymInt) input.kind = InputSpec::Kind::kSymInt;
    if (value.meta.kind == Meta::Kind::kNone) input.kind = InputSpec::Kind::kNone;
    if (value.meta.kind == Meta::Kind::kOther) input.kind = InputSpec::Kind::kOther;
    binding_.inputs.push_back(std::move(input));
    AddParameter(graph_.inputs[i], Binding::Parameter::Kind::kInput, static_cast<int64_t>(i));
  }
  for (size_t k = 0; k < graph_.constants.size(); ++k) {
    AddParameter(graph_.constants[k], Binding::Parameter::Kind::kConstant, static_cast<int64_t>(k));
  }
  for (const auto& [v, literal] : graph_.literals) values_[v] = builder_.Constant(literal);
}

void Lowerer::SetProvenance(const Node& node) {
  Metadata m;
  m.op_name = node.op;
  m.module_path = node.module_path;
  size_t colon = node.source.rfind(':');
  m.source_file = node.source.substr(0, colon);
  if (colon != std::string::npos) {
    std::from_chars(node.source.data() + colon + 1, node.source.data() + node.source.size(), m.source_line);
  }
  builder_.set_metadata(std::move(m));
}

// The element types that every lowering handles; those of complex numbers are in its row.
bool HasKernels(PrimitiveType t) {
  return t == PrimitiveType::kPred || (IsIntegral(t) && BitWidth(t) >= 8) || IsHalf(t) || t == PrimitiveType::kF32 ||
         t == PrimitiveType::kF64;
}

absl::StatusOr<Values> Lowerer::TryLower(const Node& node, const OpRow* row) {
  if (row == nullptr) {
    return NotLowered(IsPythonCall(node.op)           ? "called from Python"
                      : node.op.starts_with("tenon.") ? "random: the state of ATen's generator"
                      : IsForeign(node.op)            ? "custom: an operator of another library"
                                                      : "no lowering");
  }
  if (row->kind == RowKind::kLibrary) return NotLowered(kByLibrary);
  if (row->kind == RowKind::kStep) {
    return NotLowered(row->effect == Effect::kRandom ? "random: the bits of ATen's generator" : "no lowering");
  }
  if (Disabled(node.op) || Disabled(std::string(row->element))) return NotLowered("disabled by an option");
  for (const std::vector<ValueId>* list : {&node.operands, &node.results}) {
    for (ValueId v : *list) {
      const Meta& meta = graph_.meta(v);
      if (meta.kind == Meta::Kind::kOther) return NotLowered(meta.other);
      if (meta.kind == Meta::Kind::kTensor && !(IsComplex(meta.dtype) ? row->complex : HasKernels(meta.dtype))) {
        return NotLowered(absl::StrCat("dtype ", std::string(PrimitiveTypeName(meta.dtype))));
      }
    }
  }
  OpContext op(shared_, node, *row);
  if (!graph_.has_symbols()) return row->lower(op);
  try {
    Lowering results = row->lower(op);
    if (!results.ok()) return results;
    const std::string unlike = UnlikeDims(node, *results);
    return unlike.empty() ? results : NotLowered("symbolic sizes: " + unlike);
  } catch (const InternalError& error) {  // a number was wanted, or sizes that are equal aren't seen to be
    return NotLowered(absl::StrCat("symbolic sizes: ", error.what()));
  }
}

// Where results have not the sizes that they should have: equal ones may be written otherwise, so that nobody sees it.
std::string Lowerer::UnlikeDims(const Node& node, const Values& results) const {
  for (size_t i = 0; i < results.size() && i < node.results.size(); ++i) {
    const Meta& meta = graph_.meta(node.results[i]);
    if (results[i] == nullptr || meta.kind != Meta::Kind::kTensor) continue;
    const Shape wanted(meta.dtype, meta.sizes);
    if (Shape::Compatible(results[i]->shape(), wanted)) continue;
    return absl::StrCat(results[i]->shape().ToString(), " isn't seen to be ", wanted.ToString());
  }
  return "";
}

absl::Status Lowerer::LowerNode(const Node& node) {
  if (OnlySymInts(graph_, node)) return absl::OkStatus();  // known from the metas
  if (node.mutates_first) return LowerMutation(node);
  SetProvenance(node);
  const OpRow* row = FindRow(node.op);
  absl::StatusOr<Values> results = TryLower(node, row);
  if (results.ok()) return SetResults(node, *std::move(results));
  if (results.status().code() != absl::StatusCode::kUnimplemented) {
    return absl::Status(results.status().code(), absl::StrCat(node.op, ": ", std::string(results.status().message())));
  }
  return SetResults(node, FrameworkCall(node, row, std::string(results.status().message())));
}

// The value that owns the memory in which `v` lies, or may lie.
ValueId Lowerer::MemoryOf(ValueId v) {
  if (maker_.empty()) {
    maker_.assign(graph_.values.size(), nullptr);
    for (const Node& node : graph_.nodes) {
      for (ValueId r : node.results) maker_[r] = &node;
    }
  }
  for (const Node* node = maker_[v]; node != nullptr && !node->operands.empty(); node = maker_[v]) {
    if (!node->mutates_first && RuleOf(node->op) != ResultRule::kView) break;
    v = node->operands[0];
  }
  return v;
}

// copy_ into an input. Any other in-place operator makes the graph one for the eager program.
absl::Status Lowerer::LowerMutation(const Node& node) {
  const ValueId target = node.operands[0];
  const ValueId input = alias_of_[target] >= 0 ? alias_of_[target] : target;
  const int64_t number = InputNumber(input);
  if (node.op != "aten.copy_.default" || number < 0) {
    return absl::UnimplementedError(
        absl::StrCat("in-place ", node.op, SourceOf(node), " of what is no graph input"));
  }
  SetProvenance(node);
  const Meta& meta = graph_.meta(input);
  TENON_CHECK(node.args.size() >= 2 && node.args[1].is_tensor(), "copy_ needs a tensor");
  const ValueId from = node.operands[node.args[1].i];
  // A view of what has been written before has its new elements in eager, and is a value of before here. AOTAutograd's graphs have none.
  const ValueId memory = MemoryOf(from);
  const bool view = from != memory && alias_of_[from] < 0;
  if (view && absl::c_any_of(mutations_, [&](const auto& m) { return m.first == InputNumber(memory); })) {
    return absl::UnimplementedError(absl::StrCat("the write-back of ", binding_.inputs[number].name,
                                                 " reads a view of an input that was written back before"));
  }
  Instruction* source = values_[from];
  source = builder_.BroadcastTo(builder_.Convert(source, meta.dtype), meta.sizes);
  auto seen = std::find_if(mutations_.begin(), mutations_.end(), [&](const auto& m) { return m.first == number; });
  if (seen == mutations_.end()) {
    mutations_.emplace_back(number, source);
  } else {
    seen->second = source;
  }
  binding_.inputs[number].mutated = true;
  values_[input] = source;
  for (ValueId r : node.results) {
    values_[r] = source;
    alias_of_[r] = input;
  }
  return absl::OkStatus();
}

// custom-call "aten.<op>": an array for one result, a tuple for several. Results that are None (undefined tensors) have no
// element; "results" then lists the operator's result numbers that have one.
Values Lowerer::FrameworkCall(const Node& node, const OpRow* row, const std::string& reason) {
  std::vector<Instruction*> operands;
  std::vector<int64_t> renumbered(node.operands.size(), -1);
  std::function<FrameworkArg(const FrameworkArg&)> resolve = [&](const FrameworkArg& arg) {
    FrameworkArg out = arg;
    if (arg.is_tensor()) {
      const ValueId v = node.operands[arg.i];
      const Meta& meta = graph_.meta(v);
      if (meta.kind == Meta::Kind::kNone) return FrameworkArg::None();
      if (meta.kind == Meta::Kind::kSymInt) {
        if (meta.symint.is_constant()) return FrameworkArg::Int(meta.symint.constant());
        return FrameworkArg{.kind = FrameworkArg::Kind::kSymInt, .s = meta.symint.ToString()};
      }
      if (renumbered[arg.i] < 0) {
        renumbered[arg.i] = static_cast<int64_t>(operands.size());
        operands.push_back(values_[v]);
      }
      out.i = renumbered[arg.i];
    }
    for (FrameworkArg& element : out.list) element = resolve(element);
    return out;
  };
  FrameworkCallSite site;
  for (const FrameworkArg& arg : node.args) site.args.push_back(resolve(arg));

  std::vector<Shape> shapes;
  std::vector<int64_t> present;
  bool dense = true;
  for (size_t i = 0; i < node.results.size(); ++i) {
    const Meta& meta = graph_.meta(node.results[i]);
    if (!HasValue(meta)) continue;
    present.push_back(static_cast<int64_t>(i));
    shapes.push_back(ShapeOf(meta, StrideOrder(meta)));
    // Elsewhere operands say so (passes/spaces/assign_spaces.cc).
    if (operands.empty() && meta.kind == Meta::Kind::kTensor) shapes.back().set_memory_space(options_.space);
    dense = dense && (meta.kind == Meta::Kind::kOther || IsDense(meta));
  }
  site.effect = row != nullptr ? row->effect : EffectOf(node.op);
  site.rule = row != nullptr ? row->rule : RuleOf(node.op);
  site.total = row != nullptr && reason == kByLibrary && site.effect == Effect::kPure;
  if (present.size() != node.results.size()) {
    site.num_results = static_cast<int64_t>(node.results.size());
    site.results = present;
  }
  if (!dense) {
    site.strides.emplace();
    for (int64_t i : present) site.strides->push_back(graph_.meta(node.results[i]).strides);
  }
  for (size_t w = 0; w < node.writes.size(); ++w) {
    const int64_t result = static_cast<int64_t>(node.results.size() - node.writes.size() + w);
    const int64_t leaf = std::find(present.begin(), present.end(), result) - present.begin();
    site.writes.push_back({leaf, renumbered[node.writes[w]]});
  }
  site.reason = reason;

  const bool single = node.results.size() == 1 && present.size() == 1;
  const Shape shape = single ? shapes[0] : Shape::Tuple(shapes);
  const bool effect = site.effect != Effect::kPure;
  Instruction* call = builder_.CustomCall(node.op, shape, operands, FrameworkCallRef(std::move(site)), effect);
  if (effect) {
    if (last_effect_ != nullptr) call->AddControlPredecessor(last_effect_);
    last_effect_ = call;
  }
  remarks_.push_back(absl::StrCat("{\"pass\":\"lower\",\"kind\":\"framework-call\",\"op\":", JsonString(node.op),
                                  ",\"reason\":", JsonString(reason), ",\"source\":", JsonString(node.source),
                                  ",\"module\":", JsonString(node.module_path), "}"));
  Values results(node.results.size(), nullptr);
  for (size_t i = 0; i < present.size(); ++i) {
    results[present[i]] = single ? call : builder_.GetTupleElement(call, static_cast<int64_t>(i));
  }
  return results;
}

Instruction* Lowerer::WithLayout(Instruction* x, const Meta& meta) {
  Shape wanted = ShapeOf(meta, LayoutOf(meta));
  if (Shape::SameWithLayout(x->shape(), wanted) || !IsDense(meta)) return x;
  // Only a fresh instruction may take the layout: a parameter, a library result or a value that others read keeps its own.
  const bool fixed = x->opcode() == Opcode::kParameter || (x->opcode() == Opcode::kCustomCall && !IsPointwiseCall(*x)) ||
                     x->opcode() == Opcode::kGetTupleElement || x->opcode() == Opcode::kConstant || x->user_count() > 0 ||
                     named_.contains(x);
  if (fixed) x = builder_.Copy(x);
  x->mutable_shape() = wanted;
  return x;
}

// The contract: dtype and dims of every result are the meta's.
absl::Status Lowerer::SetResults(const Node& node, Values results) {
  TENON_CHECK(results.size() == node.results.size(),
              absl::StrCat(node.op, ": lowering made ", results.size(), " results of ", node.results.size()));
  for (size_t i = 0; i < results.size(); ++i) {
    const GraphValue& value = graph_.values[node.results[i]];
    if (value.meta.kind == Meta::Kind::kOther) {
      values_[node.results[i]] = results[i];
      continue;
    }
    if (value.meta.kind != Meta::Kind::kTensor || results[i] == nullptr) {
      TENON_CHECK(value.meta.kind != Meta::Kind::kTensor || use_count_[node.results[i]] == 0,
                  node.op + ": no value for %" + value.name);
      continue;
    }
    Shape wanted(value.meta.dtype, value.meta.sizes);
    TENON_CHECK(Shape::Compatible(results[i]->shape(), wanted),
                absl::StrCat(node.op, ": %", value.name, " wanted ", wanted.ToString(), ", lowering made ",
                             results[i]->shape().ToString()));
    Instruction* x = WithLayout(results[i], value.meta);
    if (x->opcode() != Opcode::kParameter && named_.insert(x).second) {
      x->set_name(module_->UniqueInstructionName(value.name));
    }
    values_[node.results[i]] = x;
  }
  return absl::OkStatus();
}

void Lowerer::AddOutputs() {
  builder_.set_metadata({});
  std::vector<Instruction*> root;
  std::vector<std::pair<ValueId, int64_t>> root_of;
  for (const GraphOutput& output : graph_.outputs) {
    Binding::Output out;
    if (output.kind != GraphOutput::Kind::kValue) {
      out.kind = output.kind == GraphOutput::Kind::kNone ? OutputKind::kNone : OutputKind::kSymInt;
      out.symint = output.symint;
      binding_.outputs.push_back(std::move(out));
      continue;
    }
    const ValueId v = alias_of_[output.value] >= 0 ? alias_of_[output.value] : output.value;
    const Meta& meta = graph_.meta(v);
    out.dtype = DtypeOf(meta);
    out.sizes = meta.sizes;
    out.strides = meta.strides;
    if (meta.kind == Meta::Kind::kTensor) out.space = options_.space;
    const auto constant = std::find(graph_.constants.begin(), graph_.constants.end(), v);
    if (InputNumber(v) >= 0) {
      out.kind = OutputKind::kInput;
      out.index = InputNumber(v);
    } else if (constant != graph_.constants.end()) {
      out.kind = OutputKind::kConstant;
      out.index = constant - graph_.constants.begin();
    } else {
      const auto seen = std::find_if(root_of.begin(), root_of.end(), [&](const auto& r) { return r.first == v; });
      if (seen != root_of.end()) {
        out.root_index = seen->second;
      } else {
        Instruction* x = values_[v];
        for (size_t d = 0; d < meta.strides.size(); ++d) {
          const int64_t axis = static_cast<int64_t>(d);
          if (!KnownEqual(meta.strides[d], 0) || KnownOne(meta.sizes[d])) continue;
          if (Less(0, meta.sizes[d]) == Ternary::kYes) x = builder_.SliceDim(x, axis, 0, 1);
        }
        out.root_index = static_cast<int64_t>(root.size());
        root_of.emplace_back(v, out.root_index);
        root.push_back(x);
      }
    }
    binding_.outputs.push_back(std::move(out));
  }
  for (const auto& [input, value] : mutations_) {
    binding_.mutations.push_back({.input = input, .root_index = static_cast<int64_t>(root.size())});
    root.push_back(value);
  }
  builder_.computation()->set_root(builder_.Tuple(root));
}

absl::StatusOr<Lowered> Lowerer::Run() {
  TENON_RETURN_IF_ERROR(CheckSupported());
  alias_of_.assign(graph_.values.size(), -1);
  CountUses();
  AddParameters();
  for (const Node& node : graph_.nodes) TENON_RETURN_IF_ERROR(LowerNode(node));
  AddOutputs();
  return Lowered{std::move(module_), std::move(binding_), std::move(remarks_)};
}

// The same graph with its sizes in the module's table.
Graph ImportDims(const Graph& graph, const Module& module) {
  Graph out = graph;
  out.dims = module.shared_dims();
  auto import = [&](Dim* d) { *d = out.dims->Import(*d); };
  for (const Symbol& s : graph.symbols) out.dims->Symbol(s.name, s.lower, s.upper, /*divisor=*/1, s.typical);
  for (GraphValue& value : out.values) {
    for (Dim& d : value.meta.sizes) import(&d);
    for (Dim& d : value.meta.strides) import(&d);
    import(&value.meta.offset);
    import(&value.meta.symint);
  }
  for (GraphOutput& output : out.outputs) import(&output.symint);
  return out;
}

}  // namespace

absl::StatusOr<Lowered> Lower(const Graph& graph, const LowerOptions& options) {
  auto module = std::make_unique<Module>(graph.name.empty() ? "graph" : graph.name);
  if (!graph.has_symbols()) return Lowerer(graph, std::move(module), options).Run();
  const Graph imported = ImportDims(graph, *module);
  return Lowerer(imported, std::move(module), options).Run();
}

bool HasLowering(std::string_view overload) {
  const OpRow* row = FindRow(overload);
  return row != nullptr && row->kind == RowKind::kLowered;
}

}  // namespace tenon::aten
