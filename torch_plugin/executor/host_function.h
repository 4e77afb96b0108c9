// The functions of runtime/host/functions.h, by PyTorch's operators.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "runtime/host/functions.h"
#include "torch_plugin/executor/op_impl.h"

namespace tenon::torch_host {

// Those that this build of PyTorch has on this processor.
uint64_t HostFunctions();

// Throws c10::Error where this host has no function of that name.
std::unique_ptr<Op> PrepareHostFunction(const TenonOpSpec& spec);

// The operand that `function` reads packed, from memory; `numbers`: InputSpec::packing. Throws c10::Error.
at::Tensor PackOperand(std::string_view function, c10::IntArrayRef numbers, const at::Tensor& operand);

}  // namespace tenon::torch_host
