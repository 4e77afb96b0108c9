#include "runtime/binding.h"

namespace tenon {

Binding BindingOf(const Module& module) {
  Binding binding;
  const Computation& entry = *module.entry();
  int64_t i = 0;
  for (const Instruction* p : entry.parameters()) {
    const Shape& shape = p->shape();
    const DimVector strides = shape.strides();
    Binding::Parameter parameter{.index = i, .dtype = shape.element_type()};
    parameter.sizes.assign(shape.dims().begin(), shape.dims().end());
    parameter.strides.assign(strides.begin(), strides.end());
    binding.inputs.push_back({.dtype = parameter.dtype, .sizes = parameter.sizes, .strides = parameter.strides,
                              .name = p->name()});
    binding.parameters.push_back(std::move(parameter));
    ++i;
  }
  i = 0;
  for (const Shape& leaf : FlattenShape(entry.root()->shape())) {
    const DimVector strides = leaf.strides();
    Binding::Output output{.root_index = i++, .dtype = leaf.element_type()};
    output.sizes.assign(leaf.dims().begin(), leaf.dims().end());
    output.strides.assign(strides.begin(), strides.end());
    binding.outputs.push_back(std::move(output));
  }
  return binding;
}

}  // namespace tenon
