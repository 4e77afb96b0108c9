// The cost of one instruction by its opcode; what hlo/cost.cc adds up.
#pragma once

#include "hlo/cost.h"

namespace tenon {

bool HasConstantDims(const Shape& shape);
double BytesOf(const Shape& shape);  // of all leaves
void Add(const Cost& cost, double times, Cost* to);
Cost Scaled(const Cost& cost, double by);

// Of one execution. Regions that are applied (reduce, sort, map, fusion) are counted in; call, while, conditional and
// async-start are the caller's.
Cost OwnCost(const Instruction& i);

}  // namespace tenon
