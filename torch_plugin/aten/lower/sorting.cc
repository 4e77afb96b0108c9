// Sorting, selecting and looking up. ATen's order: -0 equals 0, NaN stands above every number (aten/src/ATen/native/Sorting.cpp).
// Sorts are stable whether asked or not. Where ATen leaves open which of several equal elements an index means (topk, kthvalue,
// median, mode), it is the one with the lowest position, but for mode the last of them, as ATen's.
//
// What passes/expand/library_sorts.cc recognises here becomes a call of the library; the lowering itself says plain HLO.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "torch_plugin/aten/lower/indexing.h"
#include "torch_plugin/aten/lower/reduce.h"
#include "torch_plugin/aten/lower/scan.h"
#include "torch_plugin/aten/lower/sorting.h"

namespace tenon::aten {

using enum Opcode;
using PT = PrimitiveType;

namespace {

// (key, others...): key by ATen's order.
Computation* Comparator(OpContext& op, const Values& columns, bool descending) {
  Builder less(op.b.module()->AddComputation(descending ? "sort_descending" : "sort_ascending"));
  Values args;
  for (const Instruction* c : columns) {
    for (int side = 0; side < 2; ++side)
      args.push_back(less.Parameter(static_cast<int64_t>(args.size()), Shape::Scalar(c->shape().element_type())));
  }
  Instruction *first = args[descending ? 1 : 0], *second = args[descending ? 0 : 1];
  Instruction* before = less.Compare(first, second, "LT");
  if (IsFloat(first->shape().element_type())) {
    Instruction* only_second = less.Binary(kAnd, less.Compare(first, first, "EQ"), less.Compare(second, second, "NE"));
    before = less.Binary(kOr, before, only_second);
  }
  less.computation()->set_root(before);
  return less.computation();
}

struct Sorted {
  Instruction *values, *positions;  // positions in s64; nullptr unless asked for
};

// bool as u8.
Instruction* Sortable(OpContext& op, Instruction* x) {
  return x->shape().element_type() == PT::kPred ? op.b.Convert(x, PT::kU8) : x;
}

// x has a dim and elements.
Sorted SortAlong(OpContext& op, Instruction* x, int64_t axis, bool descending, bool positions) {
  Builder& b = op.b;
  Values columns = {x};
  if (positions) columns.push_back(b.Iota(Shape(PT::kS64, x->shape().dims()), axis));
  Attributes attrs;
  attrs.set(Attr::kDimensions, std::vector<int64_t>{axis});
  attrs.set(Attr::kToApply, Comparator(op, columns, descending));
  attrs.set(Attr::kIsStable, true);
  Instruction* sorted = b.Make(kSort, columns, std::move(attrs));
  if (!positions) return {sorted, nullptr};
  return {b.GetTupleElement(sorted, 0), b.GetTupleElement(sorted, 1)};
}

// Of the k first of the largest or smallest along `axis`, in order, those from `first` on.
Sorted TopAlong(OpContext& op, Instruction* x, int64_t axis, int64_t k, bool largest, int64_t first = 0) {
  Builder& b = op.b;
  std::vector<int64_t> order;
  for (int64_t d = 0; d < Rank(x); ++d) {
    if (d != axis) order.push_back(d);
  }
  order.push_back(axis);
  std::vector<int64_t> back(order.size());
  for (size_t d = 0; d < order.size(); ++d) back[static_cast<size_t>(order[d])] = static_cast<int64_t>(d);
  Attributes attrs;
  attrs.set(Attr::kK, k);
  attrs.set(Attr::kLargest, largest);
  Instruction* top = b.Make(kTopk, {b.Transpose(x, order)}, std::move(attrs));
  auto taken = [&](int64_t element) {
    Instruction* all = b.GetTupleElement(top, element);
    return first == 0 ? all : b.SliceDim(all, Rank(x) - 1, first, k);
  };
  return {b.Transpose(taken(0), back), b.Transpose(b.Convert(taken(1), PT::kS64), back)};
}

// The k-th smallest (from 1) along `axis`, of the end that it is nearer to; dims with `axis` of 1.
Sorted KthAlong(OpContext& op, Instruction* x, int64_t axis, int64_t k) {
  const Dim n = x->shape().dim(axis);
  const bool largest = n.is_constant() && n.constant() - k + 1 < k;
  const int64_t at = largest ? n.constant() - k + 1 : k;
  return TopAlong(op, x, axis, at, largest, at - 1);
}

// What every op here needs of `x`, and of the dim that it goes along at least; empty if it has it.
std::string Unsortable(Instruction* x, int64_t axis, Dim elements) {
  if (IsComplex(x->shape().element_type())) return "an order of complex numbers";
  if (axis < Rank(x) && Less(x->shape().dim(axis), elements) == Ternary::kUnknown) return "along a dim of a size that may be too small";
  return "";
}

// (values, positions) into the results that the node has, shaped as they are.
Lowering Both(OpContext& op, Instruction* values, Instruction* positions) {
  return Values{Shaped(op, values, 0), Shaped(op, positions, 1)};
}

Lowering Sort(OpContext& op, int64_t dim_at, int64_t descending_at) {
  Instruction* x = op.tensor(0);
  const int64_t axis = op.axis(dim_at, Rank(x));
  if (std::string why = Unsortable(x, axis, 0); !why.empty()) return NotLowered("sort: " + why);
  const bool trivial = Rank(x) == 0 || IsEmpty(x);
  if (trivial) return Both(op, x, op.b.Full(PT::kS64, x->shape().dims(), 0));
  const Sorted sorted = SortAlong(op, Sortable(op, x), axis, op.boolean_or(descending_at, false), op.result_used(1));
  return Both(op, sorted.values, sorted.positions != nullptr ? sorted.positions : op.b.Full(PT::kS64, x->shape().dims(), 0));
}

Instruction* IsNan(OpContext& op, Instruction* x) { return op.b.Compare(x, x, "NE"); }

// Along `axis`, kept with one element: the position of the first true, or the dim's size.
Instruction* FirstTrue(OpContext& op, Instruction* pred, int64_t axis) {
  Builder& b = op.b;
  Instruction* position = b.Iota(Shape(PT::kS64, pred->shape().dims()), axis);
  Instruction* n = b.BroadcastTo(op.SizeValue(pred->shape().dim(axis), PT::kS64), position->shape().dims());
  Instruction* first = ReduceMin(op, b.Select(pred, position, n), {axis});
  DimVector dims(pred->shape().dims().begin(), pred->shape().dims().end());
  dims[axis] = 1;
  return b.Reshape(first, dims);
}

// The lower of the middle elements in order, NaNs last.
Sorted Middle(OpContext& op, Instruction* x, int64_t axis) {
  const Dim n = x->shape().dim(axis);
  if (n.is_constant()) return KthAlong(op, x, axis, (n.constant() - 1) / 2 + 1);
  const Sorted sorted = SortAlong(op, x, axis, false, true);
  const Dim at = FloorDiv(n - 1, 2);
  return {op.b.SliceDim(sorted.values, axis, at, at + 1), op.b.SliceDim(sorted.positions, axis, at, at + 1)};
}

// The lower of the middle elements: NaN, and the first of them, if there is one.
Sorted Median(OpContext& op, Instruction* x, int64_t axis) {
  Builder& b = op.b;
  Sorted middle = Middle(op, x, axis);
  if (!IsFloat(x->shape().element_type())) return middle;
  Instruction* first = FirstTrue(op, IsNan(op, x), axis);
  Instruction* n = b.BroadcastTo(op.SizeValue(x->shape().dim(axis), PT::kS64), first->shape().dims());
  Instruction* none = b.Compare(first, n, "EQ");
  return {b.Select(none, middle.values, b.FullLike(middle.values, NAN)), b.Select(none, middle.positions, first)};
}

// The lower of the middle elements that are numbers; NaN if none is.
Sorted NanMedian(OpContext& op, Instruction* x, int64_t axis) {
  Builder& b = op.b;
  if (!IsFloat(x->shape().element_type())) return Median(op, x, axis);
  const Sorted sorted = SortAlong(op, x, axis, false, true);
  Instruction* numbers = FirstTrue(op, IsNan(op, sorted.values), axis);  // NaNs stand last
  Instruction* one = b.FullLike(numbers, 1);
  Instruction* middle = b.Binary(kDivide, b.Binary(kSubtract, b.Binary(kMaximum, numbers, one), one), b.FullLike(numbers, 2));
  return {TakeAlong(op, sorted.values, middle, axis), TakeAlong(op, sorted.positions, middle, axis)};
}

// Of all elements, or along argument 1.
Lowering AnyMedian(OpContext& op, Sorted (*median)(OpContext&, Instruction*, int64_t), bool all) {
  Instruction* x = op.tensor(0);
  if (all && IsEmpty(x)) {
    if (!IsFloat(op.result_type())) return NotLowered("median of no integers");
    return op.One(op.b.Full(op.result_type(), {}, NAN));
  }
  if (all) x = op.b.Reshape(x, {x->shape().num_elements()});
  if (std::string why = Unsortable(x, all ? 0 : op.axis(1, Rank(x)), 1); !why.empty()) return NotLowered("median: " + why);
  if (all) return Values{Shaped(op, median(op, Sortable(op, x), 0).values)};
  if (Rank(x) == 0) return Both(op, x, op.b.Full(PT::kS64, {}, 0));
  if (IsEmpty(x, op.axis(1, Rank(x)))) return NotLowered("median of no elements");  // eager raises
  if (IsEmpty(x)) return Both(op, op.b.Full(op.result_type(0), op.result_dims(0), 0), op.b.Full(PT::kS64, op.result_dims(1), 0));
  const Sorted found = median(op, Sortable(op, x), op.axis(1, Rank(x)));
  return Both(op, found.values, found.positions);
}

}  // namespace

Instruction* SortedAscending(OpContext& op, Instruction* x, int64_t axis) { return SortAlong(op, x, axis, false, false).values; }

// sort(self, dim, descending), sort.stable(self, stable, dim, descending)
Lowering LowerSort(OpContext& op) { return Sort(op, 1, 2); }
Lowering LowerSortStable(OpContext& op) { return Sort(op, 2, 3); }

// topk(self, k, dim, largest, sorted)
Lowering LowerTopK(OpContext& op) {
  Instruction* x = op.tensor(0);
  if (!op.dim(1).is_constant()) return NotLowered("topk: a symbolic k");
  if (std::string why = Unsortable(x, op.axis(2, Rank(x)), op.dim(1)); !why.empty()) return NotLowered("topk: " + why);
  const int64_t k = op.integer(1);
  if (IsEmpty(op.result_dims(0)))
    return Both(op, op.b.Full(op.result_type(0), op.result_dims(0), 0), op.b.Full(PT::kS64, op.result_dims(1), 0));
  if (Rank(x) == 0) return Both(op, x, op.b.Full(PT::kS64, {}, 0));
  const Sorted top = TopAlong(op, Sortable(op, x), op.axis(2, Rank(x)), k, op.boolean_or(3, true));
  return Both(op, top.values, top.positions);
}

// kthvalue(self, k, dim, keepdim)
Lowering LowerKthValue(OpContext& op) {
  Instruction* x = op.tensor(0);
  if (!op.dim(1).is_constant()) return NotLowered("kthvalue: a symbolic k");
  if (std::string why = Unsortable(x, op.axis(2, Rank(x)), op.dim(1)); !why.empty()) return NotLowered("kthvalue: " + why);
  if (Rank(x) == 0) return Both(op, x, op.b.Full(PT::kS64, {}, 0));
  if (IsEmpty(x, op.axis(2, Rank(x)))) return NotLowered("kthvalue of no elements");
  if (IsEmpty(x)) return Both(op, op.b.Full(op.result_type(0), op.result_dims(0), 0), op.b.Full(PT::kS64, op.result_dims(1), 0));
  const Sorted found = KthAlong(op, Sortable(op, x), op.axis(2, Rank(x)), op.integer(1));
  return Both(op, found.values, found.positions);
}

Lowering LowerMedian(OpContext& op) { return AnyMedian(op, Median, /*all=*/true); }
Lowering LowerMedianDim(OpContext& op) { return AnyMedian(op, Median, /*all=*/false); }
Lowering LowerNanMedian(OpContext& op) { return AnyMedian(op, NanMedian, /*all=*/true); }
Lowering LowerNanMedianDim(OpContext& op) { return AnyMedian(op, NanMedian, /*all=*/false); }

// mode(self, dim, keepdim): sorted, the longest run of equal elements, of several the first. Each NaN is a run of its own.
Lowering LowerMode(OpContext& op) {
  Builder& b = op.b;
  Instruction* x = op.tensor(0);
  if (std::string why = Unsortable(x, op.axis(1, Rank(x)), 1); !why.empty()) return NotLowered("mode: " + why);
  if (Rank(x) == 0) return Both(op, x, b.Full(PT::kS64, {}, 0));
  const int64_t axis = op.axis(1, Rank(x));
  if (IsEmpty(x, axis)) return NotLowered("mode of no elements");
  if (IsEmpty(x)) return Both(op, b.Full(op.result_type(0), op.result_dims(0), 0), b.Full(PT::kS64, op.result_dims(1), 0));
  const Sorted sorted = SortAlong(op, Sortable(op, x), axis, false, true);
  DimVector slice(x->shape().dims().begin(), x->shape().dims().end());
  slice.erase(slice.begin() + axis);
  const PT type = sorted.values->shape().element_type();
  Instruction* lengths = Scan(op, "run_lengths", {sorted.values}, {b.Full(type, slice, 0), b.Full(PT::kS64, slice, 0)}, axis,
                              [](Builder& c, const Values& inputs, const Values& carries) {
                                Instruction* going = c.Compare(carries[1], c.FullLike(carries[1], 0), "NE");
                                going = c.Binary(kAnd, going, c.Compare(inputs[0], carries[0], "EQ"));
                                Instruction* one = c.FullLike(carries[1], 1);
                                Instruction* length = c.Select(going, c.Binary(kAdd, carries[1], one), one);
                                return Values{length, inputs[0], length};
                              })[0];
  DimVector kept(x->shape().dims().begin(), x->shape().dims().end());
  kept[axis] = 1;
  Instruction* longest = b.BroadcastTo(b.Reshape(ReduceMax(op, lengths, {axis}), kept), lengths->shape().dims());
  Instruction* at = FirstTrue(op, b.Compare(lengths, longest, "EQ"), axis);
  return Both(op, TakeAlong(op, sorted.values, at, axis), TakeAlong(op, sorted.positions, at, axis));
}

namespace {

// Rows of `sequence` along its last dim; `values` in any dims if there is one row.
Lowering SearchSorted(OpContext& op, Instruction* sequence, Instruction* values, PT type, bool right, Instruction* sorter) {
  Builder& b = op.b;
  if (Rank(sequence) == 0 || IsComplex(type)) return NotLowered("searchsorted: boundaries without a dim, or complex ones");
  if (IsEmpty(values) || IsEmpty(sequence)) return op.One(b.Full(op.result_type(), op.result_dims(), 0));
  type = type == PT::kPred ? PT::kU8 : OpMath(type);
  Values operands = {b.Convert(sequence, type), b.Convert(values, type)};
  if (sorter != nullptr) {
    Instruction* n = b.BroadcastTo(op.SizeValue(sequence->shape().dim(Rank(sequence) - 1), PT::kS64), sorter->shape().dims());
    Instruction* bad = b.Binary(kOr, b.Compare(sorter, b.FullLike(sorter, 0), "LT"), b.Compare(sorter, n, "GE"));
    op.Check(bad, "RuntimeError", "torch.searchsorted(): sorter index out of range");
    operands.push_back(sorter);
  }
  return Values{b.CustomCall("tenon.searchsorted", Shape(op.result_type(), op.result_dims()), operands,
                             absl::StrCat("{\"right\":", right ? 1 : 0, "}"))};
}

}  // namespace

// searchsorted(sorted_sequence, self, out_int32, right, side, sorter)
Lowering LowerSearchSorted(OpContext& op) {
  const PT type = op.Common({0, 1});
  Instruction* values = op.is_tensor(1) ? op.tensor(1) : op.NumberConstant(op.arg(1), type);
  bool right = op.boolean_or(3, false);
  if (!op.is_none(4)) {
    const bool side_right = op.string(4) == "right";
    if (right && !side_right) return NotLowered("searchsorted: right=True and side=\"left\"");
    right = side_right;
  }
  return SearchSorted(op, op.tensor(0), values, type, right, op.tensor_or_null(5));
}

// bucketize(self, boundaries, out_int32, right)
Lowering LowerBucketize(OpContext& op) {
  const PT type = op.Common({0, 1});
  Instruction* values = op.is_tensor(0) ? op.tensor(0) : op.NumberConstant(op.arg(0), type);
  return SearchSorted(op, op.tensor(1), values, type, op.boolean_or(3, false), nullptr);
}

}  // namespace tenon::aten
