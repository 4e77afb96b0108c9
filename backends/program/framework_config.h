// What lowering says of a framework call (hlo/framework_call.h), of an instruction made from text too.
#pragma once

#include "absl/status/statusor.h"
#include "hlo/instruction.h"

namespace tenon {

// The instruction's call site, or one read from its text, which `read` then holds. InvalidArgument: a backend_config that is none.
absl::StatusOr<const FrameworkCallSite*> CallSiteOf(const Instruction& op, FrameworkCallSite* read);

}  // namespace tenon
