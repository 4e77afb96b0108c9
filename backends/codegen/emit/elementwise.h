// One elementwise HLO op on register values (emit_types.h), scalars or vectors of any width. CPU
// and GPU share it.
//
// Rounding, NaN, overflow and division rules are those of hlo/ops.def; results are bit-equal to the
// evaluator's except for the transcendentals of math/math.h. No fast-math flags.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "backends/codegen/emit/emit_types.h"
#include "hlo/instruction.h"

namespace tenon {

// Elementwise op with these operand types can be emitted.
bool HasElementwiseBody(const Instruction& op);

// 2^x, written as a power.
bool IsPowerOfTwo(const Instruction& op);

// A bitcast-convert between widths: the wider elements are the narrower ones of a minor dimension.
bool ChangesWidth(const Instruction& op);

// `args`: one register value per operand, all of one width. The result is rounded to a half type
// only if the options ask.
absl::StatusOr<llvm::Value*> EmitElementwise(llvm::IRBuilderBase& b, const Instruction& op,
                                             std::span<llvm::Value* const> args,
                                             const EmitOptions& options);

// Rough number of machine instructions of one vector of it: for unrolling, recomputation and work
// estimates.
int ElementwiseCost(const Instruction& op);

}  // namespace tenon
