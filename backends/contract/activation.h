// Activations that libraries apply to a product, and its bias, before they round it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "hlo/module.h"

namespace tenon {

enum class Activation : uint8_t { kNone, kRelu, kGelu, kGeluByErf, kSilu, kHardswish, kSigmoid, kTanh };  // kGelu: by tanh
// "default", "relu", "gelu", "gelu_erf", "silu", "hardswish", "sigmoid", "tanh".
std::string_view ActivationName(Activation activation);
// Sets of them.
constexpr uint32_t Bit(Activation activation) { return uint32_t{1} << static_cast<int>(activation); }

// What `root` is an activation of, by as many instructions as there are in `inside`, operands first: elementwise ones, conversions between
// floats of `value` among them, and what is the same at every element.
struct Activated {
  Activation activation = Activation::kNone;  // kNone: `root` is none
  const Instruction* value = nullptr;
  std::vector<const Instruction*> inside;  // `root` last
};
Activated ActivatedBy(const Instruction& root);

// The sum of `value` and `other`, both of `root`'s type and shape, `other` no constant, either way round; `inside` as above. Empty: none.
struct Summed {
  const Instruction *value = nullptr, *other = nullptr;
  std::vector<const Instruction*> inside;
};
std::vector<Summed> SummedBy(const Instruction& root);

}  // namespace tenon
