// What the ways of fuzzing one module share. Internal to hlo-fuzz.
#pragma once

#include "tools/hlo-fuzz/fuzz.h"

namespace tenon::lab {

void CountInstructions(const Module& module, Record* r);

// The module and its arguments, cut down to what fails for the same reason, as tests/regress holds them.
std::string ReducedFile(const FuzzOptions& options, const Module& module, const std::vector<Literal>& inputs, const RunOptions& run,
                        const Verdict& verdict, const Record& r);

// A module with symbols: one executable a configuration, at several sizes. `r`: with what is counted of the module.
Record FuzzSizes(const FuzzOptions& options, const Module& module, Record r);

}  // namespace tenon::lab
