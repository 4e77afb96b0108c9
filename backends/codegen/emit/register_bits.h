// The bits of f32 registers, scalars or vectors.
#pragma once

#include "backends/codegen/emit/emit_types.h"

namespace tenon {

// `c` in an integer type like that of `like`.
inline llvm::Value* IntLike(llvm::Value* like, uint64_t c) { return llvm::ConstantInt::get(like->getType(), c); }
inline llvm::Value* AsI32(llvm::IRBuilderBase& b, llvm::Value* f) {
  return b.CreateBitCast(f, WithLanesOf(f->getType(), b.getInt32Ty()));
}
inline llvm::Value* AsF32(llvm::IRBuilderBase& b, llvm::Value* i) {
  return b.CreateBitCast(i, WithLanesOf(i->getType(), b.getFloatTy()));
}

}  // namespace tenon
