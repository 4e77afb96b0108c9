// What ops cost: the one table. hlo/cost.cc adds up its counts for cost analysis and profiles; fusion decides by its instructions and
// slots, plans by its instructions, estimates of time by its slots (backends/cpu/plan/work.h).
#pragma once

#include "hlo/cost.h"

namespace tenon {

// What generated code takes for a vector of an elementwise op's results, its operands being in registers. A few hundred vectors in a row:
// throughput, not latency.
struct OpCost {
  int instructions = 1;  // of the machine, about: for unrolling, recomputation, the size of kernels
  // Of time: as many vector multiply-adds could have been done (MachineModel::SlotNs). f32 on AVX-512: divisions and square roots, which
  // have one slow unit, and functions that work in f64 inside, take more than their instructions say.
  int slots = 1;
  bool transcendental = false;  // counted as such, and not in flops
};
// Of opcodes that are not elementwise: none but the default.
const OpCost& OpCostOf(Opcode opcode);

bool HasConstantDims(const Shape& shape);
double BytesOf(const Shape& shape);  // of all leaves
void Add(const Cost& cost, double times, Cost* to);
Cost Scaled(const Cost& cost, double by);

// Of one execution, of typical sizes (hlo/dim/dim.h) where they are symbolic. Regions that are applied (reduce, sort, map, fusion) are
// counted in; call, while, conditional and async-start are the caller's.
Cost OwnCost(const Instruction& i);

}  // namespace tenon
