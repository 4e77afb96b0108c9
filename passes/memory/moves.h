// Parallel moves: all sources are read before any target is written.
#pragma once

#include <functional>
#include <vector>

#include "passes/memory/buffer_plan.h"

namespace tenon {

// Puts `moves` into an order in which copying one after the other gives the same: no target is written while another move has yet
// to read its allocation; cycles, and a move within one allocation, go through temporaries, which `temporary(move)` allocates.
// `allocation` says where a leaf lives. Targets live in different allocations.
std::vector<BufferMove> OrderMoves(std::vector<BufferMove> moves, const std::function<int32_t(BufferKey)>& allocation,
                                   const std::function<int32_t(const BufferMove&)>& temporary);

}  // namespace tenon
