// Are the planted bugs found? Modules of a seed, each compiled with every plant that has a place in it and isn't found yet.
#pragma once

#include "tools/hlo-fuzz/fuzz.h"

namespace tenon::lab {

// A row per plant on stdout: the module that shows it, how many were tried with it, what it was cut to. The modules are those of a
// run without plants but for more large ones, and the same for all plants. Ends after `modules` (negative: no end) or `seconds` of CPU
// time (0: no end), so that a busy machine finds as many. Returns the exit code: 0 if each is found and cut to at most ten instructions.
int FindPlants(FuzzOptions options, double seconds, int64_t modules, bool quiet);

}  // namespace tenon::lab
