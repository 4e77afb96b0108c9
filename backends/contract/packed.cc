// host.linear_packed, host.conv_packed: contractions by a second operand that stays as it is from call to call, and that the host keeps in
// an order of its own (InputSpec::packed_by). With it the library adds a bias and another value and applies an activation before it rounds.
#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "backends/codegen/index/contraction_index.h"
#include "backends/contract/provider.h"
#include "backends/contract/target.h"
#include "passes/lower/named_provider.h"

namespace tenon {
namespace {

bool IsNoNumber(const Dim& size) { return size.constant_or(0) == 0; }

absl::Status SomeElements(const Instruction& contraction) {
  for (const Instruction* operand : contraction.operands()) {
    if (absl::c_any_of(operand->shape().dims(), IsNoNumber)) return absl::UnimplementedError("sizes that are 0 or not known");
  }
  return absl::c_any_of(contraction.shape().dims(), IsNoNumber) ? absl::UnimplementedError("a result of no elements") : absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> PackingOf(const Instruction& dot) {
  const bool matrices = dot.operand_count() == 2 && dot.operand(0)->shape().rank() == 2 && dot.operand(1)->shape().rank() == 2;
  if (!matrices || dot.shape().rank() != 2) return absl::UnimplementedError("not a product of two matrices");
  TENON_RETURN_IF_ERROR(SomeElements(dot));
  return std::vector<int64_t>{dot.shape().constant_dim(0)};
}

absl::StatusOr<std::vector<int64_t>> PackingOfConvolution(const Instruction& convolution, const ContractionSite& site) {
  TENON_RETURN_IF_ERROR(ConvolutionTakes(convolution, site));
  TENON_RETURN_IF_ERROR(SomeElements(convolution));
  if (IsKernelGradient(convolution)) return absl::UnimplementedError("a kernel's gradient");
  const DimLabels& l = convolution.attrs().get<DimLabels>(Attr::kDimLabels);
  const Window window = convolution.attrs().get_or<Window>(Attr::kWindow, {});
  const size_t spatial = l.input_spatial.size();
  if (spatial < 2 || window.dims.size() != spatial) return absl::UnimplementedError("one spatial dim");
  std::vector<int64_t> packing = {convolution.attrs().get_or<int64_t>(Attr::kFeatureGroupCount, 1), static_cast<int64_t>(spatial)};
  for (const WindowDim& w : window.dims) {
    if (w.base_dilation != 1 || w.reversed) return absl::UnimplementedError("a transposed convolution");
    packing.insert(packing.end(), {w.stride, w.padding_low, w.window_dilation});
  }
  const Shape& image = convolution.operand(0)->shape();
  packing.insert(packing.end(), {image.constant_dim(l.input_batch), image.constant_dim(l.input_feature)});
  for (int64_t d : l.input_spatial) packing.push_back(image.constant_dim(d));
  return packing;
}

absl::Status IsNamedFor(HostFunction function, const Instruction& contraction, const ContractionSite& site) {
  if (NamedProvider(contraction) != HostFunctionName(function)) return absl::UnimplementedError("its second operand is not frozen");
  return HostHas(function, contraction, site);
}

// `call`, of x and the operand that is packed, gets bias, other value, what was between, and the activation. Unimplemented: the library
// reads a bias as if it lay dense, whatever its stride.
absl::Status AddEpilogue(const ContractionOperands& c, const ValueViews& views, const StridedView& other, std::vector<FrameworkArg> between,
                 PlannedCall* call) {
  if (c.bias != nullptr) {
    const StridedView bias = views.Of(c.bias);
    if (!KnownOne(bias.dims[0]) && !KnownOne(bias.strides[0])) return absl::UnimplementedError("a bias that does not lie dense");
  }
  call->args = {FrameworkArg::Tensor(0), FrameworkArg::Tensor(1)};
  call->operands.resize(2);
  const auto add = [&](const Instruction* value, const StridedView& view) {
    call->args.push_back(value == nullptr ? FrameworkArg::None() : FrameworkArg::Tensor(static_cast<int64_t>(call->operands.size())));
    if (value != nullptr) call->operands.push_back(view);
  };
  add(c.bias, c.bias == nullptr ? StridedView() : views.Of(c.bias));
  add(c.other, other);
  call->args.insert(call->args.end(), between.begin(), between.end());
  call->args.push_back(FrameworkArg::String(std::string(ActivationName(c.activation))));
  call->rule = ResultRule::kOwned;
  absl::StrAppend(&call->reason, ", packed", c.other != nullptr ? ", a sum" : "");
  if (c.activation != Activation::kNone) absl::StrAppend(&call->reason, ", ", std::string(ActivationName(c.activation)));
  return absl::OkStatus();
}

}  // namespace

absl::Status LinearPackedTakes(const Instruction& contraction, const ContractionSite& site) {
  if (contraction.opcode() != Opcode::kDot) return absl::UnimplementedError("not a dot");
  TENON_RETURN_IF_ERROR(IsNamedFor(HostFunction::kLinearPacked, contraction, site));
  return PackingOf(contraction).status();
}

absl::StatusOr<LaunchPlan> LowerLinearPacked(const Instruction& op, const ValueViews& views) {
  TENON_ASSIGN_OR_RETURN(const ContractionOperands c, OperandsOf(op));
  TENON_ASSIGN_OR_RETURN(LaunchPlan plan, LowerActivatedMatmul(op, views));
  auto call = std::make_shared<PlannedCall>(dynamic_cast<const PlannedCall&>(*plan.target));
  call->function = HostFunctionName(HostFunction::kLinearPacked);
  call->operands[1] = views.Of(c.rhs);  // [columns, sums]
  TENON_RETURN_IF_ERROR(AddEpilogue(c, views, c.other == nullptr ? StridedView() : views.Of(c.other), {}, call.get()));
  plan.owned = true;
  plan.target = std::move(call);
  return plan;
}

absl::Status ConvPackedTakes(const Instruction& contraction, const ContractionSite& site) {
  if (contraction.opcode() != Opcode::kConvolution) return absl::UnimplementedError("not a convolution");
  TENON_RETURN_IF_ERROR(IsNamedFor(HostFunction::kConvPacked, contraction, site));
  return PackingOfConvolution(contraction, site).status();
}

absl::StatusOr<LaunchPlan> LowerConvPacked(const Instruction& op, const ValueViews& views) {
  TENON_ASSIGN_OR_RETURN(const ContractionOperands c, OperandsOf(op));
  TENON_ASSIGN_OR_RETURN(LaunchPlan plan, LowerBareConvolution(op, c, views));
  auto call = std::make_shared<PlannedCall>(dynamic_cast<const PlannedCall&>(*plan.target));
  call->function = HostFunctionName(HostFunction::kConvPacked);
  const StridedView other = c.other == nullptr ? StridedView() : ImagesOfResult(*c.contraction, views.Of(c.other));
  // Stride, padding, dilation, groups.
  TENON_RETURN_IF_ERROR(AddEpilogue(c, views, other, {call->args[3], call->args[4], call->args[5], call->args[8]}, call.get()));
  plan.target = std::move(call);
  return plan;
}

std::optional<KernelPacking> PackedFor(const Instruction& op, const ContractionSite& site) {
  const bool product = op.opcode() == Opcode::kDot;
  const HostFunction function = product ? HostFunction::kLinearPacked : HostFunction::kConvPacked;
  const bool asked = site.wanted == HostFunctionName(function);
  if (!asked && Packs(op, site)) return KernelPacking{"generated", {}};
  // What is added to the sums is not rounded in between.
  const bool wanted = (asked || site.wanted.empty()) && site.excess_precision && site.target->facts().space == 0;
  if (!wanted || !HostHas(function, op, site).ok()) return std::nullopt;
  absl::StatusOr<std::vector<int64_t>> packing = product ? PackingOf(op) : PackingOfConvolution(op, site);
  if (!packing.ok()) return std::nullopt;
  return KernelPacking{std::string(HostFunctionName(function)), *std::move(packing)};
}

}  // namespace tenon
