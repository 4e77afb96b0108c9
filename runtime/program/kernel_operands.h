// What a kernel does with each of its operands.
#pragma once

#include <span>

#include "runtime/program/program.h"

namespace tenon {

struct KernelOperands {
  std::span<const View> reads, results, extras;  // in this order; extras: the error word, which it may write
};

// Of any program, valid or not: results are at most the operands before the extras.
KernelOperands OperandsOf(const Program& program, const KernelStep& kernel);

}  // namespace tenon
