#include "runtime/program/binding.h"

namespace tenon {

Binding BindingOf(const Module& module) {
  Binding binding;
  const Computation& entry = *module.entry();
  int64_t i = 0;
  for (const Instruction* p : entry.parameters()) {
    for (const Shape& leaf : FlattenShape(p->shape())) {
      Binding::Parameter parameter{.index = i++, .dtype = leaf.element_type()};
      Binding::Input input{.dtype = leaf.element_type(), .name = p->name()};
      if (leaf.is_array()) {
        const DimVector strides = leaf.strides();
        parameter.sizes.assign(leaf.dims().begin(), leaf.dims().end());
        parameter.strides.assign(strides.begin(), strides.end());
        input.sizes = parameter.sizes;
        input.strides = parameter.strides;
        input.space = static_cast<int32_t>(leaf.memory_space());
      } else {
        input.kind = InputSpec::Kind::kNone;  // a token: nothing is brought
      }
      binding.inputs.push_back(std::move(input));
      binding.parameters.push_back(std::move(parameter));
    }
  }
  i = 0;
  for (const Shape& leaf : FlattenShape(entry.root()->shape())) {
    Binding::Output output{.root_index = i++, .dtype = leaf.element_type()};
    if (!leaf.is_array()) {
      output.kind = OutputKind::kNone;
      binding.outputs.push_back(std::move(output));
      continue;
    }
    const DimVector strides = leaf.strides();
    output.sizes.assign(leaf.dims().begin(), leaf.dims().end());
    output.strides.assign(strides.begin(), strides.end());
    output.space = static_cast<int32_t>(leaf.memory_space());
    binding.outputs.push_back(std::move(output));
  }
  return binding;
}

}  // namespace tenon
