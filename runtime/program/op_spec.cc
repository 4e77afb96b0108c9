#include "runtime/program/op_spec.h"

#include "runtime/program/dim_program.h"

namespace tenon {

OpSpec::OpSpec(const FrameworkStep& step, bool promised) : spec_() {
  for (const View& v : step.operands) operands_.push_back(Meta(v));
  for (const View& v : step.results) {
    TenonTensor meta = Meta(v);
    if (v.value >= 0 && (!promised || v.dtype == PrimitiveType::kOpaque)) meta.ndim = -1;
    results_.push_back(meta);
  }
  spec_.overload = step.overload.c_str();
  spec_.args = Convert(step.args);
  spec_.num_args = static_cast<int64_t>(step.args.size());
  spec_.rule = static_cast<int32_t>(step.rule);
  spec_.num_operands = static_cast<int32_t>(operands_.size());
  spec_.num_results = static_cast<int32_t>(results_.size());
  spec_.operands = operands_.data();
  spec_.results = results_.data();
}

const TenonArg* OpSpec::Convert(const std::vector<FrameworkArg>& args) {
  std::vector<TenonArg> converted;
  converted.reserve(args.size());
  for (const FrameworkArg& arg : args) {
    TenonArg c = {};
    c.kind = static_cast<int32_t>(arg.kind);
    c.dtype = static_cast<int32_t>(arg.dtype);
    c.i = arg.i;
    c.f = arg.f;
    c.im = arg.im;
    c.s = arg.s.c_str();
    c.list = Convert(arg.list);
    c.list_size = static_cast<int64_t>(arg.list.size());
    converted.push_back(c);
  }
  return lists_.emplace_back(std::move(converted)).data();
}

TenonTensor OpSpec::Meta(const View& view) const {
  TenonTensor t = {};
  t.dtype = view.value < 0 ? -1 : static_cast<int32_t>(view.dtype);
  t.ndim = view.value < 0 ? -1 : static_cast<int32_t>(view.dims.size());
  if (view.value >= 0 && IsStatic(view.dims) && IsStatic(view.strides)) {
    t.sizes = view.dims.data();
    t.strides = view.strides.data();
  }
  return t;
}

}  // namespace tenon
