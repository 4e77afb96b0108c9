#include "tests/seam/two_op_host.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/seam/failing_allocations.h"

namespace seam {

HostTensor* NewTensor(const TenonTensor& like) {
  auto* t = new HostTensor;
  int64_t n = 1;
  for (int32_t d = 0; d < like.ndim; ++d) n *= like.sizes[d];
  t->sizes.assign(like.sizes, like.sizes + like.ndim);
  t->strides.assign(like.strides, like.strides + like.ndim);
  t->data.resize(static_cast<size_t>(n));
  return t;
}

namespace {

TenonTensor HandleOf(HostTensor* t, int32_t dtype) {
  return {t, t->data.data(), t->sizes.data(), t->strides.data(), dtype, static_cast<int32_t>(t->sizes.size())};
}

int CallOp(void*, TenonOpCall* call) {
  const Disarmed disarmed;
  const bool multiplies = *static_cast<bool*>(call->op);
  const TenonTensor& a = call->operands[0];
  HostTensor* t = NewTensor(a);
  for (size_t k = 0; k < t->data.size(); ++k) {
    const float x = static_cast<const float*>(a.data)[k];
    t->data[k] = multiplies ? x * static_cast<const float*>(call->operands[1].data)[k] : -x;
  }
  call->results[0] = HandleOf(t, a.dtype);
  return 0;
}

TenonHost MakeHost() {
  TenonHost host = {};
  host.size = sizeof(TenonHost);
  host.version = TENON_ABI_VERSION;
  host.spaces = 1;
  host.allocate = [](void*, size_t bytes) { return std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64); };
  host.deallocate = [](void*, void* memory, size_t) { std::free(memory); };
  host.parallel_for = [](void*, int64_t begin, int64_t end, int64_t, void (*fn)(void*, int64_t, int64_t), void* arg) {
    if (begin < end) fn(arg, begin, end);
  };
  host.num_threads = [](void*) { return 1; };
  host.op_prepare = [](void*, const TenonOpSpec* spec, char** error) -> void* {
    const Disarmed disarmed;
    const std::string name = spec->overload;
    if (name == "aten.neg.default" || name == "aten.mul.Tensor") return new bool(name == "aten.mul.Tensor");
    *error = strdup("no such operator");
    return nullptr;
  };
  host.op_release = [](void*, void* op) { delete static_cast<bool*>(op); };
  host.op_call = CallOp;
  host.tensor_release = [](void*, void* tensor) {
    auto* t = static_cast<HostTensor*>(tensor);
    if (t != nullptr && --t->references == 0) delete t;
  };
  host.tensor_retain = [](void*, void* tensor) { ++static_cast<HostTensor*>(tensor)->references; };
  host.tensor_clone = [](void*, TenonTensor* tensor) {
    const Disarmed disarmed;
    HostTensor* copy = NewTensor(*tensor);
    std::memcpy(copy->data.data(), tensor->data, copy->data.size() * sizeof(float));
    *tensor = HandleOf(copy, tensor->dtype);
    return 0;
  };
  host.cache_release = [](void*, void*) {};
  host.log = [](void*, int, const char*) {};
  host.interrupted = [](void*) { return 0; };
  host.tracing = [](void*) { return 0; };
  host.range_begin = [](void*, const char*) -> void* { return nullptr; };
  host.range_end = [](void*, void*) {};
  return host;
}

}  // namespace

const TenonHost* Host() {
  static const auto* host = new TenonHost(MakeHost());
  return host;
}

}  // namespace seam
