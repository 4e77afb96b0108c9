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

// Evaluates every slot in order. Errors: an input of too few dimensions; a floor division or modulo by zero, of which the slot is 0, and
// told when all others have their values.
absl::Status EvaluateDims(std::span<const DimOp> ops, const TenonTensor* inputs,
                          std::vector<int64_t>* slots);

// That, and the program's guards, which say more of the call than a division that they should have kept from happening.
absl::Status EvaluateGuarded(const Program& program, const TenonTensor* inputs, std::vector<int64_t>* slots);

}  // namespace tenon
