// What a host may compute for the compiler, by names that belong to no framework: a host says which functions it has (TenonHost::functions)
// and maps their names to operators of its own.
//
//   host.matmul(lhs, rhs[, bias])        matrices, or batches of them, on any strides; `bias` a vector along the columns, matrices only.
//                                        Writes into memory that is given (ResultRule::kOut); sums of half types are kept in f32
//   host.convolution(x, kernel, bias or none, [stride], [padding], [dilation], transposed, [output padding], groups)
//                                        x of [batch, features, space...], a kernel of [features, features of a group, space...], of a
//                                        transposed one [features of x, features of a group of the result, space...]; the result has memory
//                                        of its own. A transposed kernel of several groups has them as a dim of its own, in front
//   host.kernel_gradient(x, grad, [sizes], [stride], [padding], [dilation], groups)
//                                        of the kernel of these spatial sizes by which host.convolution made of x something of gradient
//                                        `grad`; the result has memory of its own
//   host.linear_packed(x, matrix, bias or none, other or none, activation)
//                                        activation(x matrix^T + bias + other), one of the last two at most; x of [rows, in], a matrix of
//                                        [out, in] that the host keeps as it likes it (InputSpec::packed_by), `other` as the result, which
//                                        has memory of its own
//   host.conv_packed(x, kernel, bias or none, other or none, [stride], [padding], [dilation], groups, activation)
//                                        the same of a convolution of two or three spatial dims. Activations are named as in
//                                        backends/contract/activation.h; "default": none
//   host.attention(query, key, value, causal, mask or none, scale or none)
//                                        [batch, heads, length, features]; fewer heads of keys and values serve several of queries each.
//                                        Gives softmax(scale query key^T + mask) value and the log of the softmax's sums, both in memory of
//                                        their own, of [batch, length, heads, ...]; no scale: 1 / sqrt(features)
//   host.attention_backward(gradient, query, key, value, result, log of sums, causal, mask or none, scale or none)
//                                        the gradients of query, key and value
#pragma once

#include <cstdint>
#include <string_view>

#include "hlo/primitive_type.h"

namespace tenon {

enum class HostFunction : uint8_t {
  kMatmul,
  kConvolution,
  kKernelGradient,
  kAttention,
  kAttentionBackward,
  kLinearPacked,
  kConvPacked
};
// In the header: a host is linked with nothing else of the runtime.
constexpr std::string_view HostFunctionName(HostFunction function) {
  switch (function) {
    case HostFunction::kMatmul: return "host.matmul";
    case HostFunction::kConvolution: return "host.convolution";
    case HostFunction::kKernelGradient: return "host.kernel_gradient";
    case HostFunction::kAttention: return "host.attention";
    case HostFunction::kAttentionBackward: return "host.attention_backward";
    case HostFunction::kLinearPacked: return "host.linear_packed";
    case HostFunction::kConvPacked: return "host.conv_packed";
  }
  return "";
}
// The element type of all its arrays is one that every host with this function takes.
bool HostTakes(HostFunction function, PrimitiveType type);

// Sets of functions, as in TenonHost::functions.
constexpr uint64_t Bit(HostFunction function) { return uint64_t{1} << static_cast<int>(function); }
inline constexpr uint64_t kPlainFunctions = Bit(HostFunction::kMatmul);  // PlainHost's: without a framework

}  // namespace tenon
