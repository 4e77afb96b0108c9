// Movement: views, copies, concatenation. Views of ATen are HLO movement ops; the meta's strides give the layout.
#include <algorithm>
#include <numeric>

#include "torch_plugin/aten/lower/indexing.h"

namespace tenon::aten {
namespace {

using enum Opcode;
using PT = PrimitiveType;


Lowering ToResultDims(OpContext& op) { return op.One(op.b.Reshape(op.tensor(0), op.result_dims())); }

std::vector<int64_t> Identity(int64_t rank) {
  std::vector<int64_t> p(rank);
  std::iota(p.begin(), p.end(), 0);
  return p;
}

Lowering SwapDims(OpContext& op, int64_t a, int64_t b) {
  std::vector<int64_t> p = Identity(Rank(op.tensor(0)));
  if (p.empty()) return Values{op.tensor(0)};
  std::swap(p[a], p[b]);
  return Values{op.b.Transpose(op.tensor(0), p)};
}

// Python's slice bounds: negative ones count from the end, then both are clamped into [0, size].
Dim WrapBound(Dim bound, Dim size) {
  if (bound.is_constant() && size.is_constant()) {
    int64_t v = bound.constant(), n = size.constant();
    return std::clamp<int64_t>(v < 0 ? v + n : v, 0, n);
  }
  if (Less(bound, 0) == Ternary::kYes) bound = bound + size;
  return Max(0, Min(bound, size));
}

struct SliceRange {
  Dim start, limit;
  int64_t step;
};
SliceRange RangeOf(OpContext& op, int64_t at, Dim size) {
  SliceRange r;
  r.start = WrapBound(op.is_none(at) ? Dim(0) : op.dim(at), size);
  r.limit = WrapBound(op.is_none(at + 1) ? size : op.dim(at + 1), size);
  r.limit = Max(r.start, r.limit);
  r.step = op.integer_or(at + 2, 1);
  return r;
}

// Replaces positions start, start + step, ... of dim `axis` by `source` (same dims there).
Instruction* ReplaceSlice(OpContext& op, Instruction* x, Instruction* source, int64_t axis, SliceRange r) {
  Builder& b = op.b;
  const Dim size = x->shape().dim(axis);
  if (r.step == 1) {
    std::vector<Instruction*> parts;
    if (!KnownEqual(r.start, 0)) parts.push_back(b.SliceDim(x, axis, 0, r.start));
    parts.push_back(source);
    if (!KnownEqual(r.limit, size)) parts.push_back(b.SliceDim(x, axis, r.limit, size));
    return parts.size() == 1 ? source : b.Concatenate(parts, axis);
  }
  const Dim count = source->shape().dim(axis);
  const int64_t start = r.start.constant();
  if (KnownEqual(count, 0)) return x;
  // Behind the last element as much as there is; of symbolic sizes, which end with the range, a whole step, cut to what there is.
  const Dim rest = size - start - ((count - 1) * Dim(r.step) + 1);
  PaddingConfig padding{.dims = std::vector<PaddingDim>(Rank(x))};
  padding.dims[axis] = {start, rest.constant_or(r.step - 1), r.step - 1};
  auto spread = [&](Instruction* values, Instruction* between) {
    Instruction* padded = b.Pad(values, between, padding);
    return rest.is_constant() ? padded : b.SliceDim(padded, axis, 0, size);
  };
  Instruction* flags = b.Full(PT::kPred, source->shape().dims(), 1);
  return b.Select(spread(flags, op.Scalar(PT::kPred, 0)), spread(source, op.Scalar(x->shape().element_type(), 0)), x);
}

Instruction* SelectIndex(OpContext& op, Instruction* x, int64_t axis, Dim index) {
  const Dim size = x->shape().dim(axis);
  if (Less(index, 0) == Ternary::kYes) index = index + size;
  return op.b.SliceDim(x, axis, index, index + 1);
}

Instruction* Unsqueeze(OpContext& op, Instruction* x, int64_t axis) {
  std::vector<Dim> dims = DimsOf(x);
  dims.insert(dims.begin() + axis, 1);
  return op.b.Reshape(x, dims);
}

Lowering SplitAt(OpContext& op, const std::vector<Dim>& sizes, int64_t axis) {
  Values parts;
  Dim start = 0;
  for (int64_t k = 0; k < op.result_count(); ++k) {
    const Dim size = k < static_cast<int64_t>(sizes.size()) ? sizes[k] : sizes.back();
    parts.push_back(op.b.SliceDim(op.tensor(0), axis, start, start + size));
    start += size;
  }
  return parts;
}

// A value flattened in the order of its memory: row-major of the meta's dense layout.
Instruction* FlattenInMemoryOrder(OpContext& op, Instruction* x, const Meta& meta) {
  Permutation layout = LayoutOf(meta);
  if (!layout.empty()) {
    std::vector<int64_t> outer_to_inner(layout.rbegin(), layout.rend());
    x = op.b.Transpose(x, outer_to_inner);
  }
  Dim count = 1;
  for (Dim d : meta.sizes) count *= d;
  return op.b.Reshape(x, {count});
}

// A strided view of a flat buffer. Nested strides (each a multiple of the inner ones' extent) are slices and reshapes;
// others (overlapping windows) an indexed read whose indices are computed from iotas.
class StridedView {
 public:
  StridedView(OpContext& op, Instruction* flat, std::vector<int64_t> sizes, std::vector<int64_t> strides, int64_t offset)
      : op_(op), b_(op.b), flat_(flat), sizes_(std::move(sizes)), strides_(std::move(strides)), offset_(offset) {}

  Instruction* Make() {
    std::vector<int64_t> order;  // outermost in memory first; dims that don't move in memory are broadcast at the end
    for (size_t d = 0; d < sizes_.size(); ++d) {
      if (sizes_[d] != 1 && strides_[d] != 0) order.push_back(static_cast<int64_t>(d));
    }
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return strides_[a] > strides_[b]; });
    for (size_t i = 0; i + 1 < order.size(); ++i) {
      const int64_t outer = strides_[order[i]], inner = strides_[order[i + 1]] * sizes_[order[i + 1]];
      if (outer % strides_[order[i + 1]] != 0 || inner > outer) return ByIndex();
    }
    return ByReshape(order);
  }

  static int64_t Extent(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
    int64_t last = 0;
    for (size_t d = 0; d < sizes.size(); ++d) last += (sizes[d] - 1) * strides[d];
    return last + 1;
  }

 private:
  Instruction* ByReshape(const std::vector<int64_t>& order) {
    // Invariant: x's last dim holds what is left of one element of the dims so far, in memory order.
    Instruction* x = b_.SliceDim(flat_, 0, offset_, offset_ + Extent(sizes_, strides_));
    std::vector<Dim> dims;
    for (int64_t d : order) {
      const int64_t stride = strides_[d], whole = sizes_[d] * stride, have = x->shape().dim(Rank(x) - 1).constant();
      if (have < whole) {
        PaddingConfig padding{.dims = std::vector<PaddingDim>(Rank(x))};
        padding.dims.back().high = whole - have;
        x = b_.Pad(x, op_.Scalar(x->shape().element_type(), 0), padding);
      } else if (have > whole) {
        x = b_.SliceDim(x, Rank(x) - 1, 0, whole);
      }
      dims.push_back(sizes_[d]);
      std::vector<Dim> split = dims;
      split.push_back(stride);
      x = b_.Reshape(x, split);
    }
    x = b_.SliceDim(x, Rank(x) - 1, 0, 1);
    x = b_.Reshape(x, dims);
    return b_.Broadcast(x, ResultDims(), order);
  }

  Instruction* ByIndex() {
    const std::vector<Dim> dims = ResultDims();
    Instruction* index = b_.Full(PT::kS64, dims, static_cast<double>(offset_));
    for (size_t d = 0; d < sizes_.size(); ++d) {
      Instruction* i = b_.Iota(Shape(PT::kS64, dims), static_cast<int64_t>(d));
      index = b_.Binary(kAdd, index, b_.Binary(kMultiply, i, b_.FullLike(i, static_cast<double>(strides_[d]))));
    }
    Attributes attrs;
    attrs.set(Attr::kOffsetDims, std::vector<int64_t>{});
    attrs.set(Attr::kCollapsedSliceDims, std::vector<int64_t>{0});
    attrs.set(Attr::kStartIndexMap, std::vector<int64_t>{0});
    attrs.set(Attr::kIndexVectorDim, static_cast<int64_t>(sizes_.size()));
    attrs.set(Attr::kSliceSizes, std::vector<Dim>{1});
    return b_.Make(kGather, {flat_, index}, std::move(attrs));
  }

  std::vector<Dim> ResultDims() const { return {sizes_.begin(), sizes_.end()}; }

  OpContext& op_;
  Builder& b_;
  Instruction* flat_;
  std::vector<int64_t> sizes_, strides_;
  int64_t offset_;
};

// Keeps elements with column - row <= diagonal (lower) or >= diagonal.
Lowering Triangle(OpContext& op, bool lower) {
  Instruction* x = op.tensor(0);
  Builder& b = op.b;
  const Shape index(PT::kS64, x->shape().dims());
  Instruction* row = b.Iota(index, Rank(x) - 2);
  Instruction* column = b.Iota(index, Rank(x) - 1);
  Instruction* shifted = b.Binary(kAdd, row, b.FullLike(row, static_cast<double>(op.integer_or(1, 0))));
  return op.One(b.Select(b.Compare(column, shifted, lower ? "LE" : "GE"), x, op.Full(x, 0)));
}

}  // namespace

Lowering LowerView(OpContext& op) { return ToResultDims(op); }
Lowering LowerAlias(OpContext& op) { return Values{op.tensor(0)}; }
// A copy in ATen's sense; values in HLO need none. The result's layout is the meta's.
Lowering LowerClone(OpContext& op) { return Values{op.tensor(0)}; }
Lowering LowerConvert(OpContext& op) { return Values{op.Cast(op.tensor(0), op.result_type())}; }
Lowering LowerCopyFrom(OpContext& op) { return Values{op.b.BroadcastTo(op.Cast(op.tensor(1), op.result_type()), op.result_dims())}; }
Lowering LowerViewDtype(OpContext& op) {
  // HLO joins or splits elements along a dim of their own, the last one.
  Builder& b = op.b;
  Instruction* x = op.tensor(0);
  std::vector<Dim> dims = op.result_dims();
  PT type = op.result_type();
  if (IsComplex(type)) {
    type = ComplexComponent(type);
    if (!dims.empty()) dims.back() = dims.back() * 2;
  }
  if (op.result_type() == op.meta(0).dtype) return Values{x};
  if (dims.empty() && IsComplex(op.result_type())) return NotLowered("a scalar seen as a complex number");
  if (IsComplex(op.meta(0).dtype)) {  // its parts side by side in the last dim, as they lie in memory
    std::vector<Dim> parts(x->shape().dims().begin(), x->shape().dims().end());
    parts.back() = parts.back() * 2;
    x = b.Reshape(AsPairs(b, x), parts);
  }
  // A bool is a byte of 0 or 1; a byte read as a bool is true unless it is 0.
  if (op.meta(0).dtype == PT::kPred) x = b.Convert(x, PT::kU8);
  if (type == PT::kPred) type = PT::kU8;
  const int64_t from = BitWidth(x->shape().element_type()), to = BitWidth(type);
  if (from < to) {
    std::vector<Dim> split = dims;
    split.push_back(to / from);
    x = b.Reshape(x, split);
  }
  x = b.Reshape(b.BitcastConvert(x, type), dims);
  if (IsComplex(op.result_type())) {
    std::vector<Dim> pairs = op.result_dims();
    pairs.push_back(2);
    x = OfPairs(b, b.Reshape(x, pairs));
  }
  return Values{op.result_type() == PT::kPred ? b.Compare(x, op.Full(x, 0), "NE") : x};
}

Lowering LowerPermute(OpContext& op) {
  const int64_t rank = Rank(op.tensor(0));
  std::vector<int64_t> p = op.integers(1);
  for (int64_t& d : p) d += d < 0 ? rank : 0;
  return Values{op.b.Transpose(op.tensor(0), p)};
}
Lowering LowerTranspose(OpContext& op) {
  const int64_t rank = Rank(op.tensor(0));
  return SwapDims(op, op.axis(1, rank), op.axis(2, rank));
}
Lowering LowerT(OpContext& op) {
  if (Rank(op.tensor(0)) < 2) return Values{op.tensor(0)};
  return SwapDims(op, 0, 1);
}
Lowering LowerExpand(OpContext& op) { return Values{op.b.BroadcastTo(op.tensor(0), op.result_dims())}; }

Lowering LowerSlice(OpContext& op) {
  Instruction* x = op.tensor(0);
  const int64_t axis = op.axis(1, Rank(x));
  const Dim size = x->shape().dim(axis);
  SliceRange r = RangeOf(op, 2, size);
  if (const Dim length = op.result_dims()[axis]; r.step == 1 && !length.is_constant()) r.limit = r.start + length;
  if (KnownEqual(r.start, 0) && KnownEqual(r.limit, size) && r.step == 1) return Values{x};
  return Values{op.b.SliceDim(x, axis, r.start, r.limit, r.step)};
}
Lowering LowerSelect(OpContext& op) {
  Instruction* x = op.tensor(0);
  return op.One(op.b.Reshape(SelectIndex(op, x, op.axis(1, Rank(x)), op.dim(2)), op.result_dims()));
}
Lowering LowerSliceScatter(OpContext& op) {
  Instruction* x = op.tensor(0);
  const int64_t axis = op.axis(2, Rank(x));
  const Dim size = x->shape().dim(axis);
  SliceRange r = RangeOf(op, 3, size);
  Instruction* source = op.b.Convert(op.tensor(1), op.result_type());
  if (r.step != 1 && !size.is_constant() && !(r.start.is_constant() && KnownEqual(r.limit, size))) {
    return NotLowered("a part of a symbolic size, with a step");
  }
  std::vector<Dim> dims = DimsOf(x);
  dims[axis] = r.step == 1 ? r.limit - r.start : CeilDiv(r.limit - r.start, r.step);
  if (KnownEqual(dims[axis], 0)) return Values{x};
  return op.One(ReplaceSlice(op, x, op.b.BroadcastTo(source, dims), axis, r));
}
Lowering LowerSelectScatter(OpContext& op) {
  Instruction* x = op.tensor(0);
  const int64_t axis = op.axis(2, Rank(x));
  Dim index = op.dim(3);
  if (Less(index, 0) == Ternary::kYes) index = index + x->shape().dim(axis);
  Instruction* source = Unsqueeze(op, op.b.Convert(op.tensor(1), op.result_type()), axis);
  return op.One(ReplaceSlice(op, x, source, axis, {index, index + 1, 1}));
}

Lowering LowerSplitWithSizes(OpContext& op) { return SplitAt(op, op.dims(1), op.axis(2, Rank(op.tensor(0)))); }
Lowering LowerSplit(OpContext& op) {
  // The last part may be smaller: take the sizes from the metas.
  const int64_t axis = op.axis(2, Rank(op.tensor(0)));
  std::vector<Dim> sizes;
  for (int64_t k = 0; k < op.result_count(); ++k) sizes.push_back(op.result_dims(k)[axis]);
  return SplitAt(op, sizes, axis);
}
Lowering LowerUnbind(OpContext& op) {
  Instruction* x = op.tensor(0);
  const int64_t axis = op.axis(1, Rank(x));
  Values parts;
  for (int64_t k = 0; k < op.result_count(); ++k) {
    parts.push_back(op.b.Reshape(SelectIndex(op, x, axis, k), op.result_dims(k)));
  }
  return parts;
}

Lowering LowerCat(OpContext& op) {
  std::vector<Instruction*> parts;
  const int64_t rank = static_cast<int64_t>(op.result_dims().size());
  const int64_t axis = op.is_none(1) ? 0 : op.axis(1, rank);
  for (Instruction* x : op.tensors(0)) {
    // ATen skips legacy empty tensors of shape [0] whatever the rank of the others.
    if (Rank(x) != rank || KnownEqual(x->shape().dim(axis), 0)) continue;
    parts.push_back(op.b.Convert(x, op.result_type()));
  }
  if (parts.empty()) return op.One(op.b.Full(op.result_type(), op.result_dims(), 0));
  if (parts.size() == 1) return Values{parts[0]};
  return Values{op.b.Concatenate(parts, axis)};
}
Lowering LowerStack(OpContext& op) {
  std::vector<Instruction*> parts;
  const int64_t axis = op.is_none(1) ? 0 : op.axis(1, static_cast<int64_t>(op.result_dims().size()));
  for (Instruction* x : op.tensors(0)) parts.push_back(Unsqueeze(op, op.b.Convert(x, op.result_type()), axis));
  if (parts.size() == 1) return Values{parts[0]};
  return Values{op.b.Concatenate(parts, axis)};
}

Lowering LowerFlip(OpContext& op) {
  Instruction* x = op.tensor(0);
  std::vector<int64_t> axes = op.integers(1);
  for (int64_t& d : axes) d += d < 0 ? Rank(x) : 0;
  if (axes.empty() || Rank(x) == 0) return Values{x};
  std::sort(axes.begin(), axes.end());
  return Values{op.b.Reverse(x, axes)};
}
Lowering LowerRoll(OpContext& op) {
  Instruction* x = op.tensor(0);
  std::vector<int64_t> shifts = op.integers(1), axes = op.is_none(2) ? std::vector<int64_t>{} : op.integers(2);
  Builder& b = op.b;
  if (axes.empty()) {
    axes = {0};
    x = b.Reshape(x, {x->shape().num_elements()});
  }
  for (size_t k = 0; k < axes.size(); ++k) {
    const int64_t axis = axes[k] < 0 ? axes[k] + Rank(x) : axes[k];
    const int64_t n = x->shape().dim(axis).constant();
    if (n == 0) continue;
    const int64_t shift = ((shifts[k] % n) + n) % n;
    if (shift == 0) continue;
    Instruction *tail = b.SliceDim(x, axis, n - shift, n), *head = b.SliceDim(x, axis, 0, n - shift);
    Instruction* both[] = {tail, head};
    x = b.Concatenate(both, axis);
  }
  return op.One(b.Reshape(x, op.result_dims()));
}
Lowering LowerRepeat(OpContext& op) {
  Instruction* x = op.tensor(0);
  const std::vector<Dim> repeats = op.dims(1);
  const int64_t extra = static_cast<int64_t>(repeats.size()) - Rank(x);
  std::vector<Dim> dims;          // [r0, d0, r1, d1, ...]
  std::vector<int64_t> position;  // of x's dims in it
  for (size_t k = 0; k < repeats.size(); ++k) {
    dims.push_back(repeats[k]);
    if (static_cast<int64_t>(k) < extra) continue;
    position.push_back(static_cast<int64_t>(dims.size()));
    dims.push_back(x->shape().dim(static_cast<int64_t>(k) - extra));
  }
  return op.One(op.b.Reshape(op.b.Broadcast(x, dims, position), op.result_dims()));
}

Lowering LowerAsStrided(OpContext& op) {
  const Meta& base = op.meta(0);
  std::vector<int64_t> sizes = op.integers(1), strides = op.integers(2);
  const int64_t base_offset = base.offset.constant();
  const int64_t offset = (op.is_none(3) ? base_offset : op.integer(3)) - base_offset;
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) {
    return op.One(op.b.Full(op.result_type(), op.result_dims(), 0));
  }
  const int64_t extent = offset + StridedView::Extent(sizes, strides);
  if (offset < 0) return absl::UnimplementedError("as_strided starts before its base");
  Instruction* flat = nullptr;
  if (op.tensor(0)->opcode() == kParameter && op.graph().values[op.value_id(0)].node < 0) {
    const auto& inputs = op.graph().inputs;
    if (std::find(inputs.begin(), inputs.end(), op.value_id(0)) != inputs.end()) flat = op.FlatInput(op.value_id(0), extent);
  }
  if (flat == nullptr) {
    if (!IsDense(base)) return absl::FailedPreconditionError("as_strided of a value with gaps");
    flat = FlattenInMemoryOrder(op, op.tensor(0), base);
    if (extent > flat->shape().dim(0).constant()) return absl::FailedPreconditionError("as_strided beyond its base");
  }
  return Values{StridedView(op, flat, std::move(sizes), std::move(strides), offset).Make()};
}

// diagonal(offset, dim1, dim2): with a run of rows of length n + 1 flattened, the diagonal is a column.
Lowering LowerDiagonal(OpContext& op) {
  Instruction* x = op.tensor(0);
  Builder& b = op.b;
  const int64_t rank = Rank(x), d1 = op.axis(2, rank), d2 = op.axis(3, rank), offset = op.integer_or(1, 0);
  std::vector<int64_t> order;
  for (int64_t d = 0; d < rank; ++d) {
    if (d != d1 && d != d2) order.push_back(d);
  }
  order.push_back(d1);
  order.push_back(d2);
  x = b.Transpose(x, order);
  const int64_t length = op.result_dims().back().constant();
  if (length == 0) return op.One(b.Full(op.result_type(), op.result_dims(), 0));
  const int64_t row = std::max<int64_t>(0, -offset), column = std::max<int64_t>(0, offset);
  x = b.SliceDim(b.SliceDim(x, rank - 2, row, row + length), rank - 1, column, column + length);
  const Shape index(PT::kS64, x->shape().dims());
  Instruction* on = b.Compare(b.Iota(index, rank - 2), b.Iota(index, rank - 1), "EQ");
  const PT type = op.result_type();
  const PT carrier = type == PT::kPred ? PT::kS32 : type;
  Instruction* kept = b.Select(on, b.Convert(x, carrier), b.Full(carrier, x->shape().dims(), 0));
  // Exactly one element of each row is on the diagonal, so the sum is that element.
  return op.One(b.Reduce(kept, op.Scalar(carrier, 0), {rank - 1}, kAdd));
}

// pixel_shuffle(r): [.., C r r, H, W] -> [.., C, H r, W r]; pixel_unshuffle goes back.
namespace {
Lowering Shuffle(OpContext& op, bool down) {
  Instruction* x = op.tensor(0);
  const int64_t lead = Rank(x) - 3, r = op.integer(1);
  const Dim c = x->shape().dim(lead), h = x->shape().dim(lead + 1), w = x->shape().dim(lead + 2);
  std::vector<Dim> dims(x->shape().dims().begin(), x->shape().dims().begin() + lead);
  std::vector<int64_t> order = Identity(lead + 5);
  const std::initializer_list<Dim> up_dims = {FloorDiv(c, r * r), r, r, h, w};
  const std::initializer_list<Dim> down_dims = {c, FloorDiv(h, r), r, FloorDiv(w, r), r};
  dims.insert(dims.end(), down ? down_dims : up_dims);
  const int64_t up_order[] = {0, 3, 1, 4, 2}, down_order[] = {0, 2, 4, 1, 3};
  for (int64_t k = 0; k < 5; ++k) order[lead + k] = lead + (down ? down_order[k] : up_order[k]);
  return Values{op.b.Reshape(op.b.Transpose(op.b.Reshape(x, dims), order), op.result_dims())};
}
}  // namespace
Lowering LowerPixelShuffle(OpContext& op) { return Shuffle(op, false); }
Lowering LowerPixelUnshuffle(OpContext& op) { return Shuffle(op, true); }

Lowering LowerTril(OpContext& op) { return Triangle(op, true); }
Lowering LowerTriu(OpContext& op) { return Triangle(op, false); }

}  // namespace tenon::aten
