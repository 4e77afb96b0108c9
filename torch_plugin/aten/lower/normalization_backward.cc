// Derivatives of softmax and the norms.
#include "torch_plugin/aten/lower/reduce.h"

namespace tenon::aten {
namespace {

using enum Opcode;
using PT = PrimitiveType;

Instruction* Mul(OpContext& op, Instruction* a, Instruction* b) { return op.b.Binary(kMultiply, a, b); }
Instruction* Sub(OpContext& op, Instruction* a, Instruction* b) { return op.b.Binary(kSubtract, a, b); }
bool Wanted(OpContext& op, int64_t k) { return op.result(k).kind == Meta::Kind::kTensor && op.result_used(k); }

// output_mask decides which gradients exist; those not wanted are None.
Instruction* IfWanted(OpContext& op, int64_t k, const std::function<Instruction*()>& make) {
  return Wanted(op, k) ? Shaped(op, make(), k) : nullptr;
}

}  // namespace

// (grad, output, dim, input_dtype)
Lowering LowerSoftmaxBackward(OpContext& op) {
  Instruction* grad = Math(op, 0);
  Instruction* y = op.b.Convert(op.tensor(1), grad->shape().element_type());
  std::vector<int64_t> axes;
  if (Rank(y) > 0) axes = {op.axis(2, Rank(y))};
  Instruction* weighted = Mul(op, grad, y);
  Instruction* sum = SpreadBack(op, ReduceSum(op, weighted, axes), y, axes);
  return op.One(Sub(op, weighted, Mul(op, y, sum)));
}
Lowering LowerLogSoftmaxBackward(OpContext& op) {
  Instruction* grad = Math(op, 0);
  Instruction* y = op.b.Convert(op.tensor(1), grad->shape().element_type());
  std::vector<int64_t> axes;
  if (Rank(y) > 0) axes = {op.axis(2, Rank(y))};
  Instruction* sum = SpreadBack(op, ReduceSum(op, grad, axes), y, axes);
  return op.One(Sub(op, grad, Mul(op, op.b.Unary(kExponential, y), sum)));
}

// (grad_out, input, normalized_shape, mean, rstd, weight?, bias?, output_mask) -> grad_input, grad_weight, grad_bias
Lowering LowerLayerNormBackward(OpContext& op) {
  Builder& b = op.b;
  Instruction *grad = Math(op, 0), *x = Math(op, 1);
  const PT type = x->shape().element_type();
  grad = b.Convert(grad, type);
  const int64_t count = static_cast<int64_t>(op.dims(2).size()), outer = Rank(x) - count;
  std::vector<int64_t> inner_axes, outer_axes;
  for (int64_t d = 0; d < Rank(x); ++d) (d < outer ? outer_axes : inner_axes).push_back(d);
  auto per_row = [&](int64_t i) {  // [outer..., 1...] -> x's dims
    std::vector<Dim> dims(x->shape().dims().begin(), x->shape().dims().begin() + outer);
    return SpreadBack(op, b.Reshape(b.Convert(op.tensor(i), type), dims), x, inner_axes);
  };
  Instruction* rstd = per_row(4);
  Instruction* normalized = Mul(op, Sub(op, x, per_row(3)), rstd);
  auto grad_input = [&] {
    Instruction* g = grad;
    if (!op.is_none(5)) g = Mul(op, g, b.Broadcast(b.Convert(op.tensor(5), type), x->shape().dims(), inner_axes));
    const Dim n = CountOf(x, inner_axes);
    auto mean = [&](Instruction* v) {
      Instruction* sum = ReduceSum(op, v, inner_axes);
      return SpreadBack(op, b.Binary(kDivide, sum, CountLike(op, sum, n)), x, inner_axes);
    };
    Instruction* projected = Mul(op, normalized, mean(Mul(op, g, normalized)));
    return Mul(op, rstd, Sub(op, Sub(op, g, mean(g)), projected));
  };
  return Values{IfWanted(op, 0, grad_input),
                IfWanted(op, 1, [&] { return ReduceSum(op, Mul(op, grad, normalized), outer_axes); }),
                IfWanted(op, 2, [&] { return ReduceSum(op, grad, outer_axes); })};
}

// (grad_out, input, mean, rstd, weight?, N, C, HxW, group, output_mask)
Lowering LowerGroupNormBackward(OpContext& op) {
  Builder& b = op.b;
  Instruction *x = Math(op, 1);
  const PT type = x->shape().element_type();
  const Dim n = op.dim(5), c = op.dim(6), hw = op.dim(7);
  const int64_t groups = op.integer(8);
  const Dim per_group = FloorDiv(c, groups);
  const std::vector<Dim> dims = {n, groups, per_group, hw};
  x = b.Reshape(x, dims);
  Instruction* grad = b.Reshape(b.Convert(op.tensor(0), type), dims);
  auto per_group_value = [&](int64_t i) {
    return SpreadBack(op, b.Reshape(b.Convert(op.tensor(i), type), {n, groups}), x, {2, 3});
  };
  Instruction* rstd = per_group_value(3);
  Instruction* normalized = Mul(op, Sub(op, x, per_group_value(2)), rstd);
  auto grad_input = [&] {
    Instruction* g = grad;
    if (!op.is_none(4)) g = Mul(op, g, op.Along(b.Reshape(b.Convert(op.tensor(4), type), {groups, per_group}), x, {1, 2}));
    const Dim count = CountOf(x, {2, 3});
    auto mean = [&](Instruction* v) {
      Instruction* sum = ReduceSum(op, v, {2, 3});
      return SpreadBack(op, b.Binary(kDivide, sum, CountLike(op, sum, count)), x, {2, 3});
    };
    return Mul(op, rstd, Sub(op, Sub(op, g, mean(g)), Mul(op, normalized, mean(Mul(op, g, normalized)))));
  };
  return Values{IfWanted(op, 0, grad_input),
                IfWanted(op, 1, [&] { return ReduceSum(op, Mul(op, grad, normalized), {0, 3}); }),
                IfWanted(op, 2, [&] { return ReduceSum(op, grad, {0, 3}); })};
}

// (grad_out, input, weight?, running_mean?, running_var?, save_mean?, save_rstd?, train, eps, output_mask)
Lowering LowerBatchNormBackward(OpContext& op) {
  Builder& b = op.b;
  Instruction *x = Math(op, 1);
  const PT type = x->shape().element_type();
  Instruction* grad = b.Convert(op.tensor(0), type);
  std::vector<int64_t> axes;
  for (int64_t d = 0; d < Rank(x); ++d) {
    if (d != 1) axes.push_back(d);
  }
  const bool train = op.boolean(7);
  Instruction *mean, *rstd;
  if (train) {
    mean = b.Convert(op.tensor(5), type);
    rstd = b.Convert(op.tensor(6), type);
  } else {
    mean = b.Convert(op.tensor(3), type);
    Instruction* variance = b.Convert(op.tensor(4), type);
    Instruction* root = b.Unary(kSqrt, b.Binary(kAdd, variance, op.Full(variance, op.number(8))));
    rstd = b.Binary(kDivide, op.Full(root, 1), root);
  }
  auto channel = [&](Instruction* v) { return op.Along(v, x, {1}); };
  Instruction* centered = Sub(op, x, channel(mean));
  // Sums to f64, as ATen's (acc_type<float, false>; batch_norm_backward_cpu_template, whose products are f32 in long rows).
  auto wide = [&](Instruction* v) { return b.Convert(v, PT::kF64); };
  auto narrow = [&](Instruction* v) { return b.Convert(v, type); };
  Instruction* sum = WideSum(op, grad, axes);
  // The other way round than `centered`: one value for both would be kept in memory between their kernels.
  Instruction* product = IsFew(CountOf(x, axes)) ? Mul(op, wide(grad), Sub(op, channel(wide(mean)), wide(x)))
                                                 : Mul(op, grad, Sub(op, channel(mean), x));
  Instruction* dot = b.Unary(kNegate, WideSum(op, product, axes));
  auto grad_input = [&] {
    Instruction* scale = op.is_none(2) ? rstd : Mul(op, rstd, b.Convert(op.tensor(2), type));
    if (!train) return Mul(op, grad, channel(scale));
    const Dim n = CountOf(x, axes);
    Instruction* k = narrow(b.Binary(kDivide, Mul(op, Mul(op, dot, wide(rstd)), wide(rstd)), CountLike(op, dot, n)));
    Instruction* grad_mean = narrow(b.Binary(kDivide, sum, CountLike(op, sum, n)));
    Instruction* g = Sub(op, Sub(op, grad, Mul(op, centered, channel(k))), channel(grad_mean));
    return Mul(op, g, channel(scale));
  };
  return Values{IfWanted(op, 0, grad_input), IfWanted(op, 1, [&] { return narrow(Mul(op, dot, wide(rstd))); }),
                IfWanted(op, 2, [&] { return sum; })};
}

}  // namespace tenon::aten
