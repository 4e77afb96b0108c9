// Are these the inputs that a program was compiled for?
#pragma once

#include "absl/status/status.h"
#include "runtime/program/program.h"
#include "runtime/tenon_c.h"

namespace tenon {

// dtype, rank, static sizes, and (native programs, whose kernels walk memory) strides. Strides of
// dimensions of size 0 or 1, or of an empty tensor, mean nothing. The message names the input, what
// was compiled for and what came.
absl::Status CheckInputs(const Program& program, const TenonTensor* inputs);

}  // namespace tenon
