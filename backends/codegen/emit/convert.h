// Conversions between register values of any two element types.
#pragma once

#include <vector>

#include "backends/codegen/emit/emit_types.h"

namespace tenon {

// The value of HLO convert. Rounded to `to` only as far as the options ask (RoundToType does it).
llvm::Value* ConvertValue(llvm::IRBuilderBase& b, PrimitiveType from, PrimitiveType to,
                          llvm::Value* v, const EmitOptions& options);
// A loop index (any integer type, signed) as `type`, rounded.
llvm::Value* ConvertFromIndex(llvm::IRBuilderBase& b, PrimitiveType type, llvm::Value* v,
                              const EmitOptions& options);

// The bits of a value, low ones first, as integers of min(width, 64) bits each: two for c128.
std::vector<llvm::Value*> ToWords(llvm::IRBuilderBase& b, PrimitiveType type, llvm::Value* v,
                                  const EmitOptions& options);
llvm::Value* FromWords(llvm::IRBuilderBase& b, PrimitiveType type,
                       std::span<llvm::Value* const> words, const EmitOptions& options);
inline int WordBits(PrimitiveType type) { return BitWidth(type) < 64 ? BitWidth(type) : 64; }

}  // namespace tenon
