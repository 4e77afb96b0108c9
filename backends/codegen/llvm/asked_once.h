// What emitted loops ask in each iteration, asked once.
//
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
// lanes are made where they are used.
void CopyLoopsForInside(llvm::Function& f, llvm::LoopInfo& loops);

// In loops whose body is too long to be there twice, all vectors are masked by what is left of the range; all but the last are whole.
// Whole vectors are loaded and stored without the mask: with it, what is not in the cache takes up to 1.2 times as long (Zen 4). The
// number that is left is marked with kWholeVectors, a kind of metadata, where it is limited to what one iteration does.
inline constexpr const char* kWholeVectors = "tenon.whole_vectors";
void LoadWholeVectors(llvm::Function& f);

}  // namespace tenon
