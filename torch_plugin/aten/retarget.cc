#include "torch_plugin/aten/retarget.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "torch_plugin/aten/op_table.h"
#include "torch_plugin/aten/retarget/rewriter.h"

namespace tenon::aten {
namespace {

constexpr FactoryRow kFactories[] = {
    {"aten.full.default", 4},         {"aten.scalar_tensor.default", 3},  {"aten.zeros.default", 3},       {"aten.ones.default", 3},
    {"aten.empty.memory_format", 3},  {"aten.empty_permuted.default", 4}, {"aten.empty_strided.default", 4}, {"aten.arange.default", 3},
    {"aten.arange.start", 4},         {"aten.arange.start_step", 5},      {"aten.eye.default", 3},         {"aten.eye.m", 4},
    {"aten.linspace.default", 5},     {"aten.rand.default", 3},           {"aten.randn.default", 3},       {"aten.randint.default", 4},
    {"aten.randint.low", 5},          {"aten.randperm.default", 3},       {"aten.normal.float_float", 6},
    {"aten._efficientzerotensor.default", 3},
};

// Overloads of the CPU that are another operator on the device.
struct OverloadRow {
  std::string_view overload;
  absl::Status (*rewrite)(const Node& node, int32_t number, Rewriter& to);
};
constexpr OverloadRow kOverloads[] = {
    {"aten._scaled_dot_product_flash_attention_for_cpu.default", RetargetAttention},
    {"aten._scaled_dot_product_flash_attention_for_cpu_backward.default", RetargetAttentionBackward},
};

// What there is of the CPU alone, by how the overload begins.
struct RefusedRow {
  std::string_view begins, why;
};
constexpr RefusedRow kRefused[] = {
    {"aten.mkldnn_rnn_layer", "oneDNN's layer; a trace on the device has aten._cudnn_rnn, of flat weights, all layers at once"},
    {"aten.mkldnn_", "oneDNN's, of the CPU alone"},
    {"aten._mkldnn_", "oneDNN's, of the CPU alone"},
    {"aten.to_mkldnn", "oneDNN's layout, of the CPU alone"},
    {"aten._weight_int8pack_mm", "weights packed for the CPU"},
    {"aten._weight_int4pack_mm_for_cpu", "weights packed for the CPU"},
    {"aten.fbgemm_", "FBGEMM's, of the CPU alone"},
    {"tenon.", "the state of the CPU's generator"},
};

void MoveArg(FrameworkArg* arg, const std::string& device) {
  if (arg->kind == FrameworkArg::Kind::kDevice && (arg->s == "cpu" || arg->s.starts_with("cpu:"))) arg->s = device;
  if (arg->kind != FrameworkArg::Kind::kList) return;
  for (FrameworkArg& element : arg->list) MoveArg(&element, device);
}

absl::Status MoveNode(const Node& node, Rewriter& to) {
  Node moved = node;
  for (FrameworkArg& arg : moved.args) MoveArg(&arg, to.device());
  for (const FactoryRow& row : kFactories) {
    if (row.overload != node.op) continue;
    if (row.device >= static_cast<int>(moved.args.size())) {
      return to.Refuse(node, absl::StrCat("wanted argument ", row.device, ", the device"));
    }
    FrameworkArg& device = moved.args[static_cast<size_t>(row.device)];
    if (device.is_none()) device = {.kind = FrameworkArg::Kind::kDevice, .s = to.device()};
  }
  to.Add(std::move(moved));
  return absl::OkStatus();
}

absl::Status RetargetNode(const Node& node, int32_t number, bool foreign, Rewriter& to) {
  for (const OverloadRow& row : kOverloads) {
    if (row.overload == node.op) return row.rewrite(node, number, to);
  }
  for (const RefusedRow& row : kRefused) {
    if (node.op.starts_with(row.begins)) return to.Refuse(node, row.why);
  }
  if (IsPythonCall(node.op)) return to.Refuse(node, "a Python callable");
  if (!foreign && IsForeign(node.op)) return to.Refuse(node, "an operator of another library");
  return MoveNode(node, to);
}

}  // namespace

Rewriter::Rewriter(const Graph& from, std::string_view device) : from_(from), device_(device), graph_(from) {
  graph_.nodes.clear();
  for (GraphValue& value : graph_.values) {
    if (value.meta.kind == Meta::Kind::kTensor) value.meta.device = device_;
    names_.insert(value.name);
  }
  for (const Node& node : from.nodes) used_.insert(node.operands.begin(), node.operands.end());
  for (const GraphOutput& output : from.outputs) {
    if (output.kind == GraphOutput::Kind::kValue) used_.insert(output.value);
  }
}

Meta Rewriter::Dense(PrimitiveType dtype, std::vector<Dim> sizes) const {
  Meta meta{.dtype = dtype, .sizes = std::move(sizes), .device = device_};
  meta.strides.resize(meta.sizes.size());
  Dim stride = 1;
  for (size_t d = meta.sizes.size(); d-- > 0;) {
    meta.strides[d] = stride;
    stride *= KnownEqual(meta.sizes[d], 0) ? Dim(1) : meta.sizes[d];
  }
  return meta;
}

ValueId Rewriter::NewValue(std::string_view like, std::string_view suffix, Meta meta) {
  const std::string stem = absl::StrCat(std::string(like), ".", std::string(suffix));
  std::string name = stem;
  for (int k = 1; !names_.insert(name).second; ++k) name = absl::StrCat(stem, ".", k);
  graph_.values.push_back({.name = std::move(name), .meta = std::move(meta)});
  return static_cast<ValueId>(graph_.values.size()) - 1;
}

void Rewriter::Add(Node node) {
  for (size_t r = 0; r < node.results.size(); ++r) {
    GraphValue& value = graph_.values[static_cast<size_t>(node.results[r])];
    value.node = static_cast<int32_t>(graph_.nodes.size());
    value.result = static_cast<int32_t>(r);
  }
  graph_.nodes.push_back(std::move(node));
}

ValueId Rewriter::AddOne(const Node& at, std::string op, std::vector<FrameworkArg> args, std::vector<ValueId> operands, ValueId result) {
  Add({.op = std::move(op), .args = std::move(args), .operands = std::move(operands), .results = {result}, .writes = {},
       .module_path = at.module_path, .source = at.source});
  return result;
}

absl::Status Rewriter::Refuse(const Node& node, std::string_view why) const {
  const std::string name = node.results.empty() ? "" : absl::StrCat("%", graph_.values[static_cast<size_t>(node.results[0])].name, " of ");
  const std::string source = node.source.empty() ? "" : absl::StrCat(" (", node.source, ")");
  return absl::UnimplementedError(absl::StrCat(name, node.op, source, " has no counterpart on ", device_, ": ", std::string(why)));
}

FrameworkArg SizeArg(Dim size) {
  if (size.is_constant()) return FrameworkArg::Int(size.constant());
  return {.kind = FrameworkArg::Kind::kSymInt, .s = size.ToString()};
}

absl::Span<const FactoryRow> Factories() { return kFactories; }

absl::StatusOr<Graph> Retarget(const Graph& graph, const RetargetOptions& options) {
  for (const GraphValue& value : graph.values) {
    if (value.meta.kind == Meta::Kind::kOther) {
      return absl::UnimplementedError(absl::StrCat("%", value.name, " is ", value.meta.other, ": no counterpart on ", options.device));
    }
    if (value.meta.kind == Meta::Kind::kTensor && value.meta.device != "cpu") {
      return absl::InvalidArgumentError(absl::StrCat("%", value.name, ": wanted a graph of the CPU, got a tensor on ", value.meta.device));
    }
  }
  Rewriter to(graph, options.device);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (const absl::Status s = RetargetNode(graph.nodes[n], static_cast<int32_t>(n), options.foreign, to); !s.ok()) return s;
  }
  return to.Take();
}

}  // namespace tenon::aten
