// Indexed reads and writes that several families use.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "torch_plugin/aten/lower/op_context.h"

namespace tenon::aten {

std::vector<Dim> DimsOf(const Instruction* x);
bool IsEmpty(absl::Span<const Dim> dims);  // a dim is 0
inline bool IsEmpty(const Instruction* x) { return IsEmpty(x->shape().dims()); }
inline bool IsEmpty(const Instruction* x, int64_t axis) { return KnownEqual(x->shape().dim(axis), 0); }

// What eager says of an index out of range.
struct IndexRule {
  bool negative = false;  // -1 means the last element
  const char* exception = "IndexError";
  std::string message;
};
// `index` (any integer dtype) as s64, checked against [0, size) (or [-size, size)) unless that is proved, negative ones
// wrapped.
Instruction* InRange(OpContext& op, Instruction* index, Dim size, const IndexRule& rule);

// x[..., index, ...] along `axis`: x's dims with dim `axis` replaced by index's dims.
Instruction* Take(OpContext& op, Instruction* x, Instruction* index, int64_t axis);

// x[..., index[..., i, ...], ...]: `index`, in range, has x's rank and may be smaller in any dim (torch.gather).
Instruction* TakeAlong(OpContext& op, Instruction* x, Instruction* index, int64_t axis);

// An index of dims `dims` that is the same along the dims `repeated`: `index` has the others.
struct RepeatedIndex {
  Instruction* index;
  std::vector<int64_t> repeated;
  std::vector<Dim> dims;
};
// What an expanded index is made from: then whole rows are read or written, not elements.
RepeatedIndex Unrepeated(Instruction* index, int64_t axis);
Instruction* TakeAlong(OpContext& op, Instruction* x, const RepeatedIndex& at, int64_t axis);

// Index tensors of equal dims stacked in a new last dim; one alone is itself.
Instruction* StackIndices(OpContext& op, const std::vector<Instruction*>& indices);

// "add"/"sum", "prod"/"multiply", "amax", "amin" as a scalar computation; any other text: the last one wins.
Computation* Combiner(OpContext& op, PrimitiveType type, std::string_view reduce);

// x with updates combined at index vectors (their dim is `index_rank`; a plain index tensor has one dim fewer). Update
// dims: the index dims, and at `window_dims` x's dims that are not indexed.
Instruction* Scatter(OpContext& op, Instruction* x, Instruction* index, Instruction* updates, std::vector<int64_t> indexed_axes,
                     int64_t index_rank, std::vector<int64_t> window_dims, Computation* combine);

// index_put(self, [.., mask, ..], values) with no other index: `mask` covers self's dims from `axis` on. Not in place.
Lowering PutMasked(OpContext& op, Instruction* mask, int64_t axis, bool accumulate);

}  // namespace tenon::aten
