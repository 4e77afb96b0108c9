// The order of a long loop's instructions, by what it takes of registers.
#pragma once

namespace llvm {
class Function;
class LoopInfo;
}  // namespace llvm

namespace tenon {

// LLVM's code generator takes instructions in the order in which they stand, which is that of the fused instructions. In a block of a loop
// that carries no vectors and needs more vector registers at once than there are (`registers`), they are put into another order, if that
// one needs fewer: from the block's end on, what frees most comes next (a list schedule from below), and of what frees as much the last
// that was asked for, so that a value's operands stand together. Of two operands the one that takes more registers stands first (R. Sethi,
// J. D. Ullman: The Generation of Optimal Code for Arithmetic Expressions, 1970). What reads or writes memory keeps its order to what
// writes.
void OrderForRegisters(llvm::Function& f, llvm::LoopInfo& loops, int registers);

}  // namespace tenon
