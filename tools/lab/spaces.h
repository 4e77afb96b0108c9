// Modules for devices that have memory of their own (docs/architecture/targets.md).
#pragma once

#include <cstdint>

#include "hlo/module.h"

namespace tenon::lab {

// Parameters and results stay the host's, but for copies of them all is computed in `space`, as far as its target can.
void MoveInside(Module& module, int64_t space);

}  // namespace tenon::lab
