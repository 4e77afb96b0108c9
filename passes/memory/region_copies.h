// Copies that regions need, for insert-copies.
#pragma once

#include "passes/pass.h"

namespace tenon {

// For the whiles and conditionals of `c`: results of a body or branch in another layout than the while or conditional keeps them, or
// that are views of what the region computes, are copied by the kernel that computes them; operands of a conditional that are strided
// views are made dense. Values that only pass through a region are moved by the program (buffer_plan.h), not copied here.
bool CopyIntoRegions(Computation* c, PassContext& context);

// A copy of an array in this layout.
Instruction* CopyWithLayout(Instruction* value, const Permutation& layout);

}  // namespace tenon
