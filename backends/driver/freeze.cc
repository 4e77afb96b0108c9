#include "backends/driver/freeze.h"

#include "absl/algorithm/container.h"
#include "backends/codegen/fused/fused_kernel.h"
#include "backends/contract/provider.h"
#include "backends/driver/targets.h"
#include "passes/freeze/split_frozen.h"

namespace tenon {

std::optional<Frozen> Freeze(Module& module, Binding& binding, absl::Span<const int64_t> inputs, const CompileOptions& options) {
  std::vector<bool> still;
  for (const Binding::Parameter& p : binding.parameters) {
    const bool constant = p.kind == Binding::Parameter::Kind::kConstant;
    still.push_back(constant || (absl::c_linear_search(inputs, p.index) && !binding.inputs[static_cast<size_t>(p.index)].mutated));
  }
  if (module.entry()->parameters().size() != still.size()) return std::nullopt;  // tuples: none of PyTorch's
  const auto targets = TargetsOf(options.targets, options.isa);
  if (!targets.ok()) return std::nullopt;  // the compile says why
  const ContractionSite site{.target = targets->front().get(), .host_functions = options.host_functions,
                             .excess_precision = options.excess_precision, .wanted = options.provider};
  FrozenSplit split = SplitFrozen(module, still, [&](const Instruction& op) { return PackedFor(op, site); });
  if (split.once == nullptr) return std::nullopt;
  Frozen frozen{.once = std::move(split.once), .once_binding = {.parameters = binding.parameters, .inputs = binding.inputs},
                .values = static_cast<int64_t>(split.values.size()), .packed = split.packed};
  for (Binding::Input& in : frozen.once_binding.inputs) in.mutated = false;
  for (const auto& [shape, packing] : split.values) {
    const std::vector<Dim> sizes(shape.dims().begin(), shape.dims().end()), strides = DenseStrides(shape.dims());
    const auto value = static_cast<int64_t>(frozen.once_binding.outputs.size());
    frozen.once_binding.outputs.push_back({.kind = OutputKind::kFresh, .root_index = value, .dtype = shape.element_type(), .sizes = sizes,
                                           .strides = strides});
    binding.parameters.push_back({.index = static_cast<int64_t>(binding.inputs.size()), .dtype = shape.element_type(), .sizes = sizes,
                                  .strides = strides});
    binding.inputs.push_back({.dtype = shape.element_type(), .sizes = sizes, .strides = strides, .name = "frozen",
                              .packed_by = packing.provider, .packing = packing.numbers});
  }
  return frozen;
}

}  // namespace tenon
