// How HLO element types live in LLVM registers and in memory, and what to do with values whatever
// their type.
//
//   type            register                        memory
//   pred            i1                              a byte, 0 or 1
//   s1 .. s64       iN, N the type's width          iN; under 8 bits a byte, sign-extended
//   u1 .. u64       iN                              iN; under 8 bits a byte, zero-extended
//   f16, bf16       float                           their 16 bits
//   f8*, f4e2m1fn   float (f8e8m0fnu: double)       a byte
//   f32, f64        float, double                   the same
//   c64, c128       {re, im} of float, double       the same: parts side by side
//
// A register value is a scalar or a fixed vector of any width; that of a complex type a struct of two
// such. Code that does not know the type uses the functions on values below, never the builder's
// select, splat, extract or shuffle.
//
// Conversions to and from bf16 are integer code (a compiler's bf16 truncation calls a library
// function per lane), those of f16 use F16C where the target has it, those of narrower floats are in
// narrow_float.h.
#pragma once

#include <span>

#include "hlo/primitive_type.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/IR/IRBuilder.h"

namespace tenon {

// What scalar emission must know of the target and of the precision contract (DESIGN D7).
struct EmitOptions {
  bool has_f16c = false;
  bool excess_precision = true;  // false: round bf16/f16 values to their type after every op
  bool divides_as_doubles = false;  // s64 and f64 are converted to each other, and s64 multiplied, as vectors
  bool merging = false;          // inside a reduction: which zero max(-0, +0) gives is left open
  bool keeps_f16_nans = false;   // the target's conversion of f16 makes any NaN the canonical one, which this kernel tells from others
  bool packs_f16 = false, packs_bf16 = false;  // pairs are rounded, added, multiplied by one instruction (packed_half.h)
};

bool IsHalf(PrimitiveType type);         // f16 or bf16
bool IsNarrowFloat(PrimitiveType type);  // f8*, f4*: values are rounded to it after every op, always
bool IsNarrowInt(PrimitiveType type);    // s1 s2 s4 u1 u2 u4
// Every array type.
bool IsGeneratedType(PrimitiveType type);

llvm::Type* RegisterType(llvm::LLVMContext& context, PrimitiveType type);
llvm::Type* MemoryType(llvm::LLVMContext& context, PrimitiveType type);
// Scratch holds register values, but pred and narrow integers as in memory.
llvm::Type* StorageType(llvm::LLVMContext& context, PrimitiveType type);
int64_t StorageBytes(PrimitiveType type);
bool IsStoredAsInMemory(PrimitiveType type);

llvm::Value* FromMemory(llvm::IRBuilderBase& b, PrimitiveType type, llvm::Value* v,
                        const EmitOptions& options);
// The bits from which FromMemory has made `v`, a bf16, if nothing was done with it since: what is only moved is not rounded. Else null.
llvm::Value* UnchangedBf16(llvm::Value* v);
llvm::Value* ToMemory(llvm::IRBuilderBase& b, PrimitiveType type, llvm::Value* v,
                      const EmitOptions& options);
// Rounds a register value of a float narrower than its register to its type; others come back
// unchanged.
llvm::Value* RoundToType(llvm::IRBuilderBase& b, PrimitiveType type, llvm::Value* v,
                         const EmitOptions& options);

// ---- register types and values, complex ones included ----

// `element` itself, or a vector of it with the lanes of `like`.
llvm::Type* WithLanesOf(llvm::Type* like, llvm::Type* element);
llvm::Type* WithLanes(llvm::Type* element, unsigned lanes);  // 1: the element itself
bool IsVectorType(llvm::Type* type);
unsigned LanesOf(llvm::Type* type);  // 1 for scalars
// Bits of one element, and the alignment that its parts ask for.
unsigned ElementBits(llvm::Type* type);
unsigned PartBits(llvm::Type* type);

inline bool IsComplexType(llvm::Type* type) { return type->isStructTy(); }
llvm::Value* Part(llvm::IRBuilderBase& b, llvm::Value* complex, unsigned part);
llvm::Value* MakeComplex(llvm::IRBuilderBase& b, llvm::Value* re, llvm::Value* im);
// f on the values, or on their real and then their imaginary parts.
llvm::Value* PerPart(llvm::IRBuilderBase& b, std::span<llvm::Value* const> values,
                     llvm::function_ref<llvm::Value*(std::span<llvm::Value* const>)> f);

llvm::Value* SplatValue(llvm::IRBuilderBase& b, unsigned lanes, llvm::Value* v);
llvm::Value* SelectValue(llvm::IRBuilderBase& b, llvm::Value* condition, llvm::Value* x,
                         llvm::Value* y);
llvm::Value* ExtractLane(llvm::IRBuilderBase& b, llvm::Value* v, unsigned lane);
llvm::Value* ShuffleValues(llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value* y,
                           llvm::ArrayRef<int> mask);
// Asks the first cache for the line of `pointer`, to be read; it may lie outside of everything.
void AskForLine(llvm::IRBuilderBase& b, llvm::Value* pointer);

}  // namespace tenon
