// PackArena: offsets for the allocations of kind kArena, from their sizes and live ranges (hlo/arena.h).
#pragma once

#include "passes/memory/buffer_plan.h"

namespace tenon {

// To plan for where any number is right: Typical sizes, but of no symbol less than 256, as it is large sizes whose memory matters.
int64_t TypicalBytes(Dim bytes);

// Sets offsets, arena_bytes, device_arenas, symbolic_arenas and peak_live_bytes.
// Outputs lend their memory to what is read before they are written, where the arena is smaller for it: fixed sizes, the host's memory.
void PackArena(BufferPlan* plan);

}  // namespace tenon
