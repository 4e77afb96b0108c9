// The CPUs' MachineModels: a table by processor, so that two machines of one kind make the same choices, and a file that says it of this
// one.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/contract/machine.h"

namespace tenon {

// `processor`: LLVM's name for it, or kAmx. `isa`: as in CpuTarget. A processor that the table doesn't have is the generic one.
MachineModel MachineOf(std::string_view processor, std::string_view isa);

// Intel's servers from Sapphire Rapids on, by what they have: hypervisors show them under many numbers.
inline constexpr std::string_view kAmx = "intel-amx";

// A model from the text of a machine file (contract/machine.h), if it is of this instruction set; else, and what no file says, the table's.
absl::StatusOr<MachineModel> MachineFrom(std::string_view text, std::string_view processor, std::string_view isa);

// The model of this machine: by the file that TENON_MACHINE names, where that can be used, else the table's. The file is read once.
MachineModel HostMachine(std::string_view processor, std::string_view isa);
// What is wrong with the file that TENON_MACHINE names, if anything.
absl::Status MachineFileStatus();

}  // namespace tenon
