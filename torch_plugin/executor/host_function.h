// The functions of runtime/host/functions.h, by PyTorch's operators.
#pragma once

#include <memory>

#include "runtime/host/functions.h"
#include "torch_plugin/executor/op_impl.h"

namespace tenon::torch_host {

inline constexpr uint64_t kHostFunctions = Bit(HostFunction::kMatmul) | Bit(HostFunction::kConvolution) |
                                           Bit(HostFunction::kKernelGradient) | Bit(HostFunction::kAttention) |
                                           Bit(HostFunction::kAttentionBackward);

// Throws c10::Error where this host has no function of that name.
std::unique_ptr<Op> PrepareHostFunction(const TenonOpSpec& spec);

}  // namespace tenon::torch_host
