// Reductions that several families use: sums, extrema, mean and variance in two passes.
#pragma once

#include "torch_plugin/aten/lower/op_context.h"

namespace tenon::aten {

Instruction* LimitConstant(OpContext& op, PrimitiveType type, bool lowest);
Instruction* ReduceSum(OpContext& op, Instruction* x, absl::Span<const int64_t> axes);
Instruction* ReduceMax(OpContext& op, Instruction* x, absl::Span<const int64_t> axes);
Instruction* ReduceMin(OpContext& op, Instruction* x, absl::Span<const int64_t> axes);
// A value reduced over `axes` repeated along them, to `like`'s dims.
Instruction* SpreadBack(OpContext& op, Instruction* reduced, const Instruction* like, absl::Span<const int64_t> axes);
Dim CountOf(const Instruction* x, absl::Span<const int64_t> axes);

// Of the arguments of linalg_vector_norm: the sum of powers whose root the norm is.
Lowering PowerSum(OpContext& op);

struct Moments {
  Instruction *mean, *variance;  // without the reduced dims
  Instruction* centered;         // x - mean, x's dims
};
// Two passes: the sum of squared differences from the mean, over count - correction.
Moments MeanAndVariance(OpContext& op, Instruction* x, absl::Span<const int64_t> axes, double correction);

}  // namespace tenon::aten
