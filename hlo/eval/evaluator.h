// Evaluator: the definition of HLO. Slow, plain, on one device, single replica.
//
// Dims must be static (or bounded: the bound is used unless set-dimension-size says otherwise). Results of floats are
// rounded to their type after every instruction. Custom-call targets are looked up in `custom_calls`,
// then in the process's registry (hlo/library/custom_calls.h).
#pragma once

#include <functional>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "hlo/module.h"

namespace tenon {

struct EvalOptions {
  int64_t max_while_iterations = 10'000'000;
  int64_t max_bytes = int64_t{8} << 30;  // refuses with ResourceExhausted instead of taking the machine down
  using CustomCall = std::function<absl::StatusOr<Literal>(const Instruction&, absl::Span<const Literal>)>;
  std::map<std::string, CustomCall> custom_calls;
};

// `args` by parameter number. Unimplemented ops: Status kUnimplemented naming the op.
absl::StatusOr<Literal> Evaluate(const Module& module, absl::Span<const Literal> args, const EvalOptions& options = {});
absl::StatusOr<Literal> Evaluate(const Computation& computation, absl::Span<const Literal> args,
                                 const EvalOptions& options = {});
// One instruction from its operands' values (constant folding).
absl::StatusOr<Literal> EvaluateInstruction(const Instruction& instruction, absl::Span<const Literal> operands,
                                            const EvalOptions& options = {});

// EvaluateInstruction, for PassContext::evaluate and CompileOptions::evaluate.
inline std::function<absl::StatusOr<Literal>(const Instruction&, absl::Span<const Literal>)> ConstantFolder() {
  return [](const Instruction& i, absl::Span<const Literal> operands) { return EvaluateInstruction(i, operands); };
}

}  // namespace tenon
