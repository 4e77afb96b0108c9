// host.convolution: convolutions by the library of the host, and transposed ones: those of a dilated base with a reversed kernel.
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

absl::StatusOr<Geometry> GeometryOf(const Instruction& convolution) {
  const Attributes& attrs = convolution.attrs();
  Window window = attrs.get_or<Window>(Attr::kWindow, {});
  const size_t spatial = attrs.get<DimLabels>(Attr::kDimLabels).input_spatial.size();
  window.dims.resize(spatial);
  if (spatial < 1 || spatial > 3) return absl::UnimplementedError(absl::StrCat(spatial, " spatial dims"));
  if (attrs.get_or<int64_t>(Attr::kBatchGroupCount, 1) != 1) return absl::UnimplementedError("groups of the batch");
  Geometry g{.groups = attrs.get_or<int64_t>(Attr::kFeatureGroupCount, 1)};
  g.transposed = absl::c_any_of(window.dims, [](const WindowDim& w) { return w.base_dilation != 1 || (w.reversed && w.size > 1); });
  if (g.transposed && g.groups != 1) return absl::UnimplementedError("a dilated base and groups");
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

}  // namespace

absl::Status ConvolutionTakes(const Instruction& contraction, const ContractionSite& site) {
  if (contraction.opcode() != Opcode::kConvolution) return absl::UnimplementedError("not a convolution");
  TENON_RETURN_IF_ERROR(HostHas(HostFunction::kConvolution, contraction, site));
  return GeometryOf(contraction).status();
}

absl::StatusOr<LaunchPlan> LowerConvolution(const Instruction& op, const ValueViews& views) {
  TENON_ASSIGN_OR_RETURN(const ContractionOperands c, OperandsOf(op));
  if (c.activation != Activation::kNone) return absl::UnimplementedError(absl::StrCat(op.name(), ": an activation"));
  TENON_ASSIGN_OR_RETURN(const Geometry g, GeometryOf(*c.contraction));
  const DimLabels& l = c.contraction->attrs().get<DimLabels>(Attr::kDimLabels);
  const int64_t first = g.transposed ? l.kernel_input_feature : l.kernel_output_feature;
  const int64_t second = g.transposed ? l.kernel_output_feature : l.kernel_input_feature;
  auto call = std::make_shared<PlannedCall>();
  call->function = HostFunctionName(HostFunction::kConvolution);
  call->operands = {Permuted(views.Of(c.lhs), {l.input_batch, l.input_feature}, l.input_spatial),
                    Permuted(views.Of(c.rhs), {first, second}, l.kernel_spatial)};
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
  call->result = Permuted(views.Of(&op), {l.output_batch, l.output_feature}, l.output_spatial);
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
