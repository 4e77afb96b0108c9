// Functions of the C library's names and meaning as LLVM IR: of double, for every target, by vectors; of complex numbers of two doubles,
// for targets that have no C library to call (on the CPU those calls stay calls).
//
// Functions beside the kernels, without fast-math flags; FMA where written. A lane's bits don't depend on how many there are.
// Special values are C99's (Annex F and G), subnormals are kept. Their error is claimed in math_functions.def (real ones; ulp-sweep --f64
// measures it); complex ones are composed of them: a few units of the larger part, and of each part where cancellation is avoided as the
// source that is named beside the function does.
#pragma once

#include <span>
#include <string_view>

#include "llvm/IR/IRBuilder.h"

namespace llvm {
class Module;
}

namespace tenon::math {

// A call of the real function of this name (checked: LibraryFunctions has it) for doubles or vectors of them, of one type.
llvm::Value* CallLibraryFunction(llvm::IRBuilderBase& b, std::string_view symbol, std::span<llvm::Value* const> args);

// Gives every function of this list that `module` declares a body, internal to the module, and what these bodies call in turn. Other
// declarations stay.
void DefineLibraryFunctions(llvm::Module& module);

// What it defines. Sorted.
std::span<const std::string_view> LibraryFunctions();

}  // namespace tenon::math
