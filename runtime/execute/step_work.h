// StepWork: how much memory a step touches and how much it computes, for profiles and reports. Estimates; what depends
// on sizes that are known at run time only is 0.
#pragma once

#include "runtime/program/program.h"

namespace tenon {

struct StepWork {
  int64_t bytes = 0, flops = 0;
  bool f64 = false;  // an array of it holds f64: vectors compute half as many of them
};

// Kernels say it themselves; copies and framework calls are judged by their views, and calls of known products by their
// operator. Steps that only run regions do nothing themselves.
StepWork WorkOf(const Step& step);

}  // namespace tenon
