// The custom-call targets of the process: what users register (from Python: torch_tenon.hlo.register_custom_call) and what
// this library has (describe.h). The evaluator and the CPU backend both call them. Thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "hlo/literal.h"

namespace tenon {

// What a target is told of the instruction that calls it.
struct CustomCall {
  std::string target, name, backend_config;
  std::string instruction;  // its line of HLO text
  Shape result;             // static; an array, or a tuple of arrays
};
// Returns a literal of the result's shape. Called by several threads at once.
using CustomCallFunction = std::function<absl::StatusOr<Literal>(const CustomCall&, absl::Span<const Literal> operands)>;

// Replaces what the name stood for, the library's own included. An empty function takes it away. Programs that were compiled
// before call what is registered when they run.
void RegisterCustomCall(std::string target, CustomCallFunction function);
// What was registered; empty: nothing.
CustomCallFunction FindCustomCall(std::string_view target);
// All that can be called, sorted.
std::vector<std::string> CustomCallTargets();

// An attribute of the typed-FFI form, backend_config={uplo = 76 : ui8, name = "x", flag = true}, or of a JSON object:
// numbers as they stand, characters in quotes by their code, booleans 0 or 1. nullopt: absent.
std::optional<double> CustomCallAttribute(std::string_view backend_config, std::string_view name);
inline std::optional<double> CustomCallAttribute(const CustomCall& call, std::string_view name) {
  return CustomCallAttribute(call.backend_config, name);
}

}  // namespace tenon
