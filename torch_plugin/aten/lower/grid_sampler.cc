// grid_sampler_2d and _3d, forward and backward: for every point of the grid a few elements of the image around it, by a
// batched gather; gradients of the image are scattered. Coordinates and weights follow aten/src/ATen/native/GridSampler.h.
#include <algorithm>
#include <cmath>
#include <limits>

#include "torch_plugin/aten/lower/indexing.h"
#include "torch_plugin/aten/lower/reduce.h"
#include "torch_plugin/aten/lower/values.h"

namespace tenon::aten {
namespace {

using enum Opcode;
using PT = PrimitiveType;

enum Interpolation : int64_t { kLinear = 0, kNearest = 1, kCubic = 2 };
enum Padding : int64_t { kZeros = 0, kBorder = 1, kReflection = 2 };

// Input [N, C, spatial...], grid [N, points..., spatial] with the innermost coordinate first.
struct Sampler {
  OpContext& op;
  Instruction *image, *grid;  // in the dtype of the computation
  int64_t interpolation, padding;
  bool align;

  int64_t spatial() const { return Rank(image) - 2; }
  int64_t size(int64_t k) const { return image->shape().constant_dim(2 + k); }

  // Coordinate of spatial dim k at every point [N, points...].
  V Coordinate(int64_t k) const {
    Instruction* x = op.b.SliceDim(grid, Rank(grid) - 1, spatial() - 1 - k, spatial() - k);
    return {&op, op.b.Reshape(x, grid->shape().dims().subspan(0, Rank(grid) - 1))};
  }
};

// A value that depends on a coordinate, and its derivative.
struct WithSlope {
  V value, slope;
};

// grid_sampler_unnormalize: [-1, 1] to elements.
WithSlope Unnormalize(const Sampler& s, int64_t k) {
  V x = s.Coordinate(k);
  const double n = static_cast<double>(s.size(k));
  if (s.align) return {(x + 1) / 2 * (n - 1), x.Number((n - 1) / 2)};
  return {((x + 1) * n - 1) / 2, x.Number(n / 2)};
}

WithSlope Clip(const Sampler& s, WithSlope x, int64_t n) {
  const double last = static_cast<double>(n - 1);
  V zero = x.value.Number(0);
  Instruction* inside = x.value.op->b.Binary(kAnd, Is(x.value, "GT", 0), Is(x.value, "LT", last));
  // The order of minimum and maximum, which make 0 of a NaN in planes' vectors, the last place of it in volumes.
  Instruction *above = Is(x.value, "GT", 0), *below = Is(x.value, "LT", last);
  const V end = x.value.Number(last);
  V clipped = s.spatial() == 2 ? Select(above, Select(below, x.value, end), zero) : Select(below, Select(above, x.value, zero), end);
  return {clipped, Select(inside, x.slope, zero)};
}

// reflect_coordinates about low / 2 and high / 2.
WithSlope Reflect(WithSlope x, int64_t twice_low, int64_t twice_high) {
  V zero = x.value.Number(0);
  if (twice_low == twice_high) return {zero, zero};
  const double low = static_cast<double>(twice_low) / 2, span = static_cast<double>(twice_high - twice_low) / 2;
  V at = x.value - low;
  Instruction* negative = Is(at, "LT", 0);
  at = Abs(at);
  V extra = Make(at, at.Number(span), kRemainder), flips = Floor(at / span);
  Instruction* even = Is(flips - Floor(flips * 0.5) * 2, "EQ", 0);
  V slope = Select(negative, -x.slope, x.slope);
  return {Select(even, extra + low, span - extra + low), Select(even, slope, -slope)};
}

// compute_coordinates: by the padding.
WithSlope Padded(const Sampler& s, WithSlope x, int64_t n) {
  if (s.padding == kBorder) return Clip(s, x, n);
  if (s.padding == kReflection) return Clip(s, s.align ? Reflect(x, 0, 2 * (n - 1)) : Reflect(x, -1, 2 * n - 1), n);
  return x;
}

// One neighbour along one dim: its element, weight, the weight's derivative in the grid's coordinate, and whether it lies
// inside (nullptr: always).
struct Tap {
  Instruction* index;  // s32 or s64, in range
  V weight, slope;
  Instruction* inside;
};

Tap TapAt(V at, V weight, V slope, int64_t n) {
  Builder& b = at.op->b;
  const double last = static_cast<double>(n - 1);
  Instruction* inside = b.Binary(kAnd, Is(at, "GE", 0), Is(at, "LE", last));
  V safe = Select(inside, at, at.Number(0));
  const PT narrow = n <= std::numeric_limits<int32_t>::max() ? PT::kS32 : PT::kS64;
  return {b.Convert(safe.x, narrow), weight, slope, inside};
}

// ATen's Keys kernel with A = -0.75 and its derivative, for the neighbours at distances t + 1, t, 1 - t, 2 - t.
V CubicNear(V x) { return ((x * 1.25) - 2.25) * x * x + 1; }
V CubicFar(V x) { return ((x * -0.75 + 3.75) * x - 6) * x + 3; }
V CubicNearSlope(V x) { return (x * 3.75 - 4.5) * x; }
V CubicFarSlope(V x) { return (x * -2.25 + 7.5) * x - 6; }

std::vector<Tap> TapsAlong(const Sampler& s, int64_t k) {
  const int64_t n = s.size(k);
  WithSlope at = Unnormalize(s, k);
  std::vector<Tap> taps;
  if (s.interpolation != kCubic) at = Padded(s, at, n);
  V one = at.value.Number(1);
  if (s.interpolation == kNearest) {
    taps.push_back(TapAt(at.value.Unary(kRoundNearestEven), one, at.value.Number(0), n));
    return taps;
  }
  V low = Floor(at.value), t = at.value - low;
  if (s.interpolation == kLinear) {
    taps.push_back(TapAt(low, low + 1 - at.value, -at.slope, n));
    taps.push_back(TapAt(low + 1, t, at.slope, n));
    return taps;
  }
  const V weights[] = {CubicFar(t + 1), CubicNear(t), CubicNear(1 - t), CubicFar(2 - t)};
  const V slopes[] = {CubicFarSlope(t + 1), CubicNearSlope(t), -CubicNearSlope(1 - t), -CubicFarSlope(2 - t)};
  for (int64_t j = 0; j < 4; ++j) {  // each neighbour is padded by itself
    V neighbour = Padded(s, {low + static_cast<double>(j - 1), one}, n).value;
    taps.push_back(TapAt(neighbour, weights[j], slopes[j] * at.slope, n));
  }
  return taps;
}

// A neighbour in all dims.
struct Corner {
  Instruction* index;           // [N, points..., spatial]
  Instruction* flat;            // [N, points...], s32: into a plane; nullptr if that is too large
  V weight;                     // [N, points...]
  std::vector<V> slopes;        // d weight / d coordinate, by spatial dim
  Instruction* inside;
};

int64_t Elements(const Sampler& s) {
  int64_t n = 1;
  for (int64_t k = 0; k < s.spatial(); ++k) n *= s.size(k);
  return n;
}

// s32, of which a gather reads twice as many at once.
Instruction* FlatIndex(const Sampler& s, const std::vector<Instruction*>& index) {
  if (Elements(s) > std::numeric_limits<int32_t>::max()) return nullptr;
  Builder& b = s.op.b;
  Instruction* flat = b.Convert(index[0], PT::kS32);
  for (size_t k = 1; k < index.size(); ++k) {
    flat = b.Binary(kMultiply, flat, b.FullLike(flat, static_cast<double>(s.size(static_cast<int64_t>(k)))));
    flat = b.Binary(kAdd, flat, b.Convert(index[k], PT::kS32));
  }
  return flat;
}

std::vector<Corner> CornersOf(const Sampler& s) {
  Builder& b = s.op.b;
  std::vector<std::vector<Tap>> taps;
  size_t count = 1;
  for (int64_t k = 0; k < s.spatial(); ++k) {
    taps.push_back(TapsAlong(s, k));
    count *= taps.back().size();
  }
  std::vector<Corner> corners;
  for (size_t c = 0; c < count; ++c) {
    std::vector<const Tap*> tap(taps.size());
    size_t rest = c;
    for (size_t k = taps.size(); k-- > 0; rest /= taps[k].size()) tap[k] = &taps[k][rest % taps[k].size()];
    std::vector<Instruction*> index;
    V weight = tap[0]->weight;
    Instruction* inside = tap[0]->inside;
    std::vector<V> slopes;
    for (size_t k = 0; k < tap.size(); ++k) {
      index.push_back(tap[k]->index);
      if (k > 0) weight = weight * tap[k]->weight;
      if (k > 0) inside = b.Binary(kAnd, inside, tap[k]->inside);
      V slope = tap[k]->slope;
      for (size_t j = 0; j < tap.size(); ++j) {
        if (j != k) slope = slope * tap[j]->weight;
      }
      slopes.push_back(slope);
    }
    corners.push_back({StackIndices(s.op, index), FlatIndex(s, index), weight, slopes, inside});
  }
  return corners;
}

// The image at a corner (any element where the corner lies outside): [N, C, points...].
Instruction* At(const Sampler& s, const Corner& corner) {
  Builder& b = s.op.b;
  std::vector<int64_t> spatial;
  std::vector<Dim> sizes(Rank(s.image), 1);
  for (int64_t d = 2; d < Rank(s.image); ++d) spatial.push_back(d);
  sizes[1] = s.image->shape().dim(1);
  Attributes attrs;
  attrs.set(Attr::kOffsetDims, std::vector<int64_t>{1});
  attrs.set(Attr::kCollapsedSliceDims, spatial);
  attrs.set(Attr::kStartIndexMap, spatial);
  attrs.set(Attr::kIndexVectorDim, Rank(corner.index) - 1);
  attrs.set(Attr::kSliceSizes, std::move(sizes));
  attrs.set(Attr::kOperandBatchingDims, std::vector<int64_t>{0});
  attrs.set(Attr::kStartIndicesBatchingDims, std::vector<int64_t>{0});
  return b.Make(kGather, {s.image, corner.index}, std::move(attrs));
}

// A value of the points [N, points...] for every channel of `like` [N, C, points...].
Instruction* ForChannels(OpContext& op, Instruction* x, const Instruction* like) {
  std::vector<int64_t> place = {0};
  for (int64_t d = 2; d < like->shape().rank(); ++d) place.push_back(d);
  return op.b.Broadcast(x, like->shape().dims(), place);
}

Sampler SamplerOf(OpContext& op, int64_t at) {
  const PT math = OpMath(op.meta(at).dtype);
  return {op, op.b.Convert(op.tensor(at), math), op.b.Convert(op.tensor(at + 1), math), op.integer(at + 2), op.integer(at + 3),
          op.boolean(at + 4)};
}

// The same by the place in a plane: one index, and of half the width. nullptr if that is too large.
Instruction* AtFlat(const Sampler& s, const Corner& corner) {
  if (corner.flat == nullptr) return nullptr;
  Builder& b = s.op.b;
  Attributes attrs;
  attrs.set(Attr::kOffsetDims, std::vector<int64_t>{1});
  attrs.set(Attr::kCollapsedSliceDims, std::vector<int64_t>{2});
  attrs.set(Attr::kStartIndexMap, std::vector<int64_t>{2});
  attrs.set(Attr::kIndexVectorDim, Rank(corner.flat));
  attrs.set(Attr::kSliceSizes, std::vector<Dim>{1, s.image->shape().dim(1), 1});
  attrs.set(Attr::kOperandBatchingDims, std::vector<int64_t>{0});
  attrs.set(Attr::kStartIndicesBatchingDims, std::vector<int64_t>{0});
  Instruction* planes = b.Reshape(s.image, {s.image->shape().dim(0), s.image->shape().dim(1), Elements(s)});
  return b.Make(kGather, {planes, corner.flat}, std::move(attrs));
}

// grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)
Lowering GridSampler(OpContext& op) {
  Builder& b = op.b;
  const Sampler s = SamplerOf(op, 0);
  if (IsEmpty(op.result_dims())) return op.One(b.Full(op.result_type(), op.result_dims(), 0));
  Instruction* sum = nullptr;
  for (const Corner& corner : CornersOf(s)) {
    Instruction* read = AtFlat(s, corner);
    if (read == nullptr) read = At(s, corner);
    Instruction* weight = ForChannels(op, corner.weight.x, read);
    const auto inside = [&](Instruction* x) { return b.Select(ForChannels(op, corner.inside, read), x, op.Full(x, 0)); };
    // ATen weighs what lies outside of a plane as 0, which a weight that is NaN shows; in a volume it leaves it out.
    Instruction* term = s.spatial() == 2 ? b.Binary(kMultiply, inside(read), weight) : inside(b.Binary(kMultiply, read, weight));
    sum = sum == nullptr ? term : b.Binary(kAdd, sum, term);
  }
  return op.One(sum);
}

// Adds `updates` [N, C, points...] to the image's elements at the corner.
Instruction* Add(const Sampler& s, Instruction* image, const Corner& corner, Instruction* updates) {
  std::vector<int64_t> spatial;
  for (int64_t d = 2; d < Rank(image); ++d) spatial.push_back(d);
  Attributes attrs;
  attrs.set(Attr::kUpdateWindowDims, std::vector<int64_t>{1});
  attrs.set(Attr::kInsertedWindowDims, spatial);
  attrs.set(Attr::kScatterDimsToOperandDims, spatial);
  attrs.set(Attr::kIndexVectorDim, Rank(corner.index) - 1);
  attrs.set(Attr::kInputBatchingDims, std::vector<int64_t>{0});
  attrs.set(Attr::kScatterIndicesBatchingDims, std::vector<int64_t>{0});
  attrs.set(Attr::kToApply, Combiner(s.op, image->shape().element_type(), "add"));
  return s.op.b.Make(kScatter, {image, corner.index, updates}, std::move(attrs));
}

// grid_sampler_backward(grad, input, grid, interpolation_mode, padding_mode, align_corners, output_mask) -> of input, of grid
Lowering GridSamplerBackward(OpContext& op) {
  Builder& b = op.b;
  const Sampler s = SamplerOf(op, 1);
  Instruction* grad = b.Convert(op.tensor(0), s.image->shape().element_type());
  const bool of_image = op.result(0).kind == Meta::Kind::kTensor && op.result_used(0);
  const PT math = s.image->shape().element_type();
  Instruction* image = b.Full(math, s.image->shape().dims(), 0);
  std::vector<Instruction*> of_grid(s.spatial(), nullptr);
  Instruction* no_slope = b.Full(math, s.grid->shape().dims(), 0);
  if (IsEmpty(grad) || IsEmpty(s.image)) return Values{Shaped(op, image, 0), Shaped(op, no_slope, 1)};
  for (const Corner& corner : CornersOf(s)) {
    Instruction* inside = ForChannels(op, corner.inside, grad);
    Instruction* zero = op.Full(grad, 0);
    if (of_image) {
      image = Add(s, image, corner, b.Select(inside, b.Binary(kMultiply, grad, ForChannels(op, corner.weight.x, grad)), zero));
    }
    if (s.interpolation == kNearest) continue;
    Instruction* product = b.Select(inside, b.Binary(kMultiply, grad, At(s, corner)), zero);
    product = ReduceSum(op, product, {1});  // over the channels
    for (int64_t k = 0; k < s.spatial(); ++k) {
      Instruction* term = b.Binary(kMultiply, product, corner.slopes[k].x);
      of_grid[k] = of_grid[k] == nullptr ? term : b.Binary(kAdd, of_grid[k], term);
    }
  }
  std::reverse(of_grid.begin(), of_grid.end());  // the innermost coordinate first
  Instruction* slope = s.interpolation == kNearest ? no_slope : StackIndices(op, of_grid);
  return Values{of_image ? Shaped(op, image, 0) : nullptr, Shaped(op, slope, 1)};
}

}  // namespace

Lowering LowerGridSampler(OpContext& op) { return GridSampler(op); }
Lowering LowerGridSamplerBackward(OpContext& op) { return GridSamplerBackward(op); }

}  // namespace tenon::aten
