// The CPU's kernels: what backends/contract/kernel.h says, and how their LLVM IR is made.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "backends/contract/kernel.h"
#include "backends/cpu/plan/target.h"

namespace llvm {
class Module;
}

namespace tenon {

class CpuPlannedKernel : public PlannedKernel {
 public:
  // Emits `void symbol(void* const*, const int64_t*, int64_t, int64_t, void*)` (runtime/kernel_abi.h) into `module`, whose data
  // layout and triple are set. Uses only symbols of runtime/imports.def. Thread-safe for different modules/contexts.
  virtual absl::Status Emit(llvm::Module& module, const std::string& symbol) const = 0;
};

// backends/cpu/emit/codegen.cc. Unimplemented: names the instruction that cannot be generated (the driver then splits or falls back).
absl::StatusOr<std::unique_ptr<CpuPlannedKernel>> PlanCpuKernel(const KernelRequest& request, const CpuTarget& target,
                                                                bool excess_precision);

}  // namespace tenon
