// Contractions as HLO dots whose dims are exactly those of ATen's call, so that the backend can make that call (mm, bmm,
// and addmm from dot + add: their op_name says where they come from). Half types stay half: the library accumulates in f32.
#include "torch_plugin/aten/lower/op_context.h"

namespace tenon::aten {
namespace {

using enum Opcode;

Instruction* Mm(OpContext& op, int64_t ia, int64_t ib) {
  return op.b.Dot(op.tensor(ia), op.tensor(ib), {}, {}, {1}, {0});
}
Instruction* Bmm(OpContext& op, int64_t ia, int64_t ib) {
  return op.b.Dot(op.tensor(ia), op.tensor(ib), {0}, {0}, {2}, {1});
}

Instruction* Scaled(OpContext& op, Instruction* x, int64_t factor) {
  if (op.is_none(factor) || op.number(factor) == 1) return x;
  Instruction* f = op.b.BroadcastTo(op.NumberConstant(op.arg(factor), x->shape().element_type()), x->shape().dims());
  return op.b.Binary(kMultiply, x, f);
}

// beta * self + alpha * product; beta == 0 ignores self, NaN and all.
Lowering AddProduct(OpContext& op, Instruction* product, int64_t beta, int64_t alpha) {
  product = Scaled(op, product, alpha);
  if (!op.is_none(beta) && op.number(beta) == 0) return op.One(product);
  Instruction* self = op.b.BroadcastTo(op.b.Convert(op.tensor(0), product->shape().element_type()), op.result_dims());
  return op.One(op.b.Binary(kAdd, product, Scaled(op, self, beta)));
}

}  // namespace

Lowering LowerMm(OpContext& op) { return op.One(Mm(op, 0, 1)); }
Lowering LowerBmm(OpContext& op) { return op.One(Bmm(op, 0, 1)); }
Lowering LowerAddmm(OpContext& op) { return AddProduct(op, Mm(op, 1, 2), 3, 4); }
Lowering LowerBaddbmm(OpContext& op) { return AddProduct(op, Bmm(op, 1, 2), 3, 4); }
Lowering LowerMv(OpContext& op) { return op.One(op.b.Dot(op.tensor(0), op.tensor(1), {}, {}, {1}, {0})); }
Lowering LowerVdot(OpContext& op) { return op.One(op.b.Dot(op.tensor(0), op.tensor(1), {}, {}, {0}, {0})); }
Lowering LowerAddmv(OpContext& op) {
  return AddProduct(op, op.b.Dot(op.tensor(1), op.tensor(2), {}, {}, {1}, {0}), 3, 4);
}

}  // namespace tenon::aten
