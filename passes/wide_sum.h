// Sums in f32 that are wanted in f64: f64 convert(f32 reduce(x), add).
//
// A kernel adds up long sums in f64 and rounds the total. With excess precision the convert takes the total before that, if it is in
// the kernel of its reduce: fuse keeps them together, split-reductions takes f64 from piece to piece. So a lowering that wants an
// f64 total of f32 values says just that, and the values are read and added as f32 vectors (backends/codegen/plan/wide_sums.h).
#pragma once

#include <vector>

#include "hlo/module.h"

namespace tenon {

// `convert` makes an f64 of a sum of f32 in any order.
bool IsWideUse(const Instruction& convert);
// Those of `sum` in its computation.
std::vector<Instruction*> WideUsesOf(const Instruction& sum);

}  // namespace tenon
