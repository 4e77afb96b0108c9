#include "hlo/own_calls.h"

#include "absl/strings/match.h"
#include "hlo/instruction.h"
#include "hlo/json.h"

namespace tenon {

bool NamesPointwiseCall(const Attributes& attrs) {
  if (attrs.get_or<bool>(Attr::kCustomCallHasSideEffect, false)) return false;
  return attrs.get_or<std::string>(Attr::kCustomCallTarget, "") == kFmaTarget;
}

bool IsPointwiseCall(const Instruction& op) { return op.opcode() == Opcode::kCustomCall && NamesPointwiseCall(op.attrs()); }

bool IsFrameworkCall(const Instruction& op) {
  return op.opcode() == Opcode::kCustomCall && absl::StrContains(op.backend_config(), "\"args\":");
}

std::vector<WrittenOperand> WrittenOperands(const Instruction& op) {
  if (!IsFrameworkCall(op) || !absl::StrContains(op.backend_config(), "\"writes\":")) return {};
  std::vector<WrittenOperand> written;
  const Json config = Json::Parse(op.backend_config()).value_or(Json());
  const int64_t leaves = static_cast<int64_t>(FlattenShape(op.shape()).size());
  try {
    for (const std::vector<int64_t>& pair : config["writes"].get<std::vector<std::vector<int64_t>>>()) {
      if (pair.size() != 2 || pair[0] < 0 || pair[0] >= leaves || pair[1] < 0 || pair[1] >= op.operand_count()) return {};
      written.push_back({pair[0], pair[1]});
    }
  } catch (const JsonError&) {  // the step's maker tells
    return {};
  }
  return written;
}

bool IsPointwise(const Instruction& op) { return op.IsElementwise() || IsPointwiseCall(op); }

}  // namespace tenon
