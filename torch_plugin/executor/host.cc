#include "torch_plugin/executor/host.h"

#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <c10/core/CPUAllocator.h>
#include <torch/csrc/Exceptions.h>

#include <memory>
#include <string_view>
#include <utility>

#include "runtime/host/host_space.h"
#include "torch_plugin/executor/gil.h"
#include "torch_plugin/executor/host_function.h"
#include "torch_plugin/executor/log.h"
#include "torch_plugin/executor/op.h"
#include "torch_plugin/executor/tensor.h"

namespace tenon::torch_host {
namespace {

thread_local std::exception_ptr pending;

// Arena memory counts in PyTorch's memory reports like any tensor's.
void* Allocate(void*, size_t bytes) {
  try {
    return c10::GetCPUAllocator()->raw_allocate(bytes == 0 ? 64 : bytes);
  } catch (...) {
    return nullptr;
  }
}
void Deallocate(void*, void* memory, size_t) { c10::GetCPUAllocator()->raw_deallocate(memory); }

void ParallelFor(void*, int64_t begin, int64_t end, int64_t grain,
                 void (*fn)(void*, int64_t, int64_t), void* arg) {
  at::parallel_for(begin, end, grain, [&](int64_t b, int64_t e) { fn(arg, b, e); });
}
int Interrupted(void*) {
  if (!InterpreterIsAlive()) return 0;
  Gil gil;
  if (PyErr_CheckSignals() == 0) return 0;  // on any thread but Python's main one
  python_error error;
  error.persist();
  pending = std::make_exception_ptr(error);
  return 1;
}
// Ranges of torch.profiler's and autograd's, as torch.profiler.record_function makes them.
int Tracing(void*) { return at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE).has_value() ? 1 : 0; }
void* BeginRange(void*, const char* name) {
  try {
    auto range = std::make_unique<at::RecordFunction>(at::RecordScope::USER_SCOPE);
    range->before(std::string_view(name));
    return range.release();
  } catch (...) {
    return nullptr;
  }
}
void EndRange(void*, void* range) { delete static_cast<at::RecordFunction*>(range); }
int NumThreads(void*) { return at::in_parallel_region() ? 1 : at::get_num_threads(); }

}  // namespace

void KeepException(std::exception_ptr exception) { pending = std::move(exception); }
std::exception_ptr TakeException() { return std::exchange(pending, nullptr); }

const TenonHost* Host() {
  static const TenonHost host = {
      .size = sizeof(TenonHost),
      .version = TENON_ABI_VERSION,
      .context = nullptr,
      .allocate = Allocate,
      .deallocate = Deallocate,
      .parallel_for = ParallelFor,
      .num_threads = NumThreads,
      .op_prepare = PrepareOp,
      .op_release = ReleaseOp,
      .op_call = CallOp,
      .tensor_release = ReleaseTensor,
      .tensor_retain = RetainTensor,
      .tensor_clone = CloneTensor,
      .cache_release = ReleaseTensor,
      .log = Log,
      .interrupted = Interrupted,
      .functions = HostFunctions(),
      .tracing = Tracing,
      .range_begin = BeginRange,
      .range_end = EndRange,
      .spaces = host_space::kSpaces,
      .device = host_space::Device,
      .allocate_in = host_space::Allocate,
      .deallocate_in = host_space::Deallocate,
      .stream = host_space::Stream,
      .event_record = host_space::Record,
      .event_wait = host_space::Wait,
      .event_release = host_space::Release,
  };
  return &host;
}

}  // namespace tenon::torch_host
