// FreeMemoryAt: memory of a buffer plan that holds nothing while an instruction runs. Kernels have their scratch there: how much that is
// hangs on the run's threads, so it is no buffer of the plan.
#pragma once

#include "passes/memory/buffer_plan.h"

namespace tenon {

struct MemoryRun {
  int32_t lender = -1;  // an allocation of kind kOutput, which is written later; -1: the host's arena
  int64_t offset = 0, bytes = 0;  // both multiples of kArenaAlignment
};

// The longest run of it in the host's memory, of 0 bytes if there is none, or if it moves from call to call (symbolic_arenas).
MemoryRun FreeMemoryAt(const BufferPlan& plan, const Instruction* op);

}  // namespace tenon
