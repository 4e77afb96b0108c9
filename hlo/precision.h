// What an instruction asks of its arithmetic beyond its types: a dot's algorithm, operand_precision, result_accuracy.
//
// Honoured: operand_precision default, high and highest (products and sums are never narrower than the operands' type), every dot
// algorithm of XLA's (xla_data.proto, PrecisionConfig.Algorithm) by rounding the operands to the type that it names (as
// reduce-precision does: what would be subnormal in f16 becomes zero) and adding up in f32 or wider, result_accuracy modes, and
// tolerances that docs/accuracy.md meets. The rest is refused by name.
#pragma once

#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hlo/instruction.h"

namespace tenon {

struct Precision {  // as reduce-precision has it
  int exponent_bits, mantissa_bits;
};

// Whether the text is an algorithm's name.
bool IsDotAlgorithm(std::string_view name);

// What the contraction's algorithm rounds a float operand of type `from` to; nullopt: it takes the operand as it is.
std::optional<Precision> OperandPrecision(const Instruction& contraction, PrimitiveType from);

// result_accuracy={mode=default|highest} or {tolerance={atol=a,rtol=r,ulps=u}}: |result - exact| <= a + r * |exact| + u units in the
// last place.
struct ResultAccuracy {
  bool tolerance = false;  // else a mode
  double atol = 0, rtol = 0;
  int64_t ulps = 0;
};
absl::StatusOr<ResultAccuracy> ParseResultAccuracy(std::string_view text);

// Unimplemented, naming the op and what it asks for, where neither evaluator nor backends can give it.
absl::Status CheckPrecision(const Instruction& op);

}  // namespace tenon
