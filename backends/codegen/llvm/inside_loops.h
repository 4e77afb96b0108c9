// Loops of which each iteration asks the same: does this tap of the window lie inside, and that one? The answers are known in front of
// the loop. Where all are yes, a copy of it that doesn't ask is run: the middle of an image, all but its borders.
#pragma once

namespace llvm {
class Function;
class LoopInfo;
}  // namespace llvm

namespace tenon {

// After loop-invariant code motion, in LCSSA form. A loop gets such a copy if it is one block, reads from the dummy (kernel_memory.cc)
// on at least two conditions, and masks no memory: what does is a tail, of one iteration. Masks that are one such condition for all
// lanes are made where they are used. Returns whether `f` was changed.
bool CopyLoopsForInside(llvm::Function& f, llvm::LoopInfo& loops);

}  // namespace tenon
