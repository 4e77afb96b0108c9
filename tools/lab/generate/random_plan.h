// Plans of kernels, changed at random: CheckPlan refuses them, or they compute what the fusion says, inside of its memory.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "backends/codegen/plan/kernel_plan.h"
#include "tools/lab/generate/random_inputs.h"

namespace tenon::lab {

// One to three changes of anything that a plan says.
KernelPlan ChangedPlan(Random& random, KernelPlan plan);

// Of the CPU's plans of a program (backends/driver/given_plans.h), one changed, the others as they are. The Status: they cannot be read.
absl::StatusOr<std::string> WithOneChanged(std::string_view plans, Random& random, DimTable* dims);

}  // namespace tenon::lab
