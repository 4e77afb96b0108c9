#include "hlo/canonical_bytes.h"

#include "absl/container/flat_hash_map.h"
#include "hlo/canonical_order.h"
#include "hlo/computation.h"
#include "hlo/instruction.h"

namespace tenon {
namespace {

using AddComputation = std::function<void(const Computation*)>;

struct AttributeBytes {
  ByteStream* out;
  const AddComputation& add;

  void operator()(int64_t v) const { out->Number(v); }
  void operator()(bool v) const { out->Bool(v); }
  void operator()(const std::string& v) const { out->Text(v); }
  void operator()(double v) const { out->Real(v); }
  void operator()(const std::vector<int64_t>& v) const { out->AddNumbers(v); }
  void operator()(const std::vector<Dim>& v) const { out->AddDims(v); }
  void operator()(const SliceSpec& v) const {
    out->AddDims(v.starts);
    out->AddDims(v.limits);
    out->AddNumbers(v.strides);
  }
  void operator()(const Window& v) const {
    out->Number(v.dims.size());
    for (const WindowDim& d : v.dims) {
      for (int64_t n : {d.size, d.stride, d.padding_low, d.padding_high, d.base_dilation, d.window_dilation}) out->Number(n);
      out->Bool(d.reversed);
    }
  }
  void operator()(const DimLabels& v) const {
    for (int64_t n : {v.input_batch, v.input_feature, v.kernel_input_feature, v.kernel_output_feature, v.output_batch, v.output_feature}) {
      out->Number(n);
    }
    out->AddNumbers(v.input_spatial);
    out->AddNumbers(v.kernel_spatial);
    out->AddNumbers(v.output_spatial);
  }
  void operator()(const PaddingConfig& v) const {
    out->Number(v.dims.size());
    for (const PaddingDim& d : v.dims) {
      for (int64_t n : {d.low, d.high, d.interior}) out->Number(n);
    }
  }
  void operator()(Computation* c) const { add(c); }
  void operator()(const std::vector<Computation*>& cs) const {
    out->Number(cs.size());
    for (const Computation* c : cs) add(c);
  }
  void operator()(const FrameworkCallRef& call) const { out->Add(*call); }
};

void AppendAttributes(const Attributes& attrs, const AddComputation& add, ByteStream* out) {
  int64_t count = 0;
  for (const auto& [attr, value] : attrs) count += IsRemark(attr) ? 0 : 1;
  out->Number(count);
  for (const auto& [attr, value] : attrs) {
    if (!IsRemark(attr)) AppendAttribute(attr, value, add, out);
  }
  out->Bool(attrs.backend_config_is_json && attrs.has(Attr::kBackendConfig));
  out->Number(attrs.unknown.size());
  for (const auto& [key, value] : attrs.unknown) {
    out->Text(key);
    out->Text(value);
  }
}

void AppendInstructions(const Computation& computation, const AddComputation& add, ByteStream* out) {
  const std::vector<Instruction*> order = CanonicalOrder(computation);
  absl::flat_hash_map<const Instruction*, int64_t> numbers;
  numbers.reserve(order.size());
  out->Text(computation.execution_thread());
  out->Number(order.size());
  for (const Instruction* op : order) {
    numbers.emplace(op, static_cast<int64_t>(numbers.size()));
    out->Enum(op->opcode());
    out->Add(op->shape(), /*with_layout=*/true);
    if (op->opcode() == Opcode::kParameter) out->Number(op->parameter_number());
    if (op->opcode() == Opcode::kConstant) out->Add(op->literal());
    out->Number(op->operand_count());
    for (const Instruction* operand : op->operands()) out->Number(numbers.at(operand));
    out->Number(op->control_predecessors().size());
    for (const Instruction* before : op->control_predecessors()) out->Number(numbers.at(before));
    AppendAttributes(op->attrs(), add, out);
  }
  out->Number(computation.root() == nullptr ? -1 : numbers.at(computation.root()));
}

}  // namespace

bool IsRemark(Attr attr) { return attr == Attr::kStatistics || attr == Attr::kOrigin || attr == Attr::kMetadata; }

void AppendAttribute(Attr attr, const AttrValue& value, const AddComputation& add, ByteStream* out) {
  out->Enum(attr);
  out->Number(value.index());
  std::visit(AttributeBytes{out, add}, value);
}

void AppendComputation(const Computation& computation, ByteStream* out) {
  AppendInstructions(computation, [out](const Computation* c) { AppendComputation(*c, out); }, out);
}

void AppendModule(const Module& module, ByteStream* out) {
  const std::vector<const Computation*> order = CanonicalOrder(module);
  absl::flat_hash_map<const Computation*, int64_t> numbers;
  for (const Computation* c : order) numbers.emplace(c, static_cast<int64_t>(numbers.size()));
  out->Bool(module.is_scheduled);
  out->Number(module.aliases.size());
  for (const InputOutputAlias& a : module.aliases) {
    out->AddNumbers(a.output_index);
    out->Number(a.parameter);
    out->AddNumbers(a.parameter_index);
    out->Bool(a.must);
  }
  out->Bool(module.entry_layout.has_value());
  if (module.entry_layout) {
    out->Number(module.entry_layout->first.size());
    for (const Shape& shape : module.entry_layout->first) out->Add(shape, /*with_layout=*/true);
    out->Add(module.entry_layout->second, /*with_layout=*/true);
  }
  out->Number(module.attributes.size());
  for (const auto& [key, value] : module.attributes) {
    out->Text(key);
    out->Text(value);
  }
  out->Number(order.size());
  for (const Computation* c : order) {
    AppendInstructions(*c, [&](const Computation* callee) { out->Number(numbers.at(callee)); }, out);
  }
}

}  // namespace tenon
