// How one element of a memory operand is reached by a plan's loops; one entry per load or store. For plans and tests.
#pragma once

#include <vector>

#include "absl/container/flat_hash_set.h"
#include "backends/codegen/fused/fused_kernel.h"

namespace tenon {

struct MemoryUse {
  const Instruction* op = nullptr;  // parameter or root
  Index offset = nullptr;           // linear, in elements
  bool store = false;
  bool inside = false;  // of a load: in the operand at every iteration, whatever the bounds of the ops between, by the loops alone
  size_t root = 0;                  // of a store: position in FusedKernel::roots
};
struct AccessTrace {
  std::vector<MemoryUse> uses;
  int divisions = 0;  // floordiv and mod nodes left in all index expressions
  int dear = 0;       // those by a symbolic size that hang on the last loop: the machine divides, for each element
  // Parameters that are read, perhaps among other reads, where no use says: by sorts and windows, in results of another shape.
  absl::flat_hash_set<const Instruction*> elsewhere;
};
AccessTrace TraceAccesses(IndexSpace& space, const FusedKernel& fused, const Iteration& iteration);

}  // namespace tenon
