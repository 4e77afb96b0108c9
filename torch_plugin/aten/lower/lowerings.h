// Declares one function for each name in aten.def's second column (several rows may name one function: a declaration may
// be repeated). They are defined in lower/<family>.cc; a row without its function is a linker error.
#pragma once

#include "torch_plugin/aten/op_table.h"

namespace tenon::aten {

#define ATEN_OP(overload, function, promotion, rule) \
  absl::StatusOr<std::vector<Instruction*>> Lower##function(OpContext& op);
#define ATEN_FOREACH(overload, element, function) \
  absl::StatusOr<std::vector<Instruction*>> Lower##function(OpContext& op);
#define ATEN_LIBRARY(overload, rule, effect)
#define ATEN_STEP(overload, rule, effect)
#include "torch_plugin/aten/aten.def"

}  // namespace tenon::aten
