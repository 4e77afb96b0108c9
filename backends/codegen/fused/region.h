// Regions: computations that kernels apply to elements (to_apply of reduce, map, sort, scatter, ...).
#pragma once

#include <vector>

#include "hlo/computation.h"

namespace tenon {

// Moves a scalar unchanged (a bitcast perhaps as another type).
bool KeepsScalar(Opcode opcode);

// Nothing but elementwise ops with code, on scalars. With `slabs`, on arrays of the dims of its
// parameters too (a scan's slices), each element for itself.
bool IsFlatRegion(const Computation& region, bool slabs = false);

// The computations that `op` applies to elements: to_apply, select, scatter.
std::vector<const Computation*> RegionsOf(const Instruction& op);
// `op` applies regions that are not flat: its kernel works on scalars.
bool HasGeneralRegion(const Instruction& op);

}  // namespace tenon
