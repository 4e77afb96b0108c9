// How HLO element types live in LLVM registers and in memory.
//
// Registers: pred i1, integers iN, f16/bf16/f32 float, f64 double; scalars or fixed vectors of any
// width. Memory: pred and narrow types one byte, f16/bf16 their 16 bits. Conversions to and from
// bf16 are integer code (a compiler's bf16 truncation calls a library function per lane), those of
// f16 use F16C where the target has it.
#pragma once

#include "hlo/primitive_type.h"
#include "llvm/IR/IRBuilder.h"

namespace tenon {

// What scalar emission must know of the target and of the precision contract (DESIGN D7).
struct EmitOptions {
  bool has_f16c = false;
  bool excess_precision = true;  // false: round bf16/f16 values to their type after every op
  bool merging = false;          // inside a reduction: which zero max(-0, +0) gives is left open
};

bool IsHalf(PrimitiveType type);  // f16 or bf16
// pred, s8..s64, u8..u64, f16, bf16, f32, f64.
bool IsGeneratedType(PrimitiveType type);

llvm::Type* RegisterType(llvm::LLVMContext& context, PrimitiveType type);
llvm::Type* MemoryType(llvm::LLVMContext& context, PrimitiveType type);
// `element` itself, or a vector of it with the lanes of `like`.
llvm::Type* WithLanesOf(llvm::Type* like, llvm::Type* element);

llvm::Value* FromMemory(llvm::IRBuilderBase& b, PrimitiveType type, llvm::Value* v,
                        const EmitOptions& options);
llvm::Value* ToMemory(llvm::IRBuilderBase& b, PrimitiveType type, llvm::Value* v,
                      const EmitOptions& options);
// Rounds a register value of f16/bf16 to its type; others come back unchanged.
llvm::Value* RoundToType(llvm::IRBuilderBase& b, PrimitiveType type, llvm::Value* v,
                         const EmitOptions& options);

}  // namespace tenon
