// OwnStridesOf: where values lie that are not made by kernels.
#include "backends/program/framework_config.h"
#include "backends/program/program_builder.h"
#include "passes/expand/control_flow.h"
#include "passes/fusion/fused_form.h"

namespace tenon {

ValueViews::OwnStrides OwnStridesOf(const Module& module, const Binding& binding) {
  std::vector<int64_t> first_leaf = {0};  // by parameter of the entry
  for (const Instruction* op : module.entry()->parameters()) first_leaf.push_back(first_leaf.back() + LeafCount(op->shape()));
  return [&binding, first_leaf = std::move(first_leaf)](const Instruction& op, int64_t leaf) -> std::optional<DimVector> {
    if (op.opcode() == Opcode::kParameter && op.parent() == op.parent()->module()->entry()) {
      const Binding::Parameter& p = binding.parameters.at(first_leaf.at(op.parameter_number()) + leaf);
      return p.flat_storage ? DimVector{Dim(1)} : DimVector(p.strides.begin(), p.strides.end());
    }
    if (!IsFrameworkCall(op)) return std::nullopt;
    FrameworkCallSite read;
    const absl::StatusOr<const FrameworkCallSite*> site = CallSiteOf(op, &read);  // an error is told where the step is made
    if (!site.ok() || !(*site)->strides || leaf >= static_cast<int64_t>((*site)->strides->size())) return std::nullopt;
    const std::vector<Dim>& strides = (*(*site)->strides)[leaf];
    return DimVector(strides.begin(), strides.end());
  };
}

}  // namespace tenon
