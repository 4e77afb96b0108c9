// What other families need of sorting.
#pragma once

#include "torch_plugin/aten/lower/op_context.h"

namespace tenon::aten {

// The elements of `x` in ascending order along `axis`, NaN last. x has elements.
Instruction* SortedAscending(OpContext& op, Instruction* x, int64_t axis);

}  // namespace tenon::aten
