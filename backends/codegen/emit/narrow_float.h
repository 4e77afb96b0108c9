// Conversion between the bytes of the f8 and f4 types and registers, as hlo/numeric_types.h does it.
#pragma once

#include "hlo/primitive_type.h"
#include "llvm/IR/IRBuilder.h"

namespace tenon {

// i8 -> float (f8e8m0fnu: double), exact; every code has a value of its own, NaN payloads included.
llvm::Value* NarrowFloatFromBits(llvm::IRBuilderBase& b, PrimitiveType type, llvm::Value* bits);

// float (f8e8m0fnu: double) -> i8, one rounding to nearest even. Of NaNs the sign and the payload's
// top bits are kept; `quiet`: made quiet too, as arithmetic does and moving a value must not.
llvm::Value* NarrowFloatToBits(llvm::IRBuilderBase& b, PrimitiveType type, llvm::Value* value,
                               bool quiet);

}  // namespace tenon
