// Runs a module on the CPU backend, without a framework: what needs a framework operator is refused by the compiler.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/compile.h"
#include "hlo/literal.h"
#include "hlo/module.h"

namespace tenon {

struct CpuRun {
  std::vector<Literal> outputs;  // the leaves of the root
  double compile_ms = 0, best_run_us = 0;
};

// `args` by parameter number (arrays). Runs `repeat` times, at least once.
absl::StatusOr<CpuRun> RunOnCpu(const Module& module, absl::Span<const Literal> args, const CompileOptions& options,
                                int repeat);

}  // namespace tenon
