#include <algorithm>

#include "absl/algorithm/container.h"
#include "passes/simplify/rule.h"

#include "hlo/own_calls.h"

namespace tenon {
namespace {

bool Is(const Instruction* op, Opcode opcode) { return op->opcode() == opcode; }
bool IsScalarBroadcast(const Instruction* op) { return Is(op, Opcode::kBroadcast) && op->operand(0)->shape().is_scalar(); }

// An op that leaves its operand as it is. (Fits() in simplify.cc refuses if the layouts differ.)
Instruction* Identity(Instruction* op, Builder&, const PassContext&) {
  switch (op->opcode()) {
    case Opcode::kCopy:  // one that names a memory space brings its operand there
      return op->shape().memory_space() == op->operand(0)->shape().memory_space() ? op->operand(0) : nullptr;
    case Opcode::kReshape: return Shape::SameDims(op->shape(), op->operand(0)->shape()) ? op->operand(0) : nullptr;
    case Opcode::kBroadcast:
    case Opcode::kTranspose: {
      const std::vector<int64_t>& d = op->dimensions();
      if (static_cast<int64_t>(d.size()) != op->shape().rank()) return nullptr;
      for (size_t i = 0; i < d.size(); ++i) {
        if (d[i] != static_cast<int64_t>(i)) return nullptr;
      }
      return op->operand(0);
    }
    case Opcode::kSlice:
      if (!Shape::SameDims(op->shape(), op->operand(0)->shape())) return nullptr;
      return op->operand(0);
    case Opcode::kConcatenate: return op->operand_count() == 1 ? op->operand(0) : nullptr;
    case Opcode::kPad: {
      for (const PaddingDim& d : op->attrs().get<PaddingConfig>(Attr::kPadding).dims) {
        if (d.low != 0 || d.high != 0 || d.interior != 0) return nullptr;
      }
      return op->operand(0);
    }
    case Opcode::kReverse:
      for (int64_t d : op->dimensions()) {
        if (!KnownOne(op->shape().dim(d))) return nullptr;
      }
      return op->operand(0);
    default: return nullptr;
  }
}

Instruction* ReshapeOfReshape(Instruction* op, Builder& b, const PassContext&) {
  if (!Is(op, Opcode::kReshape) || !Is(op->operand(0), Opcode::kReshape)) return nullptr;
  return b.Reshape(op->operand(0)->operand(0), op->shape().dims());
}
Instruction* TransposeOfTranspose(Instruction* op, Builder& b, const PassContext&) {
  if (!Is(op, Opcode::kTranspose) || !Is(op->operand(0), Opcode::kTranspose)) return nullptr;
  std::vector<int64_t> permutation;
  for (int64_t d : op->dimensions()) permutation.push_back(op->operand(0)->dimensions()[d]);
  return b.Transpose(op->operand(0)->operand(0), permutation);
}
Instruction* BroadcastOfBroadcast(Instruction* op, Builder& b, const PassContext&) {
  if (!Is(op, Opcode::kBroadcast) || !Is(op->operand(0), Opcode::kBroadcast)) return nullptr;
  std::vector<int64_t> dimensions;
  for (int64_t d : op->operand(0)->dimensions()) dimensions.push_back(op->dimensions()[d]);
  return b.Broadcast(op->operand(0)->operand(0), op->shape().dims(), dimensions);
}
// Any movement of a broadcast scalar is a broadcast of it.
Instruction* MovedScalar(Instruction* op, Builder& b, const PassContext&) {
  switch (op->opcode()) {
    case Opcode::kReshape:
    case Opcode::kTranspose:
    case Opcode::kSlice:
    case Opcode::kReverse:
    case Opcode::kCopy: break;
    default: return nullptr;
  }
  if (!IsScalarBroadcast(op->operand(0))) return nullptr;
  return b.Broadcast(op->operand(0)->operand(0), op->shape().dims(), {});
}
// A broadcast along dims of size one only is a reshape; broadcast(reshape that drops or adds ones) needs no reshape of ones.
Instruction* BroadcastWithoutOnes(Instruction* op, Builder& b, const PassContext&) {
  if (!Is(op, Opcode::kBroadcast)) return nullptr;
  const Shape& from = op->operand(0)->shape();
  if (KnownEqual(from.num_elements(), op->shape().num_elements()) && from.rank() > 0) {
    return std::is_sorted(op->dimensions().begin(), op->dimensions().end()) ? b.Reshape(op->operand(0), op->shape().dims()) : nullptr;
  }
  std::vector<Dim> dims;
  std::vector<int64_t> dimensions;
  for (int64_t i = 0; i < from.rank(); ++i) {
    if (KnownOne(from.dim(i))) continue;
    dims.push_back(from.dim(i));
    dimensions.push_back(op->dimensions()[i]);
  }
  if (static_cast<int64_t>(dims.size()) == from.rank()) return nullptr;
  return b.Broadcast(b.Reshape(op->operand(0), dims), op->shape().dims(), dimensions);
}
// f(broadcast(a), broadcast(b)) of scalars is broadcast(f(a, b)).
Instruction* ElementwiseOnScalars(Instruction* op, Builder& b, const PassContext&) {
  if (!IsPointwise(*op) || op->shape().rank() == 0 || op->operand_count() == 0 || op->IsStateful()) return nullptr;
  // Between widths a dimension comes or goes: no scalar stands for that.
  if (op->opcode() == Opcode::kBitcastConvert && !Shape::SameDims(op->shape(), op->operand(0)->shape())) return nullptr;
  std::vector<Instruction*> scalars;
  for (Instruction* o : op->operands()) {
    if (o->shape().is_scalar()) scalars.push_back(o);
    else if (IsScalarBroadcast(o)) scalars.push_back(o->operand(0));
    else return nullptr;
  }
  return b.Broadcast(b.Make(op->opcode(), scalars, op->attrs(), Shape::Scalar(op->shape().element_type())), op->shape().dims(), {});
}
Instruction* SliceOfSlice(Instruction* op, Builder& b, const PassContext&) {
  if (!Is(op, Opcode::kSlice) || !Is(op->operand(0), Opcode::kSlice)) return nullptr;
  const SliceSpec &outer = op->attrs().get<SliceSpec>(Attr::kSlice), &inner = op->operand(0)->attrs().get<SliceSpec>(Attr::kSlice);
  std::vector<Dim> starts, limits;
  std::vector<int64_t> strides;
  for (size_t i = 0; i < outer.starts.size(); ++i) {
    if (KnownEqual(op->shape().dim(static_cast<int64_t>(i)), 0)) return nullptr;
    starts.push_back(inner.starts[i] + outer.starts[i] * inner.strides[i]);
    strides.push_back(inner.strides[i] * outer.strides[i]);
    limits.push_back(starts.back() + (op->shape().dim(static_cast<int64_t>(i)) - 1) * strides.back() + 1);
  }
  return b.Slice(op->operand(0)->operand(0), starts, limits, strides);
}
// A slice that lies within one part of a concatenation is a slice of the part.
Instruction* SliceOfConcatenate(Instruction* op, Builder& b, const PassContext&) {
  if (!Is(op, Opcode::kSlice) || !Is(op->operand(0), Opcode::kConcatenate)) return nullptr;
  const Instruction* whole = op->operand(0);
  const int64_t dim = whole->dimensions()[0];
  SliceSpec slice = op->attrs().get<SliceSpec>(Attr::kSlice);
  Dim start = 0;
  for (Instruction* part : whole->operands()) {
    const Dim end = start + part->shape().dim(dim);
    const bool begins = Less(slice.starts[dim], start) == Ternary::kNo, ends = Less(end, slice.limits[dim]) == Ternary::kNo;
    if (begins && ends) {
      slice.starts[dim] = slice.starts[dim] - start;
      slice.limits[dim] = slice.limits[dim] - start;
      return b.Slice(part, slice.starts, slice.limits, slice.strides);
    }
    start = end;
  }
  return nullptr;
}

// Of a concatenation that is only cut, to be put together again: slices of its parts, so that one kernel does both.
Instruction* SliceAcrossConcatenate(Instruction* op, Builder& b, const PassContext&) {
  if (!Is(op, Opcode::kSlice) || !Is(op->operand(0), Opcode::kConcatenate)) return nullptr;
  const Instruction* whole = op->operand(0);
  const int64_t dim = whole->dimensions()[0];
  int64_t taken = 0;
  for (const Instruction* u : whole->users()) {
    if (!Is(u, Opcode::kSlice) || u->users().empty()) return nullptr;
    if (!absl::c_all_of(u->users(), [](const Instruction* v) { return Is(v, Opcode::kConcatenate); })) return nullptr;
    taken += u->shape().num_elements().constant_or(int64_t{1} << 40);
  }
  const SliceSpec slice = op->attrs().get<SliceSpec>(Attr::kSlice);
  if (taken > whole->shape().num_elements().constant_or(0) || slice.strides[dim] != 1) return nullptr;
  if (!slice.starts[dim].is_constant() || !slice.limits[dim].is_constant()) return nullptr;
  const int64_t low = slice.starts[dim].constant(), high = slice.limits[dim].constant();
  std::vector<Instruction*> parts;
  int64_t start = 0;
  for (Instruction* part : whole->operands()) {
    if (!part->shape().dim(dim).is_constant()) return nullptr;  // a whole of parts that are not may well be a number
    const int64_t size = part->shape().dim(dim).constant(), from = std::max(low - start, int64_t{0}), to = std::min(high - start, size);
    start += size;
    if (from >= to) continue;
    SliceSpec of_part = slice;
    of_part.starts[dim] = from;
    of_part.limits[dim] = to;
    parts.push_back(b.Slice(part, of_part.starts, of_part.limits, of_part.strides));
  }
  return parts.size() < 2 ? nullptr : b.Concatenate(parts, dim);
}
Instruction* ConcatenateOfConcatenate(Instruction* op, Builder& b, const PassContext&) {
  if (!Is(op, Opcode::kConcatenate)) return nullptr;
  std::vector<Instruction*> parts;
  for (Instruction* o : op->operands()) {
    if (Is(o, Opcode::kConcatenate) && o->dimensions() == op->dimensions() && o->user_count() == 1) {
      parts.insert(parts.end(), o->operands().begin(), o->operands().end());
    } else {
      parts.push_back(o);
    }
  }
  return static_cast<int64_t>(parts.size()) == op->operand_count() ? nullptr : b.Concatenate(parts, op->dimensions()[0]);
}

// Where the parts of a concatenation end, along its dim. Empty: a size is symbolic.
std::vector<int64_t> Ends(const Instruction& concatenate) {
  std::vector<int64_t> ends;
  int64_t end = 0;
  for (const Instruction* part : concatenate.operands()) {
    const Dim size = part->shape().dim(concatenate.dimensions()[0]);
    if (!size.is_constant()) return {};
    ends.push_back(end += size.constant());
  }
  return ends;
}
// The part of `o`, a concatenation or a broadcast scalar, that fills [begin, end); a broadcast scalar may be cut.
// nullptr: none does.
Instruction* PartOf(Instruction* o, int64_t begin, int64_t end, const Shape& shape, Builder& b) {
  if (IsScalarBroadcast(o)) return b.Broadcast(o->operand(0), shape.dims(), {});
  const std::vector<int64_t> ends = Ends(*o);
  const size_t i = std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin();
  Instruction* part = o->operand(static_cast<int64_t>(i));
  if (IsScalarBroadcast(part)) return PartOf(part, begin, end, shape, b);
  return (i == 0 ? 0 : ends[i - 1]) == begin && ends[i] == end ? part : nullptr;
}
// f(concatenate(a, b), concatenate(c, d)) is concatenate(f(a, c), f(b, d)): gradients of slices are zeros around a part, and their
// sums become one concatenation that reads each part once. Only where no concatenation is needed otherwise.
Instruction* ElementwiseOfConcatenates(Instruction* op, Builder& b, const PassContext&) {
  if (!IsPointwise(*op) || op->operand_count() < 2) return nullptr;
  std::vector<int64_t> cuts;
  const Instruction* first = nullptr;
  int64_t concatenations = 0;
  for (const Instruction* o : op->operands()) {
    if (IsScalarBroadcast(o)) continue;
    if (!Is(o, Opcode::kConcatenate) || o->user_count() > 1) return nullptr;
    if (first != nullptr && o->dimensions() != first->dimensions()) return nullptr;
    const std::vector<int64_t> ends = Ends(*o);
    if (ends.empty()) return nullptr;
    cuts.insert(cuts.end(), ends.begin(), ends.end());
    first = o;
    ++concatenations;
  }
  if (concatenations < 2) return nullptr;
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  const int64_t dim = first->dimensions()[0];
  std::vector<Instruction*> parts;
  for (size_t i = 0; i < cuts.size(); ++i) {
    const int64_t begin = i == 0 ? 0 : cuts[i - 1];
    if (begin == cuts[i]) return nullptr;  // an empty part
    Shape shape(op->shape().element_type(), op->shape().dims());
    shape.set_dim(dim, cuts[i] - begin);
    std::vector<Instruction*> operands;
    for (Instruction* o : op->operands()) {
      operands.push_back(PartOf(o, begin, cuts[i], shape, b));
      if (operands.back() == nullptr) return nullptr;
    }
    parts.push_back(b.Make(op->opcode(), operands, op->attrs(), shape));
  }
  return b.Concatenate(parts, dim);
}
Instruction* ElementOfTuple(Instruction* op, Builder&, const PassContext&) {
  if (!Is(op, Opcode::kGetTupleElement) || !Is(op->operand(0), Opcode::kTuple)) return nullptr;
  return op->operand(0)->operand(op->tuple_index());
}

}  // namespace

absl::Span<const Rule> MovementRules() {
  static constexpr Rule rules[] = {
      {"movement that moves nothing", Identity},
      {"reshape(reshape)", ReshapeOfReshape},
      {"transpose(transpose)", TransposeOfTranspose},
      {"broadcast(broadcast)", BroadcastOfBroadcast},
      {"moved scalar", MovedScalar},
      {"broadcast of ones", BroadcastWithoutOnes},
      {"elementwise on scalars", ElementwiseOnScalars},
      {"slice(slice)", SliceOfSlice},
      {"slice(concatenate)", SliceOfConcatenate},
      {"slice(concatenate) across", SliceAcrossConcatenate},
      {"concatenate(concatenate)", ConcatenateOfConcatenate},
      {"elementwise of concatenations", ElementwiseOfConcatenates},
      {"element of tuple", ElementOfTuple},
  };
  return rules;
}

}  // namespace tenon
