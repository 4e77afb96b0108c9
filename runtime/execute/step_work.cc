#include "runtime/execute/step_work.h"

#include <algorithm>
#include <string_view>

#include "runtime/program/dim_program.h"

namespace tenon {
namespace {

int64_t Elements(const View& view) {
  if (view.value < 0 || !IsStatic(view.dims)) return 0;
  int64_t elements = 1;
  for (int64_t d : view.dims) elements *= d;
  return elements;
}

// Of memory: an element that strides of 0 repeat is touched once.
int64_t Bytes(const View& view) {
  if (view.value < 0 || !IsStatic(view.dims)) return 0;
  int64_t elements = 1;
  for (size_t d = 0; d < view.dims.size(); ++d)
    elements *= view.strides[d] == 0 ? std::min<int64_t>(view.dims[d], 1) : view.dims[d];
  return elements * ByteWidth(view.dtype);
}

// Operators that are products: each element of the result is a sum over `terms`.
struct Product {
  std::string_view overload;
  int operand;  // its number in FrameworkStep::operands
  int64_t (*terms)(const View& operand);
};

int64_t LastDim(const View& v) { return v.dims.empty() ? 0 : v.dims.back(); }
int64_t AllButFirst(const View& v) { return v.dims.empty() || v.dims[0] == 0 ? 0 : Elements(v) / v.dims[0]; }

constexpr Product kProducts[] = {
    {"aten.mm.out", 0, LastDim},
    {"aten.bmm.out", 0, LastDim},
    {"aten.addmm.out", 0, LastDim},
    {"aten.mm.default", 0, LastDim},
    {"aten.bmm.default", 0, LastDim},
    {"aten.addmm.default", 1, LastDim},
    {"aten.convolution.default", 1, AllButFirst},
};

int64_t ProductFlops(const FrameworkStep& call) {
  for (const Product& p : kProducts) {
    if (call.overload != p.overload || call.results.empty() || p.operand >= static_cast<int>(call.operands.size()))
      continue;
    const View& operand = call.operands[p.operand];
    return IsStatic(operand.dims) ? 2 * Elements(call.results[0]) * p.terms(operand) : 0;
  }
  return 0;
}

}  // namespace

StepWork WorkOf(const Step& step) {
  StepWork work{.bytes = step.bytes, .flops = step.flops};
  if (const auto* copy = std::get_if<CopyStep>(&step.body)) {
    work.bytes = Bytes(copy->from) + Bytes(copy->to);
  } else if (const auto* library = std::get_if<LibraryStep>(&step.body)) {
    for (const View& v : library->operands) work.bytes += Bytes(v);
    for (const View& v : library->results) work.bytes += Bytes(v);
  } else if (const auto* call = std::get_if<FrameworkStep>(&step.body)) {
    for (const View& v : call->operands) work.bytes += Bytes(v);
    for (const View& v : call->results) work.bytes += Bytes(v);
    if (work.flops == 0) work.flops = ProductFlops(*call);
  }
  return work;
}

}  // namespace tenon
