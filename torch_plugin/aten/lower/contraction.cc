// Contractions as HLO dots whose dims are exactly those of ATen's call, so that the backend can make that call (mm, bmm,
// and addmm from dot + add: their op_name says where they come from). Half types stay half: the library accumulates in f32;
// but a product that is scaled is in f32, since the operator rounds once, after scaling, and so is that of addmv, whose sum no
// library step takes in. Convolutions are HLO's, of ATen's order of dims.
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


// A transposed convolution of stride s is one of the input dilated by s, from a padding of dilation * (size - 1) - p on, with the
// kernel turned around.
Lowering LowerConvolution(OpContext& op) {
  Instruction *x = op.tensor(0), *kernel = op.tensor(1), *bias = op.tensor_or_null(2);
  const int64_t spatial = Rank(x) - 2, groups = op.integer(8);
  const bool transposed = op.boolean(6);
  if ((transposed && groups != 1) || !IsFloat(op.result_type())) return NotLowered("library");
  auto list = [&](int64_t i) {
    std::vector<int64_t> values = op.integers(i);
    if (values.size() == 1) values.assign(static_cast<size_t>(spatial), values[0]);
    return values;
  };
  const std::vector<int64_t> stride = list(3), padding = list(4), dilation = list(5), extra = list(7);
  Window window;
  DimLabels labels{.kernel_input_feature = transposed ? 0 : 1, .kernel_output_feature = transposed ? 1 : 0};
  for (int64_t d = 0; d < spatial; ++d) {
    for (std::vector<int64_t>* dims : {&labels.input_spatial, &labels.kernel_spatial, &labels.output_spatial}) dims->push_back(d + 2);
    if (!kernel->shape().dim(d + 2).is_constant()) return NotLowered("library");
    WindowDim w{.size = kernel->shape().constant_dim(d + 2), .window_dilation = dilation[d]};
    if (transposed) {
      w.base_dilation = stride[d];
      w.reversed = true;
      w.padding_low = dilation[d] * (w.size - 1) - padding[d];
      w.padding_high = w.padding_low + extra[d];
    } else {
      w.stride = stride[d];
      w.padding_low = w.padding_high = padding[d];
    }
    window.dims.push_back(w);
  }
  Attributes attrs;
  attrs.set(Attr::kWindow, std::move(window));
  attrs.set(Attr::kDimLabels, std::move(labels));
  if (groups != 1) attrs.set(Attr::kFeatureGroupCount, groups);
  Instruction* y = op.b.Make(kConvolution, {x, kernel}, std::move(attrs));
  // The library's result lies as ATen's does, and so does the sum.
  if (const Permutation layout = LayoutOf(op.result()); !layout.empty()) y->mutable_shape().set_layout(layout);
  if (bias == nullptr) return op.One(y);
  Instruction* sum = op.b.Binary(kAdd, y, op.Along(bias, y, {1}));
  sum->mutable_shape() = y->shape();
  return op.One(sum);
}

}  // namespace tenon::aten
