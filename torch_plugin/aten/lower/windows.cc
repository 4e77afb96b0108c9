// Windows of dims laid out as dims of their own, and back: unfold, im2col, col2im.
#include <algorithm>

#include "torch_plugin/aten/lower/indexing.h"
#include "torch_plugin/aten/lower/taps.h"

namespace tenon::aten {
namespace {

// Moves dim `from` so that it becomes dim `to`.
Instruction* MoveDim(OpContext& op, Instruction* x, int64_t from, int64_t to) {
  std::vector<int64_t> order;
  for (int64_t d = 0; d < Rank(x); ++d) {
    if (d != from) order.push_back(d);
  }
  order.insert(order.begin() + to, from);
  return op.b.Transpose(x, order);
}

// One dim of im2col: out positions of a kernel of `kernel` elements.
struct Sliding {
  int64_t kernel, dilation, padding, stride, in;
  int64_t out() const { return (in + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1; }
  int64_t at(int64_t o, int64_t k) const { return o * stride - padding + k * dilation; }
};

// Arguments kernel_size, dilation, padding, stride from position `at`.
std::vector<Sliding> SlidingOf(OpContext& op, int64_t at, const std::vector<int64_t>& in) {
  std::vector<Sliding> s;
  auto value = [&](int64_t i, int64_t d) {
    const std::vector<int64_t> v = op.integers(i);
    return v[std::min<size_t>(d, v.size() - 1)];
  };
  for (int64_t d = 0; d < 2; ++d) s.push_back({value(at, d), value(at + 1, d), value(at + 2, d), value(at + 3, d), in[d]});
  return s;
}

// `windows` windows of `size` elements of dim `axis`, one every `step`, which becomes two dims: one address for each.
Instruction* Windows(OpContext& op, Instruction* x, int64_t axis, Dim windows, int64_t size, int64_t step) {
  Builder& b = op.b;
  Instruction* start = b.Iota(Shape(PrimitiveType::kS64, {windows}), 0);
  start = b.Binary(Opcode::kMultiply, start, b.FullLike(start, static_cast<double>(step)));
  std::vector<int64_t> offset;
  for (int64_t d = 0; d < Rank(x); ++d) offset.push_back(d < axis ? d : d + 1);
  std::vector<Dim> sizes = DimsOf(x);
  sizes[axis] = size;
  Attributes attrs;
  attrs.set(Attr::kOffsetDims, std::move(offset));
  attrs.set(Attr::kCollapsedSliceDims, std::vector<int64_t>{});
  attrs.set(Attr::kStartIndexMap, std::vector<int64_t>{axis});
  attrs.set(Attr::kIndexVectorDim, int64_t{1});
  attrs.set(Attr::kSliceSizes, std::move(sizes));
  return b.Make(Opcode::kGather, {x, start}, std::move(attrs));
}

}  // namespace

// unfold(self, dim, size, step): windows of one dim, the window's elements in a new last dim.
Lowering LowerUnfold(OpContext& op) {
  Instruction* x = op.tensor(0);
  const int64_t size = op.integer(2), step = op.integer(3);
  if (Rank(x) == 0) return op.One(op.b.BroadcastTo(op.b.Reshape(x, {1}), op.result_dims()));
  const int64_t axis = op.axis(1, Rank(x));
  const Dim windows = op.result_dims()[axis];
  constexpr int64_t kSlices = 64;  // a slice for each element of the window
  if (size == 0 || KnownEqual(windows, 0)) return op.One(op.b.Full(op.result_type(), op.result_dims(), 0));
  if (size > kSlices) return Values{MoveDim(op, Windows(op, x, axis, windows, size, step), axis + 1, Rank(x))};
  std::vector<Instruction*> parts;
  for (int64_t k = 0; k < size; ++k) {
    Instruction* s = op.b.SliceDim(x, axis, k, Dim(k) + (windows - 1) * step + 1, step);
    std::vector<Dim> dims = DimsOf(s);
    dims.push_back(1);
    parts.push_back(op.b.Reshape(s, dims));
  }
  return Values{parts.size() == 1 ? parts[0] : op.b.Concatenate(parts, Rank(x))};
}

// unfold_backward(grad, input_sizes, dim, size, step): each element sums the windows over it, in ascending order. ATen's kernel repeats a
// gradient of one element along the other dims, and istft() asks that of it.
Lowering LowerUnfoldBackward(OpContext& op) {
  Builder& b = op.b;
  Instruction* grad = b.Convert(op.tensor(0), OpMath(op.result_type()));
  const int64_t rank = static_cast<int64_t>(op.result_dims().size()), size = op.integer(3), step = op.integer(4);
  if (op.dims(1).size() != op.result_dims().size()) return NotLowered("unfold: sizes of another rank");
  if (rank == 0) return op.One(b.Reshape(grad, {}));
  const int64_t axis = op.axis(2, rank);
  if (IsEmpty(grad)) return op.One(b.Full(op.result_type(), op.result_dims(), 0));
  const int64_t windows = grad->shape().constant_dim(axis), extent = op.result_dims()[axis].constant();
  std::vector<Dim> all = op.result_dims();
  all[axis] = windows;
  all.emplace_back(size);
  bool fits = Rank(grad) == rank + 1 && (windows - 1) * step + size <= extent;
  for (int64_t d = 0; fits && d <= rank; ++d) fits = KnownOne(grad->shape().dim(d)) || KnownEqual(grad->shape().dim(d), all[d]);
  if (!fits) return NotLowered("unfold: a gradient of other windows");
  grad = b.BroadcastTo(grad, all);
  Taps taps{.in = windows * size};
  taps.rows.resize(extent);
  for (int64_t w = 0; w < windows; ++w) {
    for (int64_t k = 0; k < size; ++k) taps.rows[w * step + k].emplace_back(w * size + k, 1);
  }
  all.pop_back();
  all[axis] = windows * size;
  return op.One(ApplyTaps(op, b.Reshape(MoveDim(op, grad, rank, axis + 1), all), axis, taps));
}

// im2col(self [N, C, H, W], kernel_size, dilation, padding, stride) -> [N, C kh kw, oh ow]; N may be missing.
Lowering LowerIm2col(OpContext& op) {
  Builder& b = op.b;
  Instruction* x = op.tensor(0);
  if (IsEmpty(op.result_dims())) return op.One(b.Full(op.result_type(), op.result_dims(), 0));
  const int64_t lead = Rank(x) - 2;
  const std::vector<Sliding> s = SlidingOf(op, 1, {x->shape().constant_dim(lead), x->shape().constant_dim(lead + 1)});
  PaddingConfig padding{.dims = std::vector<PaddingDim>(Rank(x))};
  for (int64_t d = 0; d < 2; ++d) padding.dims[lead + d] = {s[d].padding, s[d].padding, 0};
  if (s[0].padding != 0 || s[1].padding != 0) x = b.Pad(x, op.Scalar(op.result_type(), 0), padding);
  for (int64_t d = 1; d >= 0; --d) {  // [.., kh, oh, kw, ow]
    Taps taps{.in = x->shape().constant_dim(lead + d)};
    for (int64_t k = 0; k < s[d].kernel; ++k) {
      auto& row = taps.rows.emplace_back();
      for (int64_t o = 0; o < s[d].out(); ++o) row.emplace_back(s[d].at(o, k) + s[d].padding, 1);
    }
    x = TakeRows(op, x, lead + d, taps);
  }
  return op.One(b.Reshape(MoveDim(op, x, lead + 2, lead + 1), op.result_dims()));
}

// col2im(self [N, C kh kw, oh ow], output_size, kernel_size, dilation, padding, stride) -> [N, C, H, W]; N may be missing.
Lowering LowerCol2im(OpContext& op) {
  Builder& b = op.b;
  Instruction* x = b.Convert(op.tensor(0), OpMath(op.result_type()));
  if (IsEmpty(op.result_dims()) || IsEmpty(x)) return op.One(b.Full(op.result_type(), op.result_dims(), 0));
  const int64_t lead = static_cast<int64_t>(op.result_dims().size()) - 2;
  const std::vector<Sliding> s = SlidingOf(op, 2, op.integers(1));
  std::vector<Dim> dims(op.result_dims().begin(), op.result_dims().begin() + lead);
  dims.insert(dims.end(), {s[0].kernel, s[1].kernel, s[0].out(), s[1].out()});
  x = MoveDim(op, b.Reshape(x, dims), lead + 2, lead + 1);  // [.., kh, oh, kw, ow]
  dims.resize(lead);
  dims.insert(dims.end(), {s[0].kernel * s[0].out(), s[1].kernel * s[1].out()});
  x = b.Reshape(x, dims);
  for (int64_t d = 1; d >= 0; --d) {
    Taps taps{.in = s[d].kernel * s[d].out()};
    taps.rows.resize(s[d].in);
    for (int64_t k = 0; k < s[d].kernel; ++k) {
      for (int64_t o = 0; o < s[d].out(); ++o) {
        const int64_t at = s[d].at(o, k);
        if (at >= 0 && at < s[d].in) taps.rows[at].emplace_back(k * s[d].out() + o, 1);
      }
    }
    x = ApplyTaps(op, x, lead + d, taps);
  }
  return op.One(x);
}

}  // namespace tenon::aten
