#include "backends/driver/freeze.h"

#include "absl/algorithm/container.h"
#include "backends/codegen/fused/fused_kernel.h"
#include "backends/contract/provider.h"
#include "passes/freeze/split_frozen.h"

namespace tenon {
namespace {

constexpr int64_t kFewColumns = 8;  // fewer are not worth vectors of their own

// Of groups only one per feature: vectors of features must read one group, or each their own.
bool Packs(const Instruction& op, const ContractionSite& site) {
  if (op.shape().element_type() != PrimitiveType::kF32 || !op.shape().is_static() || !GeneratedTakes(op, site).ok()) return false;
  if (op.opcode() == Opcode::kDot) return op.shape().rank() == 2 && op.shape().constant_dim(1) >= kFewColumns;
  const DimLabels& l = op.attrs().get<DimLabels>(Attr::kDimLabels);
  const Window window = op.attrs().get_or<Window>(Attr::kWindow, {});
  if (op.shape().rank() < 4 || op.attrs().get_or<int64_t>(Attr::kBatchGroupCount, 1) != 1) return false;
  if (absl::c_any_of(window.dims, [](const WindowDim& w) { return w.base_dilation != 1 || w.reversed; })) return false;
  const int64_t groups = op.attrs().get_or<int64_t>(Attr::kFeatureGroupCount, 1);
  const int64_t in = op.operand(0)->shape().constant_dim(l.input_feature), out = op.shape().constant_dim(l.output_feature);
  return (groups == 1 || (groups == in && groups == out)) && out >= kFewColumns;
}

}  // namespace

std::optional<Frozen> Freeze(Module& module, Binding& binding, absl::Span<const int64_t> inputs, const CompileOptions& options) {
  std::vector<bool> still;
  for (const Binding::Parameter& p : binding.parameters) {
    const bool constant = p.kind == Binding::Parameter::Kind::kConstant;
    still.push_back(constant || (absl::c_linear_search(inputs, p.index) && !binding.inputs[static_cast<size_t>(p.index)].mutated));
  }
  if (module.entry()->parameters().size() != still.size()) return std::nullopt;  // tuples: none of PyTorch's
  const ContractionSite site{.host_functions = options.host_functions, .excess_precision = options.excess_precision,
                             .wanted = options.provider};
  const bool ours = options.provider.empty() || options.provider == "generated";
  FrozenSplit split = SplitFrozen(module, still, [&](const Instruction& op) { return ours && Packs(op, site); });
  if (split.once == nullptr) return std::nullopt;
  Frozen frozen{.once = std::move(split.once), .once_binding = {.parameters = binding.parameters, .inputs = binding.inputs},
                .values = static_cast<int64_t>(split.values.size()), .packed = split.packed};
  for (Binding::Input& in : frozen.once_binding.inputs) in.mutated = false;
  for (const Shape& shape : split.values) {
    const std::vector<Dim> sizes(shape.dims().begin(), shape.dims().end()), strides = DenseStrides(shape.dims());
    const auto value = static_cast<int64_t>(frozen.once_binding.outputs.size());
    frozen.once_binding.outputs.push_back({.kind = OutputKind::kFresh, .root_index = value, .dtype = shape.element_type(), .sizes = sizes,
                                           .strides = strides});
    binding.parameters.push_back({.index = static_cast<int64_t>(binding.inputs.size()), .dtype = shape.element_type(), .sizes = sizes,
                                  .strides = strides});
    binding.inputs.push_back({.dtype = shape.element_type(), .sizes = sizes, .strides = strides, .name = "frozen"});
  }
  return frozen;
}

}  // namespace tenon
