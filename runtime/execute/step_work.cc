#include "runtime/execute/step_work.h"

#include <algorithm>

#include "runtime/program/dim_program.h"

namespace tenon {
namespace {

// Of memory: an element that strides of 0 repeat is touched once.
int64_t Bytes(const View& view) {
  if (view.value < 0 || !IsStatic(view.dims)) return 0;
  int64_t elements = 1;
  for (size_t d = 0; d < view.dims.size(); ++d)
    elements *= view.strides[d] == 0 ? std::min<int64_t>(view.dims[d], 1) : view.dims[d];
  return elements * ByteWidth(view.dtype);
}

bool HoldsF64(const std::vector<View>& views) {
  return std::any_of(views.begin(), views.end(), [](const View& v) {
    return v.value >= 0 && (v.dtype == PrimitiveType::kF64 || v.dtype == PrimitiveType::kC128);
  });
}

}  // namespace

StepWork WorkOf(const Step& step) {
  StepWork work{.bytes = step.bytes, .flops = step.flops};
  if (const auto* kernel = std::get_if<KernelStep>(&step.body)) {
    work.f64 = HoldsF64(kernel->operands);
  } else if (const auto* copy = std::get_if<CopyStep>(&step.body)) {
    work.bytes = Bytes(copy->from) + Bytes(copy->to);
  } else if (const auto* library = std::get_if<LibraryStep>(&step.body)) {
    for (const View& v : library->operands) work.bytes += Bytes(v);
    for (const View& v : library->results) work.bytes += Bytes(v);
  } else if (const auto* call = std::get_if<FrameworkStep>(&step.body)) {
    for (const View& v : call->operands) work.bytes += Bytes(v);
    for (const View& v : call->results) work.bytes += Bytes(v);
    work.f64 = HoldsF64(call->operands);
  }
  return work;
}

}  // namespace tenon
