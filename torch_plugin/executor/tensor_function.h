// A compiled graph as C++ programs outside of this extension call it: what the capsule of Executable.function() points to.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <vector>

namespace tenon::torch_host {

inline constexpr const char* kTensorFunction = "torch_tenon.function";  // the capsule's name

// The graph's inputs -> its outputs (undefined for None), for graphs of nothing but tensors. A copy keeps the graph alive. Any thread,
// without the GIL. Throws c10::Error that says what was wanted and what came, or what an operator threw.
using TensorFunction = std::function<std::vector<at::Tensor>(std::span<const at::Tensor>)>;

}  // namespace tenon::torch_host
