// Algebraic simplification: rules as data, one topic per file.
//
// A rule looks at one instruction and returns what may stand in its place: an operand, or something new made by the builder, or
// nullptr (what it made by then is removed). Every rule is exact (DESIGN D7): the same bits for every input, NaN, infinities and
// signed zeros included.
#pragma once

#include <string_view>

#include "absl/types/span.h"
#include "hlo/builder.h"
#include "passes/pass.h"

namespace tenon {

struct Rule {
  std::string_view name;
  Instruction* (*apply)(Instruction* op, Builder& b, const PassContext& context);
};

absl::Span<const Rule> ArithmeticRules();
absl::Span<const Rule> MovementRules();
absl::Span<const Rule> ConvertRules();
absl::Span<const Rule> ReductionRules();

// The scalar constant that `op` is, or is a broadcast of; nullptr otherwise.
const Instruction* SplatConstant(const Instruction* op);
bool IsSplat(const Instruction* op, double value);  // -0 is not 0, NaN is nothing

}  // namespace tenon
