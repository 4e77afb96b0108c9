// Memory spaces: which memory each value lies in, once it is decided (docs/architecture/targets.md).
//
// Space 0 is the host's memory. A value of an array outside of fusions lies in the space that its shape says, as HLO prints it:
// f32[8]{0:S(1)}. Without devices nothing is decided, and S(n) is somebody else's hint that means nothing here.
//
// What runs in a space reads and makes values of that space alone; `copy` with a result in another space than its operand brings a value
// there. Views, tuples and their elements lie where their operands do. A loop's state has one space per leaf, its initial value's;
// predicates, indices of branches and what branches give lie in the host's memory.
#pragma once

#include <functional>
#include <vector>

#include "hlo/module.h"

namespace tenon {

struct Spaces {
  std::vector<int64_t> parameters;  // of the entry's leaves, one parameter after the other
  std::vector<int64_t> devices;     // the spaces that there are beside the host's
  // May a kernel of the target that works on `space` (not 0) hold this instruction? Asked of instructions outside of fusions.
  std::function<bool(const Instruction& op, int64_t space)> runs;
  int64_t main = 0;       // of the compile's main target: what is computed from nothing that lies anywhere
  bool assigned = false;  // shapes say the truth: from the pass assign-spaces on
};

// The space of a value's arrays, all of which lie in one; of a tuple the first array's. 0 without arrays.
int64_t SpaceOf(const Shape& shape);

// A copy of `op`'s array in another space: no step in one space.
bool ChangesSpace(const Instruction& op);

// Inserts the copies without which something would read a value of another space. True: it did.
bool SettleSpaces(Module& module);

// Its results lie in `space` from now on: the host's, where a device has no code for it after all. Call SettleSpaces afterwards.
void MoveTo(Instruction* op, int64_t space);

// Every array among the entry's parameters and results lies in `space`. Of a module before assign-spaces.
void MoveSignature(Module& module, int64_t space);

}  // namespace tenon
