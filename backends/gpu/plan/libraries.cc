#include "backends/gpu/plan/libraries.h"

#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "hlo/check.h"

namespace tenon::gpu {
namespace {

// What PyTorch gives cuBLASLt (CUDABlas.cpp): Hopper's kernels split sums, and want room for it.
constexpr int64_t kSmallWorkspace = 4 << 20, kLargeWorkspace = 32 << 20;

// The host's rows know the geometry; which functions the host has doesn't matter here.
ContractionSite AnyHost(ContractionSite site) {
  site.host_functions = ~uint64_t{0};
  return site;
}

std::string ComputeType(PrimitiveType type) {
  return type == PrimitiveType::kF64 || type == PrimitiveType::kC128 ? "64f" : "32f";
}

// [batch,] rows, columns.
char LayoutOf(const StridedView& m) {
  const size_t rows = m.dims.size() - 2, columns = rows + 1;
  if (KnownEqual(m.strides[columns], 1) || KnownOne(m.dims[columns])) return 'n';
  return KnownEqual(m.strides[rows], 1) || KnownOne(m.dims[rows]) ? 't' : 'c';
}

int64_t DenseBytes(const StridedView& view, PrimitiveType type) {
  Dim elements = 1;
  for (const Dim d : view.dims) elements *= d;
  return Typical(elements) * ByteWidth(type);
}

// A product of two vectors is a sum: a kernel of ours.
bool IsOneSum(const Instruction& dot) { return KnownOne(dot.shape().num_elements()); }

absl::Status CublasLtTakes(const Instruction& contraction, const ContractionSite& site) {
  if (const absl::Status s = MatmulTakes(contraction, AnyHost(site)); !s.ok()) return s;
  return IsOneSum(contraction) ? absl::UnimplementedError("one sum") : absl::OkStatus();
}

template <int64_t kWorkspace>
absl::StatusOr<LaunchPlan> LowerCublasLt(const Instruction& op, const ValueViews& views) {
  TENON_ASSIGN_OR_RETURN(LaunchPlan plan, LowerActivatedMatmul(op, views));
  auto call = std::make_shared<PlannedCall>(dynamic_cast<const PlannedCall&>(*plan.target));
  call->function = "cublaslt.matmul";
  TENON_ASSIGN_OR_RETURN(const ContractionOperands contraction, OperandsOf(op));
  const bool bias = call->operands.size() == 3;
  if (!bias) call->args.push_back(FrameworkArg::None());
  int64_t copies = 0;
  std::string layouts;
  for (const StridedView* m : {&call->operands[0], &call->operands[1], &call->result}) {
    layouts.push_back(LayoutOf(*m));
    if (layouts.back() == 'c') copies += DenseBytes(*m, call->type);
  }
  call->args.push_back(FrameworkArg::String(std::move(layouts)));
  const std::string activation(ActivationName(contraction.activation));
  if (contraction.activation != Activation::kNone) absl::StrAppend(&call->reason, ", ", activation);
  const std::string biased = contraction.activation == Activation::kNone ? "bias" : absl::StrCat(activation, "_bias");
  call->args.push_back(FrameworkArg::String(bias ? biased : activation));
  call->args.push_back(FrameworkArg::String(ComputeType(call->type)));
  call->args.push_back(FrameworkArg::Int(kWorkspace + copies));
  plan.target = std::move(call);
  return plan;
}

absl::Status CudnnTakes(const Instruction& contraction, const ContractionSite& site) {
  return ConvolutionTakes(contraction, AnyHost(site));
}

// [batch, features, spatial...]: features fastest, or the images of each feature one after the other.
std::string ImageLayout(const StridedView& image) {
  return KnownEqual(image.strides[1], 1) && !KnownOne(image.dims[1]) ? "nhwc" : "nchw";
}

// Tensor cores read features side by side: of other layouts cuDNN makes copies in its workspace.
template <int64_t kWorkspace>
absl::StatusOr<LaunchPlan> LowerCudnn(const Instruction& op, const ValueViews& views) {
  TENON_ASSIGN_OR_RETURN(LaunchPlan plan, LowerConvolution(op, views));
  auto call = std::make_shared<PlannedCall>(dynamic_cast<const PlannedCall&>(*plan.target));
  call->function = call->function == HostFunctionName(HostFunction::kConvolution) ? "cudnn.convolution" : "cudnn.kernel_gradient";
  call->rule = ResultRule::kOut;
  const std::string layout = ImageLayout(call->operands[0]);
  int64_t workspace = kWorkspace;
  if (layout == "nchw" && BitWidth(call->type) == 16) {
    for (const StridedView* view : {&call->operands[0], &call->operands[1], &call->result}) workspace += DenseBytes(*view, call->type);
  }
  call->args.push_back(FrameworkArg::String(layout));
  call->args.push_back(FrameworkArg::String(ComputeType(call->type)));
  call->args.push_back(FrameworkArg::Int(workspace));
  plan.target = std::move(call);
  plan.owned = false;
  return plan;
}

template <int64_t kWorkspace>
constexpr Provider kLibraries[] = {
    {"cublaslt", CublasLtTakes, Provider::Bias::kAlways, LowerCublasLt<kWorkspace>,
     Bit(Activation::kRelu) | Bit(Activation::kGelu)},
    {"cudnn", CudnnTakes, Provider::Bias::kAlways, LowerCudnn<kWorkspace>},
    {"generated", GeneratedTakes, Provider::Bias::kNever, nullptr},
};

}  // namespace

absl::Span<const Provider> LibraryProviders(const GpuModel& model) {
  int architecture = 0;
  const bool number = absl::SimpleAtoi(std::string(model.name.substr(3)), &architecture);
  TENON_CHECK(number, model.name);
  if (architecture >= 90) return kLibraries<kLargeWorkspace>;
  return kLibraries<kSmallWorkspace>;
}

}  // namespace tenon::gpu
