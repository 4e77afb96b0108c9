#include "torch_plugin/executor/tensor.h"

#include <ATen/EmptyTensor.h>

#include "torch_plugin/executor/dtype.h"
#include "torch_plugin/executor/host.h"

namespace tenon::torch_host {
namespace {

int64_t ExtentBytes(const TenonTensor& t, int64_t item_size) {
  int64_t last = 0;
  for (int32_t d = 0; d < t.ndim; ++d) {
    if (t.sizes[d] == 0) return 0;
    last += (t.sizes[d] - 1) * t.strides[d];
  }
  return (last + 1) * item_size;
}

}  // namespace

void ReleaseTensor(void*, void* tensor) {
  c10::raw::intrusive_ptr::decref(static_cast<c10::TensorImpl*>(tensor));
}
void RetainTensor(void*, void* tensor) {
  c10::raw::intrusive_ptr::incref(static_cast<c10::TensorImpl*>(tensor));
}

at::Tensor BorrowTensor(void* handle) {
  auto* impl = static_cast<c10::TensorImpl*>(handle);
  return at::Tensor(
      c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(impl));
}

TenonTensor Describe(c10::TensorImpl* impl) {
  TenonTensor t = {};
  t.tensor = impl;
  t.dtype = FromTorch(c10::typeMetaToScalarType(impl->dtype()));
  if (impl->layout() != c10::kStrided || !impl->has_storage() || t.dtype < 0) {
    t.ndim = -1;
    return t;
  }
  t.ndim = static_cast<int32_t>(impl->dim());
  t.sizes = impl->sizes().data();
  t.strides = impl->strides().data();
  t.data = const_cast<void*>(impl->data());
  return t;
}

at::Tensor Separate(const at::Tensor& t) {
  if (t.numel() == 0) return t.clone();
  int64_t extent = 1;
  for (int64_t d = 0; d < t.dim(); ++d) extent += (t.size(d) - 1) * t.stride(d);
  return t.as_strided({extent}, {1}).clone().as_strided(t.sizes(), t.strides(), 0);
}

TenonTensor GiveTensor(at::Tensor tensor) {
  if (!tensor.defined()) return {};
  const TenonTensor described = Describe(tensor.unsafeGetTensorImpl());
  tensor.unsafeReleaseTensorImpl();
  return described;
}

int CloneTensor(void*, TenonTensor* tensor) {
  try {
    const at::Tensor old = BorrowTensor(tensor->tensor);
    at::Tensor copy = at::empty_strided(old.sizes(), old.strides(), old.options());
    copy.copy_(old);
    *tensor = GiveTensor(std::move(copy));
    ReleaseTensor(nullptr, old.unsafeGetTensorImpl());
    return 0;
  } catch (...) {
    KeepException(std::current_exception());
    return 1;
  }
}

at::Tensor WrapMemory(const TenonTensor& memory) {
  const auto dtype = ToTorch(memory.dtype);
  TORCH_CHECK(dtype.has_value(), "tenon: no torch dtype for ", tenon_dtype_name(memory.dtype));
  const int64_t bytes = ExtentBytes(memory, static_cast<int64_t>(c10::elementSize(*dtype)));
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes,
                       at::DataPtr(memory.data, c10::Device(c10::kCPU)),
                       /*allocator=*/nullptr, /*resizable=*/false);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
      c10::scalarTypeToTypeMeta(*dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(
      c10::IntArrayRef(memory.sizes, memory.ndim), c10::IntArrayRef(memory.strides, memory.ndim));
  return tensor;
}

void Repoint(c10::TensorImpl* wrapper, const TenonTensor& memory) {
  c10::StorageImpl* storage = wrapper->unsafe_storage().unsafeGetStorageImpl();
  if (storage->data() != memory.data) {
    storage->set_data_ptr_noswap(at::DataPtr(memory.data, c10::Device(c10::kCPU)));
  }
  const c10::IntArrayRef sizes(memory.sizes, memory.ndim), strides(memory.strides, memory.ndim);
  if (wrapper->sizes() == sizes && wrapper->strides() == strides) return;
  wrapper->set_sizes_and_strides(sizes, strides);
  storage->set_nbytes(ExtentBytes(memory, static_cast<int64_t>(wrapper->itemsize())));
}

}  // namespace tenon::torch_host
