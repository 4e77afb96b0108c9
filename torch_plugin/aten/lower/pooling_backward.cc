// Backwards of the poolings, and unpooling. An element's gradient is a sum over the windows that cover it, which are known: each element
// reads its windows, so that nothing is scattered and the sum has ATen's order (ascending windows).
#include <algorithm>

#include "torch_plugin/aten/lower/indexing.h"
#include "torch_plugin/aten/lower/pooling.h"
#include "torch_plugin/aten/lower/reduce.h"

namespace tenon::aten {
namespace {

using enum Opcode;
using PT = PrimitiveType;

// So many windows over one element are read one by one; more are scattered.
constexpr int64_t kUnrolledCovers = 16;

// The flat position of each element of a spatial plane, in the last dims of `dims`.
Instruction* FlatPosition(OpContext& op, absl::Span<const Dim> dims, int64_t first) {
  Builder& b = op.b;
  const Shape index(PT::kS64, dims);
  Instruction* flat = b.Iota(index, first);
  for (int64_t d = first + 1; d < static_cast<int64_t>(dims.size()); ++d) {
    flat = b.Binary(kAdd, TimesSize(op, flat, dims[d]), b.Iota(index, d));
  }
  return flat;
}

Dim CountOf(absl::Span<const Dim> dims) {
  Dim n = 1;
  for (Dim d : dims) n = n * d;
  return n;
}

// Adds grad at its window's position: planes by index vectors (plane, position).
Instruction* ScatterMaxima(OpContext& op, Instruction* grad, Instruction* indices, int64_t first) {
  Builder& b = op.b;
  const auto dims = grad->shape().dims();
  const Dim planes = CountOf(dims.subspan(0, first)), windows = CountOf(dims.subspan(first));
  const Dim elements = CountOf(absl::MakeConstSpan(op.result_dims()).subspan(first));
  indices = b.Reshape(indices, {planes, windows});
  Instruction* plane = b.Iota(Shape(PT::kS64, indices->shape().dims()), 0);
  Instruction* zeros = b.Full(grad->shape().element_type(), {planes, elements}, 0);
  Instruction* sum = Scatter(op, zeros, StackIndices(op, {plane, indices}), b.Reshape(grad, {planes, windows}), {0, 1}, 2, {},
                             Combiner(op, grad->shape().element_type(), "add"));
  return b.Reshape(sum, op.result_dims());
}

// grad where a window's maximum is the element that asks.
Lowering MaxPoolBackward(OpContext& op, int64_t indices_at, int64_t first, const std::vector<Taps>& windows) {
  Builder& b = op.b;
  Instruction *grad = b.Convert(op.tensor(0), OpMath(op.result_type())), *indices = op.tensor(indices_at);
  if (IsEmpty(grad->shape().dims()) || IsEmpty(op.result_dims())) return op.One(b.Full(op.result_type(), op.result_dims(), 0));
  std::vector<Taps> covers;
  int64_t terms = 1;
  for (const Taps& w : windows) {
    covers.push_back(Transposed(w));
    terms *= covers.back().longest();
  }
  if (terms > kUnrolledCovers) return op.One(ScatterMaxima(op, grad, indices, first));
  Instruction* position = FlatPosition(op, op.result_dims(), first);
  Instruction* sum = nullptr;
  for (int64_t t = 0; t < terms; ++t) {
    Instruction *value = grad, *at = indices, *inside = nullptr;
    int64_t rest = t;
    for (int64_t k = static_cast<int64_t>(covers.size()) - 1; k >= 0; --k) {
      const TapColumn column = ColumnOf(covers[k], rest % covers[k].longest());
      rest /= covers[k].longest();
      value = TakeAt(op, value, first + k, column.index);
      at = TakeAt(op, at, first + k, column.index);
      if (column.all_inside) continue;
      Instruction* within = MaskAlongAxis(op, column.inside, op.result_dims(), first + k);
      inside = inside == nullptr ? within : b.Binary(kAnd, inside, within);
    }
    Instruction* chosen = b.Compare(at, position, "EQ");
    if (inside != nullptr) chosen = b.Binary(kAnd, chosen, inside);
    Instruction* term = b.Select(chosen, value, op.Full(value, 0));
    sum = sum == nullptr ? term : b.Binary(kAdd, sum, term);
  }
  return op.One(sum == nullptr ? b.Full(op.result_type(), op.result_dims(), 0) : sum);
}

// The same of symbolic sizes: which windows cover an element is computed, ascending as above.
Lowering SymbolicMaxPoolBackward(OpContext& op, const Pool& p) {
  Builder& b = op.b;
  Instruction *grad = b.Convert(op.tensor(0), OpMath(op.result_type())), *indices = op.tensor(7);
  const absl::Span<const Dim> in = op.result_dims(), out = grad->shape().dims();
  int64_t terms = 1;
  std::vector<int64_t> covers;
  for (int64_t k = 0; k < p.spatial; ++k) {
    if (p.dilation[k] != 1) return NotLowered("symbolic sizes: the backward of pooling with dilation");
    covers.push_back((p.kernel[k] + p.stride[k] - 1) / p.stride[k]);
    terms *= covers.back();
  }
  if (terms > kUnrolledCovers) return NotLowered("symbolic sizes: the backward of pooling by windows of which more than 16 overlap");
  // Of each element of dim k, the `back`th window before the last one that begins at it or before; and whether it is there.
  auto window = [&](int64_t k, int64_t back) -> std::pair<Instruction*, Instruction*> {
    const Dim size = in[p.first + k];
    auto number = [&](int64_t n) { return b.Full(PT::kS64, {size}, static_cast<double>(n)); };
    Instruction* place = b.Binary(kAdd, b.Iota(Shape(PT::kS64, {size}), 0), number(p.padding[k]));
    Instruction* o = b.Binary(kSubtract, b.Binary(kDivide, place, number(p.stride[k])), number(back));
    Instruction* last = b.Binary(kSubtract, b.BroadcastTo(op.SizeValue(out[p.first + k], PT::kS64), {size}), number(1));
    Instruction* ends = b.Binary(kAdd, b.Binary(kMultiply, o, number(p.stride[k])), number(p.kernel[k]));
    Instruction* there = b.Binary(kAnd, b.Compare(o, number(0), "GE"), b.Compare(o, last, "LE"));
    there = b.Binary(kAnd, there, b.Compare(place, ends, "LT"));
    return {b.Binary(kMaximum, b.Binary(kMinimum, o, last), number(0)), there};
  };
  Instruction *position = FlatPosition(op, in, p.first), *sum = nullptr;
  for (int64_t t = 0; t < terms; ++t) {
    Instruction *value = grad, *at = indices, *inside = nullptr;
    int64_t rest = t;
    for (int64_t k = p.spatial - 1; k >= 0; --k) {
      const auto [o, there] = window(k, covers[k] - 1 - rest % covers[k]);
      rest /= covers[k];
      value = Take(op, value, o, p.first + k);
      at = Take(op, at, o, p.first + k);
      Instruction* within = b.Broadcast(there, in, {p.first + k});
      inside = inside == nullptr ? within : b.Binary(kAnd, inside, within);
    }
    Instruction* chosen = b.Binary(kAnd, b.Compare(at, position, "EQ"), inside);
    Instruction* term = b.Select(chosen, value, op.Full(value, 0));
    sum = sum == nullptr ? term : b.Binary(kAdd, sum, term);
  }
  return op.One(sum);
}

// max_pool_with_indices_backward(grad, self, kernel_size, stride, padding, dilation, ceil_mode, indices)
Lowering MaxPoolBackward(OpContext& op, int64_t spatial) {
  if (HasSymbolicPlaces(op.result_dims(), spatial)) {
    if (op.boolean_or(6, false)) return NotLowered("symbolic sizes: pooling with ceil_mode");
    return SymbolicMaxPoolBackward(op, WindowsOf(op, spatial, true, 2, static_cast<int64_t>(op.result_dims().size())));
  }
  const Pool p = PoolOf(op, spatial, true, 2, op.result_dims(), op.tensor(0)->shape().dims());
  std::vector<Taps> windows;
  for (int64_t k = 0; k < spatial; ++k) windows.push_back(WindowTaps(p, k));
  return MaxPoolBackward(op, 7, p.first, windows);
}

// Windows of an adaptive pooling, by spatial dim.
std::vector<Taps> AdaptiveWindows(absl::Span<const Dim> in, absl::Span<const Dim> out, int64_t spatial) {
  std::vector<Taps> windows;
  for (size_t d = in.size() - spatial; d < in.size(); ++d) windows.push_back(AdaptiveTaps(in[d].constant(), out[d].constant()));
  return windows;
}

// adaptive_max_pool_backward(grad, self, indices)
Lowering AdaptiveMaxPoolBackward(OpContext& op, int64_t spatial) {
  const int64_t first = static_cast<int64_t>(op.result_dims().size()) - spatial;
  return MaxPoolBackward(op, 2, first, AdaptiveWindows(op.result_dims(), op.tensor(0)->shape().dims(), spatial));
}

// Each window's grad, divided, to all its elements.
Lowering SpreadAverages(OpContext& op, Instruction* grad, int64_t first, const std::vector<Taps>& windows) {
  for (int64_t k = static_cast<int64_t>(windows.size()) - 1; k >= 0; --k) {
    grad = ApplyTaps(op, grad, first + k, Transposed(windows[k]));
  }
  return op.One(grad);
}

// avg_pool_backward(grad, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
Lowering AvgPoolBackward(OpContext& op, int64_t spatial) {
  Builder& b = op.b;
  Instruction* grad = b.Convert(op.tensor(0), OpMath(op.result_type()));
  if (IsEmpty(op.result_dims())) return op.One(b.Full(op.result_type(), op.result_dims(), 0));
  const Pool p = PoolOf(op, spatial, false, 2, op.result_dims(), grad->shape().dims());
  std::vector<std::vector<double>> counts;
  std::vector<Taps> windows;
  for (int64_t k = 0; k < spatial; ++k) {
    counts.push_back(AveragedElements(p, k, op.boolean_or(6, true)));
    windows.push_back(WindowTaps(p, k));
  }
  grad = op.is_none(7) ? DivideByCounts(op, grad, p.first, counts) : b.Binary(kDivide, grad, op.Full(grad, op.number(7)));
  return SpreadAverages(op, grad, p.first, windows);
}

// _adaptive_avg_pool_backward(grad, self)
Lowering AdaptiveAvgPoolBackward(OpContext& op, int64_t spatial) {
  Instruction* grad = op.b.Convert(op.tensor(0), OpMath(op.result_type()));
  if (IsEmpty(op.result_dims())) return op.One(op.b.Full(op.result_type(), op.result_dims(), 0));
  const int64_t first = static_cast<int64_t>(op.result_dims().size()) - spatial;
  if (HasSymbolicPlaces(op.result_dims(), spatial) || HasSymbolicPlaces(grad->shape().dims(), spatial)) {
    for (int64_t d = first; d < Rank(grad); ++d) {
      const Dim in = op.result_dims()[d], out = grad->shape().dim(d);
      grad = DivideByLengths(op, grad, d, AdaptiveWindowsOf(op, in, out));
      const AdaptiveWindow of = AdaptiveWindowsOf(op, out, in);  // element i is in windows floor(i out / in) to ceil((i + 1) out / in)
      grad = SumAtPlaces(op, grad, d, PlacesFrom(op, of.start, of.end, of.longest));
    }
    return op.One(grad);
  }
  const std::vector<Taps> windows = AdaptiveWindows(op.result_dims(), grad->shape().dims(), spatial);
  std::vector<std::vector<double>> counts;
  for (const Taps& w : windows) counts.push_back(RowLengths(w));
  return SpreadAverages(op, DivideByCounts(op, grad, first, counts), first, windows);
}

// max_unpool(self, indices, output_size[, stride, padding]): each element at its position of its plane, zeros elsewhere.
Lowering MaxUnpool(OpContext& op, int64_t spatial) {
  Builder& b = op.b;
  Instruction *x = op.tensor(0), *indices = op.tensor(1);
  if (IsEmpty(op.result_dims()) || IsEmpty(x)) return op.One(b.Full(op.result_type(), op.result_dims(), 0));
  const int64_t first = Rank(x) - spatial;
  const Dim planes = CountOf(x->shape().dims().subspan(0, first)), windows = CountOf(x->shape().dims().subspan(first));
  const Dim elements = CountOf(absl::MakeConstSpan(op.result_dims()).subspan(first));
  indices = InRange(op, b.Reshape(indices, {planes, windows}), elements, {false, "RuntimeError", "Found an invalid max index"});
  Instruction* plane = b.Iota(Shape(PT::kS64, indices->shape().dims()), 0);
  Instruction* zeros = b.Full(op.result_type(), {planes, elements}, 0);
  Instruction* placed = Scatter(op, zeros, StackIndices(op, {plane, indices}), b.Reshape(x, {planes, windows}), {0, 1}, 2, {},
                                Combiner(op, op.result_type(), ""));
  return op.One(b.Reshape(placed, op.result_dims()));
}

}  // namespace

Lowering LowerMaxUnpool2d(OpContext& op) { return MaxUnpool(op, 2); }
Lowering LowerMaxUnpool3d(OpContext& op) { return MaxUnpool(op, 3); }
Lowering LowerMaxPool2dBackward(OpContext& op) { return MaxPoolBackward(op, 2); }
Lowering LowerMaxPool3dBackward(OpContext& op) { return MaxPoolBackward(op, 3); }
Lowering LowerAdaptiveMaxPool2dBackward(OpContext& op) { return AdaptiveMaxPoolBackward(op, 2); }
Lowering LowerAdaptiveMaxPool3dBackward(OpContext& op) { return AdaptiveMaxPoolBackward(op, 3); }
Lowering LowerAvgPool2dBackward(OpContext& op) { return AvgPoolBackward(op, 2); }
Lowering LowerAvgPool3dBackward(OpContext& op) { return AvgPoolBackward(op, 3); }
Lowering LowerAdaptiveAvgPool2dBackward(OpContext& op) { return AdaptiveAvgPoolBackward(op, 2); }
Lowering LowerAdaptiveAvgPool3dBackward(OpContext& op) { return AdaptiveAvgPoolBackward(op, 3); }

}  // namespace tenon::aten
