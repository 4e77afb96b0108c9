#include "torch_plugin/executor/op.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <string_view>

#include "torch_plugin/executor/dtype.h"
#include "torch_plugin/executor/host.h"
#include "torch_plugin/executor/host_function.h"
#include "torch_plugin/executor/op_impl.h"
#include "torch_plugin/executor/tensor.h"

namespace tenon::torch_host {
namespace {

ExpectedResult Expect(const TenonTensor& meta) {
  ExpectedResult e;
  e.used = meta.dtype >= 0;
  e.dtype = meta.dtype;
  e.ndim = meta.ndim;
  e.sized = meta.ndim >= 0 && meta.sizes != nullptr;
  if (e.sized) {
    e.sizes.assign(meta.sizes, meta.sizes + meta.ndim);
    e.strides.assign(meta.strides, meta.strides + meta.ndim);
  }
  return e;
}

bool SameStrides(const at::Tensor& t, c10::IntArrayRef strides) {
  for (int64_t d = 0; d < t.dim(); ++d) {
    if (t.size(d) > 1 && t.stride(d) != strides[d]) return false;
  }
  return true;
}

}  // namespace

at::Tensor Op::Wrapper(const TenonTensor& memory, void** cache) const {
  auto* wrapper = static_cast<c10::TensorImpl*>(*cache);
  // A wrapper that somebody kept (or whose storage somebody kept) must not change under them.
  if (wrapper != nullptr && c10::raw::intrusive_ptr::use_count(wrapper) == 1 &&
      wrapper->unsafe_storage().use_count() == 1 &&
      FromTorch(c10::typeMetaToScalarType(wrapper->dtype())) == memory.dtype) {
    Repoint(wrapper, memory);
    return BorrowTensor(wrapper);
  }
  at::Tensor fresh = WrapMemory(memory);
  if (wrapper != nullptr) ReleaseTensor(nullptr, wrapper);
  *cache = at::Tensor(fresh).unsafeReleaseTensorImpl();
  return fresh;
}

at::Tensor Op::Operand(const TenonOpCall& call, int32_t index) const {
  const TenonTensor& operand = call.operands[index];
  if (operand.tensor != nullptr) return BorrowTensor(operand.tensor);
  if (operand.ndim < 0) return {};
  return Wrapper(operand, &call.cache[index]);
}

// A result on a wrapper's storage doesn't own its memory.
bool Op::IsOnWrapper(const TenonOpCall& call, const at::Tensor& tensor) const {
  if (!tensor.has_storage()) return false;
  const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  for (int32_t k = 0; k < num_operands; ++k) {
    auto* wrapper = static_cast<c10::TensorImpl*>(call.cache[k]);
    if (wrapper != nullptr && wrapper->unsafe_storage().unsafeGetStorageImpl() == storage)
      return true;
  }
  return false;
}

// What kernels were compiled for is dtype, sizes and strides. A fake kernel's strides are sometimes
// not the real kernel's: then a copy makes them so. Another dtype or size is a ResultMismatch.
at::Tensor Op::Fit(size_t index, at::Tensor tensor, const TenonTensor& now) const {
  const ExpectedResult& e = expected[index];
  if (e.ndim < 0) return tensor;
  tensor = tensor.resolve_conj().resolve_neg();
  const bool sized = e.sized || now.sizes != nullptr;
  const size_t rank = sized ? e.ndim : 0;
  const c10::IntArrayRef sizes(e.sized ? e.sizes.data() : now.sizes, rank), strides(e.sized ? e.strides.data() : now.strides, rank);
  const bool right =
      FromTorch(tensor.scalar_type()) == e.dtype && tensor.dim() == e.ndim && (!sized || tensor.sizes() == sizes);
  if (!right) {
    throw ResultMismatch({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                         c10::str(name, ": result ", index, " was compiled as ", tenon_dtype_name(e.dtype), sizes,
                                  ", the operator returned ", tenon_dtype_name(FromTorch(tensor.scalar_type())), tensor.sizes()));
  }
  if (!sized || SameStrides(tensor, strides)) return tensor;
  at::Tensor copy = at::empty_strided(sizes, strides, tensor.options());
  copy.copy_(tensor);
  return copy;
}

void Op::Give(TenonOpCall* call, size_t index, at::Tensor tensor) const {
  if (index >= expected.size() || !expected[index].used) return;
  // Masked out (convolution_backward's output_mask): libtenon refuses to read an empty slot.
  if (!tensor.defined()) return;
  tensor = Fit(index, std::move(tensor), call->results[index]);
  if (IsOnWrapper(*call, tensor)) tensor = Separate(tensor);
  call->results[index] = GiveTensor(std::move(tensor));
}

// What kept it (a user's list, a sparse tensor made of it) sees it as it is now, for good: the storage itself moves.
void Op::PartWithKept(const TenonOpCall& call) const noexcept {
  for (int32_t k = 0; k < num_operands; ++k) {
    auto* wrapper = static_cast<c10::TensorImpl*>(call.cache[k]);
    if (wrapper == nullptr || call.operands[k].tensor != nullptr) continue;
    c10::StorageImpl* storage = wrapper->unsafe_storage().unsafeGetStorageImpl();
    if (c10::raw::intrusive_ptr::use_count(wrapper) == 1 && wrapper->unsafe_storage().use_count() == 1) continue;
    at::DataPtr own = c10::GetCPUAllocator()->allocate(storage->nbytes());
    std::memcpy(own.get(), storage->data(), storage->nbytes());
    storage->set_data_ptr_noswap(std::move(own));
    ReleaseTensor(nullptr, wrapper);
    call.cache[k] = nullptr;
  }
}

void Op::ReleaseResults(TenonOpCall* call) const {
  if (rule == 0) return;
  for (size_t k = 0; k < expected.size(); ++k) {
    if (call->results[k].tensor != nullptr) ReleaseTensor(nullptr, call->results[k].tensor);
    call->results[k] = {};
  }
}

void* PrepareOp(void*, const TenonOpSpec* spec, char** error) {
  try {
    const std::string_view overload = spec->overload;
    std::unique_ptr<Op> op = overload.starts_with("python.") ? PreparePythonOp(*spec)
                             : overload.starts_with("host.")  ? PrepareHostFunction(*spec)
                             : overload.starts_with("tenon.") ? PrepareRandomStateOp(*spec)
                                                             : PrepareDispatchedOp(*spec);
    op->name = spec->overload;
    op->rule = spec->rule;
    op->num_operands = spec->num_operands;
    for (int32_t k = 0; k < spec->num_results; ++k)
      op->expected.push_back(Expect(spec->results[k]));
    return op.release();
  } catch (const c10::Error& e) {
    *error = strdup(e.what_without_backtrace());
  } catch (const std::exception& e) {
    *error = strdup(e.what());
  }
  return nullptr;
}

void ReleaseOp(void*, void* op) { delete static_cast<Op*>(op); }

int CallOp(void*, TenonOpCall* call) {
  try {
    static_cast<Op*>(call->op)->Call(call);
    return 0;
  } catch (...) {
    KeepException(std::current_exception());
    return 1;
  }
}

}  // namespace tenon::torch_host
