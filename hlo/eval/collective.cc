// Collectives of one device: every group is {0}. Those of several were refused before (hlo/devices.h).
#include "hlo/devices.h"
#include "hlo/eval/internal.h"

namespace tenon::eval {
namespace {

// all-reduce, all-gather, ... of a group of one: the operands themselves.
absl::StatusOr<Literal> Same(Context&, const Instruction& i, Operands operands) {
  Literal result =
      operands.size() == 1 && !(i.shape().is_tuple() && operands[0].shape().is_array())
          ? operands[0]
          : Literal::Tuple({operands.begin(), operands.end()});
  if (!Shape::Compatible(result.shape(), i.shape())) {
    return Unimplemented(i, "a group of more than one replica");
  }
  return result;
}

// (operand, result, contexts...), or the result alone where the start's shape is that.
absl::StatusOr<Literal> StartPair(const Instruction& i, Literal operand, Literal result) {
  if (Shape::Compatible(result.shape(), i.shape())) return result;
  std::vector<Literal> elements = {std::move(operand), std::move(result)};
  for (size_t k = 2; k < i.shape().elements().size(); ++k) {
    elements.emplace_back(i.shape().element(k));
  }
  Literal tuple = Literal::Tuple(std::move(elements));
  if (!Shape::Compatible(tuple.shape(), i.shape())) {
    return Unimplemented(i, "a group of more than one replica");
  }
  return tuple;
}

absl::StatusOr<Literal> AllGatherStart(Context&, const Instruction& i, Operands operands) {
  Literal all = operands.size() == 1 ? operands[0]
                                     : Literal::Tuple({operands.begin(), operands.end()});
  return StartPair(i, all, all);
}

absl::StatusOr<Literal> SecondElement(Context&, const Instruction& i, Operands operands) {
  if (Shape::Compatible(operands[0].shape(), i.shape())) return operands[0];
  if (operands[0].elements().size() < 2) return Invalid(i, "wanted the tuple of its start");
  return operands[0].elements()[1];
}

absl::StatusOr<Literal> Forward(Context&, const Instruction&, Operands operands) {
  return operands[0];
}

// {{0,0}} sends the value to itself; a replica nobody sends to gets zeros.
absl::StatusOr<Literal> Permuted(const Instruction& i, const Literal& x) {
  TENON_ASSIGN_OR_RETURN(const auto pairs, ParseSourceTargetPairs(i.attrs().get<std::string>(Attr::kSourceTargetPairs)));
  return pairs.empty() ? Literal(x.shape()) : x;
}

absl::StatusOr<Literal> CollectivePermute(Context&, const Instruction& i, Operands operands) {
  if (operands.size() != 1) return Unimplemented(i, "in-place buffers");
  return Permuted(i, operands[0]);
}

absl::StatusOr<Literal> CollectivePermuteStart(Context&, const Instruction& i, Operands operands) {
  if (operands.size() != 1) return Unimplemented(i, "in-place buffers");
  TENON_ASSIGN_OR_RETURN(Literal moved, Permuted(i, operands[0]));
  return StartPair(i, operands[0], std::move(moved));
}

absl::StatusOr<Literal> Zero(Context&, const Instruction& i, Operands) {
  return Literal(i.shape());
}

constexpr HandlerRow kRows[] = {
    {Opcode::kAllGather, Same},
    {Opcode::kAllGatherStart, AllGatherStart},
    {Opcode::kAllGatherDone, SecondElement},
    {Opcode::kAllReduce, Same},
    {Opcode::kAllReduceStart, Same},
    {Opcode::kAllReduceDone, Forward},
    {Opcode::kAllToAll, Same},
    {Opcode::kCollectiveBroadcast, Same},
    {Opcode::kCollectivePermute, CollectivePermute},
    {Opcode::kCollectivePermuteStart, CollectivePermuteStart},
    {Opcode::kCollectivePermuteDone, SecondElement},
    {Opcode::kCollectiveReduce, Same},
    {Opcode::kPartitionId, Zero},
    {Opcode::kReduceScatter, Same},
    {Opcode::kReplicaId, Zero},
};

}  // namespace

absl::Span<const HandlerRow> CollectiveHandlers() { return kRows; }

}  // namespace tenon::eval
