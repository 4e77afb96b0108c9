// 64-bit integers of a kernel that provably fit 32 bits, computed in 32: a GPU's registers are 32 bits wide, and so are its multipliers and
// dividers. Pointers stay wide: an index is widened where it becomes an address.
//
// What a number may be follows from the ranges of threads, blocks, constants and loops (LLVM's ScalarEvolution): sizes that are known only
// when the kernel runs stay wide, and so does what depends on them.
#pragma once

#include <cstdint>

namespace llvm {
class Function;
}

namespace tenon::gpu {

// `f` is a kernel of blocks of `threads`; `blocks`: how many there are, 0 if that is not known yet.
void NarrowIndices(llvm::Function& f, int64_t threads, int64_t blocks);

}  // namespace tenon::gpu
