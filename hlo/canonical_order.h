// An order of instructions and computations that depends on the graph only, not on names, ids or the order of addition: that of the
// canonical text and of the bytes that keys are made of.
#pragma once

#include <vector>

#include "hlo/computation.h"
#include "hlo/module.h"

namespace tenon {

// Parameters, then depth first from the root by operand order, then what the root doesn't reach. A schedule is part of the graph.
std::vector<Instruction*> CanonicalOrder(const Computation& computation);
// In the order of first call from the entry, callees first; unreachable ones are left out.
std::vector<const Computation*> CanonicalOrder(const Module& module);
// Definitions before uses.
bool IsTopological(const std::vector<Instruction*>& order);

}  // namespace tenon
