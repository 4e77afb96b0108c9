#include "hlo/own_calls.h"

#include "hlo/instruction.h"

namespace tenon {

bool NamesPointwiseCall(const Attributes& attrs) {
  if (attrs.get_or<bool>(Attr::kCustomCallHasSideEffect, false)) return false;
  return attrs.get_or<std::string>(Attr::kCustomCallTarget, "") == kFmaTarget;
}

bool IsPointwiseCall(const Instruction& op) { return op.opcode() == Opcode::kCustomCall && NamesPointwiseCall(op.attrs()); }

bool IsPointwise(const Instruction& op) { return op.IsElementwise() || IsPointwiseCall(op); }

}  // namespace tenon
