// NVIDIA's libraries as providers of contractions: what they take, and a call of them decided to the end. Nothing here needs them.
//
//   cublaslt.matmul(lhs, rhs, bias | none, layouts, epilogue, compute, workspace)
//   cudnn.convolution(image, kernel, bias | none, stride, padding, dilation, transposed, output padding, groups, layout, compute,
//                     workspace)
//
// layouts: a letter each for lhs, rhs, result: n rows one after the other, t columns, c neither (the call makes a dense copy first, in
// its workspace). epilogue: "default", "bias", "relu", "relu_bias", "gelu" (by tanh), "gelu_bias". compute: what sums are kept in, "32f"
// (no TF32) or "64f". workspace: bytes that the call may use.
#pragma once

#include "absl/types/span.h"
#include "backends/contract/provider.h"
#include "backends/gpu/plan/gpu_model.h"

namespace tenon::gpu {

// cublaslt, cudnn, generated: those preferred first. Static.
absl::Span<const Provider> LibraryProviders(const GpuModel& model);

}  // namespace tenon::gpu
