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
// max(0, count - less), and 1 / count, with the type and dims of `like`.
Instruction* CountLike(OpContext& op, Instruction* like, Dim count, double less = 0);
Instruction* InverseCountLike(OpContext& op, Instruction* like, Dim count);

// Of the arguments of linalg_vector_norm: the sum of powers whose root the norm is.
Lowering PowerSum(OpContext& op);
// The sum of f32 or f64 values, as f64: as exact as one in f64, to about 2^-24 over the root of the count. What is converted is the
// sum of f32 vectors (passes/wide_sum.h), of few elements each element.
Instruction* WideSum(OpContext& op, Instruction* x, absl::Span<const int64_t> axes);
bool IsFew(Dim count);  // for WideSum

struct Moments {
  Instruction *mean, *variance;  // without the reduced dims
  Instruction* centered;         // x - mean, x's dims
};
// Two passes: the sum of squared differences from the mean, over count - correction.
Moments MeanAndVariance(OpContext& op, Instruction* x, absl::Span<const int64_t> axes, double correction);
// Of f32 or f64, in f64 by WideSum, as exact as ATen's f64 (Welford's and batch norm's): equal elements have no variance, and an
// offset of a thousand times the spread costs nothing.
Moments WideMeanAndVariance(OpContext& op, Instruction* x, absl::Span<const int64_t> axes, double correction);

}  // namespace tenon::aten
