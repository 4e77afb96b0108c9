// The C library's functions that generated code calls, as LLVM IR: for targets that have no C library. On the CPU the calls stay calls.
//
// Functions of double and of two doubles for a complex number, scalar, with control flow, without fast-math flags; FMA where written.
// Special values are C99's (Annex F and G), subnormals are kept. Their error is claimed in math_functions.def (real ones; ulp-sweep --f64
// measures it); complex ones are composed of them: a few units of the larger part, and of each part where cancellation is avoided as the
// source that is named beside the function does.
#pragma once

#include <span>
#include <string_view>

namespace llvm {
class Module;
}

namespace tenon::math {

// Gives every function of this list that `module` declares a body, internal to the module, and what these bodies call in turn. Other
// declarations stay.
void DefineLibraryFunctions(llvm::Module& module);

// What it defines. Sorted.
std::span<const std::string_view> LibraryFunctions();

}  // namespace tenon::math
