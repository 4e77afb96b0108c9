#include "torch_plugin/executor/host_function.h"

#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <optional>
#include <utility>
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

std::vector<int64_t> Numbers(const TenonArg& list) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < list.list_size; ++i) numbers.push_back(list.list[i].i);
  return numbers;
}

class KernelGradientOp final : public Op {
 public:
  explicit KernelGradientOp(const TenonOpSpec& spec)
      : sizes_(Numbers(spec.args[2])), stride_(Numbers(spec.args[3])), padding_(Numbers(spec.args[4])), dilation_(Numbers(spec.args[5])),
        groups_(spec.args[6].i) {}

  void Call(TenonOpCall* call) override {
    const at::Tensor x = Operand(*call, 0), grad = Operand(*call, 1);
    // Of the kernel the operator wants to know the sizes, and how it lies, which its gradient does too.
    std::vector<int64_t> sizes = {grad.size(1), x.size(1) / groups_};
    sizes.insert(sizes.end(), sizes_.begin(), sizes_.end());
    const bool known = expected[0].sized && c10::IntArrayRef(expected[0].sizes) == sizes;
    const at::Tensor kernel = known ? at::empty_strided(sizes, expected[0].strides, x.options()) : at::empty(sizes, x.options());
    const std::vector<int64_t> extra(sizes_.size(), 0);
    auto gradients = at::convolution_backward(grad, x, kernel, /*bias_sizes=*/c10::nullopt, stride_, padding_, dilation_,
                                              /*transposed=*/false, extra, groups_, {false, true, false});
    Give(call, 0, std::get<1>(std::move(gradients)));
  }

 private:
  const std::vector<int64_t> sizes_, stride_, padding_, dilation_;
  const int64_t groups_;
};

// By a kernel that has its groups in front.
class GroupedTransposedOp final : public Op {
 public:
  explicit GroupedTransposedOp(const TenonOpSpec& spec)
      : stride_(Numbers(spec.args[3])), padding_(Numbers(spec.args[4])), dilation_(Numbers(spec.args[5])), extra_(Numbers(spec.args[7])),
        groups_(spec.args[8].i), bias_(spec.num_operands == 3) {}

  void Call(TenonOpCall* call) override {
    const at::Tensor kernel = Operand(*call, 1).flatten(0, 1);
    const c10::optional<at::Tensor> bias = bias_ ? c10::make_optional(Operand(*call, 2)) : c10::nullopt;
    Give(call, 0, at::convolution(Operand(*call, 0), kernel, bias, stride_, padding_, dilation_, /*transposed=*/true, extra_, groups_));
  }

 private:
  const std::vector<int64_t> stride_, padding_, dilation_, extra_;
  const int64_t groups_;
  const bool bias_;
};

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

// oneDNN's operators with packed weights.
std::optional<c10::OperatorHandle> PackedOperator(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchema({name, overload});
}

bool HasPacked() {
  const auto halves = PackedOperator("mkldnn::_is_mkldnn_bf16_supported");
  if (!halves || !PackedOperator("mkldnn::_linear_pointwise") || !PackedOperator("mkldnn::_linear_pointwise", "binary")) return false;
  if (!PackedOperator("mkldnn::_convolution_pointwise") || !PackedOperator("mkldnn::_convolution_pointwise", "binary")) return false;
  if (!PackedOperator("mkldnn::_reorder_linear_weight") || !PackedOperator("mkldnn::_reorder_convolution_weight")) return false;
  torch::jit::Stack stack;
  try {
    halves->callBoxed(&stack);
  } catch (const c10::Error&) {  // asked when tenon is imported, which must not fail for that
    return false;
  }
  return stack.size() == 1 && stack[0].toBool();
}

TenonArg Text(const char* text) { return {.kind = static_cast<int32_t>(FrameworkArg::Kind::kString), .s = text}; }

// An activation as oneDNN's operators want it: name, scalars, variant.
struct Activated {
  const char *name, *variant;
};
Activated ActivatedAs(std::string_view activation) {
  constexpr std::pair<std::string_view, Activated> kNames[] = {
      {"default", {"none", ""}}, {"gelu", {"gelu", "tanh"}},        {"gelu_erf", {"gelu", "none"}}, {"silu", {"swish", ""}},
      {"sigmoid", {"sigmoid", ""}}, {"hardswish", {"hardswish", ""}}, {"tanh", {"tanh", ""}}};
  for (const auto& [name, as] : kNames) {
    if (name == activation) return as;
  }
  TORCH_CHECK(false, "no activation ", activation);
}

// x, packed, bias, other, [stride, padding, dilation, groups,] activation.
std::unique_ptr<Op> PreparePacked(TenonOpSpec spec, bool convolution) {
  const TenonArg none = {}, no_scalars = {.kind = static_cast<int32_t>(FrameworkArg::Kind::kList)};
  const TenonArg &x = spec.args[0], &packed = spec.args[1], &bias = spec.args[2], &other = spec.args[3];
  TORCH_CHECK(spec.num_args == (convolution ? 9 : 5), spec.overload, " of ", spec.num_args, " arguments");
  const bool sum = other.kind != none.kind;
  const Activated as = ActivatedAs(spec.args[spec.num_args - 1].s);
  TORCH_CHECK(!sum || std::string_view(as.name) == "none", spec.overload, ": an activation of a sum");
  std::vector<TenonArg> args = sum ? std::vector<TenonArg>{x, other, packed, bias} : std::vector<TenonArg>{x, packed, bias};
  if (convolution) args.insert(args.end(), {spec.args[5], spec.args[4], spec.args[6], spec.args[7]});  // padding comes first
  if (!sum) args.insert(args.end(), {Text(as.name), no_scalars, Text(as.variant)});
  else args.push_back(Text("add"));
  if (sum && convolution) args.insert(args.end(), {none, none, no_scalars, none});  // the sum's factor, an activation
  spec.overload = convolution ? (sum ? "mkldnn._convolution_pointwise.binary" : "mkldnn._convolution_pointwise.default")
                              : (sum ? "mkldnn._linear_pointwise.binary" : "mkldnn._linear_pointwise.default");
  spec.args = args.data();
  spec.num_args = static_cast<int64_t>(args.size());
  return PrepareDispatchedOp(spec);
}

}  // namespace

uint64_t HostFunctions() {
  uint64_t functions = Bit(HostFunction::kMatmul) | Bit(HostFunction::kConvolution) | Bit(HostFunction::kKernelGradient) |
                       Bit(HostFunction::kAttention) | Bit(HostFunction::kAttentionBackward);
  if (HasPacked()) functions |= Bit(HostFunction::kLinearPacked) | Bit(HostFunction::kConvPacked);
  return functions;
}

at::Tensor PackOperand(std::string_view function, c10::IntArrayRef numbers, const at::Tensor& operand) {
  torch::jit::Stack stack = {operand};
  if (function == HostFunctionName(HostFunction::kLinearPacked)) {
    TORCH_CHECK(numbers.size() == 1, function, " packs by one number, got ", numbers);
    stack.emplace_back(numbers[0]);
    PackedOperator("mkldnn::_reorder_linear_weight")->callBoxed(&stack);
  } else {
    TORCH_CHECK(function == HostFunctionName(HostFunction::kConvPacked) && numbers.size() >= 2, "nothing is packed for ", function);
    const size_t spatial = static_cast<size_t>(numbers[1]);
    TORCH_CHECK(numbers.size() == 4 + 4 * spatial, function, " packs by other numbers than ", numbers);
    std::vector<int64_t> geometry[3];  // stride, padding, dilation
    for (size_t d = 0; d < 3 * spatial; ++d) geometry[d % 3].push_back(numbers[2 + d]);
    stack.emplace_back(geometry[1]);
    stack.emplace_back(geometry[0]);
    stack.emplace_back(geometry[2]);
    stack.emplace_back(numbers[0]);
    stack.emplace_back(numbers.slice(2 + 3 * spatial).vec());
    PackedOperator("mkldnn::_reorder_convolution_weight")->callBoxed(&stack);
  }
  return stack.at(0).toTensor();
}

std::unique_ptr<Op> PrepareHostFunction(const TenonOpSpec& spec) {
  if (spec.overload == HostFunctionName(HostFunction::kMatmul)) return PrepareMatmul(spec);
  if (spec.overload == HostFunctionName(HostFunction::kKernelGradient)) return std::make_unique<KernelGradientOp>(spec);
  if (spec.overload == HostFunctionName(HostFunction::kAttention)) {
    return PrepareAttention(spec, "aten._scaled_dot_product_flash_attention_for_cpu.default");
  }
  if (spec.overload == HostFunctionName(HostFunction::kAttentionBackward)) {
    return PrepareAttention(spec, "aten._scaled_dot_product_flash_attention_for_cpu_backward.default");
  }
  if (spec.overload == HostFunctionName(HostFunction::kLinearPacked)) return PreparePacked(spec, /*convolution=*/false);
  if (spec.overload == HostFunctionName(HostFunction::kConvPacked)) return PreparePacked(spec, /*convolution=*/true);
  TORCH_CHECK(spec.overload == HostFunctionName(HostFunction::kConvolution), "no function ", spec.overload);
  if (spec.args[6].i != 0 && spec.args[8].i != 1) return std::make_unique<GroupedTransposedOp>(spec);
  TenonOpSpec convolution = spec;  // the arguments are aten::convolution's
  convolution.overload = "aten.convolution.default";
  return PrepareDispatchedOp(convolution);
}

}  // namespace tenon::torch_host
