// ProgramBuilder: a module in fused form (passes/fusion/fused_form.h) + Binding -> Program and the kernels it needs.
//
// Decides for each movement op between kernels whether it is a view, plans the buffers, launches what lower-kernels has planned (kernels,
// of which equal fingerprints share one, and libraries' contractions), turns custom-call "aten.*" into framework steps, places outputs and
// write-backs.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/contract/target.h"
#include "hlo/module.h"
#include "passes/memory/value_views.h"
#include "passes/pass.h"
#include "runtime/program/binding.h"
#include "runtime/program/program.h"

namespace tenon {

struct BuiltProgram {
  Program program;                                      // without object code
  std::vector<std::shared_ptr<const PlannedKernel>> kernels;  // by KernelStep::kernel
  std::string buffer_plan;                              // printed, for dumps
};

// Strides of the values that the caller gives and of framework calls' results (PassContext::own_strides). Borrows the binding.
ValueViews::OwnStrides OwnStridesOf(const Module& module, const Binding& binding);

// `targets`: the host's first. Of several, shapes say in whose memory values lie (passes/spaces/spaces.h).
absl::StatusOr<BuiltProgram> BuildProgram(const Module& module, const Binding& binding, const LaunchPlans& plans,
                                          absl::Span<const std::shared_ptr<const Target>> targets, std::vector<Remark>* remarks);

}  // namespace tenon
