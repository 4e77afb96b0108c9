// Guards: what a program with symbolic sizes takes for granted of its inputs, and nobody else has checked. One flat list, looked at before
// anything is read.
//
// The sizes of a symbol are read from one place of the inputs (the dim program); wherever else the compiler took an input's size, stride
// or number for the same symbol, or for an expression of symbols, stands a guard, and one for each symbol's range and divisor. Static sizes
// and strides are the input check's (runtime/execute/input_check.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/tenon_c.h"

namespace tenon {

using SizeRef = int64_t;  // runtime/program/program.h

struct Guard {
  enum class Kind : uint8_t {
    kRange,   // lower <= size <= upper, divisor | size
    kDim,     // input `input` has this size along `axis`
    kStride,  // ... this stride, where it means something: neither empty, nor of size 1 there
    kNumber,  // the SymInt input `input` is this
  } kind = Kind::kRange;
  SizeRef size = 0;
  int64_t input = 0, axis = 0;
  int64_t lower = 0, upper = INT64_MAX, divisor = 1;
  std::string text;  // the expression: "s0", "2*s0+1"

  std::string ToString() const;  // "s0 in [2, 64]", "input 1 has size 2*s0 along dim 0"
};

// FailedPrecondition: the first guard that doesn't hold, what was wanted and what came. `slots`: of the dim program.
absl::Status CheckGuards(std::span<const Guard> guards, const TenonTensor* inputs, std::span<const int64_t> slots);

}  // namespace tenon
