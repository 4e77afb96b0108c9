// What is inside generated object code, and planted faults in its IR.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"

namespace llvm {
class Module;
}

namespace tenon {

// The first instruction of the object's code that `isa` ("sse4", "avx2", "avx512") does not have,
// as text; "" if there is none. Told from the encoding and the registers: no VEX below avx2, no
// EVEX (zmm, k registers, xmm16-31) below avx512.
std::string FirstInstructionAbove(const std::string& isa, std::span<const uint8_t> object);

// Makes every lane mask of `limit > lane` reach `by` lanes further. NotFound if there is none.
absl::Status WidenTailMask(llvm::Module& module, int by);

}  // namespace tenon
