// upsample_* forward and backward over [N, C, spatial...]. Every mode is separable: each dim is a map with a few taps per
// element (taps.h), and the backward applies its transpose. Positions and weights follow ATen's UpSample.h and
// UpSampleKernel.cpp; they are computed in the dtype in which ATen computes them.
#include <algorithm>
#include <cmath>

#include "torch_plugin/aten/lower/indexing.h"
#include "torch_plugin/aten/lower/reduce.h"
#include "torch_plugin/aten/lower/taps.h"

namespace tenon::aten {
namespace {

using enum Opcode;
using PT = PrimitiveType;

enum class Mode { kNearest, kNearestExact, kLinear, kCubic, kLinearAntialiased, kCubicAntialiased };

// One dim of a resampling, as ATen's functions are told of it.
struct Dim1d {
  int64_t in, out;
  bool align;
  std::optional<double> scale;  // given by the caller: output over input
  bool copies = true;           // where the size stays, whatever the scale
};

// area_pixel_compute_scale.
template <typename F>
F ScaleOf(const Dim1d& d) {
  if (d.align) return d.out > 1 ? static_cast<F>(d.in - 1) / static_cast<F>(d.out - 1) : F{0};
  if (d.scale && *d.scale > 0) return static_cast<F>(1.0 / *d.scale);
  return static_cast<F>(d.in) / static_cast<F>(d.out);
}

// ATen's backward halves the index where the size doubled, whatever the scale; its forward does not.
Taps NearestTaps(const Dim1d& d, bool exact, bool backward) {
  const float scale = ScaleOf<float>({d.in, d.out, false, d.scale});  // f32 for every dtype
  Taps t{.in = d.in};
  for (int64_t o = 0; o < d.out; ++o) {
    int64_t at;
    if (exact) {
      const float half = static_cast<float>(o) + 0.5f;
      at = static_cast<int64_t>(std::floor(backward ? half * scale : (scale * half - 0.5f) + 0.5f));
    } else if (d.out == d.in && d.copies) {
      at = o;
    } else if (d.out == 2 * d.in && (backward || !d.scale)) {
      at = o / 2;
    } else {
      at = static_cast<int64_t>(std::floor(static_cast<float>(o) * scale));
    }
    t.rows.push_back({{std::min(at, d.in - 1), 1.0}});
  }
  return t;
}

template <typename F>
Taps LinearTaps(const Dim1d& d) {
  const F scale = ScaleOf<F>(d);
  Taps t{.in = d.in};
  for (int64_t o = 0; o < d.out; ++o) {
    const F at = d.align ? scale * static_cast<F>(o) : std::max(F{0}, scale * (static_cast<F>(o) + F(0.5)) - F(0.5));
    const int64_t low = std::min(static_cast<int64_t>(at), d.in - 1), high = std::min(low + 1, d.in - 1);
    const F weight = std::clamp(at - static_cast<F>(low), F{0}, F{1});
    t.rows.push_back({{low, static_cast<double>(F{1} - weight)}, {high, static_cast<double>(weight)}});
  }
  return t;
}

// Keys' kernel, cubic_convolution1 and 2: |x| <= 1 and 1 < |x| < 2.
template <typename F>
F CubicNear(F x, F a) { return ((a + 2) * x - (a + 3)) * x * x + 1; }
template <typename F>
F CubicFar(F x, F a) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; }

template <typename F>
Taps CubicTaps(const Dim1d& d) {
  const F scale = ScaleOf<F>(d), a = F(-0.75);
  Taps t{.in = d.in};
  for (int64_t o = 0; o < d.out; ++o) {
    const F at = d.align ? scale * static_cast<F>(o) : scale * (static_cast<F>(o) + F(0.5)) - F(0.5);
    const int64_t base = std::min(static_cast<int64_t>(std::floor(at)), d.in - 1);
    const F x = std::clamp(at - static_cast<F>(base), F{0}, F{1}), y = F{1} - x;
    const F weight[] = {CubicFar(x + 1, a), CubicNear(x, a), CubicNear(y, a), CubicFar(y + 1, a)};
    auto& row = t.rows.emplace_back();
    for (int64_t k = 0; k < 4; ++k) {
      row.emplace_back(std::clamp<int64_t>(base - 1 + k, 0, d.in - 1), static_cast<double>(weight[k]));
    }
  }
  return t;
}

template <typename F>
F AntialiasFilter(bool cubic, F x) {
  x = std::abs(x);
  if (!cubic) return x < 1 ? 1 - x : F{0};
  const F a = F(-0.5);
  return x < 1 ? CubicNear(x, a) : x < 2 ? CubicFar(x, a) : F{0};
}

// HelperInterpBase::_compute_indices_min_size_weights_aa: the kernel widened by the scale, its weights normalized.
template <typename F>
Taps AntialiasedTaps(const Dim1d& d, bool cubic) {
  const F scale = ScaleOf<F>(d), reach = cubic ? F{2} : F{1}, support = scale >= 1 ? reach * scale : reach;
  const F inverse = scale >= 1 ? F{1} / scale : F{1};
  Taps t{.in = d.in};
  for (int64_t o = 0; o < d.out; ++o) {
    const F center = scale * (static_cast<F>(o) + F(0.5));
    const int64_t low = std::max<int64_t>(static_cast<int64_t>(center - support + F(0.5)), 0);
    const int64_t high = std::min<int64_t>(static_cast<int64_t>(center + support + F(0.5)), d.in);
    std::vector<F> weights;
    F total = 0;
    for (int64_t j = low; j < high; ++j) {
      weights.push_back(AntialiasFilter<F>(cubic, (static_cast<F>(j) - center + F(0.5)) * inverse));
      total += weights.back();
    }
    auto& row = t.rows.emplace_back();
    for (int64_t j = low; j < high; ++j) {
      row.emplace_back(j, static_cast<double>(total != 0 ? weights[j - low] / total : weights[j - low]));
    }
  }
  return t;
}

// AntialiasedTaps along `axis` where a size is a symbol: the same arithmetic in the program, in x's dtype. Taps of a row: a dim of its own,
// as long as the longest can be.
Instruction* AntialiasedOfSizes(OpContext& op, Instruction* x, int64_t axis, Dim in, Dim out, std::optional<double> given, bool cubic) {
  Builder& b = op.b;
  const PT type = x->shape().element_type();
  const double reach = cubic ? 2 : 1;
  auto number = [&](double v) { return op.Scalar(type, v); };
  Instruction* scale = nullptr;
  Dim longest;
  if (given && *given > 0) {
    const double of_type = type == PT::kF64 ? 1.0 / *given : static_cast<double>(static_cast<float>(1.0 / *given));
    scale = number(of_type);
    longest = static_cast<int64_t>(2 * reach * std::max(of_type, 1.0)) + 2;
  } else {
    scale = b.Binary(kDivide, op.SizeValue(in, type), op.SizeValue(out, type));
    longest = FloorDiv(static_cast<int64_t>(2 * reach) * Max(in, out), out) + 2;
  }
  Instruction* widened = b.Binary(kMaximum, scale, number(1));
  Instruction* support = b.Binary(kMultiply, widened, number(reach));
  Instruction* inverse = b.Binary(kDivide, number(1), widened);

  const std::vector<Dim> rows = {out}, taps = {out, longest};
  Instruction* elements = b.BroadcastTo(op.SizeValue(in, PT::kS64), rows);
  auto in_rows = [&](Instruction* scalar) { return b.BroadcastTo(scalar, rows); };
  auto in_taps = [&](Instruction* row) { return b.Broadcast(row, taps, {0}); };
  auto whole = [&](Instruction* v) { return b.Convert(v, PT::kS64); };  // towards zero
  Instruction *half = in_rows(number(0.5)), *row = b.Iota(Shape(PT::kS64, rows), 0);
  Instruction* middle = b.Binary(kAdd, b.Convert(row, type), half);
  Instruction* center = b.Binary(kMultiply, in_rows(scale), middle);
  Instruction* low = whole(b.Binary(kAdd, b.Binary(kSubtract, center, in_rows(support)), half));
  low = b.Binary(kMaximum, low, b.Full(PT::kS64, rows, 0));
  Instruction* high = whole(b.Binary(kAdd, b.Binary(kAdd, center, in_rows(support)), half));
  high = b.Binary(kMinimum, high, elements);
  if (Equal(in, out) != Ternary::kNo) {
    // ATen copies then, whatever the scale.
    Instruction* same = b.Compare(elements, b.BroadcastTo(op.SizeValue(out, PT::kS64), rows), "EQ");
    low = b.Select(same, row, low);
    high = b.Select(same, b.Binary(kAdd, row, b.Full(PT::kS64, rows, 1)), high);
    center = b.Select(same, middle, center);
  }

  const Places places = PlacesFrom(op, low, high, longest);
  Instruction* from = b.Binary(kAdd, b.Binary(kSubtract, b.Convert(places.at, type), in_taps(center)), b.Full(type, taps, 0.5));
  Instruction* distance = b.Unary(kAbs, b.Binary(kMultiply, from, b.BroadcastTo(inverse, taps)));
  auto full = [&](double v) { return b.Full(type, taps, v); };
  auto times = [&](Instruction* l, Instruction* r) { return b.Binary(kMultiply, l, r); };
  auto plus = [&](Instruction* l, double r) { return b.Binary(kAdd, l, full(r)); };
  auto below = [&](double limit) { return b.Compare(distance, full(limit), "LT"); };
  Instruction* weight = nullptr;
  if (cubic) {  // CubicNear and CubicFar, a = -0.5
    Instruction* near = plus(times(times(plus(times(distance, full(1.5)), -2.5), distance), distance), 1);
    Instruction* far = plus(times(plus(times(plus(times(distance, full(-0.5)), 2.5), distance), -4), distance), 2);
    weight = b.Select(below(1), near, b.Select(below(2), far, full(0)));
  } else {
    weight = b.Select(below(1), b.Binary(kSubtract, full(1), distance), full(0));
  }
  weight = b.Select(places.inside, weight, full(0));
  Instruction* total = ReduceSum(op, weight, {1});
  Instruction* none = b.Compare(total, b.Full(type, rows, 0), "EQ");
  weight = b.Binary(kDivide, weight, in_taps(b.Select(none, b.Full(type, rows, 1), total)));

  return SumAtPlaces(op, x, axis, places, weight);
}

template <typename F>
Taps TapsIn(const Dim1d& d, Mode mode) {
  if (mode == Mode::kLinear) return LinearTaps<F>(d);
  if (mode == Mode::kCubic) return CubicTaps<F>(d);
  return AntialiasedTaps<F>(d, mode == Mode::kCubicAntialiased);
}

Taps TapsOf(const Dim1d& d, Mode mode, bool wide, bool backward) {
  if (mode == Mode::kNearest || mode == Mode::kNearestExact) return NearestTaps(d, mode == Mode::kNearestExact, backward);
  return wide ? TapsIn<double>(d, mode) : TapsIn<float>(d, mode);
}

// upsample_*(self, output_size, [align_corners,] scales...), upsample_*_backward(grad, output_size, input_size,
// [align_corners,] scales...).
Lowering Resample(OpContext& op, int64_t spatial, Mode mode, bool backward) {
  const bool nearest = mode == Mode::kNearest || mode == Mode::kNearestExact;
  Instruction* x = op.tensor(0);
  if (!nearest && !IsFloat(op.result_type())) return NotLowered("interpolation of integers: ATen's own fixed-point weights");
  for (Dim d : x->shape().dims()) {
    if (KnownEqual(d, 0)) return op.One(op.b.Full(op.result_type(), op.result_dims(), 0));
  }
  if (!nearest || backward) x = op.b.Convert(x, OpMath(op.result_type()));
  const bool wide = x->shape().element_type() == PT::kF64;
  const int64_t first = Rank(x) - spatial, options = backward ? 3 : 2, scales = options + (nearest ? 0 : 1);
  // Along the fastest dim elements are gathered: that comes after the dims that shrink and before those that grow.
  std::vector<int64_t> order;
  auto shrinks = [&](int64_t k) { return Typical(op.result_dims()[first + k]) < Typical(x->shape().dim(first + k)); };
  for (int64_t k = 0; k + 1 < spatial; ++k) {
    if (shrinks(k)) order.push_back(k);
  }
  for (int64_t k = spatial - 1; k >= 0; --k) {
    if (k + 1 == spatial || !shrinks(k)) order.push_back(k);
  }
  const bool antialiased = mode == Mode::kLinearAntialiased || mode == Mode::kCubicAntialiased;
  const bool align = !nearest && op.boolean(options);
  for (int64_t k : order) {
    const Dim size = x->shape().dim(first + k), result = op.result_dims()[first + k];
    if (antialiased && !backward && KnownEqual(size, result)) continue;  // whatever the scale; the backward does not
    const std::optional<double> scale = op.is_none(scales + k) ? std::nullopt : std::optional(op.number(scales + k));
    if (antialiased && !backward && !(size.is_constant() && result.is_constant())) {
      if (align) return NotLowered("symbolic sizes: antialiasing with align_corners");
      x = AntialiasedOfSizes(op, x, first + k, size, result, scale, mode == Mode::kCubicAntialiased);
      continue;
    }
    const int64_t here = size.constant(), there = result.constant();
    Dim1d d{.in = backward ? there : here, .out = backward ? here : there, .align = align, .scale = scale};
    d.copies = mode != Mode::kNearest || backward || spatial == 2 || !d.scale || *d.scale == 1;
    if (d.in == d.out && !d.copies && spatial == 3) return NotLowered("a scale by which a size stays: ATen decides by the layout");
    const bool copies = d.in == d.out && d.copies && (mode == Mode::kLinear || mode == Mode::kNearest);
    if (copies) {
      // Both neighbours are the element itself, one weighs 0: an infinity becomes NaN.
      const bool weighs = mode == Mode::kLinear && !backward;
      if (weighs) x = op.b.Binary(kAdd, x, op.b.Binary(kMultiply, x, op.Full(x, 0)));
      continue;
    }
    const Taps taps = TapsOf(d, mode, wide, backward);
    x = ApplyTaps(op, x, first + k, backward ? Transposed(taps) : taps);
  }
  return op.One(x);
}

}  // namespace

Lowering LowerUpsampleNearest1d(OpContext& op) { return Resample(op, 1, Mode::kNearest, false); }
Lowering LowerUpsampleNearest2d(OpContext& op) { return Resample(op, 2, Mode::kNearest, false); }
Lowering LowerUpsampleNearest3d(OpContext& op) { return Resample(op, 3, Mode::kNearest, false); }
Lowering LowerUpsampleNearestExact1d(OpContext& op) { return Resample(op, 1, Mode::kNearestExact, false); }
Lowering LowerUpsampleNearestExact2d(OpContext& op) { return Resample(op, 2, Mode::kNearestExact, false); }
Lowering LowerUpsampleNearestExact3d(OpContext& op) { return Resample(op, 3, Mode::kNearestExact, false); }
Lowering LowerUpsampleLinear1d(OpContext& op) { return Resample(op, 1, Mode::kLinear, false); }
Lowering LowerUpsampleBilinear2d(OpContext& op) { return Resample(op, 2, Mode::kLinear, false); }
Lowering LowerUpsampleTrilinear3d(OpContext& op) { return Resample(op, 3, Mode::kLinear, false); }
Lowering LowerUpsampleBicubic2d(OpContext& op) { return Resample(op, 2, Mode::kCubic, false); }
Lowering LowerUpsampleBilinearAa(OpContext& op) { return Resample(op, 2, Mode::kLinearAntialiased, false); }
Lowering LowerUpsampleBicubicAa(OpContext& op) { return Resample(op, 2, Mode::kCubicAntialiased, false); }

Lowering LowerUpsampleNearest1dBackward(OpContext& op) { return Resample(op, 1, Mode::kNearest, true); }
Lowering LowerUpsampleNearest2dBackward(OpContext& op) { return Resample(op, 2, Mode::kNearest, true); }
Lowering LowerUpsampleNearest3dBackward(OpContext& op) { return Resample(op, 3, Mode::kNearest, true); }
Lowering LowerUpsampleNearestExact1dBackward(OpContext& op) { return Resample(op, 1, Mode::kNearestExact, true); }
Lowering LowerUpsampleNearestExact2dBackward(OpContext& op) { return Resample(op, 2, Mode::kNearestExact, true); }
Lowering LowerUpsampleNearestExact3dBackward(OpContext& op) { return Resample(op, 3, Mode::kNearestExact, true); }
Lowering LowerUpsampleLinear1dBackward(OpContext& op) { return Resample(op, 1, Mode::kLinear, true); }
Lowering LowerUpsampleBilinear2dBackward(OpContext& op) { return Resample(op, 2, Mode::kLinear, true); }
Lowering LowerUpsampleTrilinear3dBackward(OpContext& op) { return Resample(op, 3, Mode::kLinear, true); }
Lowering LowerUpsampleBicubic2dBackward(OpContext& op) { return Resample(op, 2, Mode::kCubic, true); }
Lowering LowerUpsampleBilinearAaBackward(OpContext& op) { return Resample(op, 2, Mode::kLinearAntialiased, true); }
Lowering LowerUpsampleBicubicAaBackward(OpContext& op) { return Resample(op, 2, Mode::kCubicAntialiased, true); }

}  // namespace tenon::aten
