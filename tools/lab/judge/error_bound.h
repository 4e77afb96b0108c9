// ErrorBound: the evaluator run once more with, beside every value, how far a right backend may be from it.
//
// A value is exact (no bound) or has a bound per element, as f64; infinity says that nothing is known. Exact means bit-equal.
//
//  * conversions, movement, integers, comparisons, + - * / sqrt and every other correctly rounded op: exact on exact operands
//  * transcendental functions: as many units in the last place as docs/accuracy.md publishes; of complex numbers, of the larger part
//  * sums (reduce, dot, convolution, scatter, ...): exact where every partial sum in any order is representable, which is found
//    from the data; else hlo/tolerance.h's c * n * eps * sum|x_i y_i|
//  * a bounded operand: movement moves the bound, negate, abs, add, subtract, multiply, maximum, minimum, select, clamp, narrowing
//    carry it by their first-order rule; through anything else the result is unknown where the operand was not exact
//  * a size that is set to what is not exact: nothing is known of the array, of its size, and of what is made of either
#pragma once

#include "absl/status/statusor.h"
#include "tools/lab/judge/miscompare.h"

namespace tenon::lab {

// Whether the module has an instruction whose result is not always exact. If not, Expect needs no second run.
bool HasInexact(const Module& module, bool excess_precision);

absl::StatusOr<Expectation> EvaluateWithBounds(const Module& module, absl::Span<const Literal> arguments, bool excess_precision);

}  // namespace tenon::lab
