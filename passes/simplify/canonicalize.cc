// Canonicalize: one spelling of what can be said in several ways, so that rules, CSE and the cache look for one.
//
//   a constant (or a broadcast of a scalar constant) is the second operand of a commutative op; a compare is turned around
//   a constant array of one repeated value is a broadcast scalar
//   an op of several results that is used whole (by a root, a tuple, a while) is a tuple of its elements: a kernel's results are
//   taken one by one
//   add and multiply of pred are or and and
//   bitcast-convert to the same type and reduce-precision to the type's own precision are nothing
//
// First; before simplify, whose rules look for broadcast scalars.
#include <array>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "hlo/builder.h"
#include "hlo/library/describe.h"
#include "passes/pass.h"
#include "passes/simplify/rule.h"

namespace tenon {
namespace {

std::string_view TurnedAround(std::string_view direction) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kPairs = {
      {{"LT", "GT"}, {"GT", "LT"}, {"LE", "GE"}, {"GE", "LE"}, {"EQ", "EQ"}, {"NE", "NE"}}};
  for (const auto& [from, to] : kPairs) {
    if (from == direction) return to;
  }
  return direction;
}

bool IsConstantValue(const Instruction* op) { return op->opcode() == Opcode::kConstant || SplatConstant(op) != nullptr; }

// add(NaN1, NaN2) may keep either NaN; which one is nobody's promise (hlo/tolerance.h: NaN equals NaN).
bool ConstantToTheRight(Instruction* op) {
  const bool compare = op->opcode() == Opcode::kCompare;
  if (!compare && (op->info().traits & kCommutative) == 0) return false;
  Instruction *a = op->operand(0), *b = op->operand(1);
  if (!IsConstantValue(a) || IsConstantValue(b)) return false;
  op->ReplaceOperand(0, b);
  op->ReplaceOperand(1, a);
  if (compare) op->mutable_attrs().set(Attr::kDirection, std::string(TurnedAround(op->comparison_direction())));
  return true;
}

bool SplatToBroadcast(Instruction* op) {
  if (op->opcode() != Opcode::kConstant || !op->shape().is_array() || op->shape().rank() == 0) return false;
  if (op->literal().num_elements() == 0 || !op->literal().IsSplat()) return false;
  const PrimitiveType type = op->shape().element_type();
  const std::byte* bytes = op->literal().bytes();
  Literal scalar(Shape::Scalar(type));
  std::copy(bytes, bytes + ByteWidth(type), scalar.mutable_bytes());
  Builder b(op->parent());
  b.set_metadata(op->metadata());
  Instruction* broadcast = b.Broadcast(b.Constant(std::move(scalar)), op->shape().dims(), {});
  if (op->shape().has_layout()) broadcast->mutable_shape().set_layout(op->shape().minor_to_major());
  op->parent()->ReplaceAndRemove(op, broadcast);
  return true;
}

bool MakesTuple(const Instruction& op) {
  return op.shape().is_tuple() && (op.family() == Family::kReduction || op.family() == Family::kIndexing ||
                                   op.opcode() == Opcode::kCustomCall || library::IsLibraryCall(op));
}

// Elements instead of a tuple, where an op of several results is used whole: by the root, another tuple, a while.
bool SplitTupleUses(Computation* c) {
  bool changed = false;
  for (Instruction* op : c->PostOrder()) {
    if (!MakesTuple(*op)) continue;
    std::vector<Instruction*> users;
    for (Instruction* user : op->users()) {
      if (user->opcode() != Opcode::kGetTupleElement && !absl::c_linear_search(users, user)) users.push_back(user);
    }
    if (users.empty() && op != c->root()) continue;
    Builder b(c);
    b.set_metadata(op->metadata());
    std::vector<Instruction*> elements;
    for (int64_t i = 0; i < static_cast<int64_t>(op->shape().elements().size()); ++i)
      elements.push_back(b.GetTupleElement(op, i));
    Instruction* tuple = b.Tuple(elements);
    for (Instruction* user : users) {
      for (int64_t i = 0; i < user->operand_count(); ++i) {
        if (user->operand(i) == op) user->ReplaceOperand(i, tuple);
      }
    }
    if (op == c->root()) c->set_root(tuple);
    changed = true;
  }
  return changed;
}

bool IsNothing(const Instruction& op) {
  if (op.opcode() == Opcode::kBitcastConvert) return op.operand(0)->shape() == op.shape();
  if (op.opcode() != Opcode::kReducePrecision || op.shape().element_type() != PrimitiveType::kF32) return false;
  return op.attrs().get<int64_t>(Attr::kExponentBits) == 8 && op.attrs().get<int64_t>(Attr::kMantissaBits) == 23;
}

// XLA's add and multiply of pred: 1 + 1 = 1.
Instruction* LogicalOp(Instruction* op) {
  if (op->shape().element_type() != PrimitiveType::kPred) return nullptr;
  if (op->opcode() != Opcode::kAdd && op->opcode() != Opcode::kMultiply) return nullptr;
  Builder b(op->parent());
  b.set_metadata(op->metadata());
  return b.Make(op->opcode() == Opcode::kAdd ? Opcode::kOr : Opcode::kAnd, {op->operand(0), op->operand(1)}, {}, op->shape());
}

bool RunOn(Computation* c) {
  bool changed = false;
  for (Instruction* op : c->PostOrder()) {
    if (Instruction* logical = LogicalOp(op)) {
      c->ReplaceAndRemove(op, logical);
      op = logical;
      changed = true;
    }
    if (IsNothing(*op) && op->control_predecessors().empty() && op->control_successors().empty()) {
      c->ReplaceAndRemove(op, op->operand(0));
      changed = true;
      continue;
    }
    changed |= ConstantToTheRight(op);
    changed |= SplatToBroadcast(op);
  }
  return changed;
}

}  // namespace

absl::StatusOr<bool> Canonicalize(Module& module, PassContext&) {
  bool changed = false;
  for (Computation* c : module.computations()) {
    changed |= SplitTupleUses(c);
    changed |= RunOn(c);
  }
  return changed;
}

}  // namespace tenon
