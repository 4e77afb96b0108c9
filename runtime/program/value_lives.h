// What a program says of the lives of values that each call places (Value::life), held against its steps.
#pragma once

#include "absl/status/status.h"
#include "runtime/program/program.h"

namespace tenon {

// InvalidArgument: two values of one memory are in use at once, by the order of some region's steps, and would be placed as if they were
// not. Wants indices in range, and no region that runs itself.
absl::Status CheckLives(const Program& program);

}  // namespace tenon
