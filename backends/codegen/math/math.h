// Elementary functions as LLVM IR: the one set of bodies that every generated kernel uses, on CPU
// and GPU.
//
// A body takes and returns float, double, <N x float> or <N x double> (any N) and is straight-line
// code: no control flow, no target intrinsics, no fast-math flags (the builder's are put aside),
// FMA only where written. The target must have FMA in hardware. f16 and bf16 are converted to float
// by the caller.
//
// float: own bodies, accurate to the ULP claimed in math_functions.def for every input
// (tools/ulp-sweep measures it, the result is docs/accuracy.md). NaN in gives NaN out; infinities,
// subnormals (in and out) and signed zeros are as in C's libm. double: a call of a function beside the kernel (library.h), for all
// lanes; on a GPU, whose threads have no vector registers, a call per lane; pow is the C library's on a CPU. Functions without a libm
// counterpart have no double body.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "llvm/IR/IRBuilder.h"

namespace tenon::math {

enum class Fn {
#define TENON_MATH_FN(id, name, arity, emit, libm, max_ulp, max_ulp_f64, notes) id,
#include "backends/codegen/math/math_functions.def"
#undef TENON_MATH_FN
};

struct FnInfo {
  Fn fn;
  std::string_view name;   // as in C, with "logistic", "rsqrt" and "erfinv" beside
  int arity;               // 1 or 2
  std::string_view libm;   // the function of library.h for double; empty: no double body
  double max_ulp;          // claimed for float, over the whole domain
  double max_ulp_f64;      // claimed for that double function; 0: none
  std::string_view notes;  // method and domain, for docs/accuracy.md
};

// Every function, in the order of Fn.
std::span<const FnInfo> Functions();
const FnInfo& Info(Fn fn);
std::optional<Fn> FindFunction(std::string_view name);

// Whether Emit accepts operands of this type. Float and double scalars and fixed vectors of them
// can be supported.
bool HasBody(Fn fn, llvm::Type* type);

// erf of float, off by at most kCoarseErfError whatever the result's size: for what says that this is enough (hlo/precision.h).
inline constexpr double kCoarseErfError = 2.2e-7;
llvm::Value* EmitCoarseErf(llvm::IRBuilderBase& builder, llvm::Value* x);

// Emits fn(args...) at the builder's insertion point. All args have one type, for which HasBody
// holds (checked).
llvm::Value* Emit(llvm::IRBuilderBase& builder, Fn fn, std::span<llvm::Value* const> args);

// C's fmod, exact, for float and double.
llvm::Value* EmitRemainder(llvm::IRBuilderBase& builder, llvm::Value* dividend, llvm::Value* divisor);

}  // namespace tenon::math
