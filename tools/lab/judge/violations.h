// Calls that a program of symbolic sizes must refuse: each breaks one thing that the module takes for granted of its arguments.
//
// Made from a call that is right: another size of a symbol that repeats, of an expression or of a dim that is a number; sizes outside of
// a symbol's range; another stride, rank or type. The data of all inputs and outputs of such a call is memory that may not be touched, so
// a program that reads before it has looked dies of it.
#pragma once

#include <string>
#include <vector>

#include "hlo/literal.h"
#include "hlo/module.h"
#include "runtime/execute/executable.h"

namespace tenon::lab {

struct Violations {
  int64_t calls = 0;
  std::string wrong;  // of the first that is not refused, or whose message doesn't say what was wanted and what came; "": none
};

// `arguments`: of a right call. At most `most` calls, evenly of all that can be made.
Violations TryViolations(const Module& module, Executable& executable, absl::Span<const Literal> arguments, int64_t most = 40);

}  // namespace tenon::lab
