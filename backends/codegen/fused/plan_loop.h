// PlanLoop: one loop of a kernel, over dims of its iteration space. What plans of all targets are made of.
#pragma once

#include <cstdint>
#include <vector>

#include "hlo/dim/dim.h"

namespace tenon {

struct PlanLoop {
  std::vector<int64_t> dims;  // of the iteration shape, major to minor, iterated as one
  Dim extent = 1;
  bool reduced = false;
  bool operator==(const PlanLoop&) const = default;
};

}  // namespace tenon
