// ExpandBitcast: a bitcast between layouts says what it does on the logical arrays: transpose, bitcast-convert, reshape, transpose.
//
// First: a bitcast means its operand's layout, and any pass may put a value of another layout in the operand's place (inlining an
// argument, taking away a reshape that does nothing, assigning layouts). The bits of a pred are those of the byte that it lies in:
// a conversion to u8.
#include "hlo/builder.h"
#include "passes/pass.h"

namespace tenon {
namespace {

// Logical dims from the slowest in memory to the fastest.
std::vector<int64_t> MemoryOrder(const Shape& shape) {
  const Permutation minor_to_major = shape.minor_to_major();
  return {minor_to_major.rbegin(), minor_to_major.rend()};
}

bool ExpandBitcast(Instruction* op) {
  if (op->opcode() != Opcode::kBitcast || !op->shape().is_array()) return false;
  const Shape &from = op->operand(0)->shape(), &to = op->shape();
  if (ByteWidth(from.element_type()) != ByteWidth(to.element_type())) return false;
  Builder b(op->parent());
  b.set_metadata(op->metadata());
  const std::vector<int64_t> order = MemoryOrder(to);
  std::vector<Dim> dims;
  std::vector<int64_t> back(order.size());
  for (size_t k = 0; k < order.size(); ++k) {
    dims.push_back(to.dim(order[k]));
    back[order[k]] = static_cast<int64_t>(k);
  }
  Instruction* x = b.Transpose(op->operand(0), MemoryOrder(from));
  x = b.Transpose(b.Reshape(b.BitcastConvert(x, to.element_type()), dims), back);
  if (to.has_layout() && x != op->operand(0)) x->mutable_shape().set_layout(to.minor_to_major());
  op->parent()->ReplaceAndRemove(op, x);
  return true;
}

bool ExpandBitsOfPred(Instruction* op) {
  if (op->opcode() != Opcode::kBitcastConvert || !op->shape().is_array()) return false;
  const PrimitiveType from = op->operand(0)->shape().element_type(), to = op->shape().element_type();
  if (from != PrimitiveType::kPred || to == PrimitiveType::kPred || ByteWidth(to) != 1) return false;
  Builder b(op->parent());
  b.set_metadata(op->metadata());
  Instruction* x = b.Convert(op->operand(0), PrimitiveType::kU8);
  if (to != PrimitiveType::kU8) x = b.BitcastConvert(x, to);
  if (op->shape().has_layout()) x->mutable_shape().set_layout(op->shape().minor_to_major());
  op->parent()->ReplaceAndRemove(op, x);
  return true;
}

}  // namespace

absl::StatusOr<bool> ExpandBitcasts(Module& module, PassContext&) {
  bool changed = false;
  for (Computation* c : module.computations()) {
    for (Instruction* op : c->PostOrder()) changed |= ExpandBitcast(op) || ExpandBitsOfPred(op);
  }
  return changed;
}

}  // namespace tenon
