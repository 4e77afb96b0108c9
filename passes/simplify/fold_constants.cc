// FoldConstants: an instruction whose operands are constants becomes its value, by the evaluator. Bounded: results of at most
// `max_folded_elements`, and never larger than the operands together (a broadcast or iota stays what it is). With excess precision
// sums of halves stay: kernels add them up in f32, the evaluator rounds every step.
#include "passes/pass.h"

#include "hlo/own_calls.h"

namespace tenon {
namespace {

bool IsHalfSum(const Instruction& op) {
  const PrimitiveType type = op.shape().element_type();
  const bool half = type == PrimitiveType::kBF16 || type == PrimitiveType::kF16;
  return half && (op.family() == Family::kReduction || op.family() == Family::kContraction);
}

bool Foldable(const Instruction& op, const PassContext& context) {
  if (op.operand_count() == 0 || op.IsStateful() || !op.shape().is_array() || !op.shape().is_static()) return false;
  if ((op.family() == Family::kControl && !IsPointwiseCall(op)) || op.family() == Family::kCollective) return false;
  if (context.excess_precision && IsHalfSum(op)) return false;
  int64_t read = 0;
  for (const Instruction* o : op.operands()) {
    if (o->opcode() != Opcode::kConstant) return false;
    read += o->shape().num_elements_constant();
  }
  const int64_t made = op.shape().num_elements_constant();
  return made <= context.max_folded_elements && made <= read;
}

}  // namespace

absl::StatusOr<bool> FoldConstants(Module& module, PassContext& context) {
  if (!context.evaluate) return false;
  bool changed = false;
  for (Computation* c : module.computations()) {
    for (Instruction* op : c->PostOrder()) {
      if (!Foldable(*op, context)) continue;
      std::vector<Literal> operands;
      for (const Instruction* o : op->operands()) operands.push_back(o->literal());
      absl::StatusOr<Literal> value = context.evaluate(*op, operands);
      if (!value.ok()) continue;  // an op that the evaluator lacks is left alone
      Instruction* constant = c->AddConstant(*std::move(value));
      constant->metadata() = op->metadata();
      if (op->shape().has_layout()) constant->mutable_shape().set_layout(op->shape().minor_to_major());
      c->ReplaceAndRemove(op, constant);
      changed = true;
    }
  }
  return changed;
}

}  // namespace tenon
