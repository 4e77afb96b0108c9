// When slots and inputs of a program are used for the last time.
#pragma once

#include "runtime/program/program.h"

namespace tenon {

// Fills release_slots and release_inputs of every step.
void FindReleases(Program* program);

}  // namespace tenon
