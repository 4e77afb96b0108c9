// SplitFrozen: what hangs on parameters that do not change from call to call is computed once.
//
// A module is cut in two. `once` has the same parameters and gives a tuple of values; the module keeps its parameters, gets one more for
// each of these values, behind the others, and computes the rest. Together they compute what the module did: exactly, op for op.
//
// Only ops without effects are moved (no framework calls, random draws or control flow), and only what computes: views of a parameter
// (transpose, reshape, slice) and broadcasts, which would grow, stay behind.
//
// First, contractions whose second operand is frozen are given it as generated kernels read it fastest (PackKernels): a convolution's
// kernel as [taps..., input features, output features], a matrix as [sums, columns], rows a number of bytes apart that no large power of
// two divides; they name `generated` as their provider. That order is materialised once.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "hlo/module.h"

namespace tenon {

struct FrozenSplit {
  std::unique_ptr<Module> once;  // null: nothing to compute once
  std::vector<Shape> values;     // its results, the module's new parameters
  int64_t packed = 0;            // contractions that were
};

// `frozen`: per parameter of the entry. `packs`: whether a contraction (f32 dot or convolution) should be packed.
FrozenSplit SplitFrozen(Module& module, const std::vector<bool>& frozen, const std::function<bool(const Instruction&)>& packs);

}  // namespace tenon
