// What code there is for.
#pragma once

#include "hlo/instruction.h"

namespace tenon {

// Can this instruction be part of a generated kernel (opcode, types)? Fusion asks before fusing. A target may take less.
bool CanGenerate(const Instruction& op);

}  // namespace tenon
