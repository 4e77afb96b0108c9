// Activations that libraries apply to a product, and its bias, before they round it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "hlo/module.h"

namespace tenon {

enum class Activation : uint8_t { kNone, kRelu, kGelu };  // kGelu: the approximation by tanh
std::string_view ActivationName(Activation activation);   // "default", "relu", "gelu"

// What `root` is an activation of, by as many instructions as there are in `inside`, operands first: elementwise ones, conversions between
// floats of `value` among them, and what is the same at every element.
struct Activated {
  Activation activation = Activation::kNone;  // kNone: `root` is none
  const Instruction* value = nullptr;
  std::vector<const Instruction*> inside;  // `root` last
};
Activated ActivatedBy(const Instruction& root);

}  // namespace tenon
