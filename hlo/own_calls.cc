#include "hlo/own_calls.h"

#include "absl/strings/match.h"
#include "hlo/instruction.h"

namespace tenon {

bool NamesPointwiseCall(const Attributes& attrs) {
  if (attrs.get_or<bool>(Attr::kCustomCallHasSideEffect, false)) return false;
  return attrs.get_or<std::string>(Attr::kCustomCallTarget, "") == kFmaTarget;
}

bool IsPointwiseCall(const Instruction& op) { return op.opcode() == Opcode::kCustomCall && NamesPointwiseCall(op.attrs()); }

bool IsFrameworkCall(const Instruction& op) {
  if (op.opcode() != Opcode::kCustomCall) return false;
  return op.framework_call() != nullptr || absl::StrContains(op.backend_config(), "\"args\":");
}

bool IsPointwise(const Instruction& op) { return op.IsElementwise() || IsPointwiseCall(op); }

}  // namespace tenon
