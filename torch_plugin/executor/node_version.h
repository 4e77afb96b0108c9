// What differs between versions of PyTorch about autograd's nodes.
#pragma once

#include <torch/version.h>

// The versions that the node is built for: 2.13 and 2.15, which it is tested with, and what is between. Others have AOTAutograd's wrapper.
#ifndef TENON_AUTOGRAD_NODE
#define TENON_AUTOGRAD_NODE (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 13 && TORCH_VERSION_MINOR <= 15)
#endif

#if TENON_AUTOGRAD_NODE

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <utility>

namespace tenon::torch_host {

// Nodes are counted by shared_ptr, and freed by deleteNode (not recursively), up to 2.12; by intrusive_ptr from 2.13 on.
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
template <typename N>
using NodePtr = std::shared_ptr<N>;
template <typename N, typename... Args>
NodePtr<N> MakeNode(Args&&... args) {
  return NodePtr<N>(new N(std::forward<Args>(args)...), torch::autograd::deleteNode);
}
#else
template <typename N>
using NodePtr = c10::intrusive_ptr<N>;
template <typename N, typename... Args>
NodePtr<N> MakeNode(Args&&... args) {
  return c10::make_intrusive<N>(std::forward<Args>(args)...);
}
#endif

}  // namespace tenon::torch_host

#endif  // TENON_AUTOGRAD_NODE
