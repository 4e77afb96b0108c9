// Softmax and the norms, with ATen's numerics: maximum taken out, variance in two passes, rstd = 1 / sqrt(var + eps).
#include <string>

#include "hlo/own_calls.h"
#include "torch_plugin/aten/lower/reduce.h"

namespace tenon::aten {
namespace {

using enum Opcode;
using PT = PrimitiveType;

Instruction* ReciprocalRoot(OpContext& op, Instruction* variance, double eps) {
  Builder& b = op.b;
  Instruction* root = b.Unary(kSqrt, b.Binary(kAdd, variance, op.Full(variance, eps)));
  return b.Binary(kDivide, op.Full(root, 1), root);
}

struct SoftmaxParts {
  Instruction* shifted;  // x - max
  Instruction* exp;
  Instruction* sum;  // spread back
  std::vector<int64_t> axes;
};
SoftmaxParts Softmax(OpContext& op) {
  Builder& b = op.b;
  Instruction* x = b.Convert(op.tensor(0), OpMath(op.result_type()));
  SoftmaxParts s;
  if (Rank(x) > 0) s.axes = {op.axis(1, Rank(x))};
  Instruction* max = ReduceMax(op, x, s.axes);
  s.shifted = b.Binary(kSubtract, x, SpreadBack(op, max, x, s.axes));
  s.exp = b.Unary(kExponential, s.shifted);
  s.sum = ReduceSum(op, s.exp, s.axes);
  return s;
}

// Per-channel value (dim 1) spread over x.
Instruction* PerChannel(OpContext& op, Instruction* value, Instruction* x) { return op.Along(value, x, {1}); }

std::vector<int64_t> AllButChannel(const Instruction* x) {
  std::vector<int64_t> axes;
  for (int64_t d = 0; d < Rank(x); ++d) {
    if (d != 1) axes.push_back(d);
  }
  return axes;
}

// a * b + c, rounded once.
Instruction* Fma(OpContext& op, Instruction* x, Instruction* y, Instruction* z) {
  return op.b.CustomCall(std::string(kFmaTarget), x->shape(), {x, y, z}, "");
}

// x * alpha + beta with alpha = rstd * weight, beta = bias - mean * alpha, per channel: as ATen's batch_norm does it, whose products and
// sums its compiler contracts.
Instruction* ScaleAndShift(OpContext& op, Instruction* x, Instruction* mean, Instruction* rstd, Instruction* weight,
                           Instruction* bias) {
  Builder& b = op.b;
  Instruction* alpha = weight == nullptr ? rstd : b.Binary(kMultiply, rstd, weight);
  Instruction* below = b.Unary(kNegate, mean);
  Instruction* beta = bias == nullptr ? b.Binary(kMultiply, below, alpha) : Fma(op, below, alpha, bias);
  return Fma(op, x, PerChannel(op, alpha, x), PerChannel(op, beta, x));
}

Instruction* MathOrNull(OpContext& op, int64_t i) { return op.is_none(i) ? nullptr : Math(op, i); }

// Of a batch, rounded where ATen's CPU kernels round (Normalization.cpp, batch_norm_cpu_collect_stats_contiguous_impl): sums in f64
// (acc_type<float, false>), of squares in f32 around the mean in f32. Bit by bit: behind a batch of few values, a last bit is enough
// to turn ReLUs over, and then no gradient is that of eager.
struct BatchStatistics {
  Instruction *mean, *squares, *rstd;
};
BatchStatistics StatisticsOf(OpContext& op, Instruction* x, double eps) {
  Builder& b = op.b;
  const PT type = x->shape().element_type();
  const std::vector<int64_t> axes = AllButChannel(x);
  const Dim n = CountOf(x, axes);
  auto sum = [&](Instruction* v) { return ReduceSum(op, b.Convert(v, PT::kF64), axes); };
  Instruction* total = sum(x);
  Instruction* mean = b.Convert(b.Binary(kMultiply, total, InverseCountLike(op, total, n)), type);  // no division per column
  Instruction* centered = b.Binary(kSubtract, x, PerChannel(op, mean, x));
  Instruction* squares = b.Convert(sum(b.Binary(kMultiply, centered, centered)), type);
  Instruction* variance = b.Convert(b.Binary(kDivide, squares, CountLike(op, squares, n)), PT::kF64);
  return {mean, squares, b.Convert(ReciprocalRoot(op, variance, eps), type)};
}

// running = running * (1 - momentum) + momentum * batch, in f64; the running variance is the unbiased one.
Instruction* Update(OpContext& op, Instruction* running, Instruction* batch, double momentum) {
  Builder& b = op.b;
  batch = b.Convert(batch, PT::kF64);
  Instruction* old = b.Convert(running, PT::kF64);
  Instruction* updated = b.Binary(kAdd, b.Binary(kMultiply, batch, op.Full(batch, momentum)),
                                  b.Binary(kMultiply, old, op.Full(old, 1 - momentum)));
  return b.Convert(updated, running->shape().element_type());
}
Instruction* Unbiased(OpContext& op, const BatchStatistics& s, Instruction* x) {
  const Dim n = CountOf(x, AllButChannel(x));
  Instruction* squares = op.b.Convert(s.squares, PT::kF64);
  return op.b.Binary(kDivide, squares, CountLike(op, squares, n, 1));
}
Instruction* Normalized(OpContext& op, Instruction* x, const BatchStatistics& s) {
  return ScaleAndShift(op, x, s.mean, s.rstd, MathOrNull(op, 1), MathOrNull(op, 2));
}

}  // namespace

Lowering LowerSoftmax(OpContext& op) {
  SoftmaxParts s = Softmax(op);
  return op.One(op.b.Binary(kDivide, s.exp, SpreadBack(op, s.sum, s.exp, s.axes)));
}
Lowering LowerLogSoftmax(OpContext& op) {
  SoftmaxParts s = Softmax(op);
  return op.One(op.b.Binary(kSubtract, s.shifted, SpreadBack(op, op.b.Unary(kLog, s.sum), s.exp, s.axes)));
}

// native_layer_norm(input, normalized_shape, weight?, bias?, eps) -> output, mean, rstd
Lowering LowerLayerNorm(OpContext& op) {
  Builder& b = op.b;
  Instruction* x = Math(op, 0);
  const int64_t count = static_cast<int64_t>(op.dims(1).size());
  std::vector<int64_t> axes;
  for (int64_t d = Rank(x) - count; d < Rank(x); ++d) axes.push_back(d);
  Moments m = MeanAndVariance(op, x, axes, 0);
  Instruction* rstd = ReciprocalRoot(op, m.variance, op.number(4));
  Instruction* y = b.Binary(kMultiply, m.centered, SpreadBack(op, rstd, x, axes));
  auto along = [&](Instruction* v) { return b.Broadcast(v, x->shape().dims(), axes); };
  if (!op.is_none(2)) y = b.Binary(kMultiply, y, along(b.Convert(op.tensor(2), x->shape().element_type())));
  if (!op.is_none(3)) y = b.Binary(kAdd, y, along(b.Convert(op.tensor(3), x->shape().element_type())));
  return Values{b.Convert(y, op.result_type()), Shaped(op, m.mean, 1), Shaped(op, rstd, 2)};
}

namespace {
struct GroupNormSizes {
  Dim n, channels, inner, groups, per_group;
};

// Groups side by side in memory: one row each.
Values GroupNormByRows(OpContext& op, Instruction* x, const GroupNormSizes& size) {
  Builder& b = op.b;
  Instruction* grouped = b.Reshape(x, {size.n, size.groups, size.per_group, size.inner});
  Moments m = MeanAndVariance(op, grouped, {2, 3}, 0);
  Instruction* rstd = ReciprocalRoot(op, m.variance, op.number(7));
  Instruction* y = b.Binary(kMultiply, m.centered, SpreadBack(op, rstd, grouped, {2, 3}));
  auto affine = [&](int64_t i) {
    Instruction* v = b.Reshape(b.Convert(op.tensor(i), x->shape().element_type()), {size.groups, size.per_group});
    return op.Along(v, grouped, {1, 2});
  };
  if (!op.is_none(1)) y = b.Binary(kMultiply, y, affine(1));
  if (!op.is_none(2)) y = b.Binary(kAdd, y, affine(2));
  return {Shaped(op, y, 0), Shaped(op, m.mean, 1), Shaped(op, rstd, 2)};
}

// Channels side by side, a group being a few of them: sums of channels, then of groups; x is read along all channels, and what belongs to
// a channel is computed once, as ATen does here (GroupNormKernelImplChannelsLast), but for its variance.
Values GroupNormByColumns(OpContext& op, Instruction* x, const GroupNormSizes& size) {
  Builder& b = op.b;
  Instruction* columns = b.Reshape(x, {size.n, size.channels, size.inner});
  const Dim count = size.per_group * size.inner;
  auto mean_of = [&](Instruction* v) {
    Instruction* sum = ReduceSum(op, b.Reshape(ReduceSum(op, v, {2}), {size.n, size.groups, size.per_group}), {2});
    return b.Binary(kDivide, sum, CountLike(op, sum, count));
  };
  auto of_channels = [&](Instruction* v) {  // [n, groups] as [n, channels]
    return b.Reshape(b.Broadcast(v, {size.n, size.groups, size.per_group}, {0, 1}), {size.n, size.channels});
  };
  auto affine = [&](int64_t i) {
    return b.Broadcast(b.Convert(op.tensor(i), x->shape().element_type()), {size.n, size.channels}, {1});
  };
  Instruction* mean = mean_of(columns);
  Instruction* channel_mean = of_channels(mean);
  Instruction* centered = b.Binary(kSubtract, columns, SpreadBack(op, channel_mean, columns, {2}));
  Instruction* rstd = ReciprocalRoot(op, mean_of(b.Binary(kMultiply, centered, centered)), op.number(7));
  Instruction* alpha = of_channels(rstd);
  if (!op.is_none(1)) alpha = b.Binary(kMultiply, alpha, affine(1));
  Instruction* below = b.Unary(kNegate, channel_mean);
  Instruction* beta = op.is_none(2) ? b.Binary(kMultiply, below, alpha) : Fma(op, below, alpha, affine(2));
  Instruction* y = Fma(op, columns, SpreadBack(op, alpha, columns, {2}), SpreadBack(op, beta, columns, {2}));
  return {Shaped(op, y, 0), Shaped(op, mean, 1), Shaped(op, rstd, 2)};
}
}  // namespace

// native_group_norm(input, weight?, bias?, N, C, HxW, group, eps) -> output, mean, rstd
Lowering LowerGroupNorm(OpContext& op) {
  Instruction* x = Math(op, 0);
  const Dim channels = op.dim(4), groups = op.integer(6);
  const GroupNormSizes size{
      .n = op.dim(3), .channels = channels, .inner = op.dim(5), .groups = groups, .per_group = FloorDiv(channels, groups)};
  const Permutation layout = LayoutOf(op.result());
  return !layout.empty() && layout[0] == 1 ? GroupNormByColumns(op, x, size) : GroupNormByRows(op, x, size);
}

// (input, weight?, bias?, running_mean, running_var, ..., eps) -> output, save_mean [0], save_rstd [0]
namespace {
Lowering BatchNormInference(OpContext& op, int64_t eps) {
  Instruction* x = Math(op, 0);
  Instruction *mean = Math(op, 3), *rstd = ReciprocalRoot(op, Math(op, 4), op.number(eps));
  const PT type = x->shape().element_type();
  auto converted = [&](Instruction* v) { return v == nullptr ? nullptr : op.b.Convert(v, type); };
  Instruction* y = ScaleAndShift(op, x, converted(mean), converted(rstd), converted(MathOrNull(op, 1)), converted(MathOrNull(op, 2)));
  Values results = {op.b.Convert(y, op.result_type())};
  for (int64_t k = 1; k < op.result_count(); ++k) results.push_back(op.b.Full(op.result_type(k), op.result_dims(k), 0));
  return results;
}
}  // namespace
Lowering LowerBatchNormInference(OpContext& op) { return BatchNormInference(op, 6); }

// native_batch_norm(input, weight?, bias?, running_mean?, running_var?, training, momentum, eps): inference only, training
// changes the running statistics in place.
Lowering LowerNativeBatchNorm(OpContext& op) {
  if (op.boolean(5)) return NotLowered("native_batch_norm in training mode changes its arguments");
  return BatchNormInference(op, 7);
}

// (input, weight?, bias?, training, momentum, eps) -> output, mean, rstd
Lowering LowerBatchNormNoStats(OpContext& op) {
  Instruction* x = Math(op, 0);
  BatchStatistics s = StatisticsOf(op, x, op.number(5));
  Instruction* y = Normalized(op, x, s);
  return Values{op.b.Convert(y, op.result_type()), Shaped(op, s.mean, 1), Shaped(op, s.rstd, 2)};
}

// (input, weight?, bias?, running_mean, running_var, training, momentum, eps)
//   -> output, save_mean, save_rstd, new running_mean, new running_var
Lowering LowerBatchNormFunctional(OpContext& op) {
  if (!op.boolean(5)) {
    TENON_ASSIGN_OR_RETURN(Values results, BatchNormInference(op, 7));
    results[3] = op.tensor(3), results[4] = op.tensor(4);  // as they are
    return results;
  }
  Instruction* x = Math(op, 0);
  BatchStatistics s = StatisticsOf(op, x, op.number(7));
  Instruction* y = Normalized(op, x, s);
  const double momentum = op.number(6);
  return Values{op.b.Convert(y, op.result_type()), Shaped(op, s.mean, 1), Shaped(op, s.rstd, 2),
                Shaped(op, Update(op, op.tensor(3), s.mean, momentum), 3),
                Shaped(op, Update(op, op.tensor(4), Unbiased(op, s, x), momentum), 4)};
}

}  // namespace tenon::aten
