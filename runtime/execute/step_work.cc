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

int64_t Elements(const View& view) {
  int64_t elements = 1;
  for (int64_t d : view.dims) elements *= d;
  return elements;
}

// Products and convolutions of a framework, which a program by the framework alone consists of: operands that are multiplied. Two flops for
// each product.
struct KnownCall {
  const char* overload;
  size_t lhs, rhs;
  bool convolution;
};
constexpr KnownCall kKnownCalls[] = {
    {"aten.mm.default", 0, 1, false},        {"aten.bmm.default", 0, 1, false},         {"aten.addmm.default", 1, 2, false},
    {"aten.baddbmm.default", 1, 2, false},   {"aten.mv.default", 0, 1, false},          {"aten.dot.default", 0, 1, false},
    {"aten.linear.default", 0, 1, false},    {"aten.matmul.default", 0, 1, false},      {"aten.convolution.default", 0, 1, true},
};
constexpr size_t kTransposedArg = 6;  // of aten.convolution

int64_t FlopsOf(const FrameworkStep& call) {
  const auto* known =
      std::find_if(std::begin(kKnownCalls), std::end(kKnownCalls), [&](const KnownCall& k) { return call.overload == k.overload; });
  if (known == std::end(kKnownCalls) || call.operands.size() <= std::max(known->lhs, known->rhs) || call.results.empty()) return 0;
  const View &lhs = call.operands[known->lhs], &rhs = call.operands[known->rhs], &out = call.results[0];
  for (const View* v : {&lhs, &rhs, &out}) {
    if (!IsStatic(v->dims) || (v != &out && v->dims.empty())) return 0;
  }
  if (!known->convolution) return 2 * Elements(out) * lhs.dims.back();
  // Of a kernel of [features, ...] each place of the result takes the rest; each place of x gives it, if transposed.
  const bool transposed = call.args.size() > kTransposedArg && call.args[kTransposedArg].i != 0;
  return rhs.dims[0] == 0 ? 0 : 2 * Elements(transposed ? lhs : out) * (Elements(rhs) / rhs.dims[0]);
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
    if (work.flops == 0) work.flops = FlopsOf(*call);
    work.f64 = HoldsF64(call->operands);
  }
  return work;
}

}  // namespace tenon
