#include "torch_plugin/libtenon/handle.h"

#include <algorithm>

#include "runtime/program/dim_program.h"

namespace {

// Not NULL, which means symbols, where there are none.
const int64_t* Numbers(const std::vector<tenon::SizeRef>& numbers) {
  static constexpr int64_t kNone = 0;
  return numbers.empty() ? &kNone : numbers.data();
}

}  // namespace

TenonExecutable::TenonExecutable(std::shared_ptr<tenon::Executable> e) : executable(std::move(e)), counters(executable->NewCounters()) {
  const tenon::Program& program = executable->program();
  for (const tenon::InputSpec& spec : program.inputs) {
    TenonInput in = {};
    in.kind = static_cast<int32_t>(spec.kind);
    in.dtype = static_cast<int32_t>(spec.dtype);
    in.ndim = static_cast<int32_t>(spec.dims.size());
    if (tenon::IsStatic(spec.dims) && tenon::IsStatic(spec.strides)) {
      in.sizes = Numbers(spec.dims);
      in.strides = Numbers(spec.strides);
    }
    if (spec.mutated) in.flags |= TENON_INPUT_MUTATED;
    if (executable->takes_framework_input(static_cast<int64_t>(inputs.size()))) in.flags |= TENON_INPUT_FRAMEWORK;
    if (!spec.packed_by.empty()) {
      in.packed_by = spec.packed_by.c_str();
      in.packing = spec.packing.data();
      in.num_packing = static_cast<int64_t>(spec.packing.size());
    }
    inputs.push_back(in);
  }
  for (const tenon::OutputSpec& spec : program.outputs) {
    TenonOutput out = {};
    out.space = spec.space;
    out.kind = static_cast<int32_t>(spec.kind);
    out.dtype = static_cast<int32_t>(spec.dtype);
    out.index = spec.index;
    out.ndim = static_cast<int32_t>(spec.dims.size());
    if (tenon::IsStatic(spec.dims) && tenon::IsStatic(spec.strides)) {
      out.sizes = Numbers(spec.dims);
      out.strides = Numbers(spec.strides);
    }
    outputs.push_back(out);
  }
  for (const auto& [name, ms] : program.compile_ms) {
    const auto same = std::find_if(phases.begin(), phases.end(), [&](const TenonPhase& p) { return name == p.name; });
    if (same == phases.end()) {
      phases.push_back({name.c_str(), ms});
    } else {
      same->ms += ms;
    }
  }
  Describe();
}

void TenonExecutable::Describe() {
  const tenon::Program& program = executable->program();
  signature.size = sizeof(TenonSignature);
  signature.native = program.tier == tenon::Program::Tier::kNative ? 1 : 0;
  signature.name = program.name.c_str();
  signature.reason = program.tier_reason.c_str();
  signature.inputs = inputs.data();
  signature.outputs = outputs.data();
  // Without what is computed once.
  signature.num_inputs = static_cast<int64_t>(inputs.size() - (once == nullptr ? 0 : once->outputs.size()));
  signature.num_outputs = static_cast<int64_t>(outputs.size());
  signature.num_kernels = static_cast<int64_t>(program.kernels.size());
  signature.planned_bytes = executable->planned_bytes();
  signature.compile_ms = phases.data();
  signature.num_phases = static_cast<int64_t>(phases.size());
  signature.frozen = inputs.data() + signature.num_inputs;
}

TenonExecutable::TenonExecutable(tenon::CompiledGraph compiled) : TenonExecutable(std::move(compiled.executable)) {
  if (compiled.once == nullptr) return;
  once = std::make_unique<TenonExecutable>(std::move(compiled.once));
  Describe();
}
