// Numbers that a kernel is given (its literals), read where they are used.
#pragma once

namespace llvm {
class Function;
class LoopInfo;
}  // namespace llvm

namespace tenon {

// After loop-invariant code motion. A loop that uses more of the kernel's numbers, spread over 64 bytes, than registers can be spared for
// would keep them on the stack, 64 bytes each: there every use spreads its own from memory, which is part of AVX-512's instructions. The
// numbers lie behind the function's second argument and nothing writes them.
void SinkNumbers(llvm::Function& f, llvm::LoopInfo& loops);

}  // namespace tenon
