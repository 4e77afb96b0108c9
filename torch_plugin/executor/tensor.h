// at::Tensor <-> TenonTensor. A tensor handle of the seam is a c10::TensorImpl* that owns one
// reference.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/tenon_c.h"

namespace tenon::torch_host {

void ReleaseTensor(void* context, void* tensor);
void RetainTensor(void* context, void* tensor);
int CloneTensor(void* context, TenonTensor* tensor);

// Describes without owning. Tensors that are no dense memory (sparse, opaque) get ndim -1.
TenonTensor Describe(c10::TensorImpl* impl);
// The reference passes to the result's `tensor`. Undefined: a TenonTensor without tensor.
TenonTensor GiveTensor(at::Tensor tensor);
// A new reference to the handle's tensor.
at::Tensor BorrowTensor(void* handle);

// A copy with the same strides, which kernels were compiled for (clone() makes gaps between rows go away).
at::Tensor Separate(const at::Tensor& t);

// A tensor on memory that somebody else owns. Owns nothing, dangles when the memory goes: never
// leaves the executor.
at::Tensor WrapMemory(const TenonTensor& memory);
// Points an earlier WrapMemory at other memory of the same dtype.
void Repoint(c10::TensorImpl* wrapper, const TenonTensor& memory);

}  // namespace tenon::torch_host
