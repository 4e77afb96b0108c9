// Tensors from nothing: full, arange, eye.
#include <cmath>

#include "torch_plugin/aten/lower/reduce.h"

namespace tenon::aten {
namespace {

using enum Opcode;
using PT = PrimitiveType;

Lowering Filled(OpContext& op, double value) { return Values{op.b.Full(op.result_type(), op.result_dims(), value)}; }

Lowering FilledWith(OpContext& op, int64_t i) {
  Instruction* x = op.is_tensor(i) ? op.Cast(op.tensor(i), op.result_type())
                                   : op.NumberConstant(op.arg(i), op.result_type());
  return Values{op.b.BroadcastTo(op.b.Reshape(x, {}), op.result_dims())};
}

// start + i * step. ATen computes in the accumulate type of the dtype: s64 for integers, f64 for floats on CPU; f32 and
// halves are exact enough in f32 only while i is, so the index is multiplied in f64.
Lowering Range(OpContext& op, const FrameworkArg& start, const FrameworkArg& step) {
  const PT type = op.result_type();
  const PT math = IsIntegral(type) ? PT::kS64 : PT::kF64;
  Builder& b = op.b;
  Instruction* i = b.Iota(Shape(IsIntegral(type) ? type : math, op.result_dims()), 0);
  auto constant = [&](const FrameworkArg& a) {
    return b.BroadcastTo(op.NumberConstant(a, i->shape().element_type()), op.result_dims());
  };
  const bool unit = step.kind == FrameworkArg::Kind::kInt && step.i == 1;
  const bool from_zero = start.kind == FrameworkArg::Kind::kInt && start.i == 0;
  if (!unit) i = b.Binary(kMultiply, i, constant(step));
  if (!from_zero) i = b.Binary(kAdd, i, constant(start));
  return op.One(i);
}

}  // namespace

// Zeros, or what PyTorch's deterministic mode fills new memory with.
Lowering LowerEmpty(OpContext& op) {
  if (!op.options().fill_empty) return Filled(op, 0);
  const PT type = op.result_type();
  if (IsComplex(type)) {
    Instruction* part = op.Scalar(ComplexComponent(type), NAN);
    return Values{op.b.BroadcastTo(op.b.Binary(kComplex, part, part), op.result_dims())};
  }
  if (IsFloat(type)) return Filled(op, NAN);
  return Values{op.b.BroadcastTo(LimitConstant(op, type, /*lowest=*/false), op.result_dims())};
}

Lowering LowerZeros(OpContext& op) { return Filled(op, 0); }
Lowering LowerOnes(OpContext& op) { return Filled(op, 1); }
Lowering LowerFull(OpContext& op) { return FilledWith(op, 1); }
Lowering LowerNewFull(OpContext& op) { return FilledWith(op, 2); }
Lowering LowerScalarTensor(OpContext& op) { return FilledWith(op, 0); }

Lowering LowerArange(OpContext& op) { return Range(op, FrameworkArg::Int(0), FrameworkArg::Int(1)); }
Lowering LowerArangeStart(OpContext& op) { return Range(op, op.arg(0), FrameworkArg::Int(1)); }
Lowering LowerArangeStep(OpContext& op) { return Range(op, op.arg(0), op.arg(2)); }
Lowering LowerEye(OpContext& op) {
  Builder& b = op.b;
  const Shape index(PT::kS64, op.result_dims());
  return op.One(b.Compare(b.Iota(index, 0), b.Iota(index, 1), "EQ"));
}
// linspace(start, end, steps): from both ends to the middle, as ATen does. Of integers the ends are truncated, and steps between are f64.
Lowering LowerLinspace(OpContext& op) {
  Builder& b = op.b;
  const int64_t steps = op.integer(2);
  const PT type = op.result_type(), math = IsFloat(type) || IsComplex(type) ? OpMath(type) : PT::kF64;
  auto bound = [&](int64_t i) {
    const PT given = IsIntegral(type) ? type : math;
    Instruction* x = op.is_tensor(i) ? op.Cast(op.tensor(i), given) : op.NumberConstant(op.arg(i), given);
    return b.BroadcastTo(b.Convert(x, math), op.result_dims());
  };
  Instruction *start = bound(0), *end = bound(1);
  if (steps <= 1) return op.One(start);
  Instruction* at = b.Iota(Shape(PT::kS64, op.result_dims()), 0);
  Instruction* i = b.Convert(at, math);
  Instruction* size = b.Binary(kDivide, b.Binary(kSubtract, end, start), op.Full(i, static_cast<double>(steps - 1)));
  Instruction* up = b.Binary(kAdd, start, b.Binary(kMultiply, size, i));
  Instruction* left = b.Binary(kSubtract, op.Full(i, static_cast<double>(steps - 1)), i);
  Instruction* down = b.Binary(kSubtract, end, b.Binary(kMultiply, size, left));
  return op.One(b.Select(b.Compare(at, op.Full(at, static_cast<double>(steps / 2)), "LT"), up, down));
}

}  // namespace tenon::aten
