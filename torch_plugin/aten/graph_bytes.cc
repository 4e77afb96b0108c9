#include "torch_plugin/aten/graph_bytes.h"

namespace tenon::aten {
namespace {

void Append(const Meta& meta, ByteStream* out) {
  out->Enum(meta.kind);
  switch (meta.kind) {
    case Meta::Kind::kTensor:
      out->Enum(meta.dtype);
      out->AddDims(meta.sizes);
      out->AddDims(meta.strides);
      out->Add(meta.offset);
      return out->Text(meta.device);
    case Meta::Kind::kSymInt:
      return out->Add(meta.symint);
    case Meta::Kind::kOther:
      return out->Text(meta.other);
    case Meta::Kind::kNone:
      return;
  }
}

}  // namespace

void AppendGraph(const Graph& graph, ByteStream* out) {
  out->Number(graph.symbols.size());
  for (const Symbol& s : graph.symbols) {
    out->Text(s.name);
    out->Number(s.lower);
    out->Number(s.upper);
    out->Number(s.typical);
  }
  out->Number(graph.values.size());
  for (const GraphValue& value : graph.values) Append(value.meta, out);
  out->AddNumbers(graph.inputs);
  out->AddNumbers(graph.constants);
  out->Number(graph.literals.size());
  for (const auto& [value, literal] : graph.literals) {
    out->Number(value);
    out->Add(literal);
  }
  out->Number(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    out->Text(node.op);
    out->Number(node.args.size());
    for (const FrameworkArg& arg : node.args) out->Add(arg);
    out->AddNumbers(node.operands);
    out->AddNumbers(node.results);
    out->AddNumbers(node.writes);
    out->Bool(node.mutates_first);
  }
  out->Number(graph.outputs.size());
  for (const GraphOutput& output : graph.outputs) {
    out->Enum(output.kind);
    out->Number(output.value);
    out->Add(output.symint);
  }
}

}  // namespace tenon::aten
