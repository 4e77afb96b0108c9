// Pooling of [N, C, spatial...] or [C, spatial...].
#include <algorithm>
#include <functional>

#include "absl/algorithm/container.h"
#include "torch_plugin/aten/lower/indexing.h"
#include "torch_plugin/aten/lower/pooling.h"
#include "torch_plugin/aten/lower/reduce.h"

namespace tenon::aten {

using enum Opcode;
using PT = PrimitiveType;

namespace {
// One number stands for all spatial dims.
std::vector<int64_t> Spread(OpContext& op, int64_t at, int64_t spatial, std::vector<int64_t> otherwise) {
  std::vector<int64_t> v = op.is_none(at) ? std::vector<int64_t>{} : op.integers(at);
  if (v.empty()) v = std::move(otherwise);
  while (static_cast<int64_t>(v.size()) < spatial) v.push_back(v[0]);
  return v;
}
}  // namespace

Pool WindowsOf(OpContext& op, int64_t spatial, bool dilated, int64_t at, int64_t rank) {
  Pool p{.spatial = spatial, .first = rank - spatial};
  p.kernel = Spread(op, at, spatial, {1});
  p.stride = Spread(op, at + 1, spatial, p.kernel);
  p.padding = Spread(op, at + 2, spatial, {0});
  p.dilation = dilated ? Spread(op, at + 3, spatial, {1}) : std::vector<int64_t>(spatial, 1);
  return p;
}

Pool PoolOf(OpContext& op, int64_t spatial, bool dilated, int64_t at, absl::Span<const Dim> in, absl::Span<const Dim> out) {
  Pool p = WindowsOf(op, spatial, dilated, at, static_cast<int64_t>(in.size()));
  for (int64_t k = 0; k < spatial; ++k) {
    p.in.push_back(in[p.first + k].constant());
    p.out.push_back(out[p.first + k].constant());
  }
  return p;
}

bool HasSymbolicPlaces(absl::Span<const Dim> dims, int64_t spatial) {
  return absl::c_any_of(dims.subspan(dims.size() - spatial), [](Dim d) { return !d.is_constant(); });
}

Instruction* TimesSize(OpContext& op, Instruction* flat, Dim size) {
  return op.b.Binary(kMultiply, flat, op.b.BroadcastTo(op.SizeValue(size, PT::kS64), flat->shape().dims()));
}

Taps WindowTaps(const Pool& p, int64_t k) {
  Taps t{.in = p.in[k]};
  for (int64_t o = 0; o < p.out[k]; ++o) {
    auto& row = t.rows.emplace_back();
    for (int64_t tap = 0; tap < p.kernel[k]; ++tap) {
      const int64_t at = o * p.stride[k] - p.padding[k] + tap * p.dilation[k];
      if (at >= 0 && at < p.in[k]) row.emplace_back(at, 1);
    }
  }
  return t;
}

Taps AdaptiveTaps(int64_t in, int64_t out) {
  Taps t{.in = in};
  for (int64_t o = 0; o < out; ++o) {
    auto& row = t.rows.emplace_back();
    for (int64_t at = o * in / out; at < ((o + 1) * in + out - 1) / out; ++at) row.emplace_back(at, 1);
  }
  return t;
}

AdaptiveWindow AdaptiveWindowsOf(OpContext& op, Dim in, Dim out) {
  Builder& b = op.b;
  const std::vector<Dim> rows = {out};
  Instruction* results = b.BroadcastTo(op.SizeValue(out, PT::kS64), rows);
  Instruction* first = TimesSize(op, b.Iota(Shape(PT::kS64, rows), 0), in);
  Instruction* last = b.Binary(kAdd, first, b.BroadcastTo(op.SizeValue(in + out - 1, PT::kS64), rows));
  return {b.Binary(kDivide, first, results), b.Binary(kDivide, last, results), FloorDiv(in, out) + 2};
}

Instruction* DivideByLengths(OpContext& op, Instruction* x, int64_t axis, const AdaptiveWindow& windows) {
  Builder& b = op.b;
  Instruction* lengths = b.Convert(b.Binary(kSubtract, windows.end, windows.start), x->shape().element_type());
  return b.Binary(kDivide, x, b.Broadcast(lengths, x->shape().dims(), {axis}));
}

std::vector<double> RowLengths(const Taps& taps) {
  std::vector<double> lengths;
  for (const auto& row : taps.rows) lengths.push_back(static_cast<double>(row.size()));
  return lengths;
}

std::vector<double> AveragedElements(const Pool& p, int64_t k, bool include_pad) {
  std::vector<double> counts;
  for (int64_t o = 0; o < p.out[k]; ++o) {
    int64_t start = o * p.stride[k] - p.padding[k];
    int64_t end = std::min(start + p.kernel[k], p.in[k] + p.padding[k]);
    if (!include_pad) {
      start = std::max<int64_t>(start, 0);
      end = std::min(end, p.in[k]);
    }
    counts.push_back(static_cast<double>(end - start));
  }
  return counts;
}

Instruction* DivideByCounts(OpContext& op, Instruction* x, int64_t first, const std::vector<std::vector<double>>& counts) {
  Builder& b = op.b;
  if (IsEmpty(x)) return x;
  double uniform = 1;
  Instruction* divisor = nullptr;
  for (size_t k = 0; k < counts.size(); ++k) {
    const std::vector<double>& c = counts[k];
    if (std::all_of(c.begin(), c.end(), [&](double n) { return n == c[0]; })) {
      uniform *= c[0];
      continue;
    }
    Literal literal(Shape::Array(x->shape().element_type(), {static_cast<int64_t>(c.size())}));
    for (size_t o = 0; o < c.size(); ++o) literal.SetFromDouble(static_cast<int64_t>(o), c[o]);
    Instruction* along = AlongAxis(op, std::move(literal), x->shape().dims(), first + static_cast<int64_t>(k));
    divisor = divisor == nullptr ? along : b.Binary(kMultiply, divisor, along);
  }
  if (divisor == nullptr) return b.Binary(kDivide, x, op.Full(x, uniform));
  if (uniform != 1) divisor = b.Binary(kMultiply, divisor, op.Full(divisor, uniform));
  return b.Binary(kDivide, x, divisor);
}

namespace {


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

constexpr int64_t kUnrolledWindow = 64;  // elements of a window that are compared one by one

int64_t ElementsOf(const Pool& p) { return absl::c_accumulate(p.kernel, int64_t{1}, std::multiplies<>()); }

// The values and flat positions of the maxima of windows of any size or of several: each window's elements in dims of
// their own, reduced. The position is the first maximum's or the last NaN's, as ATen scans.
Lowering MaxOverRows(OpContext& op, Instruction* x, int64_t first, const std::vector<Taps>& windows) {
  Builder& b = op.b;
  const int64_t spatial = static_cast<int64_t>(windows.size());
  for (int64_t k = spatial - 1; k >= 0; --k) x = TakeRows(op, x, first + k, windows[k]);
  const absl::Span<const Dim> dims = x->shape().dims();
  const PT type = x->shape().element_type();
  Instruction *inside = nullptr, *flat = nullptr;
  std::vector<int64_t> axes;
  int64_t elements = 1;
  for (int64_t k = 0; k < spatial; ++k) {
    const int64_t axis = first + 2 * k, longest = windows[k].longest();
    axes.push_back(axis + 1);
    elements *= windows[k].in;
    if (Instruction* within = InsideRows(op, windows[k], dims, axis)) {
      inside = inside == nullptr ? within : b.Binary(kAnd, inside, within);
    }
    Literal positions(Shape::Array(PT::kS64, {static_cast<int64_t>(windows[k].rows.size()), longest}));
    for (size_t o = 0; o < windows[k].rows.size(); ++o) {
      for (size_t t = 0; t < windows[k].rows[o].size(); ++t) {
        positions.SetFromInt64(static_cast<int64_t>(o) * longest + static_cast<int64_t>(t), windows[k].rows[o][t].first);
      }
    }
    Instruction* at = b.Broadcast(b.Constant(std::move(positions)), dims, {axis, axis + 1});
    if (flat != nullptr) flat = b.Binary(kMultiply, flat, b.FullLike(flat, static_cast<double>(windows[k].in)));
    flat = flat == nullptr ? at : b.Binary(kAdd, flat, at);
  }
  Instruction* lowest = b.BroadcastTo(LimitConstant(op, type, true), dims);
  Instruction* best = ReduceMax(op, inside == nullptr ? x : b.Select(inside, x, lowest), axes);
  // The smallest key wins: the position of a maximum, or for a NaN (all of them lie below) minus its position.
  Instruction* hit = b.Compare(x, SpreadBack(op, best, x, axes), "EQ");
  if (inside != nullptr) hit = b.Binary(kAnd, hit, inside);
  Instruction* key = b.Select(hit, flat, b.FullLike(flat, static_cast<double>(elements)));
  if (IsFloat(type)) {
    Instruction* nan = b.Compare(x, x, "NE");
    if (inside != nullptr) nan = b.Binary(kAnd, nan, inside);
    key = b.Select(nan, b.Binary(kSubtract, b.FullLike(flat, -1), flat), key);
  }
  Instruction* index = ReduceMin(op, key, axes);
  Instruction* below = b.Compare(index, op.Full(index, 0), "LT");
  index = b.Select(below, b.Binary(kSubtract, op.Full(index, -1), index), index);
  return Values{Shaped(op, best, 0), Shaped(op, index, 1)};
}

// Values and the flat position of the first maximum (of the last NaN) of each window, as ATen scans it: one tap after the
// other over strided slices of `padded`, pointwise. place(k, tap): by window, where tap `tap` lies in spatial dim k of the input, whose
// dims are `in`; for -1 the first tap inside.
Values FirstMaxima(OpContext& op, Instruction* padded, const Pool& p, absl::Span<const Dim> in,
                   const std::function<Instruction*(int64_t k, int64_t tap)>& place) {
  Builder& b = op.b;
  const absl::Span<const Dim> out = op.result_dims();
  auto position = [&](const std::vector<int64_t>& tap) {
    Instruction* flat = nullptr;
    for (int64_t k = 0; k < p.spatial; ++k) {
      Instruction* at = place(k, tap[k]);
      flat = flat == nullptr ? at : b.Binary(kAdd, TimesSize(op, flat, in[p.first + k]), at);
    }
    return flat;
  };
  Instruction* best = b.BroadcastTo(LimitConstant(op, padded->shape().element_type(), true), out);
  Instruction* index = position(std::vector<int64_t>(p.spatial, -1));
  for (int64_t t = 0; t < ElementsOf(p); ++t) {
    std::vector<int64_t> tap(p.spatial);
    Instruction* value = padded;
    for (int64_t k = p.spatial - 1, rest = t; k >= 0; rest /= p.kernel[k], --k) {
      tap[k] = rest % p.kernel[k];
      const int64_t start = tap[k] * p.dilation[k];
      value = b.SliceDim(value, p.first + k, start, (out[p.first + k] - 1) * Dim(p.stride[k]) + start + 1, p.stride[k]);
    }
    Instruction* better = b.Compare(value, best, "GT");
    if (IsFloat(op.result_type())) better = b.Binary(kOr, better, b.Compare(value, value, "NE"));
    best = b.Select(better, value, best);
    index = b.Select(better, position(tap), index);
  }
  return {best, index};
}

Lowering MaxPoolWithIndices(OpContext& op, Instruction* x, const Pool& p) {
  Builder& b = op.b;
  if (ElementsOf(p) > kUnrolledWindow) {
    std::vector<Taps> windows;
    for (int64_t k = 0; k < p.spatial; ++k) windows.push_back(WindowTaps(p, k));
    return MaxOverRows(op, x, p.first, windows);
  }
  const Window window = WindowOf(p, Rank(x));
  PaddingConfig padding{.dims = std::vector<PaddingDim>(Rank(x))};
  for (int64_t k = 0; k < p.spatial; ++k) {
    const WindowDim& w = window.dims[p.first + k];
    padding.dims[p.first + k] = {w.padding_low, w.padding_high, 0};
  }
  Instruction* padded = b.Pad(x, LimitConstant(op, x->shape().element_type(), true), padding);
  return FirstMaxima(op, padded, p, x->shape().dims(), [&](int64_t k, int64_t tap) {
    return b.Broadcast(b.Constant(TapPositions(p, k, tap)), op.result_dims(), {p.first + k});
  });
}

// The same where sizes are symbolic and both sides of a dim are padded alike: positions are computed, not read from constants.
Lowering MaxPoolWithSymbolicIndices(OpContext& op, Instruction* x, const Pool& p) {
  Builder& b = op.b;
  if (ElementsOf(p) > kUnrolledWindow) return NotLowered("symbolic sizes: pooling with positions, by windows of more than 64 elements");
  PaddingConfig padding{.dims = std::vector<PaddingDim>(Rank(x))};
  for (int64_t k = 0; k < p.spatial; ++k) padding.dims[p.first + k] = {p.padding[k], p.padding[k], 0};
  Instruction* padded = b.Pad(x, LimitConstant(op, x->shape().element_type(), true), padding);
  const Shape positions(PT::kS64, op.result_dims());
  auto number = [&](int64_t n) { return b.Full(PT::kS64, positions.dims(), static_cast<double>(n)); };
  std::vector<Instruction*> first;  // where tap 0 of each window lies, by dim
  for (int64_t k = 0; k < p.spatial; ++k) {
    Instruction* steps = b.Binary(kMultiply, b.Iota(positions, p.first + k), number(p.stride[k]));
    first.push_back(b.Binary(kSubtract, steps, number(p.padding[k])));
  }
  return FirstMaxima(op, padded, p, x->shape().dims(), [&](int64_t k, int64_t tap) {
    const int64_t apart = p.dilation[k];
    if (tap >= 0) return b.Binary(kAdd, first[k], number(tap * apart));
    // A multiple of the taps' distance that no window begins further outside than.
    Instruction* behind = b.Binary(kAdd, first[k], number((p.padding[k] + apart - 1) / apart * apart));
    return b.Select(b.Compare(first[k], number(0), "LT"), b.Binary(kRemainder, behind, number(apart)), first[k]);
  });
}

// Windows over symbolic sizes, where both sides of a dim are padded alike: the result's size follows.
Window SymbolicWindow(const Pool& p, int64_t rank) {
  Window w{.dims = std::vector<WindowDim>(rank)};
  for (int64_t k = 0; k < p.spatial; ++k) {
    w.dims[p.first + k] = {.size = p.kernel[k], .stride = p.stride[k], .padding_low = p.padding[k], .padding_high = p.padding[k],
                           .window_dilation = p.dilation[k]};
  }
  return w;
}

Lowering MaxPool(OpContext& op, int64_t spatial) {
  Instruction* x = op.tensor(0);
  if (HasSymbolicPlaces(x->shape().dims(), spatial)) {
    if (op.boolean_or(5, false)) return NotLowered("symbolic sizes: pooling with ceil_mode");
    const Pool p = WindowsOf(op, spatial, true, 1, Rank(x));
    if (op.result_count() > 1 && op.result_used(1)) return MaxPoolWithSymbolicIndices(op, x, p);
    Instruction* lowest = LimitConstant(op, x->shape().element_type(), true);
    Values results = {op.b.ReduceWindow(x, lowest, SymbolicWindow(p, Rank(x)), kMaximum)};
    for (int64_t k = 1; k < op.result_count(); ++k) results.push_back(nullptr);
    return results;
  }
  Pool p = PoolOf(op, spatial, true, 1, x->shape().dims(), op.result_dims());
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
  const bool include_pad = op.boolean_or(5, true);
  if (HasSymbolicPlaces(x->shape().dims(), spatial)) {
    const Window window = SymbolicWindow(WindowsOf(op, spatial, false, 1, Rank(x)), Rank(x));
    int64_t elements = 1;
    bool padded = false;
    for (const WindowDim& w : window.dims) elements *= w.size, padded = padded || w.padding_low > 0;
    if (op.boolean_or(4, false) || (padded && !include_pad)) return NotLowered("symbolic sizes: windows of several lengths");
    Instruction* sum = b.ReduceWindow(x, op.Scalar(x->shape().element_type(), 0), window, kAdd);
    return op.One(b.Binary(kDivide, sum, op.Full(sum, op.is_none(6) ? static_cast<double>(elements) : op.number(6))));
  }
  Pool p = PoolOf(op, spatial, false, 1, x->shape().dims(), op.result_dims());
  Instruction* sum = b.ReduceWindow(x, op.Scalar(x->shape().element_type(), 0), WindowOf(p, Rank(x)), kAdd);
  if (!op.is_none(6)) return op.One(b.Binary(kDivide, sum, op.Full(sum, op.number(6))));
  std::vector<std::vector<double>> counts;
  for (int64_t k = 0; k < spatial; ++k) counts.push_back(AveragedElements(p, k, include_pad));
  return op.One(DivideByCounts(op, sum, p.first, counts));
}

constexpr int64_t kUnrolledWindows = 64;  // of a dim

// `reduced`, which drops `axis`, of each of the windows of AdaptiveTaps, side by side.
template <typename F>
Instruction* WindowByWindow(Builder& b, Instruction* x, int64_t axis, int64_t out, F&& reduced) {
  const int64_t in = x->shape().constant_dim(axis);
  std::vector<Dim> dims(x->shape().dims().begin(), x->shape().dims().end());
  dims[axis] = 1;
  std::vector<Instruction*> parts;
  for (int64_t k = 0; k < out; ++k) {
    const int64_t start = k * in / out, end = ((k + 1) * in + out - 1) / out;
    parts.push_back(b.Reshape(reduced(b.SliceDim(x, axis, start, end)), dims));
  }
  return parts.size() == 1 ? parts[0] : b.Concatenate(parts, axis);
}

// Longer windows are reduced one by one, if they are few.
bool ByTaps(const Taps& taps) {
  return taps.longest() <= kUnrolledTaps || static_cast<int64_t>(taps.rows.size()) > kUnrolledWindows;
}

// The windows of AdaptiveTaps, averaged.
Instruction* AdaptiveAverageAlong(OpContext& op, Instruction* x, int64_t axis, Dim results) {
  Builder& b = op.b;
  if (!results.is_constant() || !x->shape().dim(axis).is_constant()) {
    const AdaptiveWindow windows = AdaptiveWindowsOf(op, x->shape().dim(axis), results);
    const Places places = PlacesFrom(op, windows.start, windows.end, windows.longest);
    return DivideByLengths(op, SumAtPlaces(op, x, axis, places), axis, windows);
  }
  const int64_t out = results.constant();
  const Taps taps = AdaptiveTaps(x->shape().constant_dim(axis), out);
  if (ByTaps(taps)) return DivideByCounts(op, ApplyTaps(op, x, axis, taps), axis, {RowLengths(taps)});
  return WindowByWindow(b, x, axis, out, [&](Instruction* window) {
    Instruction* sum = ReduceSum(op, window, {axis});
    return b.Binary(kDivide, sum, op.Full(sum, static_cast<double>(window->shape().constant_dim(axis))));
  });
}

// adaptive average: mean over all, or equal windows when the sizes divide, else window by window.
Lowering AdaptiveAvgPool(OpContext& op, int64_t spatial) {
  Builder& b = op.b;
  Instruction* x = b.Convert(op.tensor(0), OpMath(op.result_type()));
  const int64_t first = Rank(x) - spatial;
  std::vector<Dim> split(x->shape().dims().begin(), x->shape().dims().begin() + first);
  std::vector<int64_t> axes;
  bool divides = true;
  for (int64_t k = 0; k < spatial; ++k) {
    const Dim in = x->shape().dim(first + k), out = op.result_dims()[first + k];
    if (KnownEqual(out, 0)) return Values{b.Full(op.result_type(), op.result_dims(), 0)};
    divides = divides && (KnownOne(out) || Divides(out, in) == Ternary::kYes);
    split.push_back(out);
    axes.push_back(static_cast<int64_t>(split.size()));
    split.push_back(FloorDiv(in, out));
  }
  if (!divides) {
    for (int64_t d = first; d < Rank(x); ++d) x = AdaptiveAverageAlong(op, x, d, op.result_dims()[d]);
    return op.One(x);
  }
  x = b.Reshape(x, split);
  Instruction* sum = ReduceSum(op, x, axes);
  return op.One(b.Binary(kDivide, sum, CountLike(op, sum, CountOf(x, axes))));
}

// The maxima of the windows of AdaptiveTaps.
Instruction* AdaptiveMaximumAlong(OpContext& op, Instruction* x, int64_t axis, int64_t out) {
  if (x->shape().constant_dim(axis) == out) return x;
  Taps taps = AdaptiveTaps(x->shape().constant_dim(axis), out);
  const int64_t longest = taps.longest();
  if (longest > kUnrolledTaps) {
    return WindowByWindow(op.b, x, axis, out, [&](Instruction* window) { return ReduceMax(op, window, {axis}); });
  }
  for (auto& row : taps.rows) row.resize(static_cast<size_t>(longest), row.back());  // an element twice changes no maximum
  Instruction* best = nullptr;
  for (int64_t k = 0; k < longest; ++k) {
    Instruction* at = TakeAt(op, x, axis, ColumnOf(taps, k).index);
    best = best == nullptr ? at : op.b.Binary(kMaximum, best, at);
  }
  return best;
}

// adaptive_max_pool(self, output_size) -> values, flat positions
Lowering AdaptiveMaxPool(OpContext& op, int64_t spatial) {
  Instruction* x = op.tensor(0);
  const int64_t first = Rank(x) - spatial;
  if (IsEmpty(op.result_dims())) {
    return Values{op.b.Full(op.result_type(), op.result_dims(), 0), op.b.Full(PT::kS64, op.result_dims(1), 0)};
  }
  Pool p{.spatial = spatial, .first = first, .padding = std::vector<int64_t>(spatial), .dilation = std::vector<int64_t>(spatial, 1)};
  std::vector<Taps> windows;
  bool equal = true;
  for (int64_t k = 0; k < spatial; ++k) {
    const int64_t in = x->shape().constant_dim(first + k), out = op.result_dims()[first + k].constant();
    p.in.push_back(in);
    p.out.push_back(out);
    p.kernel.push_back(in / out);
    p.stride.push_back(in / out);
    equal = equal && in % out == 0;
    windows.push_back(AdaptiveTaps(in, out));
  }
  if (equal) return MaxPoolWithIndices(op, x, p);
  const bool few = std::all_of(p.out.begin(), p.out.end(), [](int64_t n) { return n <= kUnrolledWindows; });
  if (op.result_used(1) || !few) return MaxOverRows(op, x, first, windows);
  for (int64_t k = 0; k < spatial; ++k) x = AdaptiveMaximumAlong(op, x, first + k, p.out[k]);  // separable without the positions
  return Values{x, nullptr};
}

}  // namespace

Lowering LowerAdaptiveMaxPool2d(OpContext& op) { return AdaptiveMaxPool(op, 2); }
Lowering LowerAdaptiveMaxPool3d(OpContext& op) { return AdaptiveMaxPool(op, 3); }
Lowering LowerMaxPool2d(OpContext& op) { return MaxPool(op, 2); }
Lowering LowerMaxPool3d(OpContext& op) { return MaxPool(op, 3); }
Lowering LowerAvgPool2d(OpContext& op) { return AvgPool(op, 2); }
Lowering LowerAvgPool3d(OpContext& op) { return AvgPool(op, 3); }
Lowering LowerAdaptiveAvgPool2d(OpContext& op) { return AdaptiveAvgPool(op, 2); }
Lowering LowerAdaptiveAvgPool3d(OpContext& op) { return AdaptiveAvgPool(op, 3); }

}  // namespace tenon::aten
