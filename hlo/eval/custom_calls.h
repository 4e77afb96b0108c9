// The custom-call targets that the evaluator knows, for the whole process: LAPACK's as JAX emits them, TopK, and what
// users add (from Python: torch_tenon.hlo.register_custom_call). EvalOptions::custom_calls comes first. Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hlo/eval/evaluator.h"

namespace tenon {

// Replaces what the name stood for. An empty function takes it away.
void RegisterCustomCall(std::string target, EvalOptions::CustomCall call);
// Empty: unknown.
EvalOptions::CustomCall FindCustomCall(std::string_view target);
std::vector<std::string> CustomCallTargets();  // sorted

// An attribute of the typed-FFI form, backend_config={uplo = 76 : ui8, name = "x", flag = true}, or of a JSON object:
// numbers as they stand, characters in quotes by their code, booleans 0 or 1. nullopt: absent.
std::optional<double> CustomCallAttribute(const Instruction& call, std::string_view name);

}  // namespace tenon
