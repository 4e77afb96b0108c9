// Arithmetic on values of one type and shape, written as arithmetic: for the formulas of activations and special functions.
#pragma once

#include <string_view>

#include "torch_plugin/aten/lower/op_context.h"

namespace tenon::aten {

struct V {
  OpContext* op;
  Instruction* x;
  V Number(double n) const { return {op, op->Full(x, n)}; }
  V Unary(Opcode opcode) const { return {op, op->b.Unary(opcode, x)}; }
  V As(PrimitiveType type) const { return {op, op->b.Convert(x, type)}; }
};
inline V Make(V a, V b, Opcode opcode) { return {a.op, a.op->b.Binary(opcode, a.x, b.x)}; }
inline V operator+(V a, V b) { return Make(a, b, Opcode::kAdd); }
inline V operator-(V a, V b) { return Make(a, b, Opcode::kSubtract); }
inline V operator*(V a, V b) { return Make(a, b, Opcode::kMultiply); }
inline V operator/(V a, V b) { return Make(a, b, Opcode::kDivide); }
inline V operator+(V a, double n) { return a + a.Number(n); }
inline V operator-(V a, double n) { return a - a.Number(n); }
inline V operator-(double n, V a) { return a.Number(n) - a; }
inline V operator*(V a, double n) { return a * a.Number(n); }
inline V operator/(V a, double n) { return a / a.Number(n); }
inline V operator/(double n, V a) { return a.Number(n) / a; }
inline V operator-(V a) { return a.Unary(Opcode::kNegate); }
inline Instruction* Is(V a, std::string_view direction, V b) { return a.op->b.Compare(a.x, b.x, direction); }
inline Instruction* Is(V a, std::string_view direction, double n) { return Is(a, direction, a.Number(n)); }
inline V Select(Instruction* pred, V a, V b) { return {a.op, a.op->b.Select(pred, a.x, b.x)}; }
inline V Exp(V a) { return a.Unary(Opcode::kExponential); }
inline V Log(V a) { return a.Unary(Opcode::kLog); }
inline V Log1p(V a) { return a.Unary(Opcode::kLogPlusOne); }
inline V Sqrt(V a) { return a.Unary(Opcode::kSqrt); }
inline V Abs(V a) { return a.Unary(Opcode::kAbs); }
inline V Conjugate(V a) { return {a.op, Conjugate(*a.op, a.x)}; }  // a itself if it isn't complex
inline V Floor(V a) { return a.Unary(Opcode::kFloor); }
inline V Tanh(V a) { return a.Unary(Opcode::kTanh); }
inline V Sigmoid(V a) { return a.Unary(Opcode::kLogistic); }
inline V Min(V a, V b) { return Make(a, b, Opcode::kMinimum); }
inline V Max(V a, V b) { return Make(a, b, Opcode::kMaximum); }

// Tensor argument i in the dtype of the computation, with the result's dims.
inline V In(OpContext& op, int64_t i) {
  const PrimitiveType math = OpMath(op.result_type());
  return {&op, op.b.BroadcastTo(op.b.Convert(op.tensor(i), math), op.result_dims())};
}
inline Lowering Done(V v) { return v.op->One(v.x); }

}  // namespace tenon::aten
