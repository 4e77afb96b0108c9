// LLVM that NVPTX (of LLVM 22) cannot select, written so that it can.
#pragma once

namespace llvm {
class Function;
}

namespace tenon::gpu {

// * The leading zeros of 64 bits that are known to be few (a pred, converted), looked at in 32: "Copy one register into another with a
//   different width" ends the compile. They are counted in words.
void RepairSelection(llvm::Function& f);

}  // namespace tenon::gpu
