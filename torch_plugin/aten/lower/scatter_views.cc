// Writes through views and masks, as values: diagonal_scatter, as_strided_scatter, masked_scatter, index_fill, diag_embed.
// Where the written elements follow from positions or a small mask, the result is a select, which fuses.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "torch_plugin/aten/lower/indexing.h"
#include "torch_plugin/aten/lower/scan.h"

namespace tenon::aten {
namespace {

using enum Opcode;
using PT = PrimitiveType;

// `x` with the diagonal of dims d1, d2 (column - row == offset) replaced by `source`, whose last dim is the diagonal and
// whose other dims are x's remaining ones.
Instruction* WithDiagonal(OpContext& op, Instruction* x, Instruction* source, int64_t offset, int64_t d1, int64_t d2) {
  Builder& b = op.b;
  const absl::Span<const Dim> dims = x->shape().dims();
  const int64_t last = Rank(source) - 1, length = source->shape().constant_dim(last), low = std::max<int64_t>(0, -offset);
  if (length == 0) return x;
  PaddingConfig padding{.dims = std::vector<PaddingDim>(Rank(source))};
  padding.dims[last] = {low, dims[d1].constant() - low - length, 0};
  Instruction* rows = b.Pad(source, op.Scalar(source->shape().element_type(), 0), padding);
  std::vector<int64_t> place;
  for (int64_t d = 0; d < Rank(x); ++d) {
    if (d != d1 && d != d2) place.push_back(d);
  }
  // Broadcast wants ascending dims: the diagonal goes where d1 lies among the others.
  const int64_t at = std::lower_bound(place.begin(), place.end(), d1) - place.begin();
  std::vector<int64_t> order(last);
  std::iota(order.begin(), order.end(), 0);
  order.insert(order.begin() + at, last);
  place.insert(place.begin() + at, d1);
  const Shape index(PT::kS64, dims);
  Instruction* row = b.Iota(index, d1);
  Instruction* on = b.Compare(b.Iota(index, d2), b.Binary(kAdd, row, b.FullLike(row, static_cast<double>(offset))), "EQ");
  return b.Select(on, b.Broadcast(b.Transpose(rows, order), dims, place), x);
}

Lowering FillIndices(OpContext& op, Instruction* value) {
  Builder& b = op.b;
  Instruction *x = op.tensor(0), *index = op.tensor(2);
  if (Rank(x) == 0) x = b.Reshape(x, {1});
  if (IsEmpty(index) || IsEmpty(x)) return Values{op.tensor(0)};
  const int64_t axis = op.axis(1, Rank(x));
  const Dim size = x->shape().dim(axis);
  index = b.Reshape(index, {index->shape().num_elements()});
  index = InRange(op, index, size,
                  {true, "IndexError", absl::StrCat("index out of bounds for dimension ", axis, " with size ", size.ToString())});
  Instruction* mask = b.Full(PT::kPred, {size}, 0);
  Instruction* hits = b.Full(PT::kPred, index->shape().dims(), 1);
  mask = Scatter(op, mask, index, hits, {0}, 1, {}, Combiner(op, PT::kPred, "add"));
  Instruction* spread = b.Broadcast(mask, x->shape().dims(), {axis});
  return op.One(b.Reshape(b.Select(spread, b.BroadcastTo(value, x->shape().dims()), x), op.result_dims()));
}

}  // namespace

// diagonal_scatter(self, src, offset, dim1, dim2)
Lowering LowerDiagonalScatter(OpContext& op) {
  Instruction* x = op.tensor(0);
  const int64_t rank = Rank(x);
  Instruction* source = op.b.Convert(op.tensor(1), op.result_type());
  return Values{WithDiagonal(op, x, source, op.integer_or(2, 0), op.axis(3, rank), op.axis(4, rank))};
}

// diagonal_backward(grad, input_sizes, offset, dim1, dim2)
Lowering LowerDiagonalBackward(OpContext& op) {
  Instruction* grad = op.tensor(0);
  const int64_t rank = static_cast<int64_t>(op.result_dims().size());
  Instruction* zeros = op.b.Full(op.result_type(), op.result_dims(), 0);
  return Values{WithDiagonal(op, zeros, grad, op.integer(2), op.axis(3, rank), op.axis(4, rank))};
}

// diag_embed(self, offset, dim1, dim2)
Lowering LowerDiagEmbed(OpContext& op) {
  Instruction* x = op.tensor(0);
  const int64_t rank = static_cast<int64_t>(op.result_dims().size());
  int64_t d1 = op.axis(2, rank), d2 = op.axis(3, rank), offset = op.integer_or(1, 0);
  Instruction* zeros = op.b.Full(op.result_type(), op.result_dims(), 0);
  return Values{WithDiagonal(op, zeros, x, offset, d1, d2)};
}

namespace {
// For each element of `mask`, the place of `given` things that are handed out in order where it is true; some place elsewhere.
Instruction* PlacesWhereTrue(OpContext& op, Instruction* upto, Dim given) {
  Builder& b = op.b;
  Instruction* place = b.Binary(kMaximum, b.Binary(kSubtract, upto, b.FullLike(upto, 1)), b.FullLike(upto, 0));
  return b.Binary(kMinimum, place, b.BroadcastTo(op.SizeValue(given - 1, PT::kS64), upto->shape().dims()));
}
}  // namespace

// masked_scatter(self, mask, source): the elements of `source` in order, where the mask is true.
Lowering LowerMaskedScatter(OpContext& op) {
  Builder& b = op.b;
  Instruction *mask = op.tensor(1), *source = op.tensor(2);
  if (mask->shape().element_type() != PT::kPred) return NotLowered("masked_scatter with a mask that is not bool");
  Instruction* x = b.BroadcastTo(op.tensor(0), op.result_dims());
  if (IsEmpty(op.result_dims())) return Values{x};
  const Dim count = x->shape().num_elements();
  mask = b.Reshape(b.BroadcastTo(mask, op.result_dims()), {count});
  const Dim given = source->shape().num_elements();
  const auto [upto, all] = RunningCount(op, mask);
  op.Check(b.Compare(all, op.SizeValue(given, PT::kS64), "GT"), "RuntimeError",
           "masked_scatter: Number of elements of source < number of ones in mask");
  if (KnownEqual(given, 0)) return Values{x};
  Instruction* read = Take(op, b.Reshape(source, {given}), PlacesWhereTrue(op, upto, given), 0);
  return Values{b.Reshape(b.Select(mask, read, b.Reshape(x, {count})), op.result_dims())};
}

Lowering PutMasked(OpContext& op, Instruction* mask, int64_t axis, bool accumulate) {
  Builder& b = op.b;
  Instruction *x = op.tensor(0), *values = b.Convert(op.tensor(2), op.result_type());
  if (IsEmpty(x)) return Values{x};
  if (mask->shape().element_type() != PT::kPred) mask = b.Compare(mask, b.FullLike(mask, 0), "NE");
  // The dim of the values that counts the elements where the mask is true; without one, or of one element, it is for all of them.
  const int64_t masked = Rank(mask), counted = Rank(values) - (Rank(x) - axis - masked) - 1;
  const Dim given = counted < 0 ? Dim(1) : values->shape().dim(counted);
  std::vector<Dim> value_dims = DimsOf(values);
  const bool one = KnownOne(given);
  if (!one) {
    const Dim count = mask->shape().num_elements();
    const auto [upto, all] = RunningCount(op, b.Reshape(mask, {count}));
    const std::string dims = absl::StrJoin(values->shape().dims(), ", ", absl::StreamFormatter());
    op.Check(b.Compare(all, op.SizeValue(given, PT::kS64), "NE"), "RuntimeError",
             absl::StrCat("shape mismatch: value tensor of shape [", dims,
                          "] cannot be broadcast to indexing result: the mask has another number of true elements than ",
                          given.ToString()));
    if (IsEmpty(values)) return Values{x};
    values = Take(op, values, PlacesWhereTrue(op, upto, given), counted);
  }
  if (counted >= 0) {  // a value for every place of the mask, or one
    value_dims.erase(value_dims.begin() + counted);
    for (int64_t d = 0; d < masked; ++d) value_dims.insert(value_dims.begin() + counted + d, one ? Dim(1) : mask->shape().dim(d));
    values = b.Reshape(values, value_dims);
  }
  values = b.BroadcastTo(values, op.result_dims());
  if (accumulate) values = b.Binary(op.result_type() == PT::kPred ? kOr : kAdd, x, values);
  std::vector<int64_t> at(masked);
  std::iota(at.begin(), at.end(), axis);
  return op.One(b.Select(b.Broadcast(mask, op.result_dims(), at), values, x));
}

// masked_scatter_backward(grad, mask, sizes): the gradient of `source`, 0 where nothing was read.
Lowering LowerMaskedScatterBackward(OpContext& op) {
  Builder& b = op.b;
  Instruction *grad = op.tensor(0), *mask = op.tensor(1);
  const Dim wanted = Shape(op.result_type(), op.result_dims()).num_elements();
  Instruction* zeros = b.Full(op.result_type(), {wanted}, 0);
  if (IsEmpty(grad) || KnownEqual(wanted, 0)) return Values{b.Reshape(zeros, op.result_dims())};
  const Dim count = grad->shape().num_elements();
  mask = b.Reshape(b.BroadcastTo(mask, grad->shape().dims()), {count});
  Instruction* upto = RunningCount(op, mask).first;
  Instruction* place = b.Binary(kSubtract, upto, b.FullLike(upto, 1));
  Instruction* outside = b.BroadcastTo(op.SizeValue(wanted, PT::kS64), upto->shape().dims());  // dropped
  place = b.Select(mask, place, outside);
  Instruction* sum = Scatter(op, zeros, place, b.Reshape(grad, {count}), {0}, 1, {}, Combiner(op, op.result_type(), ""));
  return Values{b.Reshape(sum, op.result_dims())};
}

// as_strided_scatter(self, src, size, stride, storage_offset): `self` as it lies in memory, src at its view's elements.
Lowering LowerAsStridedScatter(OpContext& op) {
  Builder& b = op.b;
  const Meta& base = op.meta(0);
  Instruction *x = op.tensor(0), *source = b.Convert(op.tensor(1), op.result_type());
  if (!x->shape().is_static() || !source->shape().is_static()) return NotLowered("as_strided of symbolic sizes");
  if (!IsDense(base)) return NotLowered("as_strided_scatter into a tensor with gaps");
  if (IsEmpty(source)) return Values{x};
  std::vector<int64_t> order(Rank(x)), back(Rank(x)), strides = op.integers(3);
  std::iota(order.begin(), order.end(), 0);
  if (const Permutation layout = LayoutOf(base); !layout.empty()) order.assign(layout.rbegin(), layout.rend());
  for (int64_t d = 0; d < Rank(x); ++d) back[order[d]] = d;
  x = b.Transpose(x, order);
  const std::vector<Dim> in_memory = DimsOf(x);
  const Dim count = x->shape().num_elements();
  const int64_t start = (op.is_none(4) ? base.offset.constant() : op.integer(4)) - base.offset.constant();
  int64_t last = start;
  for (int64_t d = 0; d < Rank(source); ++d) last += (source->shape().constant_dim(d) - 1) * strides[d];
  if (start < 0 || last >= count.constant()) return NotLowered("as_strided_scatter beyond its base");
  Instruction* index = b.Full(PT::kS64, source->shape().dims(), static_cast<double>(start));
  for (int64_t d = 0; d < Rank(source); ++d) {
    Instruction* i = b.Iota(Shape(PT::kS64, source->shape().dims()), d);
    index = b.Binary(kAdd, index, b.Binary(kMultiply, i, b.FullLike(i, static_cast<double>(strides[d]))));
  }
  x = Scatter(op, b.Reshape(x, {count}), index, source, {0}, Rank(source), {}, Combiner(op, op.result_type(), ""));
  return Values{b.Transpose(b.Reshape(x, in_memory), back)};
}

// index_fill(self, dim, index, value)
Lowering LowerIndexFillScalar(OpContext& op) { return FillIndices(op, op.NumberConstant(op.arg(3), op.result_type())); }
Lowering LowerIndexFillTensor(OpContext& op) { return FillIndices(op, op.b.Convert(op.tensor(3), op.result_type())); }

}  // namespace tenon::aten
