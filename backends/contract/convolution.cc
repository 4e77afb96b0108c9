// host.convolution: convolutions by the library of the host; transposed ones: those of a dilated base with a reversed kernel, as which
// the gradient of an input comes; and gradients of kernels, whose windows are as large as the result of the convolution was.
#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "backends/contract/provider.h"
#include "hlo/check.h"

namespace tenon {
namespace {

// The arguments of the library's function.
struct Geometry {
  bool transposed = false;
  std::vector<int64_t> stride, padding, dilation, output_padding;
  int64_t groups = 1;
};

// A transposed convolution of stride s reads its input dilated by s, from a padding of dilation * (size - 1) - p on, with the kernel
// turned around.
absl::Status AddTransposed(const WindowDim& w, Geometry* g) {
  const int64_t reach = w.window_dilation * (w.size - 1);
  const int64_t padding = reach - w.padding_low, extra = w.padding_high - w.padding_low;
  if (w.stride != 1 || (!w.reversed && w.size > 1)) return absl::UnimplementedError("a dilated base without a reversed kernel");
  if (padding < 0 || extra < 0 || extra >= std::max(w.base_dilation, w.window_dilation)) {
    return absl::UnimplementedError("the paddings of a dilated base are no transposed convolution's");
  }
  g->stride.push_back(w.base_dilation);
  g->padding.push_back(padding);
  g->dilation.push_back(w.window_dilation);
  g->output_padding.push_back(extra);
  return absl::OkStatus();
}

absl::Status AddPlain(const WindowDim& w, Geometry* g) {
  if (w.base_dilation != 1 || (w.reversed && w.size > 1)) return absl::UnimplementedError("a dilated base in some dims");
  if (w.padding_low != w.padding_high) return absl::UnimplementedError("padding that differs at the ends");
  if (w.padding_low < 0) return absl::UnimplementedError("negative padding");
  g->stride.push_back(w.stride);
  g->padding.push_back(w.padding_low);
  g->dilation.push_back(w.window_dilation);
  g->output_padding.push_back(0);
  return absl::OkStatus();
}

Window WindowOf(const Instruction& convolution) {
  Window window = convolution.attrs().get_or<Window>(Attr::kWindow, {});
  window.dims.resize(convolution.attrs().get<DimLabels>(Attr::kDimLabels).input_spatial.size());
  return window;
}

// Of the convolution whose kernel this is the gradient of. A window's steps are that one's dilation, and the other way round.
absl::Status AddGradient(const WindowDim& w, Dim size, Dim taps, Geometry* g) {
  if (w.base_dilation != 1 || (w.reversed && w.size > 1)) return absl::UnimplementedError("a kernel's gradient of a dilated base");
  if (!size.is_constant() || !taps.is_constant()) return absl::UnimplementedError("a kernel's gradient of sizes that are symbols");
  const int64_t room = size.constant() + 2 * w.padding_low - w.stride * (taps.constant() - 1) - 1;
  if (w.padding_low < 0 || room < 0 || room / w.window_dilation + 1 != w.size) {
    return absl::UnimplementedError("paddings that are no kernel's gradient's");
  }
  g->stride.push_back(w.window_dilation);
  g->padding.push_back(w.padding_low);
  g->dilation.push_back(w.stride);
  return absl::OkStatus();
}

absl::StatusOr<Geometry> GradientOf(const Instruction& convolution) {
  const DimLabels& l = convolution.attrs().get<DimLabels>(Attr::kDimLabels);
  Geometry g{.groups = convolution.attrs().get_or<int64_t>(Attr::kBatchGroupCount, 1)};
  if (convolution.attrs().get_or<int64_t>(Attr::kFeatureGroupCount, 1) != 1) return absl::UnimplementedError("groups of both kinds");
  const Window window = WindowOf(convolution);
  for (size_t d = 0; d < window.dims.size(); ++d) {
    TENON_RETURN_IF_ERROR(AddGradient(window.dims[d], convolution.operand(0)->shape().dim(l.input_spatial[d]),
                                      convolution.shape().dim(l.output_spatial[d]), &g));
  }
  return g;
}

absl::StatusOr<Geometry> GeometryOf(const Instruction& convolution) {
  const Window window = WindowOf(convolution);
  const size_t spatial = window.dims.size();
  if (spatial < 1 || spatial > 3) return absl::UnimplementedError(absl::StrCat(spatial, " spatial dims"));
  if (IsKernelGradient(convolution)) return GradientOf(convolution);
  Geometry g{.groups = convolution.attrs().get_or<int64_t>(Attr::kFeatureGroupCount, 1)};
  g.transposed = absl::c_any_of(window.dims, [](const WindowDim& w) { return w.base_dilation != 1 || (w.reversed && w.size > 1); });
  for (const WindowDim& w : window.dims) TENON_RETURN_IF_ERROR(g.transposed ? AddTransposed(w, &g) : AddPlain(w, &g));
  return g;
}

StridedView Permuted(const StridedView& view, std::vector<int64_t> first, const std::vector<int64_t>& spatial) {
  first.insert(first.end(), spatial.begin(), spatial.end());
  StridedView permuted{.buffer = view.buffer, .offset = view.offset};
  for (int64_t d : first) {
    permuted.dims.push_back(view.dims[d]);
    permuted.strides.push_back(view.strides[d]);
  }
  return permuted;
}

// Features of the result by groups: [features of a group, groups of features of the result, ...] as [groups, ...], which the host merges.
StridedView ByGroups(StridedView kernel, int64_t groups) {
  const Dim out = FloorDiv(kernel.dims[1], groups), stride = kernel.strides[1];
  kernel.dims[1] = out;
  kernel.dims.insert(kernel.dims.begin(), groups);
  kernel.strides.insert(kernel.strides.begin(), stride * out);
  return kernel;
}

absl::StatusOr<LaunchPlan> LowerKernelGradient(const Instruction& op, const ContractionOperands& c, const ValueViews& views) {
  TENON_ASSIGN_OR_RETURN(const Geometry g, GeometryOf(*c.contraction));
  const DimLabels& l = c.contraction->attrs().get<DimLabels>(Attr::kDimLabels);
  auto call = std::make_shared<PlannedCall>();
  call->function = HostFunctionName(HostFunction::kKernelGradient);
  call->operands = {Permuted(views.Of(c.lhs), {l.input_feature, l.input_batch}, l.input_spatial),
                    Permuted(views.Of(c.rhs), {l.kernel_input_feature, l.kernel_output_feature}, l.kernel_spatial)};
  std::vector<int64_t> taps;
  for (int64_t d : l.output_spatial) taps.push_back(op.shape().constant_dim(d));
  call->args = {FrameworkArg::Tensor(0),         FrameworkArg::Tensor(1),        FrameworkArg::IntList(taps),
                FrameworkArg::IntList(g.stride), FrameworkArg::IntList(g.padding), FrameworkArg::IntList(g.dilation),
                FrameworkArg::Int(g.groups)};
  call->result = Permuted(views.Of(&op), {l.output_feature, l.output_batch}, l.output_spatial);
  call->type = op.shape().element_type();
  call->rule = ResultRule::kOwned;
  call->reason = "library: gradient of a convolution's kernel";
  const Dim terms = c.rhs->shape().num_elements(), features = op.shape().dim(l.output_feature);
  const Dim flops = KnownEqual(features, 0) ? Dim(0) : terms * FloorDiv(op.shape().num_elements(), features) * 2;
  return LaunchPlan{.owned = true, .flops = flops.constant_or(0), .target = std::move(call)};
}

}  // namespace

// Told by its windows, as wide as an image, of which there are as many as a kernel has taps; a kernel that is larger than what it makes of
// an image (patches of 16 by 16) is not meant: whoever writes a gradient takes the image's features, which come behind its batch, for one.
bool IsKernelGradient(const Instruction& contraction) {
  if (contraction.opcode() != Opcode::kConvolution) return false;
  const DimLabels& l = contraction.attrs().get<DimLabels>(Attr::kDimLabels);
  if (contraction.attrs().get_or<int64_t>(Attr::kBatchGroupCount, 1) != 1) return true;
  if (l.input_batch < l.input_feature) return false;
  int64_t window = 1, places = 1;
  for (const WindowDim& w : WindowOf(contraction).dims) {
    if (w.base_dilation != 1 || (w.reversed && w.size > 1)) return false;
    window *= w.size;
  }
  for (int64_t d : l.output_spatial) places *= Typical(contraction.shape().dim(d));
  return window > places && GradientOf(contraction).ok();
}

absl::Status ConvolutionTakes(const Instruction& contraction, const ContractionSite& site) {
  if (contraction.opcode() != Opcode::kConvolution) return absl::UnimplementedError("not a convolution");
  const HostFunction function = IsKernelGradient(contraction) ? HostFunction::kKernelGradient : HostFunction::kConvolution;
  TENON_RETURN_IF_ERROR(HostHas(function, contraction, site));
  return GeometryOf(contraction).status();
}

StridedView ImagesOfResult(const Instruction& convolution, const StridedView& view) {
  const DimLabels& l = convolution.attrs().get<DimLabels>(Attr::kDimLabels);
  return Permuted(view, {l.output_batch, l.output_feature}, l.output_spatial);
}

absl::StatusOr<LaunchPlan> LowerConvolution(const Instruction& op, const ValueViews& views) {
  TENON_ASSIGN_OR_RETURN(const ContractionOperands c, OperandsOf(op));
  if (c.activation != Activation::kNone || c.other != nullptr) return absl::UnimplementedError(absl::StrCat(op.name(), ": an epilogue"));
  return LowerBareConvolution(op, c, views);
}

absl::StatusOr<LaunchPlan> LowerBareConvolution(const Instruction& op, const ContractionOperands& c, const ValueViews& views) {
  if (IsKernelGradient(*c.contraction)) return LowerKernelGradient(op, c, views);
  TENON_ASSIGN_OR_RETURN(const Geometry g, GeometryOf(*c.contraction));
  const DimLabels& l = c.contraction->attrs().get<DimLabels>(Attr::kDimLabels);
  const int64_t first = g.transposed ? l.kernel_input_feature : l.kernel_output_feature;
  const int64_t second = g.transposed ? l.kernel_output_feature : l.kernel_input_feature;
  auto call = std::make_shared<PlannedCall>();
  call->function = HostFunctionName(HostFunction::kConvolution);
  call->operands = {Permuted(views.Of(c.lhs), {l.input_batch, l.input_feature}, l.input_spatial),
                    Permuted(views.Of(c.rhs), {first, second}, l.kernel_spatial)};
  if (g.transposed && g.groups != 1) call->operands[1] = ByGroups(std::move(call->operands[1]), g.groups);
  if (c.bias != nullptr) call->operands.push_back(views.Of(c.bias));
  call->args = {FrameworkArg::Tensor(0),
                FrameworkArg::Tensor(1),
                c.bias != nullptr ? FrameworkArg::Tensor(2) : FrameworkArg::None(),
                FrameworkArg::IntList(g.stride),
                FrameworkArg::IntList(g.padding),
                FrameworkArg::IntList(g.dilation),
                FrameworkArg::Bool(g.transposed),
                FrameworkArg::IntList(g.output_padding),
                FrameworkArg::Int(g.groups)};
  call->result = ImagesOfResult(*c.contraction, views.Of(&op));
  call->type = op.shape().element_type();
  call->rule = ResultRule::kOwned;
  call->reason = c.bias != nullptr ? "library: convolution and its bias" : "library: convolution";
  // Taps of one element of the result; of a transposed convolution, which most taps miss, of one of the input.
  const Dim taps = c.contraction->operand(1)->shape().num_elements();
  const Dim elements = g.transposed ? c.lhs->shape().num_elements() : op.shape().num_elements();
  const Dim features = g.transposed ? c.lhs->shape().dim(l.input_feature) : op.shape().dim(l.output_feature);
  const Dim flops = KnownEqual(features, 0) ? Dim(0) : elements * FloorDiv(taps, features) * 2;
  return LaunchPlan{.owned = true, .flops = flops.constant_or(0), .target = std::move(call)};
}

}  // namespace tenon
