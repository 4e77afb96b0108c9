// Activations and their derivatives. Formulas: aten/src/ATen/native/cpu/Activation.cpp; half types compute in f32.
#include <cmath>
#include <numbers>

#include "torch_plugin/aten/lower/values.h"

namespace tenon::aten {
namespace {

using enum Opcode;
using PT = PrimitiveType;

double NumberOr(OpContext& op, int64_t i, double otherwise) { return op.is_none(i) ? otherwise : op.number(i); }

constexpr double kSqrtHalf = 0.70710678118654752440;
constexpr double kTanhBeta = std::numbers::sqrt2 * 2 * std::numbers::inv_sqrtpi * 0.5;  // sqrt(2 / pi)
constexpr double kTanhKappa = 0.044715;

// erf where 1 is added to it: beside that only its absolute error counts. Two units in the last place of 1 leave a kernel half the work,
// and a gelu of normal numbers as exact as ATen's. Of numbers too few for ATen's vectors, ATen has every one right, and there is no work.
V ErfBesideOne(V x) {
  constexpr int64_t kAtensVectors = 32;
  V y = x.Unary(kErf);
  const Dim elements = y.x->shape().num_elements();
  const bool few = elements.is_constant() && elements.constant() < kAtensVectors;
  if (y.x->shape().element_type() == PT::kF32 && !few) {
    y.x->mutable_attrs().set(Attr::kResultAccuracy, std::string("{tolerance={atol=2.4e-07,ulps=1}}"));
  }
  return y;
}

bool TanhForm(OpContext& op, int64_t i) { return !op.is_none(i) && op.string(i) == "tanh"; }

}  // namespace

Lowering LowerRelu(OpContext& op) {
  Instruction* x = op.tensor(0);
  if (x->shape().element_type() == PT::kPred) return NotLowered("relu of bool");
  return op.One(op.b.Binary(kMaximum, x, op.Full(x, 0)));
}
Lowering LowerGelu(OpContext& op) {
  V x = In(op, 0);
  if (TanhForm(op, 1)) {
    V inner = (x + x * x * x * kTanhKappa) * kTanhBeta;
    return Done(x * 0.5 * (Tanh(inner) + 1));
  }
  return Done(x * 0.5 * (ErfBesideOne(x * kSqrtHalf) + 1));
}
Lowering LowerSilu(OpContext& op) {
  V x = In(op, 0);
  return Done(x / (Exp(-x) + 1));
}
Lowering LowerMish(OpContext& op) {
  V x = In(op, 0);
  return Done(x * Tanh(Log1p(Exp(x))));
}
Lowering LowerHardtanh(OpContext& op) {
  Instruction* x = op.tensor(0);
  const PT type = op.result_type();
  Instruction* lo = op.Operand(1, type, op.result_dims());
  Instruction* hi = op.Operand(2, type, op.result_dims());
  return op.One(op.b.Binary(kMinimum, op.b.Binary(kMaximum, x, lo), hi));
}
Lowering LowerHardsigmoid(OpContext& op) {
  V x = In(op, 0);
  return Done(Min(Max(x + 3, x.Number(0)), x.Number(6)) / 6);
}
Lowering LowerHardswish(OpContext& op) {
  V x = In(op, 0);
  return Done(x * Min(Max(x + 3, x.Number(0)), x.Number(6)) / 6);
}
Lowering LowerLeakyRelu(OpContext& op) {
  V x = In(op, 0);
  return Done(Select(Is(x, "GT", 0), x, x * NumberOr(op, 1, 0.01)));
}
Lowering LowerPrelu(OpContext& op) {
  V x = In(op, 0), weight = In(op, 1);
  return Done(Select(Is(x, "GT", 0), x, x * weight));
}
// elu(x, alpha, scale, input_scale)
Lowering LowerElu(OpContext& op) {
  V x = In(op, 0);
  const double alpha = NumberOr(op, 1, 1), scale = NumberOr(op, 2, 1), input_scale = NumberOr(op, 3, 1);
  V negative = (x * input_scale).Unary(kExponentialMinusOne) * (alpha * scale);
  return Done(Select(Is(x, "LE", 0), negative, x * scale));
}
Lowering LowerCelu(OpContext& op) {
  V x = In(op, 0);
  const double alpha = NumberOr(op, 1, 1);
  return Done(Select(Is(x, "LE", 0), (x / alpha).Unary(kExponentialMinusOne) * alpha, x));
}
Lowering LowerSoftplus(OpContext& op) {
  V x = In(op, 0);
  const double beta = NumberOr(op, 1, 1), threshold = NumberOr(op, 2, 20);
  return Done(Select(Is(x * beta, "GT", threshold), x, Log1p(Exp(x * beta)) / beta));
}
Lowering LowerSoftshrink(OpContext& op) {
  V x = In(op, 0);
  const double lambda = NumberOr(op, 1, 0.5);
  V inside = Select(Is(x, "LT", -lambda), x + lambda, x * 0.0);  // 0 * x keeps NaN
  return Done(Select(Is(x, "GT", lambda), x - lambda, inside));
}
Lowering LowerHardshrink(OpContext& op) {
  V x = In(op, 0);
  const double lambda = NumberOr(op, 1, 0.5);
  Instruction* inside = op.b.Binary(kAnd, Is(x, "GE", -lambda), Is(x, "LE", lambda));
  return Done(Select(inside, x.Number(0), x));
}
Lowering LowerThreshold(OpContext& op) {
  Instruction* x = op.tensor(0);
  Instruction* keep = op.b.Compare(x, op.Operand(1, op.result_type(), op.result_dims()), "LE");
  return op.One(op.b.Select(keep, op.Operand(2, op.result_type(), op.result_dims()), x));
}
// log_sigmoid_forward -> output, buffer (exp(-|x|) on CPU)
Lowering LowerLogSigmoid(OpContext& op) {
  V x = In(op, 0);
  V buffer = Exp(-x.Unary(kAbs));
  V y = Min(x, x.Number(0)) - Log1p(buffer);
  return Values{op.b.Convert(y.x, op.result_type()),
                op.b.Reshape(op.b.Convert(buffer.x, op.result_type(1)), op.result_dims(1))};
}
Lowering LowerGlu(OpContext& op) {
  Instruction* x = op.b.Convert(op.tensor(0), OpMath(op.result_type()));
  const int64_t axis = op.axis(1, x->shape().rank());
  const Dim half = op.result_dims()[axis];
  V a{&op, op.b.SliceDim(x, axis, 0, half)}, gate{&op, op.b.SliceDim(x, axis, half, half + half)};
  return Done(a * Sigmoid(gate));
}

// ---- derivatives: (grad, x or y, ...)
Lowering LowerThresholdBackward(OpContext& op) {
  V grad = In(op, 0), x = In(op, 1);
  return Done(Select(Is(x, "LE", op.number(2)), grad.Number(0), grad));
}
Lowering LowerGeluBackward(OpContext& op) {
  V grad = In(op, 0), x = In(op, 1);
  if (TanhForm(op, 2)) {
    V inner = (x + x * x * x * kTanhKappa) * kTanhBeta;
    V t = Tanh(inner);
    V left = (t + 1) * 0.5;
    V right = x * 0.5 * (1 - t * t) * ((x * x * (3 * kTanhKappa) + 1) * kTanhBeta);
    return Done(grad * (left + right));
  }
  V cdf = (ErfBesideOne(x * kSqrtHalf) + 1) * 0.5;
  V pdf = Exp(x * x * -0.5) * (std::numbers::inv_sqrtpi * kSqrtHalf);  // 1 / sqrt(2 pi)
  return Done(grad * (cdf + x * pdf));
}
Lowering LowerSiluBackward(OpContext& op) {
  V grad = In(op, 0), x = In(op, 1), s = Sigmoid(x);
  return Done(grad * s * (x * (1 - s) + 1));
}
Lowering LowerTanhBackward(OpContext& op) {
  V grad = In(op, 0), y = In(op, 1);
  return Done(grad * Conjugate(1 - y * y));
}
Lowering LowerSigmoidBackward(OpContext& op) {
  V grad = In(op, 0), y = In(op, 1);
  if (IsComplex(op.result_type())) return Done(grad * Conjugate((1 - y) * y));
  return Done(grad * (1 - y) * y);
}
Lowering LowerHardtanhBackward(OpContext& op) {
  V grad = In(op, 0), x = In(op, 1);
  Instruction* outside = op.b.Binary(kOr, Is(x, "LE", op.number(2)), Is(x, "GE", op.number(3)));
  return Done(Select(outside, grad.Number(0), grad));
}
Lowering LowerHardsigmoidBackward(OpContext& op) {
  V grad = In(op, 0), x = In(op, 1);
  Instruction* inside = op.b.Binary(kAnd, Is(x, "GT", -3), Is(x, "LT", 3));
  return Done(Select(inside, grad * (1.0f / 6.0f), grad.Number(0)));
}
// NaN is in the middle, as in ATen's vectors; of ELU it is among the negative.
Lowering LowerHardswishBackward(OpContext& op) {
  V grad = In(op, 0), x = In(op, 1);
  V middle = grad * (x / 3 + 0.5);
  return Done(Select(Is(x, "LE", -3), grad.Number(0), Select(Is(x, "GE", 3), grad, middle)));
}
Lowering LowerLeakyReluBackward(OpContext& op) {
  V grad = In(op, 0), x = In(op, 1);
  return Done(Select(Is(x, "GT", 0), grad, grad * op.number(2)));
}
// elu_backward(grad, alpha, scale, input_scale, is_result, self_or_result)
Lowering LowerEluBackward(OpContext& op) {
  V grad = In(op, 0), y = In(op, 5);
  const double alpha = op.number(1), scale = op.number(2), input_scale = op.number(3);
  V negative = op.boolean(4) ? grad * input_scale * (y + alpha * scale)
                             : grad * Exp(y * input_scale) * (input_scale * alpha * scale);
  return Done(Select(Is(y, "GT", 0), grad * scale, negative));
}
Lowering LowerSoftplusBackward(OpContext& op) {
  V grad = In(op, 0), x = In(op, 1);
  const double beta = op.number(2), threshold = op.number(3);
  V z = Exp(x * beta);
  return Done(Select(Is(x * beta, "GT", threshold), grad, grad * z / (z + 1)));
}
Lowering LowerMishBackward(OpContext& op) {
  V grad = In(op, 0), x = In(op, 1);
  V s = Sigmoid(x), t = Tanh(Log1p(Exp(x)));
  return Done(grad * (t + x * s * (1 - t * t)));
}
Lowering LowerLogSigmoidBackward(OpContext& op) {
  V grad = In(op, 0), x = In(op, 1);
  V z = Exp(-x.Unary(kAbs));
  Instruction* negative = Is(x, "LT", 0);
  V sign = Select(negative, x.Number(1), x.Number(-1));
  V max_derivative = Select(negative, x.Number(1), x.Number(0));
  return Done(grad * (max_derivative - sign * (z / (z + 1))));
}

}  // namespace tenon::aten
