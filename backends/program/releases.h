// When slots and inputs of a program are used for the last time.
#pragma once

#include <functional>

#include "runtime/program/program.h"

namespace tenon {

// Every view that the step itself reads or writes.
void ForEachView(const Step& step, const std::function<void(const View&)>& fn);

// Fills release_slots and release_inputs of every step.
void FindReleases(Program* program);

}  // namespace tenon
