// What two passes over a long row find out, of one reading of it, on a device: the row lies in pieces, each of which one block keeps in its
// shared memory while it takes the piece's maximum and the sum of exp(x - maximum), or its mean and the sum of squares around it.
#pragma once

#include "absl/container/flat_hash_set.h"
#include "hlo/computation.h"
#include "passes/pass.h"

namespace tenon {

// The reductions made, which are pieces already. Empty: nothing changed. A part of the pass split-reductions.
absl::flat_hash_set<const Instruction*> ReduceOnline(Computation* c, PassContext& context);

}  // namespace tenon
