// Contractions as HLO dots whose dims are exactly those of ATen's call, so that the backend can make that call (mm, bmm,
// and addmm from dot + add: their op_name says where they come from). Half types stay half: the library accumulates in f32;
// but a product that is scaled is in f32, since the operator rounds once, after scaling, and so is that of addmv, whose sum no
// library step takes in.
#include "torch_plugin/aten/lower/op_context.h"

namespace tenon::aten {
namespace {

using enum Opcode;

Instruction* Mm(OpContext& op, Instruction* a, Instruction* b) { return op.b.Dot(a, b, {}, {}, {1}, {0}); }
Instruction* Bmm(OpContext& op, Instruction* a, Instruction* b) { return op.b.Dot(a, b, {0}, {0}, {2}, {1}); }
Instruction* Mv(OpContext& op, Instruction* a, Instruction* b) { return op.b.Dot(a, b, {}, {}, {1}, {0}); }

Instruction* Scaled(OpContext& op, Instruction* x, int64_t factor) {
  if (op.is_none(factor) || op.equals(factor, 1)) return x;
  Instruction* f = op.b.BroadcastTo(op.NumberConstant(op.arg(factor), x->shape().element_type()), x->shape().dims());
  return op.b.Binary(kMultiply, x, f);
}

// self, a, b, beta, alpha: beta * self + alpha * a b; beta == 0 ignores self, NaN and all.
Lowering AddProduct(OpContext& op, Instruction* multiply(OpContext&, Instruction*, Instruction*), bool wide = false) {
  const auto is_scaled = [&](int64_t i) { return !op.is_none(i) && !op.equals(i, 1); };
  wide = wide || is_scaled(3) || is_scaled(4);
  const PrimitiveType type = wide ? OpMath(op.result_type()) : op.result_type();
  const auto operand = [&](int64_t i) { return op.b.Convert(op.tensor(i), type); };
  Instruction* product = Scaled(op, multiply(op, operand(1), operand(2)), 4);
  if (op.equals(3, 0)) return op.One(op.b.Convert(product, op.result_type()));
  Instruction* self = op.b.BroadcastTo(operand(0), op.result_dims());
  return op.One(op.b.Convert(op.b.Binary(kAdd, product, Scaled(op, self, 3)), op.result_type()));
}

}  // namespace

Lowering LowerMm(OpContext& op) { return op.One(Mm(op, op.tensor(0), op.tensor(1))); }
Lowering LowerBmm(OpContext& op) { return op.One(Bmm(op, op.tensor(0), op.tensor(1))); }
Lowering LowerMv(OpContext& op) { return op.One(Mv(op, op.tensor(0), op.tensor(1))); }
Lowering LowerDot(OpContext& op) { return op.One(op.b.Dot(op.tensor(0), op.tensor(1), {}, {}, {0}, {0})); }
Lowering LowerVdot(OpContext& op) { return op.One(op.b.Dot(Conjugate(op, op.tensor(0)), op.tensor(1), {}, {}, {0}, {0})); }
Lowering LowerAddmm(OpContext& op) { return AddProduct(op, Mm); }
Lowering LowerBaddbmm(OpContext& op) { return AddProduct(op, Bmm); }
Lowering LowerAddmv(OpContext& op) { return AddProduct(op, Mv, /*wide=*/true); }

}  // namespace tenon::aten
