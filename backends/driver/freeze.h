// Freeze: a module and its binding in two, of which one is run once (passes/freeze/split_frozen.h).
#pragma once

#include <memory>
#include <optional>

#include "absl/types/span.h"
#include "backends/driver/compile.h"
#include "hlo/module.h"
#include "runtime/program/binding.h"

namespace tenon {

struct Frozen {
  std::unique_ptr<Module> once;  // the caller's inputs in, one fresh output per value
  Binding once_binding;
  int64_t values = 0;  // the module's further inputs, behind the caller's
  int64_t packed = 0;  // contractions whose second operand is among them
};

// `inputs`: those of the caller's inputs that stay as they are from call to call (a mutated one does not). The framework's constants do so
// too. nullopt: nothing can be computed once, and nothing was changed.
std::optional<Frozen> Freeze(Module& module, Binding& binding, absl::Span<const int64_t> inputs, const CompileOptions& options);

}  // namespace tenon
