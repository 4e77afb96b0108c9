// PackArena: offsets for the allocations of kind kArena, from their sizes and live ranges.
#pragma once

#include "passes/memory/buffer_plan.h"

namespace tenon {

// `length`: positions go from 0 to length - 1. Sets offsets, arena_bytes and peak_live_bytes.
void PackArena(BufferPlan* plan, int64_t length);

}  // namespace tenon
