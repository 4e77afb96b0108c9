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

namespace {

using Ints = std::vector<int64_t>;

// What the windows of an operator are, of as many numbers as there are spatial dims.
struct Windows {
  Ints stride, padding, dilation;
};

Ints PerDim(OpContext& op, int64_t argument, int64_t spatial) {
  Ints values = op.integers(argument);
  if (values.size() == 1) values.assign(static_cast<size_t>(spatial), values[0]);
  return values;
}

DimLabels Labels(int64_t spatial) {
  DimLabels labels{.kernel_input_feature = 1, .kernel_output_feature = 0};
  for (int64_t d = 2; d < spatial + 2; ++d) {
    for (Ints* dims : {&labels.input_spatial, &labels.kernel_spatial, &labels.output_spatial}) dims->push_back(d);
  }
  return labels;
}

Instruction* MakeConvolution(OpContext& op, Instruction* x, Instruction* kernel, Window window, DimLabels labels, Attr grouped,
                             int64_t groups) {
  Attributes attrs;
  attrs.set(Attr::kWindow, std::move(window));
  attrs.set(Attr::kDimLabels, std::move(labels));
  if (groups != 1) attrs.set(grouped, groups);
  return op.b.Make(kConvolution, {x, kernel}, std::move(attrs));
}

// x [batch, features, ...] by a kernel [features of the result, features of a group, ...]; `high`: paddings behind, where they are others.
Instruction* Plain(OpContext& op, Instruction* x, Instruction* kernel, const Windows& w, int64_t groups, const Ints& high = {}) {
  const int64_t spatial = Rank(x) - 2;
  Window window;
  for (int64_t d = 0; d < spatial; ++d) {
    window.dims.push_back({.size = kernel->shape().constant_dim(d + 2), .stride = w.stride[d], .padding_low = w.padding[d],
                           .padding_high = high.empty() ? w.padding[d] : high[d], .window_dilation = w.dilation[d]});
  }
  return MakeConvolution(op, x, kernel, std::move(window), Labels(spatial), Attr::kFeatureGroupCount, groups);
}

// The gradient of Plain's x, which is what a transposed convolution is: of stride s it is one of x dilated by s, from a padding of
// dilation * (size - 1) - p on, with the kernel turned around. kernel [features of x, features of a group of the result, ...]; `extra`:
// elements that the result has behind.
Instruction* Transposed(OpContext& op, Instruction* x, Instruction* kernel, const Windows& w, const Ints& extra, int64_t groups) {
  const int64_t spatial = Rank(x) - 2;
  Window window;
  for (int64_t d = 0; d < spatial; ++d) {
    const int64_t size = kernel->shape().constant_dim(d + 2), low = w.dilation[d] * (size - 1) - w.padding[d];
    window.dims.push_back({.size = size, .padding_low = low, .padding_high = low + extra[d], .base_dilation = w.stride[d],
                           .window_dilation = w.dilation[d], .reversed = true});
  }
  DimLabels labels = Labels(spatial);
  std::swap(labels.kernel_input_feature, labels.kernel_output_feature);
  if (groups != 1) {  // [groups of x's features, features] -> [x's features of a group, groups of features]
    std::vector<Dim> dims(kernel->shape().dims().begin(), kernel->shape().dims().end());
    const Dim in = FloorDiv(dims[0], groups), out = dims[1];
    dims[0] = in;
    dims.insert(dims.begin(), groups);
    Ints order;
    for (size_t d = 0; d < dims.size(); ++d) order.push_back(static_cast<int64_t>(d));
    std::swap(order[0], order[1]);
    kernel = op.b.Transpose(op.b.Reshape(kernel, dims), order);
    dims.erase(dims.begin());
    dims[1] = out * groups;
    kernel = op.b.Reshape(kernel, dims);
  }
  return MakeConvolution(op, x, kernel, std::move(window), std::move(labels), Attr::kFeatureGroupCount, groups);
}

// The gradient of Plain's kernel, of these sizes, from that of its result: batches are summed, and each tap is a window of the result's
// size.
Instruction* KernelGradient(OpContext& op, Instruction* x, Instruction* grad, const Ints& sizes, const Windows& w, int64_t groups) {
  const int64_t spatial = Rank(x) - 2;
  Window window;
  for (int64_t d = 0; d < spatial; ++d) {
    const int64_t places = grad->shape().constant_dim(d + 2), reach = w.dilation[d] * (sizes[d] - 1) + w.stride[d] * (places - 1) + 1;
    window.dims.push_back({.size = places, .stride = w.dilation[d], .padding_low = w.padding[d],
                           .padding_high = reach - x->shape().constant_dim(d + 2) - w.padding[d], .window_dilation = w.stride[d]});
  }
  DimLabels labels = Labels(spatial);
  labels.input_batch = labels.kernel_output_feature = labels.output_batch = 1;
  labels.input_feature = labels.kernel_input_feature = labels.output_feature = 0;
  return MakeConvolution(op, x, grad, std::move(window), std::move(labels), Attr::kBatchGroupCount, groups);
}

// Numbers, of one or more.
bool KnownSpatialDims(Instruction* x) {
  for (int64_t d = 2; d < Rank(x); ++d) {
    if (x->shape().dim(d).constant_or(0) < 1) return false;
  }
  return true;
}

// As ATen's result lies, and what is added to it.
Instruction* LyingAs(Instruction* x, const Meta& meta) {
  if (const Permutation layout = LayoutOf(meta); !layout.empty()) x->mutable_shape().set_layout(layout);
  return x;
}

}  // namespace

// x, kernel, bias, stride, padding, dilation, transposed, output_padding, groups
Lowering LowerConvolution(OpContext& op) {
  Instruction *x = op.tensor(0), *kernel = op.tensor(1), *bias = op.tensor_or_null(2);
  const int64_t spatial = Rank(x) - 2, groups = op.integer(8);
  if (!IsFloat(op.result_type()) || !KnownSpatialDims(kernel)) return NotLowered(kByLibrary);
  const Windows w{PerDim(op, 3, spatial), PerDim(op, 4, spatial), PerDim(op, 5, spatial)};
  Instruction* y = op.boolean(6) ? Transposed(op, x, kernel, w, PerDim(op, 7, spatial), groups) : Plain(op, x, kernel, w, groups);
  LyingAs(y, op.result());
  if (bias == nullptr) return op.One(y);
  Instruction* sum = op.b.Binary(kAdd, y, op.Along(bias, y, {1}));
  sum->mutable_shape() = y->shape();
  return op.One(sum);
}

// grad, x, kernel, bias sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask -> of x, of the kernel, of the
// bias
Lowering LowerConvolutionBackward(OpContext& op) {
  Instruction *grad = op.tensor(0), *x = op.tensor(1), *kernel = op.tensor(2);
  const int64_t spatial = Rank(x) - 2, groups = op.integer(9);
  const bool transposed = op.boolean(7);
  for (Instruction* operand : {grad, x, kernel}) {
    if (!IsFloat(operand->shape().element_type()) || !KnownSpatialDims(operand)) return NotLowered(kByLibrary);
  }
  const Windows w{PerDim(op, 4, spatial), PerDim(op, 5, spatial), PerDim(op, 6, spatial)};
  const auto wanted = [&](int64_t k) { return op.result(k).kind == Meta::Kind::kTensor; };
  Values gradients(3, nullptr);
  // By which x is longer than what a window's last place reaches; of a transposed one, the result.
  Ints beyond, sizes, high;
  for (int64_t d = 0; d < spatial; ++d) {
    const Instruction *longer = transposed ? grad : x, *shorter = transposed ? x : grad;
    sizes.push_back(kernel->shape().constant_dim(d + 2));
    const int64_t places = shorter->shape().constant_dim(d + 2), reach = w.dilation[d] * (sizes[d] - 1) + w.stride[d] * (places - 1) + 1;
    beyond.push_back(longer->shape().constant_dim(d + 2) + 2 * w.padding[d] - reach);
    high.push_back(w.padding[d] - (beyond[d] < w.stride[d] ? 0 : beyond[d]));
  }
  if (wanted(0)) gradients[0] = transposed ? Plain(op, grad, kernel, w, groups, high) : Transposed(op, grad, kernel, w, beyond, groups);
  if (wanted(1)) gradients[1] = KernelGradient(op, transposed ? grad : x, transposed ? x : grad, sizes, w, groups);
  for (int64_t k = 0; k < 2; ++k) {
    if (gradients[k] != nullptr) LyingAs(gradients[k], op.result(k));
  }
  if (wanted(2)) {
    const PrimitiveType type = OpMath(op.result_type(2));
    Ints others = {0};
    for (int64_t d = 2; d < Rank(grad); ++d) others.push_back(d);
    gradients[2] = op.b.Convert(op.b.Reduce(op.b.Convert(grad, type), op.Scalar(type, 0), others, kAdd), op.result_type(2));
  }
  return gradients;
}

}  // namespace tenon::aten
