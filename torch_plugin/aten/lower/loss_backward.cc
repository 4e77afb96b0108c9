// Derivatives of pointwise losses, by ATen's kernels (BinaryOpsKernel.cpp, PointwiseOpsKernel.cpp).
#include <functional>

#include "torch_plugin/aten/lower/reduce.h"
#include "torch_plugin/aten/lower/values.h"

namespace tenon::aten {
namespace {

// Argument 0, of each element's loss.
V GradientOf(OpContext& op, int64_t reduction) {
  Dim elements = 1;
  for (Dim d : op.result_dims()) elements *= d;
  V grad = In(op, 0);
  return reduction == 1 ? grad * V{&op, InverseCountLike(op, grad.x, elements)} : grad;
}

// (grad_output, self, target, reduction, limit). `slope` is the derivative in x = self - target where |x| is below the limit (and of
// a NaN), `outside` its size beyond.
Lowering Bent(OpContext& op, const std::function<V(V x)>& slope, double outside) {
  V x = In(op, 1) - In(op, 2), grad = GradientOf(op, op.integer(3));
  const double limit = op.number(4);
  V beyond = grad * outside;
  return Done(Select(Is(x, "LE", -limit), -beyond, Select(Is(x, "GE", limit), beyond, slope(x) * grad)));
}

}  // namespace

// smooth_l1_loss_backward(grad_output, self, target, reduction, beta)
Lowering LowerSmoothL1LossBackward(OpContext& op) {
  const double beta = op.number(4);
  return Bent(op, [beta](V x) { return x / beta; }, 1);
}

// huber_loss_backward(grad_output, self, target, reduction, delta)
Lowering LowerHuberLossBackward(OpContext& op) {
  return Bent(op, [](V x) { return x; }, op.number(4));
}

// binary_cross_entropy_backward(grad_output, self, target, weight?, reduction)
Lowering LowerBinaryCrossEntropyBackward(OpContext& op) {
  V x = In(op, 1), target = In(op, 2);
  V slope = (x - target) / Max((1.0 - x) * x, x.Number(1e-12));
  V grad = GradientOf(op, op.integer(4)) * slope;
  return Done(op.is_none(3) ? grad : grad * In(op, 3));
}

// soft_margin_loss_backward(grad_output, self, target, reduction): NaN where the power overflows, as ATen's
Lowering LowerSoftMarginLossBackward(OpContext& op) {
  if (op.result_type() == PrimitiveType::kF16) return NotLowered("soft_margin_loss of f16");
  V target = In(op, 2), power = Exp(-target * In(op, 1));
  return Done(GradientOf(op, op.integer(3)) * (-target * power / (power + 1)));
}

}  // namespace tenon::aten
