// Which elementwise ops are calls of the C library: what targets without one leave to others.
#pragma once

#include "hlo/computation.h"

namespace tenon {

// The code of this op, or of a computation that it applies, has such a call.
bool CallsLibrary(const Instruction& op);

}  // namespace tenon
