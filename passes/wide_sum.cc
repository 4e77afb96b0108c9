#include "passes/wide_sum.h"

namespace tenon {
namespace {

// One f32 operand, added up in any order.
bool IsFloatSum(const Instruction& reduce) {
  if (reduce.opcode() != Opcode::kReduce || reduce.operand_count() != 2) return false;
  if (!reduce.shape().is_array() || reduce.shape().element_type() != PrimitiveType::kF32) return false;
  const Instruction& root = *reduce.to_apply()->root();
  return root.opcode() == Opcode::kAdd && root.shape().element_type() == PrimitiveType::kF32 && root.operand(0) != root.operand(1) &&
         root.operand(0)->opcode() == Opcode::kParameter && root.operand(1)->opcode() == Opcode::kParameter;
}

}  // namespace

bool IsWideUse(const Instruction& convert) {
  return convert.opcode() == Opcode::kConvert && convert.shape().element_type() == PrimitiveType::kF64 && IsFloatSum(*convert.operand(0));
}

std::vector<Instruction*> WideUsesOf(const Instruction& sum) {
  std::vector<Instruction*> uses;
  for (Instruction* user : sum.users()) {
    if (IsWideUse(*user)) uses.push_back(user);
  }
  return uses;
}

}  // namespace tenon
