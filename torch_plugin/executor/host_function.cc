#include "torch_plugin/executor/host_function.h"

#include <vector>

#include "hlo/framework_arg.h"

namespace tenon::torch_host {
namespace {

TenonArg Argument(FrameworkArg::Kind kind, int64_t i) { return {.kind = static_cast<int32_t>(kind), .i = i}; }

// mm(lhs, rhs), bmm(lhs, rhs), addmm(bias, lhs, rhs).
std::unique_ptr<Op> PrepareMatmul(TenonOpSpec spec) {
  const bool bias = spec.num_operands == 3;
  std::vector<TenonArg> args;
  if (bias) args.push_back(Argument(FrameworkArg::Kind::kTensor, 2));
  args.push_back(Argument(FrameworkArg::Kind::kTensor, 0));
  args.push_back(Argument(FrameworkArg::Kind::kTensor, 1));
  for (int factor = 0; bias && factor < 2; ++factor) args.push_back(Argument(FrameworkArg::Kind::kInt, 1));
  spec.overload = bias ? "aten.addmm.out" : spec.results[0].ndim == 3 ? "aten.bmm.out" : "aten.mm.out";
  spec.args = args.data();
  spec.num_args = static_cast<int64_t>(args.size());
  return PrepareDispatchedOp(spec);
}

// The arguments are those of PyTorch's, which has dropout too: before the last three.
std::unique_ptr<Op> PrepareAttention(TenonOpSpec spec, const char* overload) {
  std::vector<TenonArg> args(spec.args, spec.args + spec.num_args);
  TenonArg dropout{.kind = static_cast<int32_t>(FrameworkArg::Kind::kFloat)};
  dropout.f = 0;
  TORCH_CHECK(args.size() >= 3, spec.overload, " of too few arguments");
  args.insert(args.end() - 3, dropout);
  spec.overload = overload;
  spec.args = args.data();
  spec.num_args = static_cast<int64_t>(args.size());
  return PrepareDispatchedOp(spec);
}

}  // namespace

std::unique_ptr<Op> PrepareHostFunction(const TenonOpSpec& spec) {
  if (spec.overload == HostFunctionName(HostFunction::kMatmul)) return PrepareMatmul(spec);
  if (spec.overload == HostFunctionName(HostFunction::kAttention)) {
    return PrepareAttention(spec, "aten._scaled_dot_product_flash_attention_for_cpu.default");
  }
  if (spec.overload == HostFunctionName(HostFunction::kAttentionBackward)) {
    return PrepareAttention(spec, "aten._scaled_dot_product_flash_attention_for_cpu_backward.default");
  }
  TORCH_CHECK(spec.overload == HostFunctionName(HostFunction::kConvolution), "no function ", spec.overload);
  TenonOpSpec convolution = spec;  // the arguments are aten::convolution's
  convolution.overload = "aten.convolution.default";
  return PrepareDispatchedOp(convolution);
}

}  // namespace tenon::torch_host
