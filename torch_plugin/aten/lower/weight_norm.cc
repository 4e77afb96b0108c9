// Weight normalization along the first or the last dim (aten/src/ATen/native/cpu/WeightNormKernel.cpp).
#include "torch_plugin/aten/lower/reduce.h"

namespace tenon::aten {
namespace {

using enum Opcode;
using PT = PrimitiveType;

// All dims but `kept`.
std::vector<int64_t> Others(int64_t rank, int64_t kept) {
  std::vector<int64_t> axes;
  for (int64_t d = 0; d < rank; ++d) {
    if (d != kept) axes.push_back(d);
  }
  return axes;
}

}  // namespace

// _weight_norm_interface(v, g, dim) -> v g / |v|, |v|
Lowering LowerWeightNorm(OpContext& op) {
  Builder& b = op.b;
  Instruction *v = Math(op, 0), *g = Math(op, 1);
  const std::vector<int64_t> axes = Others(Rank(v), op.axis(2, Rank(v)));
  Instruction* norm = b.Unary(kSqrt, ReduceSum(op, b.Binary(kMultiply, v, v), axes));
  Instruction* scale = b.Binary(kDivide, b.Reshape(g, norm->shape().dims()), norm);
  return Values{Shaped(op, b.Binary(kMultiply, v, SpreadBack(op, scale, v, axes)), 0), Shaped(op, norm, 1)};
}

// _weight_norm_interface_backward(grad_w, saved_v, saved_g, saved_norms, dim) -> grad_v, grad_g
Lowering LowerWeightNormBackward(OpContext& op) {
  Builder& b = op.b;
  Instruction *grad = Math(op, 0), *v = Math(op, 1), *g = Math(op, 2), *norm = Math(op, 3);
  const std::vector<int64_t> axes = Others(Rank(v), op.axis(4, Rank(v)));
  Instruction* sum = ReduceSum(op, b.Binary(kMultiply, grad, v), axes);
  norm = b.Reshape(b.Convert(norm, v->shape().element_type()), sum->shape().dims());
  Instruction* along = b.Binary(kDivide, sum, norm);  // the gradient along v's direction
  Instruction* scale = b.Binary(kDivide, b.Reshape(g, sum->shape().dims()), norm);
  Instruction* share = SpreadBack(op, b.Binary(kDivide, along, norm), v, axes);
  Instruction* across = b.Binary(kSubtract, grad, b.Binary(kMultiply, v, share));
  return Values{Shaped(op, b.Binary(kMultiply, across, SpreadBack(op, scale, v, axes)), 0), Shaped(op, along, 1)};
}

}  // namespace tenon::aten
