// SplitFrozen: what hangs on parameters that do not change from call to call is computed once.
//
// A module is cut in two. `once` has the same parameters and gives a tuple of values; the module keeps its parameters, gets one more for
// each of these values, behind the others, and computes the rest. Together they compute what the module did: exactly, op for op.
//
// Only ops without effects are moved (no framework calls, random draws or control flow), and only what computes: views of a parameter
// (transpose, reshape, slice) and broadcasts, which would grow, stay behind.
//
// First, contractions whose second operand is frozen are given it as their provider, which they name, reads it fastest:
//   generated              a convolution's kernel as [taps..., input features, output features], a matrix as [sums, columns], rows a number
//                          of bytes apart that no large power of two divides. That order is materialised once
//   others, of the host    a kernel as [output features, input features, taps...], a matrix as [columns, sums], a value of its own, which
//                          nothing else reads: the host keeps it in a form that only it knows. A convolution's result times one number per
//                          feature is the result of another kernel (batch norm): that one is computed once, and so is what is added then
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hlo/module.h"

namespace tenon {

// How a contraction's second operand is kept.
struct KernelPacking {
  std::string provider;
  std::vector<int64_t> numbers;  // InputSpec::packing
};
using PackedForFn = std::function<std::optional<KernelPacking>(const Instruction& contraction)>;

struct FrozenSplit {
  struct Value {
    Shape shape;
    KernelPacking packing;  // provider "": it lies as its shape says
  };
  std::unique_ptr<Module> once;  // null: nothing to compute once
  std::vector<Value> values;     // its results, the module's new parameters
  int64_t packed = 0;            // contractions that were
};

// `frozen`: per parameter of the entry. `packed_for`: who should compute a contraction by a frozen second operand; nullopt: it stays.
FrozenSplit SplitFrozen(Module& module, const std::vector<bool>& frozen, const PackedForFn& packed_for);

}  // namespace tenon
