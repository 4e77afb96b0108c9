// FoldDotTranspose: a dot reads through a transpose of an operand by other dimension numbers.
//
// Only where the result keeps its order of dims: the operand's free dims must stay in their order. After simplify (transposes of
// transposes are one), before layouts: a transpose that only a dot reads is never a value then.
#include <algorithm>

#include "hlo/builder.h"
#include "passes/pass.h"

namespace tenon {
namespace {

std::vector<int64_t> Mapped(const std::vector<int64_t>& dims, const std::vector<int64_t>& permutation) {
  std::vector<int64_t> mapped;
  for (int64_t d : dims) mapped.push_back(permutation[d]);
  return mapped;
}

bool KeepsFreeOrder(const Instruction& transpose, const std::vector<int64_t>& batch, const std::vector<int64_t>& contracting) {
  std::vector<int64_t> free;
  for (int64_t d = 0; d < transpose.shape().rank(); ++d) {
    const bool bound = std::count(batch.begin(), batch.end(), d) + std::count(contracting.begin(), contracting.end(), d) > 0;
    if (!bound) free.push_back(transpose.dimensions()[d]);
  }
  return std::is_sorted(free.begin(), free.end());
}

bool FoldOperand(Instruction* dot, int64_t i) {
  Instruction* transpose = dot->operand(i);
  if (transpose->opcode() != Opcode::kTranspose) return false;
  const Attr batch_attr = i == 0 ? Attr::kLhsBatchDims : Attr::kRhsBatchDims;
  const Attr contracting_attr = i == 0 ? Attr::kLhsContractingDims : Attr::kRhsContractingDims;
  const std::vector<int64_t> batch = dot->int_list(batch_attr), contracting = dot->int_list(contracting_attr);
  if (!KeepsFreeOrder(*transpose, batch, contracting)) return false;
  if (!batch.empty()) dot->mutable_attrs().set(batch_attr, Mapped(batch, transpose->dimensions()));
  if (!contracting.empty()) dot->mutable_attrs().set(contracting_attr, Mapped(contracting, transpose->dimensions()));
  dot->ReplaceOperand(i, transpose->operand(0));
  if (transpose->users().empty() && transpose != transpose->parent()->root()) transpose->parent()->Remove(transpose);
  return true;
}

}  // namespace

absl::StatusOr<bool> FoldDotTranspose(Module& module, PassContext&) {
  bool changed = false;
  for (Computation* c : module.computations()) {
    for (Instruction* op : c->PostOrder()) {
      if (op->opcode() != Opcode::kDot || op->operand_count() != 2 || op->attrs().has(Attr::kSparsity)) continue;
      changed |= FoldOperand(op, 0);
      changed |= FoldOperand(op, 1);
    }
  }
  return changed;
}

}  // namespace tenon
