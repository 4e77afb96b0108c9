// Control flow: which computations run as regions of the program, and how their values hang together.
#pragma once

#include <vector>

#include "hlo/module.h"

namespace tenon {

// Branches of a conditional, in the order in which it chooses: a pred takes the first if it is true.
std::vector<Computation*> BranchesOf(const Instruction& conditional);
// What `op` runs as regions: condition and body of a while, branches of a conditional, nothing of anything else.
std::vector<Computation*> ControlRegions(const Instruction& op);

// The entry and every computation that whiles and conditionals reach from it, callers before what they run. Computations that
// fusions, reductions, sorts apply are none.
std::vector<Computation*> ControlComputations(const Module& module);

// Leaves of a shape (tuples flattened, FlattenShape's order) and where those of a tuple's element begin.
int64_t LeafCount(const Shape& shape);
int64_t LeafOffset(const Shape& tuple, int64_t element);
// Of a computation's parameters together, in order: where those of this one begin.
int64_t FirstLeafOf(const Instruction& parameter);

// The value that leaf `leaf` of `op` is, looked up through tuples, tuple elements and opt-barriers.
struct ValueLeaf {
  const Instruction* op = nullptr;
  int64_t leaf = 0;
  bool operator==(const ValueLeaf&) const = default;
};
ValueLeaf SourceOfLeaf(const Instruction* op, int64_t leaf);

// Per leaf of a while's state: does the body hand it on as it came?
std::vector<bool> InvariantLeaves(const Instruction& loop);

}  // namespace tenon
