// StridedView: where a value lies in the buffer it is part of, in elements. What a view op does to it.
#pragma once

#include <optional>

#include "absl/container/node_hash_map.h"
#include "hlo/module.h"
#include "passes/memory/buffer_plan.h"

namespace tenon {

struct StridedView {
  BufferKey buffer;   // the leaf that owns the memory
  Dim offset = 0;     // elements from its lowest address
  DimVector dims, strides;
};

// Dense, the last dim fastest (strides of dims of one element aside).
bool IsRowMajor(const StridedView& view);

// A value that owns its buffer, dense in its shape's layout.
StridedView DenseView(BufferKey key, const Shape& shape);

// The result of a movement op (bitcast, reshape, transpose, slice, broadcast) as a view of `operand`, or nullopt if the elements
// cannot be reached with one stride per dim (or a comparison of symbolic sizes is unknown).
std::optional<StridedView> ApplyViewOp(const Instruction& op, const StridedView& operand);

// Strides of the same elements under other dims of equal row-major order (torch's computeStride). nullopt: a copy is needed.
std::optional<DimVector> ReshapeStrides(absl::Span<const Dim> dims, absl::Span<const Dim> strides,
                                        absl::Span<const Dim> new_dims);

// The layout of dims that lie densely with such strides; dims of one element, which may have any, stay beside the dim inside of them.
// nullopt: nobody knows in which order, the strides being expressions of which none is the product of the dims inside of it.
std::optional<Permutation> LayoutOfDense(absl::Span<const Dim> dims, absl::Span<const Dim> strides);

// The value as laid out by the layouts alone: through the chain of view ops up to the instruction that owns the buffer.
StridedView ViewByLayout(const Instruction* op);

// The same for many values of an unchanging computation, each looked at once (a chain of n views costs n steps, not n * n).
class ViewCache {
 public:
  const StridedView& Of(const Instruction* op);
  bool IsView(const Instruction& op);  // IsViewOp (passes/fusion/fused_form.h)

 private:
  absl::node_hash_map<const Instruction*, StridedView> views_;
};

// One dim for a group of dims (each varying faster than the one before it): its size and stride; nullopt if they don't merge.
// An empty group is (1, 0).
std::optional<std::pair<Dim, Dim>> MergeDims(const StridedView& view, absl::Span<const int64_t> group);

}  // namespace tenon
