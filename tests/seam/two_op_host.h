// A framework with two operators: aten.neg.default and aten.mul.Tensor on dense f32. Its own allocations do not fail (Disarmed).
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/tenon_c.h"

namespace seam {

struct HostTensor {
  int references = 1;
  std::vector<int64_t> sizes, strides;
  std::vector<float> data;
};

// Of this one's sizes and strides, with a reference.
HostTensor* NewTensor(const TenonTensor& like);

// Lives as long as the process.
const TenonHost* Host();

}  // namespace seam
