// SingleDevice: what speaks of several devices becomes what it is on one, whose only replica and partition have number 0.
//
//   all-reduce, all-gather, reduce-scatter, all-to-all, collective-broadcast, ...   their operands
//   collective-permute       its operand if {0,0} is its pair, zeros if it has none
//   start/done pairs         the tuple that the start gives; its element
//   replica-id, partition-id 0
//   domain, custom-call "Sharding" and its kin                                      their operand
//   custom-call "TopK"       topk
//
// Unimplemented, naming the op, where a group has more members, where devices other than 0 send or receive, and where an op asks for
// an arithmetic that no kernel gives (hlo/precision.h). After inline-calls, before everything that looks for fusible ops.
#include "hlo/builder.h"
#include "hlo/devices.h"
#include "hlo/library/describe.h"
#include "hlo/precision.h"
#include "passes/pass.h"

namespace tenon {
namespace {

Instruction* Element(Builder& b, Instruction* tuple, int64_t index) {
  if (!tuple->shape().is_tuple() || static_cast<int64_t>(tuple->shape().elements().size()) <= index) return nullptr;
  return tuple->opcode() == Opcode::kTuple ? tuple->operand(index) : b.GetTupleElement(tuple, index);
}

// The operands themselves: one, or a tuple of them.
Instruction* Same(Builder& b, const Instruction& op) {
  const bool one = op.operand_count() == 1 && !(op.shape().is_tuple() && op.operand(0)->shape().is_array());
  if (one) return op.operand(0);
  return b.Tuple(op.operands());
}

// All bits 0: what a replica gets that nobody sends to. (Not the number 0, which some types lack.)
Instruction* Zeros(Builder& b, const Shape& shape) {
  Instruction* zero = b.Constant(Literal(Shape::Scalar(shape.element_type())));
  return shape.rank() == 0 ? zero : b.Broadcast(zero, shape.dims(), {});
}

Instruction* Permuted(Builder& b, const Instruction& op) {
  const auto pairs = ParseSourceTargetPairs(op.attrs().get<std::string>(Attr::kSourceTargetPairs));
  Instruction* x = op.operand(0);
  if (pairs.ok() && !pairs->empty()) return x;
  return x->shape().is_array() ? Zeros(b, x->shape()) : nullptr;
}

// (operand, result, contexts...), or the result alone where the start's shape is that.
Instruction* StartPair(Builder& b, const Instruction& op, Instruction* operand, Instruction* result) {
  if (result != nullptr && Shape::Compatible(result->shape(), op.shape())) return result;
  if (result == nullptr || !op.shape().is_tuple()) return nullptr;
  std::vector<Instruction*> elements = {operand, result};
  for (size_t k = 2; k < op.shape().elements().size(); ++k) {
    const Shape& context = op.shape().element(k);
    if (!context.is_array()) return nullptr;
    elements.push_back(Zeros(b, context));
  }
  return b.Tuple(elements);
}

Instruction* TopK(Builder& b, const Instruction& op) {
  if (op.operand_count() != 1 || !op.shape().is_tuple() || op.shape().elements().size() != 2) return nullptr;
  const Shape &x = op.operand(0)->shape(), &values = op.shape().element(0);
  if (!x.is_array() || x.rank() < 1 || values.rank() != x.rank() || !values.dims().back().is_constant()) return nullptr;
  Attributes attrs;
  attrs.set(Attr::kK, values.dims().back().constant());
  attrs.set(Attr::kLargest, library::TopKLargest(op));
  return b.Make(Opcode::kTopk, op.operands(), std::move(attrs), op.shape());
}

// nullptr: stays.
Instruction* Replacement(Builder& b, const Instruction& op) {
  switch (op.opcode()) {
    case Opcode::kAllGather:
    case Opcode::kAllReduce:
    case Opcode::kAllReduceStart:
    case Opcode::kAllToAll:
    case Opcode::kCollectiveBroadcast:
    case Opcode::kCollectiveReduce:
    case Opcode::kReduceScatter: return Same(b, op);
    case Opcode::kAllGatherStart: {
      Instruction* all = op.operand_count() == 1 ? op.operand(0) : b.Tuple(op.operands());
      return StartPair(b, op, all, all);
    }
    case Opcode::kCollectivePermute: return op.operand_count() == 1 ? Permuted(b, op) : nullptr;
    case Opcode::kCollectivePermuteStart:
      return op.operand_count() == 1 ? StartPair(b, op, op.operand(0), Permuted(b, op)) : nullptr;
    case Opcode::kAllGatherDone:
    case Opcode::kCollectivePermuteDone:
      return Shape::Compatible(op.operand(0)->shape(), op.shape()) ? op.operand(0) : Element(b, op.operand(0), 1);
    case Opcode::kAllReduceDone:
    case Opcode::kDomain: return op.operand(0);
    case Opcode::kPartitionId:
    case Opcode::kReplicaId: return Zeros(b, op.shape());
    case Opcode::kCustomCall:
      if (library::IsMarker(op)) return op.operand_count() == 1 ? op.operand(0) : nullptr;
      return library::IsTopKCall(op) ? TopK(b, op) : nullptr;
    default: return nullptr;
  }
}

// With the layout that the op had, where both say one.
Instruction* WithLayoutOf(Builder& b, const Instruction& op, Instruction* with) {
  const Shape &wanted = op.shape(), &given = with->shape();
  if (!wanted.is_array() || !wanted.has_layout() || Shape::SameWithLayout(wanted, given)) return with;
  Instruction* copy = b.Copy(with);
  copy->mutable_shape().set_layout(wanted.minor_to_major());
  return copy;
}

bool RunOn(Computation* c) {
  bool changed = false;
  for (Instruction* op : c->PostOrder()) {
    Builder b(c);
    b.set_metadata(op->metadata());
    Instruction* with = Replacement(b, *op);
    if (with == nullptr) continue;
    if (!Shape::Compatible(with->shape(), op->shape())) {
      if (with->users().empty() && with->operand_count() > 0 && with->opcode() == Opcode::kTuple) c->Remove(with);
      continue;
    }
    c->ReplaceAndRemove(op, WithLayoutOf(b, *op, with));
    changed = true;
  }
  return changed;
}

}  // namespace

absl::StatusOr<bool> SingleDevice(Module& module, PassContext&) {
  for (const Computation* c : module.computations()) {
    for (const Instruction* op : c->instructions()) {
      TENON_RETURN_IF_ERROR(CheckOneDevice(*op));
      TENON_RETURN_IF_ERROR(CheckPrecision(*op));
    }
  }
  bool changed = false;
  for (Computation* c : module.computations()) changed |= RunOn(c);
  return changed;
}

}  // namespace tenon
