// Long sums: what keeps their error from growing with their length.
//
// A sum of floats in f32 (or f64) is carried on in f64: after a bounded number of additions (a stretch) the partial results of
// row and column kernels are added to totals in f64 and start again. So a sum of any length has the error of one stretch, averaged
// over all of them, and of one rounding. Stretches follow from the plan alone: the same bits whatever the number of threads.
#pragma once

#include <optional>

#include "backends/common/fused_kernel.h"

namespace tenon {

// Partial results of `reduce` have totals in f64, in a kernel whose loops are long enough.
bool HasWideTotal(const Instruction& reduce);

// Totals take the partial results over every `count` iterations of loop `loop`, the loops inside of it being run whole.
struct Stretch {
  size_t loop;
  int64_t count;
};
// nullopt: the reduced loops are too short to need it, or nothing is summed. Needs kind, loops, lanes and unroll of the plan.
std::optional<Stretch> StretchOf(const FusedKernel& fused, const KernelPlan& plan);

}  // namespace tenon
