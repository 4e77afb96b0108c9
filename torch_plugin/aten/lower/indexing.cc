// Indexed reads and writes. Eager raises on an index out of range; HLO clamps or drops: every lowering here checks (D8)
// unless the indices are proved in range.
#include <algorithm>
#include <limits>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "torch_plugin/aten/lower/indexing.h"
#include "torch_plugin/aten/lower/reduce.h"

namespace tenon::aten {

using enum Opcode;
using PT = PrimitiveType;

std::vector<Dim> DimsOf(const Instruction* x) { return {x->shape().dims().begin(), x->shape().dims().end()}; }

bool IsEmpty(absl::Span<const Dim> dims) {
  return std::any_of(dims.begin(), dims.end(), [](Dim d) { return KnownEqual(d, 0); });
}

namespace {

// Bounds of an integer value by walking through constants, iotas, movement and simple arithmetic.
struct Bounds {
  int64_t lo = std::numeric_limits<int64_t>::min(), hi = std::numeric_limits<int64_t>::max();
  bool known() const { return lo > -(int64_t{1} << 40) && hi < (int64_t{1} << 40); }
};
Bounds BoundsOf(const Instruction* x, int depth = 0);

// Of the numbers, before they wrap around in x's type.
Bounds UnwrappedBoundsOf(const Instruction* x, int depth) {
  auto operand = [&](int64_t i) { return BoundsOf(x->operand(i), depth + 1); };
  switch (x->opcode()) {
    case kConstant: {
      Bounds r{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
      if (x->literal().num_elements() > 65536) return {};
      for (int64_t i = 0; i < x->literal().num_elements(); ++i) {
        r.lo = std::min(r.lo, x->literal().GetAsInt64(i));
        r.hi = std::max(r.hi, x->literal().GetAsInt64(i));
      }
      return r;
    }
    case kIota: {
      const Dim n = x->shape().dim(x->attrs().get<int64_t>(Attr::kIotaDimension));
      return n.is_constant() ? Bounds{0, std::max<int64_t>(0, n.constant() - 1)} : Bounds{};
    }
    case kBroadcast: case kReshape: case kTranspose: case kSlice: case kCopy: case kReverse: case kConvert: return operand(0);
    case kConcatenate: {
      Bounds r = operand(0);
      for (int64_t i = 1; i < x->operand_count(); ++i) {
        Bounds o = operand(i);
        r = {std::min(r.lo, o.lo), std::max(r.hi, o.hi)};
      }
      return r;
    }
    case kAdd: case kSubtract: case kMultiply: case kMaximum: case kMinimum: case kSelect: break;
    default: return {};
  }
  const int64_t first = x->opcode() == kSelect ? 1 : 0;
  Bounds a = operand(first), b = operand(first + 1);
  if (x->opcode() == kMaximum) return {std::max(a.lo, b.lo), std::max(a.hi, b.hi)};
  if (x->opcode() == kMinimum) return {std::min(a.lo, b.lo), std::min(a.hi, b.hi)};
  if (x->opcode() == kSelect) return {std::min(a.lo, b.lo), std::max(a.hi, b.hi)};
  if (!a.known() || !b.known()) return {};
  if (x->opcode() == kAdd) return {a.lo + b.lo, a.hi + b.hi};
  if (x->opcode() == kSubtract) return {a.lo - b.hi, a.hi - b.lo};
  constexpr int64_t kLarge = int64_t{1} << 30;
  if (std::max(std::abs(a.lo), std::abs(a.hi)) > kLarge || std::max(std::abs(b.lo), std::abs(b.hi)) > kLarge) return {};
  const auto [lo, hi] = std::minmax({a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi});
  return {lo, hi};
}

Bounds BoundsOf(const Instruction* x, int depth) {
  const PT type = x->shape().element_type();
  if (depth > 16 || !IsIntegral(type)) return {};
  const Bounds found = UnwrappedBoundsOf(x, depth);
  const int bits = BitWidth(type) - (IsSigned(type) ? 1 : 0);  // of a number that isn't negative
  Bounds all;
  if (bits < 63) all.hi = (int64_t{1} << bits) - 1;
  if (!IsSigned(type)) all.lo = 0;
  else if (bits < 63) all.lo = -(int64_t{1} << bits);
  return found.lo < all.lo || found.hi > all.hi ? all : found;
}

}  // namespace

Instruction* InRange(OpContext& op, Instruction* index, Dim size, const IndexRule& rule) {
  Builder& b = op.b;
  index = b.Convert(index, PT::kS64);
  const Bounds bounds = BoundsOf(index);
  const bool upper_proved = size.is_constant() && bounds.hi < size.constant();
  const bool positive = bounds.lo >= 0;
  const bool lower_proved = positive || (rule.negative && size.is_constant() && bounds.lo >= -size.constant());
  Instruction* limit = CountLike(op, index, size);
  Instruction* bad = nullptr;
  if (!upper_proved) bad = b.Compare(index, limit, "GE");
  if (!lower_proved) {
    Instruction* lowest = rule.negative ? b.Unary(kNegate, limit) : b.FullLike(index, 0);
    Instruction* below = b.Compare(index, lowest, "LT");
    bad = bad == nullptr ? below : b.Binary(kOr, bad, below);
  }
  if (bad != nullptr && !IsEmpty(index)) op.Check(bad, rule.exception, rule.message);
  if (rule.negative && !positive) {
    index = b.Select(b.Compare(index, b.FullLike(index, 0), "LT"), b.Binary(kAdd, index, limit), index);
  }
  return index;
}

namespace {
std::string OutOfBounds(int64_t axis, Dim size) {
  return absl::StrCat("index out of bounds for dimension ", axis, " with size ", size.ToString());
}

}  // namespace

Instruction* Take(OpContext& op, Instruction* x, Instruction* index, int64_t axis) {
  Attributes attrs;
  std::vector<int64_t> offset;
  std::vector<Dim> sizes;
  const int64_t n = Rank(index);
  if (IsEmpty(index)) {  // perhaps of a dim of size 0, of which HLO's gather takes no slices
    std::vector<Dim> dims = DimsOf(x);
    dims.erase(dims.begin() + axis);
    dims.insert(dims.begin() + axis, index->shape().dims().begin(), index->shape().dims().end());
    return op.b.Full(x->shape().element_type(), dims, 0);
  }
  for (int64_t d = 0; d < Rank(x); ++d) {
    if (d != axis) offset.push_back(d < axis ? d : d - 1 + n);
    sizes.push_back(d == axis ? Dim(1) : x->shape().dim(d));
  }
  attrs.set(Attr::kOffsetDims, std::move(offset));
  attrs.set(Attr::kCollapsedSliceDims, std::vector<int64_t>{axis});
  attrs.set(Attr::kStartIndexMap, std::vector<int64_t>{axis});
  attrs.set(Attr::kIndexVectorDim, n);
  attrs.set(Attr::kSliceSizes, std::move(sizes));
  return op.b.Make(kGather, {x, index}, std::move(attrs));
}

Instruction* TakeAlong(OpContext& op, Instruction* x, Instruction* index, int64_t axis) {
  return TakeAlong(op, x, RepeatedIndex{.index = index, .dims = DimsOf(index)}, axis);
}

Instruction* TakeAlong(OpContext& op, Instruction* x, const RepeatedIndex& at, int64_t axis) {
  std::vector<int64_t> batch, index_batch, collapsed = {axis};
  std::vector<Dim> sizes(Rank(x), 1);
  for (int64_t d = 0, next = 0; d < Rank(x); ++d) {
    const bool repeated = absl::c_linear_search(at.repeated, d);
    if (repeated) sizes[d] = at.dims[d];
    if (d != axis && !repeated) {
      batch.push_back(d);
      index_batch.push_back(next);
    }
    if (!repeated) ++next;
    if (d != axis) x = op.b.SliceDim(x, d, 0, at.dims[d]);
  }
  Attributes attrs;
  attrs.set(Attr::kOffsetDims, at.repeated);
  attrs.set(Attr::kCollapsedSliceDims, collapsed);
  attrs.set(Attr::kStartIndexMap, collapsed);
  attrs.set(Attr::kIndexVectorDim, Rank(at.index));
  attrs.set(Attr::kSliceSizes, std::move(sizes));
  if (!batch.empty()) {
    attrs.set(Attr::kOperandBatchingDims, std::move(batch));
    attrs.set(Attr::kStartIndicesBatchingDims, std::move(index_batch));
  }
  return op.b.Make(kGather, {x, at.index}, std::move(attrs));
}

RepeatedIndex Unrepeated(Instruction* index, int64_t axis) {
  RepeatedIndex r{.index = index, .dims = DimsOf(index)};
  if (index->opcode() != kBroadcast || !absl::c_linear_search(index->dimensions(), axis)) return r;
  for (int64_t d = 0; d < Rank(index); ++d) {
    if (!absl::c_linear_search(index->dimensions(), d)) r.repeated.push_back(d);
  }
  r.index = index->operand(0);
  return r;
}

Instruction* StackIndices(OpContext& op, const std::vector<Instruction*>& indices) {
  if (indices.size() == 1) return indices[0];
  std::vector<Instruction*> parts;
  for (Instruction* i : indices) {
    std::vector<Dim> dims = DimsOf(i);
    dims.push_back(1);
    parts.push_back(op.b.Reshape(i, dims));
  }
  return op.b.Concatenate(parts, Rank(indices[0]));
}

namespace {
bool IsMask(const Instruction* index) { return !IsIntegral(index->shape().element_type()) || index->shape().element_type() == PT::kU8; }

enum class OutOfRange { kCheck, kClamp };

// The indexed dims of index/index_put: checked (or clamped), broadcast together, in order.
struct Indices {
  std::vector<int64_t> axes;
  std::vector<Instruction*> values;  // all of dims `dims`
  std::vector<Dim> dims;
  bool adjacent = true;
};
// Into [-size, size - 1], then wrapped: at::_unsafe_masked_index.
Instruction* Clamped(OpContext& op, Instruction* index, Dim size) {
  Builder& b = op.b;
  index = b.Convert(index, PT::kS64);
  Instruction *n = CountLike(op, index, size), *last = b.Binary(kSubtract, n, b.FullLike(index, 1));
  index = b.Binary(kMaximum, b.Binary(kMinimum, index, last), b.Unary(kNegate, n));
  return b.Select(b.Compare(index, b.FullLike(index, 0), "LT"), b.Binary(kAdd, index, n), index);
}

absl::StatusOr<Indices> IndicesOf(OpContext& op, Instruction* x, int64_t at, OutOfRange out_of_range = OutOfRange::kCheck) {
  Indices r;
  std::vector<Instruction*> given = op.tensors(at);
  for (size_t d = 0; d < given.size(); ++d) {
    if (given[d] == nullptr) continue;
    if (IsMask(given[d])) {
      return NotLowered("boolean mask: the result's size depends on data");
    }
    if (!r.axes.empty() && r.axes.back() + 1 != static_cast<int64_t>(d)) r.adjacent = false;
    r.axes.push_back(static_cast<int64_t>(d));
    r.values.push_back(given[d]);
  }
  if (r.axes.empty()) return NotLowered("no index");
  int64_t rank = 0;
  for (Instruction* i : r.values) rank = std::max(rank, Rank(i));
  r.dims.assign(rank, Dim(1));
  for (Instruction* i : r.values) {
    for (int64_t d = 0; d < Rank(i); ++d) {
      Dim& into = r.dims[rank - Rank(i) + d];
      if (KnownOne(into)) into = i->shape().dim(d);
    }
  }
  for (size_t k = 0; k < r.axes.size(); ++k) {
    const Dim size = x->shape().dim(r.axes[k]);
    Instruction* index = out_of_range == OutOfRange::kClamp
                             ? Clamped(op, r.values[k], size)
                             : InRange(op, r.values[k], size, {true, "IndexError", OutOfBounds(r.axes[k], size)});
    r.values[k] = op.b.BroadcastTo(index, r.dims);
  }
  return r;
}

// Where the index dims lie in the result: at the first indexed dim if they are adjacent, else in front.
int64_t IndexDimsPosition(const Indices& r) { return r.adjacent ? r.axes[0] : 0; }

}  // namespace

Computation* Combiner(OpContext& op, PT type, std::string_view reduce) {
  if (reduce == "sum" || reduce == "add") return op.b.ScalarComputation(type == PT::kPred ? kOr : kAdd, type);
  if (reduce == "prod" || reduce == "multiply") return op.b.ScalarComputation(type == PT::kPred ? kAnd : kMultiply, type);
  if (reduce == "amax") return op.b.ScalarComputation(type == PT::kPred ? kOr : kMaximum, type);
  if (reduce == "amin") return op.b.ScalarComputation(type == PT::kPred ? kAnd : kMinimum, type);
  // Last one wins: a computation that returns its second parameter.
  Module* module = op.b.module();
  for (Computation* c : module->computations()) {
    if (c->name() == "take_second_" + std::string(PrimitiveTypeName(type))) return c;
  }
  Computation* c = module->AddComputation("take_second_" + std::string(PrimitiveTypeName(type)));
  c->AddParameter(0, Shape::Scalar(type));
  c->set_root(c->AddParameter(1, Shape::Scalar(type)));
  return c;
}

Instruction* Scatter(OpContext& op, Instruction* x, Instruction* index, Instruction* updates,
                     std::vector<int64_t> indexed_axes, int64_t index_rank, std::vector<int64_t> window_dims, Computation* combine) {
  Attributes attrs;
  attrs.set(Attr::kUpdateWindowDims, std::move(window_dims));
  attrs.set(Attr::kInsertedWindowDims, indexed_axes);
  attrs.set(Attr::kScatterDimsToOperandDims, indexed_axes);
  attrs.set(Attr::kIndexVectorDim, index_rank);
  attrs.set(Attr::kToApply, combine);
  return op.b.Make(kScatter, {x, index, updates}, std::move(attrs));
}

namespace {
// scatter and gather along a dim: element [i, j, k] of index addresses [i, index, k] of x.
std::vector<Instruction*> FullIndices(OpContext& op, Instruction* index, int64_t axis) {
  std::vector<Instruction*> all;
  for (int64_t d = 0; d < Rank(index); ++d) {
    all.push_back(d == axis ? index : op.b.Iota(Shape(PT::kS64, index->shape().dims()), d));
  }
  return all;
}

Instruction* AtLeast1d(OpContext& op, Instruction* x) { return Rank(x) == 0 ? op.b.Reshape(x, {1}) : x; }

// x[.., index[.., i, ..], ..] = source along `axis`. Dims that index and x have alike are batches, which need no index; those along which
// the index only repeats are windows.
Instruction* ScatterFull(OpContext& op, Instruction* x, const RepeatedIndex& at, int64_t axis, Instruction* source,
                         std::string_view reduce) {
  Computation* combine = Combiner(op, x->shape().element_type(), reduce);
  std::vector<int64_t> all, batch, index_batch;
  bool alike = true;
  for (int64_t d = 0, next = 0; d < Rank(x); ++d) {
    const bool repeated = absl::c_linear_search(at.repeated, d);
    all.push_back(d);
    if (d != axis) alike = alike && KnownEqual(x->shape().dim(d), at.dims[d]);
    if (d != axis && !repeated) {
      batch.push_back(d);
      index_batch.push_back(next);
    }
    if (!repeated) ++next;
  }
  if (!alike) {
    std::vector<int64_t> kept;
    std::set_difference(all.begin(), all.end(), at.repeated.begin(), at.repeated.end(), std::back_inserter(kept));
    Instruction* index = at.repeated.empty() ? at.index : op.b.Broadcast(at.index, at.dims, kept);
    return Scatter(op, x, StackIndices(op, FullIndices(op, index, axis)), source, all, Rank(source), {}, combine);
  }
  Attributes attrs;
  attrs.set(Attr::kUpdateWindowDims, at.repeated);
  attrs.set(Attr::kInsertedWindowDims, std::vector<int64_t>{axis});
  attrs.set(Attr::kScatterDimsToOperandDims, std::vector<int64_t>{axis});
  attrs.set(Attr::kIndexVectorDim, Rank(at.index));
  attrs.set(Attr::kToApply, combine);
  if (!batch.empty()) {
    attrs.set(Attr::kInputBatchingDims, std::move(batch));
    attrs.set(Attr::kScatterIndicesBatchingDims, std::move(index_batch));
  }
  return op.b.Make(kScatter, {x, at.index, source}, std::move(attrs));
}

// scatter(self, dim, index, source): with `with_self` false the old value does not count where something is written.
Lowering ScatterAlong(OpContext& op, Instruction* source, std::string_view reduce, bool with_self = true) {
  Builder& b = op.b;
  Instruction *x = AtLeast1d(op, op.tensor(0)), *index = AtLeast1d(op, op.tensor(2));
  if (IsEmpty(index)) return Values{op.tensor(0)};
  const PT type = op.result_type(), math = reduce.empty() ? type : OpMath(type);
  const int64_t axis = op.axis(1, Rank(x));
  RepeatedIndex at = Unrepeated(index, axis);
  at.index = InRange(op, at.index, x->shape().dim(axis), {false, "RuntimeError", OutOfBounds(axis, x->shape().dim(axis))});
  source = b.Convert(AtLeast1d(op, source), math);
  for (int64_t d = 0; d < Rank(source); ++d) source = b.SliceDim(source, d, 0, at.dims[d]);
  x = b.Convert(x, math);
  const bool mean = reduce == "mean";
  if (!with_self) {
    Instruction* identity = reduce == "prod"   ? b.ScalarConstantInt(math, 1)
                            : reduce == "amax" ? LimitConstant(op, math, true)
                            : reduce == "amin" ? LimitConstant(op, math, false)
                                               : b.ScalarConstantInt(math, 0);
    x = ScatterFull(op, x, at, axis, b.BroadcastTo(identity, source->shape().dims()), "");
  }
  Instruction* y = ScatterFull(op, x, at, axis, source, mean ? "add" : reduce);
  if (mean) {
    Instruction* ones = b.Full(math, source->shape().dims(), 1);
    Instruction* counts = b.Full(math, x->shape().dims(), with_self ? 1 : 0);
    counts = ScatterFull(op, counts, at, axis, ones, "add");
    counts = b.Binary(kMaximum, counts, op.Full(counts, 1));
    y = IsFloat(math) ? b.Binary(kDivide, y, counts) : IntegerFloorDivide(b, y, counts);
  }
  return op.One(b.Reshape(y, op.result_dims()));
}

}  // namespace

// embedding(weight, indices, padding_idx, ...)
Lowering LowerEmbedding(OpContext& op) {
  Instruction *weight = op.tensor(0), *index = op.tensor(1);
  index = InRange(op, index, weight->shape().dim(0), {false, "IndexError", "index out of range in self"});
  return Values{Take(op, weight, index, 0)};
}

Lowering LowerIndexSelect(OpContext& op) {
  Instruction *x = op.tensor(0), *index = op.tensor(2);
  x = Rank(x) == 0 ? op.b.Reshape(x, {1}) : x;
  if (Rank(index) == 0) index = op.b.Reshape(index, {1});
  const int64_t axis = op.axis(1, Rank(x));
  index = InRange(op, index, x->shape().dim(axis), {false, "IndexError", "index out of range in self"});
  return Values{op.b.Reshape(Take(op, x, index, axis), op.result_dims())};
}

// gather(self, dim, index)
Lowering LowerGather(OpContext& op) {
  Builder& b = op.b;
  Instruction *x = AtLeast1d(op, op.tensor(0)), *index = AtLeast1d(op, op.tensor(2));
  if (IsEmpty(index)) return op.One(b.Full(op.result_type(), op.result_dims(), 0));
  const int64_t axis = op.axis(1, Rank(x));
  RepeatedIndex at = Unrepeated(index, axis);
  at.index = InRange(op, at.index, x->shape().dim(axis), {false, "RuntimeError", OutOfBounds(axis, x->shape().dim(axis))});
  return Values{b.Reshape(TakeAlong(op, x, at, axis), op.result_dims())};
}

namespace {
Instruction* Gathered(OpContext& op, Instruction* x, const Indices& r) {
  if (r.axes.size() == 1) return Take(op, x, r.values[0], r.axes[0]);
  const int64_t n = static_cast<int64_t>(r.dims.size()), at = IndexDimsPosition(r);
  Attributes attrs;
  std::vector<int64_t> offset;
  std::vector<Dim> sizes;
  int64_t position = 0;  // of the next kept dim in the result
  for (int64_t d = 0; d < Rank(x); ++d) {
    const bool indexed = std::find(r.axes.begin(), r.axes.end(), d) != r.axes.end();
    sizes.push_back(indexed ? Dim(1) : x->shape().dim(d));
    if (indexed) continue;
    offset.push_back(position < at ? position : position + n);
    ++position;
  }
  attrs.set(Attr::kOffsetDims, std::move(offset));
  attrs.set(Attr::kCollapsedSliceDims, r.axes);
  attrs.set(Attr::kStartIndexMap, r.axes);
  attrs.set(Attr::kIndexVectorDim, n);
  attrs.set(Attr::kSliceSizes, std::move(sizes));
  return op.b.Make(kGather, {x, StackIndices(op, r.values)}, std::move(attrs));
}

// Dims of the values that index_put writes: x's, with the indexed ones replaced by the index dims.
std::vector<Dim> UpdateDims(const Instruction* x, const Indices& r, std::vector<int64_t>* window) {
  std::vector<Dim> kept;
  for (int64_t d = 0; d < Rank(x); ++d) {
    if (std::find(r.axes.begin(), r.axes.end(), d) == r.axes.end()) kept.push_back(x->shape().dim(d));
  }
  const int64_t n = static_cast<int64_t>(r.dims.size()), at = IndexDimsPosition(r);
  std::vector<Dim> dims(kept.begin(), kept.begin() + at);
  dims.insert(dims.end(), r.dims.begin(), r.dims.end());
  dims.insert(dims.end(), kept.begin() + at, kept.end());
  for (int64_t d = 0; d < static_cast<int64_t>(kept.size()); ++d) window->push_back(d < at ? d : d + n);
  return dims;
}

Instruction* Put(OpContext& op, Instruction* x, const Indices& r, Instruction* values, bool accumulate) {
  std::vector<int64_t> window;
  const std::vector<Dim> dims = UpdateDims(x, r, &window);
  Instruction* updates = op.b.BroadcastTo(op.b.Convert(values, op.result_type()), dims);
  return Scatter(op, x, StackIndices(op, r.values), updates, r.axes, static_cast<int64_t>(r.dims.size()), std::move(window),
                 Combiner(op, op.result_type(), accumulate ? "add" : ""));
}

// A mask over the index dims (or over all dims of `like`), spread to `like`.
Instruction* SpreadMask(OpContext& op, Instruction* mask, Instruction* like) {
  return op.b.BroadcastTo(mask, like->shape().dims());
}
}  // namespace

// index(self, Tensor?[] indices)
Lowering LowerIndex(OpContext& op) {
  Instruction* x = op.tensor(0);
  TENON_ASSIGN_OR_RETURN(Indices r, IndicesOf(op, x, 1));
  if (IsEmpty(r.dims)) return op.One(op.b.Full(op.result_type(), op.result_dims(), 0));
  return Values{Gathered(op, x, r)};
}

// _unsafe_masked_index(self, mask, indices, fill)
Lowering LowerMaskedIndex(OpContext& op) {
  Instruction* x = op.tensor(0);
  if (IsEmpty(x)) return NotLowered("masked index of an empty tensor");
  TENON_ASSIGN_OR_RETURN(Indices r, IndicesOf(op, x, 2, OutOfRange::kClamp));
  Instruction* read = Gathered(op, x, r);
  Instruction* fill = op.b.BroadcastTo(op.NumberConstant(op.arg(3), op.result_type()), op.result_dims());
  return Values{op.b.Select(SpreadMask(op, op.tensor(1), read), read, fill)};
}

// _unsafe_masked_index_put_accumulate(self, mask, indices, values)
Lowering LowerMaskedIndexPut(OpContext& op) {
  Instruction *x = op.tensor(0), *values = op.b.Convert(op.tensor(3), op.result_type());
  if (IsEmpty(x)) return NotLowered("masked index of an empty tensor");
  TENON_ASSIGN_OR_RETURN(Indices r, IndicesOf(op, x, 2, OutOfRange::kClamp));
  values = op.b.Select(SpreadMask(op, op.tensor(1), values), values, op.Full(values, 0));
  return Values{Put(op, x, r, values, true)};
}

// index_put(self, indices, values, accumulate)
Lowering LowerIndexPut(OpContext& op) {
  Instruction* x = op.tensor(0);
  const std::vector<Instruction*> given = op.tensors(1);
  const auto is_given = [](const Instruction* i) { return i != nullptr; };
  const auto first = std::find_if(given.begin(), given.end(), is_given);
  if (std::count_if(given.begin(), given.end(), is_given) == 1 && IsMask(*first)) {
    return PutMasked(op, *first, first - given.begin(), op.boolean_or(3, false));
  }
  TENON_ASSIGN_OR_RETURN(Indices r, IndicesOf(op, x, 1));
  return op.One(Put(op, x, r, op.tensor(2), op.boolean_or(3, false)));
}

Lowering LowerScatterSrc(OpContext& op) { return ScatterAlong(op, op.tensor(3), ""); }
Lowering LowerScatterValue(OpContext& op) {
  Instruction* value = op.NumberConstant(op.arg(3), op.result_type());
  return ScatterAlong(op, op.b.BroadcastTo(value, op.tensor(2)->shape().dims()), "");
}
Lowering LowerScatterAdd(OpContext& op) { return ScatterAlong(op, op.tensor(3), "add"); }
// scatter_reduce(self, dim, index, src, reduce, include_self)
Lowering LowerScatterReduce(OpContext& op) {
  return ScatterAlong(op, op.tensor(3), op.string(4) == "sum" ? "add" : op.string(4), op.boolean_or(5, true));
}

// index_add(self, dim, index, source, alpha) and index_copy, index_fill without alpha
namespace {
Lowering IndexUpdate(OpContext& op, Instruction* source, std::string_view reduce, bool negative, const char* exception = "IndexError") {
  Builder& b = op.b;
  Instruction *x = op.tensor(0), *index = op.tensor(2);
  if (IsEmpty(index)) return Values{x};
  const PT math = reduce.empty() ? op.result_type() : OpMath(op.result_type());
  x = b.Convert(AtLeast1d(op, x), math);
  source = b.Convert(AtLeast1d(op, source), math);
  if (Rank(index) == 0) index = b.Reshape(index, {1});
  const int64_t axis = op.axis(1, Rank(x));
  index = InRange(op, index, x->shape().dim(axis), {negative, exception, "index out of range in self"});
  std::vector<int64_t> window;
  for (int64_t d = 0; d < Rank(x); ++d) {
    if (d != axis) window.push_back(d);
  }
  // Update dims: the index dim stays at `axis`, so the window dims are the other ones.
  Instruction* y = Scatter(op, x, index, source, {axis}, 1, window, Combiner(op, math, reduce));
  return op.One(b.Reshape(y, op.result_dims()));
}
}  // namespace
Lowering LowerIndexAdd(OpContext& op) {
  Instruction* source = op.tensor(3);
  const bool pred = op.result_type() == PT::kPred;
  if (pred && !op.is_none(4) && !op.boolean(4)) return Values{op.tensor(0)};
  if (!pred && !op.is_none(4) && !op.equals(4, 1)) {
    source = op.b.Convert(source, OpMath(source->shape().element_type()));
    Instruction* alpha = op.NumberConstant(op.arg(4), source->shape().element_type());
    source = op.b.Binary(kMultiply, source, op.b.BroadcastTo(alpha, source->shape().dims()));
  }
  // Eager takes scatter_add's way here, and raises its error.
  const int64_t rank = Rank(op.tensor(0)), axis = rank > 0 ? op.axis(1, rank) : 0;
  const bool as_scatter = rank > 1 && (axis == 0 || axis == rank - 1) && (op.is_none(4) || op.equals(4, 1)) &&
                          op.tensor(2)->shape().element_type() == PT::kS64;
  return IndexUpdate(op, source, "add", false, as_scatter ? "RuntimeError" : "IndexError");
}
Lowering LowerIndexCopy(OpContext& op) {
  const int64_t rank = std::max<int64_t>(Rank(op.tensor(0)), 1), source_rank = std::max<int64_t>(Rank(op.tensor(3)), 1);
  if (source_rank != rank) return NotLowered("index_copy of a 0-d source into dims");
  return IndexUpdate(op, op.tensor(3), "", false);
}

// embedding_dense_backward(grad, indices, num_weights, padding_idx, scale_grad_by_freq)
Lowering LowerEmbeddingBackward(OpContext& op) {
  Builder& b = op.b;
  Instruction *grad = op.tensor(0), *index = op.tensor(1);
  const int64_t padding = op.integer_or(3, -1), n = Rank(index);
  index = b.Convert(index, PT::kS64);
  grad = b.Convert(grad, OpMath(op.result_type()));
  if (padding >= 0) {
    Instruction* padded = b.Compare(index, b.FullLike(index, static_cast<double>(padding)), "EQ");
    std::vector<int64_t> leading;
    for (int64_t d = 0; d < n; ++d) leading.push_back(d);
    grad = b.Select(b.Broadcast(padded, grad->shape().dims(), leading), op.Full(grad, 0), grad);
  }
  const PT math = grad->shape().element_type();
  if (op.boolean_or(4, false)) {  // over the number of uses of each row
    Instruction* uses = b.Full(math, {op.result_dims()[0]}, 0);
    uses = Scatter(op, uses, index, b.Full(math, index->shape().dims(), 1), {0}, n, {}, Combiner(op, math, "add"));
    std::vector<int64_t> leading;
    for (int64_t d = 0; d < n; ++d) leading.push_back(d);
    grad = b.Binary(kDivide, grad, b.Broadcast(Take(op, uses, index, 0), grad->shape().dims(), leading));
  }
  Instruction* zeros = b.Full(math, op.result_dims(), 0);
  return op.One(Scatter(op, zeros, index, grad, {0}, n, {n}, Combiner(op, math, "add")));
}

// The dims of log probabilities [N, classes, places...] (or [classes]) that their targets have.
static std::vector<int64_t> TargetDims(int64_t rank) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < rank; ++d) {
    if (d != 1 && rank > 1) dims.push_back(d);
  }
  return dims;
}

// nll_loss_forward(self, target, weight?, reduction, ignore_index) -> output, total_weight; nll_loss2d_forward too
Lowering LowerNllLoss(OpContext& op) {
  Builder& b = op.b;
  Instruction *x = b.Convert(op.tensor(0), OpMath(op.result_type())), *target = b.Convert(op.tensor(1), PT::kS64);
  const bool batched = Rank(x) >= 2;
  if (!batched) {
    x = b.Reshape(x, {1, x->shape().dim(0)});
    target = b.Reshape(target, {1});
  }
  const Dim classes = x->shape().dim(1);
  const int64_t reduction = op.integer(3);
  const double ignore = static_cast<double>(op.integer(4));
  Instruction* valid = b.Compare(target, b.FullLike(target, ignore), "NE");
  Instruction* safe = b.Select(valid, target, b.FullLike(target, 0));
  safe = InRange(op, safe, classes, {false, "IndexError", "Target is out of bounds."});
  // The picked element as a masked sum over the classes: one pass over x, no gather.
  Instruction* column = b.Iota(Shape(PT::kS64, x->shape().dims()), 1);
  Instruction* chosen = b.Compare(column, b.Broadcast(safe, x->shape().dims(), TargetDims(Rank(x))), "EQ");
  Instruction* picked = ReduceSum(op, b.Select(chosen, x, op.Full(x, 0)), {1});
  Instruction* weight = op.Full(picked, 1);
  if (!op.is_none(2)) {
    Instruction* table = b.Convert(op.tensor(2), x->shape().element_type());
    weight = ReduceSum(op, b.Select(chosen, b.Broadcast(table, x->shape().dims(), {1}), op.Full(x, 0)), {1});
  }
  weight = b.Select(valid, weight, op.Full(weight, 0));
  Instruction* loss = b.Select(valid, b.Unary(kNegate, b.Binary(kMultiply, picked, weight)), op.Full(picked, 0));
  auto shaped = [&](Instruction* v, int64_t k) {
    return b.Convert(b.Reshape(v, op.result_dims(k)), op.result_type(k));
  };
  if (reduction == 0 && batched) return Values{shaped(loss, 0), b.Full(op.result_type(1), op.result_dims(1), 0)};
  std::vector<int64_t> all;
  for (int64_t d = 0; d < Rank(loss); ++d) all.push_back(d);
  Instruction* total = ReduceSum(op, weight, all);
  Instruction* sum = ReduceSum(op, loss, all);
  if (reduction == 1) sum = b.Binary(kDivide, sum, total);
  return Values{shaped(sum, 0), shaped(total, 1)};
}

// nll_loss_backward(grad, self, target, weight?, reduction, ignore_index, total_weight); nll_loss2d_backward too
Lowering LowerNllLossBackward(OpContext& op) {
  Builder& b = op.b;
  const PT math = OpMath(op.result_type());
  Instruction *grad = b.Convert(op.tensor(0), math), *target = b.Convert(op.tensor(2), PT::kS64);
  const std::vector<Dim>& dims = op.result_dims();
  const std::vector<int64_t> places = TargetDims(static_cast<int64_t>(dims.size()));
  const std::vector<Dim> rows(target->shape().dims().begin(), target->shape().dims().end());
  const int64_t reduction = op.integer(4);
  Instruction* valid = b.Compare(target, b.FullLike(target, static_cast<double>(op.integer(5))), "NE");
  Instruction* scaled = grad;
  if (reduction == 1) scaled = b.Binary(kDivide, grad, b.Convert(op.tensor(6), math));
  const int64_t classes = dims.size() > 1 ? 1 : 0;
  Instruction* per_row = b.Unary(kNegate, b.BroadcastTo(scaled, rows));
  per_row = b.Select(valid, per_row, op.Full(per_row, 0));
  Instruction* column = b.Iota(Shape(PT::kS64, dims), classes);
  Instruction* chosen = b.Compare(column, b.Broadcast(target, dims, places), "EQ");
  Instruction* value = b.Broadcast(per_row, dims, places);
  if (!op.is_none(3)) {
    Instruction* table = b.Convert(op.tensor(3), math);
    value = b.Binary(kMultiply, value, b.Broadcast(table, dims, {classes}));
  }
  return op.One(b.Select(chosen, value, op.Full(value, 0)));
}

}  // namespace tenon::aten
