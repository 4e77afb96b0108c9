// Pooling and resampling of [N, C, spatial...] or [C, spatial...].
#include <algorithm>
#include <cmath>

#include "torch_plugin/aten/lower/reduce.h"

namespace tenon::aten {
namespace {

using enum Opcode;
using PT = PrimitiveType;


// One number stands for all spatial dims.
std::vector<int64_t> Spread(std::vector<int64_t> v, int64_t spatial, std::vector<int64_t> otherwise) {
  if (v.empty()) v = std::move(otherwise);
  while (static_cast<int64_t>(v.size()) < spatial) v.push_back(v[0]);
  return v;
}
std::vector<int64_t> ListOr(OpContext& op, int64_t i) { return op.is_none(i) ? std::vector<int64_t>{} : op.integers(i); }

struct Pool {
  std::vector<int64_t> kernel, stride, padding, dilation, in, out;
  int64_t spatial = 0, first = 0;  // number of spatial dims, the first one
};
// (self, kernel_size, stride, padding, [dilation,] ...): sizes come from the result's meta, ceil_mode included.
Pool PoolOf(OpContext& op, int64_t spatial, bool dilated) {
  Pool p{.spatial = spatial};
  Instruction* x = op.tensor(0);
  p.first = Rank(x) - spatial;
  p.kernel = Spread(ListOr(op, 1), spatial, {1});
  p.stride = Spread(ListOr(op, 2), spatial, p.kernel);
  p.padding = Spread(ListOr(op, 3), spatial, {0});
  p.dilation = dilated ? Spread(ListOr(op, 4), spatial, {1}) : std::vector<int64_t>(spatial, 1);
  for (int64_t k = 0; k < spatial; ++k) {
    p.in.push_back(x->shape().constant_dim(p.first + k));
    p.out.push_back(op.result_dims()[p.first + k].constant());
  }
  return p;
}

// The window over x; high padding is what the result's size needs (it may be negative: unused tail).
Window WindowOf(const Pool& p, int64_t rank) {
  Window w{.dims = std::vector<WindowDim>(rank)};
  for (int64_t k = 0; k < p.spatial; ++k) {
    const int64_t reach = (p.out[k] - 1) * p.stride[k] + (p.kernel[k] - 1) * p.dilation[k] + 1;
    w.dims[p.first + k] = {.size = p.kernel[k],
                           .stride = p.stride[k],
                           .padding_low = p.padding[k],
                           .padding_high = reach - p.in[k] - p.padding[k],
                           .window_dilation = p.dilation[k]};
  }
  return w;
}

// Per output position o of spatial dim k, the input position of the window's tap `tap` (of its first tap inside, for -1).
Literal TapPositions(const Pool& p, int64_t k, int64_t tap) {
  Literal positions(Shape::Array(PT::kS64, {p.out[k]}));
  for (int64_t o = 0; o < p.out[k]; ++o) {
    int64_t at = o * p.stride[k] - p.padding[k] + std::max<int64_t>(tap, 0) * p.dilation[k];
    while (tap < 0 && at < 0) at += p.dilation[k];
    positions.SetFromInt64(o, at);
  }
  return positions;
}

// Values and the flat position of the first maximum (of the last NaN) of each window, as ATen scans it: one tap after the
// other over strided slices, pointwise.
Lowering MaxPoolWithIndices(OpContext& op, Instruction* x, const Pool& p) {
  Builder& b = op.b;
  const Window window = WindowOf(p, Rank(x));
  PaddingConfig padding{.dims = std::vector<PaddingDim>(Rank(x))};
  int64_t taps = 1;
  for (int64_t k = 0; k < p.spatial; ++k) {
    const WindowDim& w = window.dims[p.first + k];
    padding.dims[p.first + k] = {w.padding_low, w.padding_high, 0};
    taps *= p.kernel[k];
  }
  if (taps > 64) return NotLowered("indices of max_pool with a window above 64");
  Instruction* padded = b.Pad(x, LimitConstant(op, x->shape().element_type(), true), padding);
  auto position = [&](const std::vector<int64_t>& tap) {
    Instruction* flat = nullptr;
    for (int64_t k = 0; k < p.spatial; ++k) {
      Instruction* at = b.Broadcast(b.Constant(TapPositions(p, k, tap[k])), op.result_dims(), {p.first + k});
      if (flat != nullptr) flat = b.Binary(kMultiply, flat, b.FullLike(flat, static_cast<double>(p.in[k])));
      flat = flat == nullptr ? at : b.Binary(kAdd, flat, at);
    }
    return flat;
  };
  Instruction* best = b.BroadcastTo(LimitConstant(op, x->shape().element_type(), true), op.result_dims());
  Instruction* index = position(std::vector<int64_t>(p.spatial, -1));
  for (int64_t t = 0; t < taps; ++t) {
    std::vector<int64_t> tap(p.spatial);
    Instruction* value = padded;
    for (int64_t k = p.spatial - 1, rest = t; k >= 0; rest /= p.kernel[k], --k) {
      tap[k] = rest % p.kernel[k];
      const int64_t start = tap[k] * p.dilation[k];
      value = b.SliceDim(value, p.first + k, start, start + (p.out[k] - 1) * p.stride[k] + 1, p.stride[k]);
    }
    Instruction* better = b.Compare(value, best, "GT");
    if (IsFloat(op.result_type())) better = b.Binary(kOr, better, b.Compare(value, value, "NE"));
    best = b.Select(better, value, best);
    index = b.Select(better, position(tap), index);
  }
  return Values{best, index};
}

Lowering MaxPool(OpContext& op, int64_t spatial) {
  Instruction* x = op.tensor(0);
  if (!x->shape().is_static()) return NotLowered("pooling of symbolic sizes");
  Pool p = PoolOf(op, spatial, true);
  if (op.result_count() > 1 && op.result_used(1)) return MaxPoolWithIndices(op, x, p);
  Instruction* init = LimitConstant(op, x->shape().element_type(), true);
  Values results = {op.b.ReduceWindow(x, init, WindowOf(p, Rank(x)), kMaximum)};
  for (int64_t k = 1; k < op.result_count(); ++k) results.push_back(nullptr);
  return results;
}

// avg_pool(self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
Lowering AvgPool(OpContext& op, int64_t spatial) {
  Builder& b = op.b;
  Instruction* x = b.Convert(op.tensor(0), OpMath(op.result_type()));
  if (!x->shape().is_static()) return NotLowered("pooling of symbolic sizes");
  Pool p = PoolOf(op, spatial, false);
  const bool include_pad = op.boolean_or(5, true);
  Instruction* sum = b.ReduceWindow(x, op.Scalar(x->shape().element_type(), 0), WindowOf(p, Rank(x)), kAdd);
  if (!op.is_none(6)) return op.One(b.Binary(kDivide, sum, op.Full(sum, op.number(6))));
  // Elements that a window counts, per dim; their product divides.
  std::vector<std::vector<double>> counts(spatial);
  bool uniform = true;
  for (int64_t k = 0; k < spatial; ++k) {
    for (int64_t o = 0; o < p.out[k]; ++o) {
      int64_t start = o * p.stride[k] - p.padding[k];
      int64_t end = std::min(start + p.kernel[k], p.in[k] + p.padding[k]);
      if (!include_pad) {
        start = std::max<int64_t>(start, 0);
        end = std::min(end, p.in[k]);
      }
      counts[k].push_back(static_cast<double>(end - start));
      uniform = uniform && counts[k].back() == counts[k][0];
    }
  }
  if (sum->shape().num_elements_constant() == 0) return op.One(sum);
  if (uniform) {
    double count = 1;
    for (const auto& c : counts) count *= c[0];
    return op.One(b.Binary(kDivide, sum, op.Full(sum, count)));
  }
  Instruction* divisor = nullptr;
  for (int64_t k = 0; k < spatial; ++k) {
    Literal literal(Shape::Array(sum->shape().element_type(), {p.out[k]}));
    for (int64_t o = 0; o < p.out[k]; ++o) literal.SetFromDouble(o, counts[k][o]);
    Instruction* along = b.Broadcast(b.Constant(std::move(literal)), sum->shape().dims(), {p.first + k});
    divisor = divisor == nullptr ? along : b.Binary(kMultiply, divisor, along);
  }
  return op.One(b.Binary(kDivide, sum, divisor));
}

// Window k of `out` over `in` elements: [floor(k in / out), ceil((k + 1) in / out)).
Instruction* AdaptiveAverageAlong(OpContext& op, Instruction* x, int64_t axis, int64_t out) {
  Builder& b = op.b;
  const int64_t in = x->shape().constant_dim(axis);
  std::vector<Dim> dims(x->shape().dims().begin(), x->shape().dims().end());
  dims[axis] = 1;
  std::vector<Instruction*> parts;
  for (int64_t k = 0; k < out; ++k) {
    const int64_t start = k * in / out, end = ((k + 1) * in + out - 1) / out;
    Instruction* sum = b.Reshape(ReduceSum(op, b.SliceDim(x, axis, start, end), {axis}), dims);
    parts.push_back(b.Binary(kDivide, sum, op.Full(sum, static_cast<double>(end - start))));
  }
  return parts.size() == 1 ? parts[0] : b.Concatenate(parts, axis);
}

// adaptive average: mean over all, or equal windows when the sizes divide, else window by window.
Lowering AdaptiveAvgPool(OpContext& op, int64_t spatial) {
  Builder& b = op.b;
  Instruction* x = b.Convert(op.tensor(0), OpMath(op.result_type()));
  if (!x->shape().is_static()) return NotLowered("pooling of symbolic sizes");
  const int64_t first = Rank(x) - spatial;
  std::vector<Dim> split(x->shape().dims().begin(), x->shape().dims().begin() + first);
  std::vector<int64_t> axes;
  bool divides = true;
  for (int64_t k = 0; k < spatial; ++k) {
    const int64_t in = x->shape().constant_dim(first + k), out = op.result_dims()[first + k].constant();
    if (out == 0) return Values{b.Full(op.result_type(), op.result_dims(), 0)};
    divides = divides && in % out == 0;
    split.push_back(out);
    axes.push_back(static_cast<int64_t>(split.size()));
    split.push_back(in / out);
  }
  if (!divides) {
    for (int64_t d = first; d < Rank(x); ++d) {
      const int64_t out = op.result_dims()[d].constant();
      if (out > 64) return NotLowered("adaptive pooling to more than 64 windows of several sizes");
      x = AdaptiveAverageAlong(op, x, d, out);
    }
    return op.One(x);
  }
  x = b.Reshape(x, split);
  const double count = static_cast<double>(CountOf(x, axes).constant());
  Instruction* sum = ReduceSum(op, x, axes);
  return op.One(b.Binary(kDivide, sum, op.Full(sum, count)));
}

// Reads x at index[o] along `axis`, o counting the result's elements there.
Instruction* TakeAlong(OpContext& op, Instruction* x, int64_t axis, const std::vector<int64_t>& index) {
  Builder& b = op.b;
  const int64_t in = x->shape().constant_dim(axis), out = static_cast<int64_t>(index.size());
  bool repeats = out % in == 0;
  for (int64_t o = 0; repeats && o < out; ++o) repeats = index[o] == o / (out / in);
  if (repeats) {  // each element several times in a row: broadcast and reshape
    std::vector<Dim> dims(x->shape().dims().begin(), x->shape().dims().end());
    std::vector<Dim> split = dims;
    split.insert(split.begin() + axis + 1, out / in);
    std::vector<int64_t> position;
    for (int64_t d = 0; d < Rank(x); ++d) position.push_back(d <= axis ? d : d + 1);
    dims[axis] = out;
    return b.Reshape(b.Broadcast(x, split, position), dims);
  }
  Instruction* indices = b.Constant(Literal::FromSpan<int64_t>(PT::kS64, {out}, index));
  Attributes attrs;
  std::vector<int64_t> offset, sizes;
  for (int64_t d = 0; d < Rank(x); ++d) {
    if (d != axis) offset.push_back(d);
    sizes.push_back(d == axis ? 1 : x->shape().constant_dim(d));
  }
  attrs.set(Attr::kOffsetDims, std::move(offset));
  attrs.set(Attr::kCollapsedSliceDims, std::vector<int64_t>{axis});
  attrs.set(Attr::kStartIndexMap, std::vector<int64_t>{axis});
  attrs.set(Attr::kIndexVectorDim, int64_t{1});
  attrs.set(Attr::kSliceSizes, std::move(sizes));
  return b.Make(kGather, {x, indices}, std::move(attrs));
}

// scales at `scales + k`, None: input size / output size. Positions are computed in F, ATen's opmath type.
template <typename F>
F ScaleOf(OpContext& op, int64_t at, int64_t in, int64_t out) {
  if (!op.is_none(at) && op.number(at) > 0) return static_cast<F>(1.0 / op.number(at));
  return static_cast<F>(in) / static_cast<F>(out);
}

// upsample_nearest(self, output_size, scales...)
Lowering UpsampleNearest(OpContext& op, int64_t spatial) {
  Instruction* x = op.tensor(0);
  if (!x->shape().is_static()) return NotLowered("resampling of symbolic sizes");
  const int64_t first = Rank(x) - spatial;
  for (int64_t k = 0; k < spatial; ++k) {
    const int64_t in = x->shape().constant_dim(first + k), out = op.result_dims()[first + k].constant();
    const float scale = ScaleOf<float>(op, 2 + k, in, out);  // f32 for every dtype
    std::vector<int64_t> index(out);
    for (int64_t o = 0; o < out; ++o) {
      index[o] = std::min(static_cast<int64_t>(std::floor(static_cast<float>(o) * scale)), in - 1);
      if (out == in) index[o] = o;
      if (out == 2 * in && op.is_none(2 + k)) index[o] = o / 2;
    }
    x = TakeAlong(op, x, first + k, index);
  }
  return Values{x};
}

// Where output element o of a dim reads: x[low] * (1 - weight) + x[high] * weight.
struct Taps {
  std::vector<int64_t> low, high;
  std::vector<double> weight;
};
template <typename F>
Taps TapsOf(OpContext& op, int64_t scale_at, int64_t in, int64_t out, bool align) {
  const F scale = !align    ? ScaleOf<F>(op, scale_at, in, out)
                  : out > 1 ? static_cast<F>(in - 1) / static_cast<F>(out - 1)
                            : F{0};
  Taps t;
  for (int64_t o = 0; o < out; ++o) {
    const F at = align ? scale * static_cast<F>(o) : std::max(F{0}, scale * (static_cast<F>(o) + F(0.5)) - F(0.5));
    t.low.push_back(std::min(static_cast<int64_t>(at), in - 1));
    t.high.push_back(std::min(t.low.back() + 1, in - 1));
    t.weight.push_back(std::clamp(at - static_cast<F>(t.low.back()), F{0}, F{1}));
  }
  return t;
}

// upsample_bilinear2d(self, output_size, align_corners, scales_h, scales_w), separable: one dim after the other.
Lowering UpsampleLinear(OpContext& op, int64_t spatial) {
  Builder& b = op.b;
  Instruction* x = b.Convert(op.tensor(0), OpMath(op.result_type()));
  if (!x->shape().is_static() || !IsFloat(op.result_type())) return NotLowered("resampling of symbolic sizes or integers");
  const int64_t first = Rank(x) - spatial;
  const bool align = op.boolean(2);
  for (int64_t k = spatial - 1; k >= 0; --k) {
    const int64_t axis = first + k;
    const int64_t in = x->shape().constant_dim(axis), out = op.result_dims()[axis].constant();
    if (in == out) continue;
    const bool wide = x->shape().element_type() == PT::kF64;
    const Taps t = wide ? TapsOf<double>(op, 3 + k, in, out, align) : TapsOf<float>(op, 3 + k, in, out, align);
    Literal weight(Shape::Array(x->shape().element_type(), {out}));
    for (int64_t o = 0; o < out; ++o) weight.SetFromDouble(o, t.weight[o]);
    Instruction *a = TakeAlong(op, x, axis, t.low), *c = TakeAlong(op, x, axis, t.high);
    Instruction* w = b.Broadcast(b.Constant(std::move(weight)), a->shape().dims(), {axis});
    Instruction* rest = b.Binary(kSubtract, op.Full(w, 1), w);
    x = b.Binary(kAdd, b.Binary(kMultiply, rest, a), b.Binary(kMultiply, w, c));
  }
  return op.One(x);
}

}  // namespace

Lowering LowerMaxPool2d(OpContext& op) { return MaxPool(op, 2); }
Lowering LowerMaxPool3d(OpContext& op) { return MaxPool(op, 3); }
Lowering LowerAvgPool2d(OpContext& op) { return AvgPool(op, 2); }
Lowering LowerAvgPool3d(OpContext& op) { return AvgPool(op, 3); }
Lowering LowerAdaptiveAvgPool2d(OpContext& op) { return AdaptiveAvgPool(op, 2); }
Lowering LowerAdaptiveAvgPool3d(OpContext& op) { return AdaptiveAvgPool(op, 3); }
Lowering LowerUpsampleNearest1d(OpContext& op) { return UpsampleNearest(op, 1); }
Lowering LowerUpsampleNearest2d(OpContext& op) { return UpsampleNearest(op, 2); }
Lowering LowerUpsampleNearest3d(OpContext& op) { return UpsampleNearest(op, 3); }
Lowering LowerUpsampleLinear1d(OpContext& op) { return UpsampleLinear(op, 1); }
Lowering LowerUpsampleBilinear2d(OpContext& op) { return UpsampleLinear(op, 2); }

}  // namespace tenon::aten
