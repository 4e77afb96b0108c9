// Arguments for the numeric check of a rewrite, and a stand-in for framework calls.
#pragma once

#include <random>
#include <vector>

#include "hlo/eval/evaluator.h"
#include "hlo/module.h"

namespace tenon {

// One literal per parameter of the entry. With `extremes`, floats hold NaN, infinities, -0, subnormals; integers their extremes.
std::vector<Literal> RandomArguments(const Module& module, bool extremes, std::mt19937_64& random);

// Evaluates with "aten.*" calls as an arbitrary but fixed function of their operands, and "tenon.check" collecting into `checks`
// (sorted by message id) whether each check fired.
absl::StatusOr<Literal> EvaluateWithCalls(const Module& module, absl::Span<const Literal> arguments,
                                          std::vector<std::string>* checks);

}  // namespace tenon
