// Long sums: what keeps their error from growing with their length.
//
// A sum of floats in f32 (or f64) is carried on in f64: after a bounded number of additions (a stretch) the partial results of
// row and column kernels are added to totals in f64 and start again. So a sum of any length has the error of one stretch, averaged
// over all of them, and of one rounding. Stretches follow from the plan alone: the same bits whatever the number of threads.
//
// Where a sum in f32 is converted to f64 in its own kernel (variances, long means), it has no stretches: what one step adds up (the
// copies of a row kernel, the rows of a column kernel, as a tree) goes to totals in f64 at once, which costs little beside working in
// f64 altogether and is as exact to a few units of 2^-24 divided by the root of the count. Equal numbers add up exactly. Squares in
// rows, which are of one sign, do with short stretches, whose last partial results too are added up in f64.
// The convert takes the total as it is: that it isn't rounded to f32 between is an excess of precision, and needs the leave for one.
#pragma once

#include <optional>

#include "backends/codegen/fused/fused_kernel.h"
#include "backends/codegen/plan/kernel_plan.h"
#include "passes/wide_sum.h"

namespace tenon {

// Partial results of `reduce` have totals in f64, in a kernel whose loops are long enough.
bool HasWideTotal(const Instruction& reduce);

// Each step of a row (or column) kernel adds to totals in f64.
bool AddsEachStep(const Instruction& reduce, bool row);

// Totals take the partial results over every `count` iterations of loop `loop`, the loops inside of it being run whole.
struct Stretch {
  size_t loop;
  int64_t count;
};
// nullopt: the reduced loops are too short to need it, or nothing is summed. Needs kind, loops, lanes and unroll of the plan. `team`:
// threads that share a row.
std::optional<Stretch> StretchOf(const FusedKernel& fused, const KernelPlan& plan, int64_t team = 1);

// The stretch of typical sizes, where inner loops whose sizes are symbols are run whole: good while those come to `longest` iterations
// at most, which keeps what one partial result takes up as StretchOf does. Longer ones need StretchOf.
struct UsualStretch {
  std::optional<Stretch> stretch;
  Dim whole = 1;  // iterations of the loops that are run whole
  int64_t longest = 0;
};
// nullopt: sizes that are symbols change nothing.
std::optional<UsualStretch> UsualStretchOf(const FusedKernel& fused, const KernelPlan& plan, int64_t team = 1);

}  // namespace tenon
