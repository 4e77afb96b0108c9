// Derivatives of pointwise losses, by ATen's kernels (BinaryOpsKernel.cpp, PointwiseOpsKernel.cpp).
#include <functional>

#include "torch_plugin/aten/lower/reduce.h"
#include "torch_plugin/aten/lower/values.h"

namespace tenon::aten {
namespace {

// (grad_output, self, target, reduction, limit). `slope` is the derivative in x = self - target where |x| is below the limit (and of
// a NaN), `outside` its size beyond.
Lowering Bent(OpContext& op, const std::function<V(V x)>& slope, double outside) {
  Dim elements = 1;
  for (Dim d : op.result_dims()) elements *= d;
  V x = In(op, 1) - In(op, 2), grad = In(op, 0);
  if (op.integer(3) == 1) grad = grad * V{&op, InverseCountLike(op, grad.x, elements)};  // of a mean
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

}  // namespace tenon::aten
