// Shape inference of collectives, point-to-point transfers and host input/output.
//
// What group sizes determine is taken from the declared shape. It is checked for divisibility, and for the size itself where
// replica_groups alone says it.
#include "hlo/devices.h"
#include "hlo/infer/context.h"

namespace tenon::infer {
namespace {

std::vector<Shape> OperandList(const Inference& in) {
  std::vector<Shape> shapes;
  for (const Instruction* i : in.operands) shapes.push_back(i->shape());
  return shapes;
}

absl::Status CheckArrays(const Inference& in) {
  for (int64_t i = 0; i < in.count(); ++i) {
    TENON_WANT(in.shape(i).is_array(), "collective_c1", "array operands", OperandShapes(in));
  }
  return absl::OkStatus();
}

// Members of a group; 0 where the text doesn't say: {} is all devices, and a channel without global ids counts partitions too.
int64_t GroupSize(const Inference& in) {
  const std::string text = in.ident(Attr::kReplicaGroups);
  if (text.empty() || (in.attrs.has(Attr::kChannelId) && !in.attrs.get_or<bool>(Attr::kUseGlobalDeviceIds, false))) return 0;
  const absl::StatusOr<ReplicaGroups> groups = ParseReplicaGroups(text);
  return groups.ok() ? groups->size : 0;  // a malformed text has its own error, attribute_c1
}

// One dimension may differ between operand and result, and there one size divides the other.
absl::Status CheckScaledDim(const Shape& small, const Shape& large, int64_t dim, const Inference& in) {
  const int64_t size = GroupSize(in);
  TENON_WANT(small.is_array() && large.is_array() && small.element_type() == large.element_type() &&
                 small.rank() == large.rank() && dim >= 0 && dim < small.rank(),
             "collective_c2", "operand and result of one type and rank, with the dimension", small.ToString(), " and ",
             large.ToString());
  for (int64_t i = 0; i < small.rank(); ++i) {
    if (i == dim) {
      TENON_WANT(Divides(small.dim(i), large.dim(i)) != Ternary::kNo, "collective_c3",
                 absl::StrCat("sizes that divide in dimension ", i), small.ToString(), " and ", large.ToString());
      TENON_WANT(size == 0 || KnownEqual(small.dim(i) * size, large.dim(i)), "collective_c9",
                 absl::StrCat(size, " times the size in dimension ", i, ", as groups of ", size, " give"), small.ToString(), " and ",
                 large.ToString());
    } else {
      TENON_WANT(KnownEqual(small.dim(i), large.dim(i)), "collective_c4", absl::StrCat("equal sizes in dimension ", i),
                 small.ToString(), " and ", large.ToString());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> OneDim(const Inference& in) {
  const std::vector<int64_t> dims = in.ints(Attr::kDimensions);
  TENON_WANT(dims.size() == 1, "collective_c5", "one dimension", Ints(dims));
  return dims[0];
}

// `result` of `operands` gathered (or scattered: the roles swapped) along the dimension.
absl::Status CheckGathered(const Inference& in, const Shape& result, bool gathered) {
  TENON_RETURN_IF_ERROR(CheckArrays(in));
  TENON_ASSIGN_OR_RETURN(const int64_t dim, OneDim(in));
  const std::vector<Shape> results = result.is_tuple()
                                         ? std::vector<Shape>(result.elements().begin(), result.elements().end())
                                         : std::vector<Shape>{result};
  TENON_WANT(static_cast<int64_t>(results.size()) == in.count(), "collective_c6",
             absl::StrCat(in.count(), " results"), result.ToString());
  for (int64_t i = 0; i < in.count(); ++i) {
    TENON_RETURN_IF_ERROR(gathered ? CheckScaledDim(in.shape(i), results[i], dim, in)
                                   : CheckScaledDim(results[i], in.shape(i), dim, in));
  }
  return absl::OkStatus();
}

absl::StatusOr<Shape> Reduced(const Inference& in) {
  TENON_RETURN_IF_ERROR(CheckArrays(in));
  const Computation* reducer = in.comp(Attr::kToApply);
  TENON_WANT(reducer != nullptr && reducer->parameters().size() == 2, "collective_c7",
             "a reducer of two parameters", reducer == nullptr ? 0 : reducer->parameters().size());
  std::vector<Shape> results;
  for (int64_t i = 0; i < in.count(); ++i) results.push_back(WithType(in.shape(i), in.shape(i).element_type()));
  return OneOrTuple(std::move(results));
}

// A start op's shape is (operands, result, contexts...) or the result alone.
bool IsPair(const Inference& start, const Shape& state) {
  if (!state.is_tuple() || state.elements().size() < 2) return false;
  return start.count() == 1 ? KnownCompatible(state.element(0), start.shape(0)) : state.element(0).is_tuple();
}

// The result part of a start op's shape. Of one that cannot be seen (a parameter, say), a tuple of two is taken for the pair.
absl::StatusOr<Shape> StartedResult(const Inference& in, Opcode start) {
  const Instruction* from = in.operands[0];
  const Shape& s = in.shape(0);
  if (from->opcode() == start) {
    const Inference of{from->opcode(), from->operands(), from->attrs(), nullptr};
    return IsPair(of, s) ? s.element(1) : s;
  }
  TENON_WANT(s.is_tuple() && s.elements().size() >= 2, "collective_c8", "what a start op gives", s.ToString());
  return s.element(1);
}

// (data, u32[], token) of send and recv.
Shape TransferState(const Shape& data) {
  return Shape::Tuple({data, Shape::Scalar(PrimitiveType::kU32), Shape::Token()});
}

absl::Status CheckToken(const Inference& in, int64_t operand) {
  TENON_WANT(in.shape(operand).element_type() == PrimitiveType::kToken, "transfer_c1",
             absl::StrCat("a token as operand ", operand), OperandShapes(in));
  return absl::OkStatus();
}

absl::StatusOr<Shape> TransferData(const Inference& in) {
  const Shape& s = in.shape(0);
  TENON_WANT(s.is_tuple() && s.elements().size() == 3, "transfer_c2", "a tuple (data, u32[], token)", s.ToString());
  return s.element(0);
}

}  // namespace

TENON_INFER(kAllGather) {
  TENON_ASSIGN_OR_RETURN(const Shape result, Declared(in));
  TENON_RETURN_IF_ERROR(CheckGathered(in, result, /*gathered=*/true));
  return result;
}

TENON_INFER(kAllGatherStart) {
  TENON_ASSIGN_OR_RETURN(const Shape state, Declared(in));
  TENON_RETURN_IF_ERROR(CheckGathered(in, IsPair(in, state) ? state.element(1) : state, /*gathered=*/true));
  return state;
}

TENON_INFER(kAllGatherDone) { return StartedResult(in, Opcode::kAllGatherStart); }
TENON_INFER(kAllReduce) { return Reduced(in); }
TENON_INFER(kAllReduceStart) { return Reduced(in); }
TENON_INFER(kAllReduceDone) { return in.shape(0); }
TENON_INFER(kCollectiveReduce) { return Reduced(in); }

TENON_INFER(kReduceScatter) {
  TENON_ASSIGN_OR_RETURN(const Shape result, Declared(in));
  TENON_RETURN_IF_ERROR(CheckGathered(in, result, /*gathered=*/false));
  return result;
}

// The array form splits and concatenates one dimension, the tuple form exchanges whole operands.
TENON_INFER(kAllToAll) {
  TENON_RETURN_IF_ERROR(CheckArrays(in));
  if (!in.ints(Attr::kDimensions).empty() && in.count() == 1) {
    TENON_ASSIGN_OR_RETURN(const int64_t dim, OneDim(in));
    TENON_WANT(dim >= 0 && dim < in.shape(0).rank(), "all_to_all_c1",
               absl::StrCat("a dimension in [0, ", in.shape(0).rank(), ")"), dim);
    if (in.declared == nullptr || !in.declared->is_tuple()) return in.shape(0);
  }
  return Shape::Tuple(OperandList(in));
}

TENON_INFER(kCollectiveBroadcast) {
  TENON_RETURN_IF_ERROR(CheckArrays(in));
  return OneOrTuple(OperandList(in));
}

// With four operands the second is the buffer that is written into.
TENON_INFER(kCollectivePermute) {
  if (in.count() == 4 && in.attrs.has(Attr::kSliceSizes)) return in.shape(1);
  return OneOrTuple(OperandList(in));
}

TENON_INFER(kCollectivePermuteStart) {
  TENON_ASSIGN_OR_RETURN(const Shape state, Declared(in));
  const Shape result = OneOrTuple(OperandList(in));
  TENON_WANT(IsPair(in, state) || KnownCompatible(state, result), "collective_permute_start_c1",
             absl::StrCat("a tuple (operand, result, ...) or ", result.ToString()), state.ToString());
  return state;
}

TENON_INFER(kCollectivePermuteDone) { return StartedResult(in, Opcode::kCollectivePermuteStart); }
TENON_INFER(kPartitionId) { return Shape::Scalar(PrimitiveType::kU32); }
TENON_INFER(kReplicaId) { return Shape::Scalar(PrimitiveType::kU32); }

TENON_INFER(kRaggedAllToAll) {
  const Shape &x = in.shape(0), &out = in.shape(1);
  TENON_WANT(x.is_array() && out.is_array() && x.element_type() == out.element_type() && x.rank() == out.rank() &&
                 x.rank() >= 1,
             "ragged_all_to_all_c1", "operand and output of one type and rank", OperandShapes(in));
  for (int64_t i = 2; i < in.count(); ++i) {
    TENON_WANT(IsIntegral(in.shape(i).element_type()) && KnownSameDims(in.shape(i), in.shape(2)),
               "ragged_all_to_all_c2", "offsets and sizes as integer arrays of equal dimensions", OperandShapes(in));
  }
  return WithType(out, out.element_type());
}

TENON_INFER(kSend) {
  TENON_RETURN_IF_ERROR(CheckToken(in, 1));
  return TransferState(in.shape(0));
}

TENON_INFER(kSendDone) {
  TENON_RETURN_IF_ERROR(TransferData(in).status());
  return Shape::Token();
}

TENON_INFER(kRecv) {
  TENON_ASSIGN_OR_RETURN(const Shape state, Declared(in));
  TENON_RETURN_IF_ERROR(CheckToken(in, 0));
  TENON_WANT(state.is_tuple() && state.elements().size() == 3, "recv_c1", "a tuple (data, u32[], token)",
             state.ToString());
  return TransferState(state.element(0));
}

TENON_INFER(kRecvDone) {
  TENON_ASSIGN_OR_RETURN(const Shape data, TransferData(in));
  return Shape::Tuple({data, Shape::Token()});
}

TENON_INFER(kInfeed) {
  TENON_ASSIGN_OR_RETURN(const Shape result, Declared(in));
  TENON_RETURN_IF_ERROR(CheckToken(in, 0));
  TENON_WANT(result.is_tuple() && result.elements().size() == 2 &&
                 result.element(1).element_type() == PrimitiveType::kToken,
             "infeed_c1", "a result (data, token)", result.ToString());
  return result;
}

TENON_INFER(kOutfeed) {
  TENON_RETURN_IF_ERROR(CheckToken(in, 1));
  return Shape::Token();
}

}  // namespace tenon::infer
