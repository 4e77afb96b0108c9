// MatmulViews: a dot as products of matrices.
#pragma once

#include "absl/status/statusor.h"
#include "passes/memory/strided_view.h"

namespace tenon {

// Operands and result of a dot, each as a [batch,] rows, columns view.
struct MatmulViews {
  StridedView lhs, rhs, result;  // rank 3 if batched, else 2
  bool batched = false;
};
// Unimplemented if a group of dims doesn't merge into one stride or the dtypes differ.
absl::StatusOr<MatmulViews> MatmulViewsOf(const Instruction& dot, const StridedView& lhs, const StridedView& rhs,
                                          const StridedView& result);

}  // namespace tenon
