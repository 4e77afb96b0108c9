// f16 and bf16 as LLVM's own types, for targets that convert and compute pairs of them by one instruction.
//
// Values of half types are f32 in registers (emit_types.h). Where one is rounded, its pairs are converted together; and where what is
// rounded is one sum, difference or product of halves, they are computed as halves. That gives the same bits: f32 has twice their bits and
// two more (of f16 exactly: 24 = 2 * 11 + 2), so that rounding its result again is rounding once (Figueroa, "When is double rounding
// innocuous?", 1995). Products of bf16 that are too small for that are exact in f32, or less than half of bf16's least number.
#pragma once

#include "backends/codegen/emit/emit_types.h"

namespace tenon {

// Does this target have halves of `type` in pairs?
bool PacksHalves(PrimitiveType type, const EmitOptions& options);
// `v`, f32 in registers, rounded to `type`: half or bfloat, as many lanes.
llvm::Value* RoundedHalf(llvm::IRBuilderBase& b, PrimitiveType type, llvm::Value* v, const EmitOptions& options);

}  // namespace tenon
