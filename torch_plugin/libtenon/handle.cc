#include "torch_plugin/libtenon/handle.h"

#include "runtime/program/dim_program.h"

TenonExecutable::TenonExecutable(std::shared_ptr<tenon::Executable> e)
    : executable(std::move(e)), counters(executable->NewCounters()) {
  for (const tenon::OutputSpec& spec : executable->program().outputs) {
    TenonOutput out = {};
    out.space = spec.space;
    out.kind = static_cast<int32_t>(spec.kind);
    out.dtype = static_cast<int32_t>(spec.dtype);
    out.index = spec.index;
    out.ndim = static_cast<int32_t>(spec.dims.size());
    if (tenon::IsStatic(spec.dims) && tenon::IsStatic(spec.strides)) {
      out.sizes = spec.dims.data();
      out.strides = spec.strides.data();
    }
    outputs.push_back(out);
  }
}

TenonExecutable::TenonExecutable(tenon::CompiledGraph compiled) : TenonExecutable(std::move(compiled.executable)) {
  if (compiled.once != nullptr) once = std::make_unique<TenonExecutable>(std::move(compiled.once));
}
