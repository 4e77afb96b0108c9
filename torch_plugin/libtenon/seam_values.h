// Values of the C seam as tenon's own.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "hlo/framework_arg.h"
#include "runtime/tenon_c.h"

namespace tenon {

// Refuses what is no number of a type of arrays.
absl::StatusOr<PrimitiveType> DtypeOf(int32_t number);
// Refuses kinds that are none, strings that are NULL where one is needed, lists nested too deeply.
absl::StatusOr<std::vector<FrameworkArg>> ArgsOf(const TenonArg* args, int64_t count);

}  // namespace tenon
