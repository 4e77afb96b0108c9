// Segments: where a concatenation lies along a loop of a plan, that loop is run once per operand, so that none of its iterations asks which
// operand it reads.
#pragma once

#include <vector>

#include "backends/codegen/fused/fused_kernel.h"

namespace tenon {

struct Segments {
  size_t loop = 0;
  std::vector<Dim> starts, extents;  // in iterations of that loop
};

// At most one for each loop whose slowest dim is that of a concatenation, those of the iteration's size first; of others with the same
// pieces it is known, too, which operand they read. All together make at most `most` pieces.
std::vector<Segments> FindSegments(const FusedKernel& fused, const std::vector<PlanLoop>& loops, size_t most);

}  // namespace tenon
