// The CPUs' MachineModels: a table by the processor's name, so that two machines of one kind make the same choices.
#pragma once

#include <string_view>

#include "backends/contract/machine.h"

namespace tenon {

// `processor`: LLVM's name for it. `isa`: as in CpuTarget.
MachineModel MachineOf(std::string_view processor, std::string_view isa);

}  // namespace tenon
