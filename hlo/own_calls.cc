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

std::vector<WrittenOperand> WrittenOperands(const Instruction& op) {
  if (!IsFrameworkCall(op)) return {};
  std::vector<WrittenOperand> written;
  if (const FrameworkCallSite* site = op.framework_call()) {
    written = site->writes;
  } else if (const absl::StatusOr<FrameworkCallSite> read = ReadCallSite(op.backend_config()); read.ok()) {
    written = read->writes;  // of text that is not as it would be printed
  }
  if (written.empty()) return {};
  const int64_t leaves = static_cast<int64_t>(FlattenShape(op.shape()).size());
  std::erase_if(written, [&](const WrittenOperand& w) {
    return w.leaf < 0 || w.leaf >= leaves || w.operand < 0 || w.operand >= op.operand_count();
  });
  return written;
}

bool IsPointwise(const Instruction& op) { return op.IsElementwise() || IsPointwiseCall(op); }

}  // namespace tenon
