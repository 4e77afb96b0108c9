// Evaluating a Program's sizes for one call.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/program/program.h"
#include "runtime/tenon_c.h"

namespace tenon {

// The value of `ref`, given the dim program's slots. Static refs need no slots.
inline int64_t Resolve(SizeRef ref, std::span<const int64_t> slots) {
  return ref >= 0 ? ref : slots[~ref];
}
inline bool IsStatic(const std::vector<SizeRef>& refs) {
  for (SizeRef r : refs) {
    if (r < 0) return false;
  }
  return true;
}

// Evaluates every slot in order. Errors: a floor division or modulo by zero, a negative size.
absl::Status EvaluateDims(std::span<const DimOp> ops, const TenonTensor* inputs,
                          std::vector<int64_t>* slots);

}  // namespace tenon
