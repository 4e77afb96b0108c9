// The CPU as a Target (backends/contract/target.h): what backends/driver/targets.cc registers.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/contract/target.h"

namespace tenon {

// As MakeCpuTarget (backends/cpu/plan/target.h).
absl::StatusOr<std::shared_ptr<const Target>> MakeCpu(std::string_view isa, bool compile_only);
std::vector<std::string> CpuVariants();
// As MachineFileStatus (backends/cpu/plan/machine.h).
absl::Status CpuMachineStatus();
// The JITLink loader of this process. Never null; thread-safe.
CodeLoader* CpuLoader();

}  // namespace tenon
