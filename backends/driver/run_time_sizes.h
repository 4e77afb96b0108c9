// Sizes that a program computes while it runs, or that its arguments bring: set-dimension-size and dynamic-reshape by a value,
// parameters with bounded dimensions. The program is compiled for each set of sizes that occurs: kernels know static sizes.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "hlo/module.h"

namespace tenon {

// Whether a dimension of this array, or of an array in this tuple, is bounded.
bool IsBounded(const Shape& shape);

// Whether the computation holds arrays of such sizes (after static-sizes made static what it could).
bool HasRunTimeSizes(const Computation& computation);

// Bounded parameters take the shapes of `args`; what follows from them becomes static.
absl::Status FixParameters(Module& module, absl::Span<const Shape> args);

// The sizes that no other unknown size stands before: scalars of the entry computation, in order. Unimplemented, by name, where
// there are none (a size computed in a loop) or where computing them apart would change the program (random draws, side effects).
absl::StatusOr<std::vector<Instruction*>> ReadySizes(const Module& module);

// A module of the same parameters whose result is the tuple of ReadySizes(module).
absl::StatusOr<std::unique_ptr<Module>> SizesOf(const Module& module);

// Puts numbers for ReadySizes(module), each within its bound, else InvalidArgument.
absl::Status FixSizes(Module& module, absl::Span<const int64_t> sizes);

}  // namespace tenon
