// _embedding_bag and its backwards: sums, means or maxima of table rows over bags of indices. Bags of one length (a matrix of
// indices) are reductions over a dim; others are scattered into: their rows follow each other, so each bag's sum has eager's order.
#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "torch_plugin/aten/lower/indexing.h"
#include "torch_plugin/aten/lower/reduce.h"
#include "torch_plugin/aten/lower/scan.h"
#include "torch_plugin/aten/lower/sorting.h"

namespace tenon::aten {
namespace {

using enum Opcode;
using PT = PrimitiveType;

enum BagMode : int64_t { kSum = 0, kMean = 1, kMax = 2 };

Instruction* Rows(OpContext& op, Instruction* per_row, const Instruction* like) {
  return op.b.Broadcast(per_row, like->shape().dims(), {0});
}

// The indices of each of `bags` bags of `count` indices, where `offsets` are an arange that says so: what F.embedding_bag makes for a
// matrix.
std::optional<Dim> EqualLength(const Instruction* offsets, Dim bags, Dim count) {
  while (offsets->opcode() == kConvert && IsIntegral(offsets->operand(0)->shape().element_type())) offsets = offsets->operand(0);
  std::optional<Dim> length = 1;
  if (offsets->opcode() == kMultiply && offsets->operand(1)->opcode() == kBroadcast) {
    length = Builder::SizeOf(offsets->operand(1)->operand(0));
    offsets = offsets->operand(0);
  }
  if (offsets->opcode() != kIota || !length || LowerBound(*length) < 1 || !KnownEqual(bags * *length, count)) return std::nullopt;
  const int64_t bits = 8 * ByteWidth(offsets->shape().element_type());
  const bool fits = bits == 64 || (bits == 32 && UpperBound(count) <= std::numeric_limits<int32_t>::max());
  return fits ? length : std::nullopt;
}

// The bag of each of `count` indices: the number of bags that start at or before it, less one, in time linear in both. `offsets` ascend
// from 0.
Instruction* BagOf(OpContext& op, Instruction* offsets, Dim bags, Dim count) {
  Builder& b = op.b;
  if (const std::optional<Dim> length = EqualLength(offsets, bags, count)) {
    return b.Reshape(b.Iota(Shape(PT::kS64, {bags, *length}), 0), {count});
  }
  offsets = b.SliceDim(offsets, 0, 0, bags);
  Computation* add = Combiner(op, PT::kS64, "add");
  Instruction* starts = Scatter(op, b.Full(PT::kS64, {count}, 0), offsets, b.FullLike(offsets, 1), {0}, 1, {}, add);
  Instruction* upto = RunningCount(op, starts).first;
  return b.Binary(kSubtract, upto, b.FullLike(upto, 1));
}

// `updates` [n, ...] onto rows at[n] of an array full of `start`.
Instruction* IntoRows(OpContext& op, Instruction* start, const std::vector<Dim>& dims, Instruction* at, Instruction* updates,
                      std::string_view reduce) {
  std::vector<int64_t> window;
  for (int64_t d = 1; d < Rank(updates); ++d) window.push_back(d);
  Computation* combiner = Combiner(op, updates->shape().element_type(), reduce);
  return Scatter(op, op.b.BroadcastTo(start, dims), at, updates, {0}, 1, window, combiner);
}

// false where an index is the padding; nullptr: nowhere.
Instruction* Counted(OpContext& op, Instruction* index, int64_t padding) {
  if (padding < 0) return nullptr;
  return op.b.Compare(index, op.b.FullLike(index, static_cast<double>(padding)), "NE");
}

Instruction* ZeroUnless(OpContext& op, Instruction* counted, Instruction* rows) {
  if (counted == nullptr) return rows;
  return op.b.Select(Rank(rows) == 1 ? counted : Rows(op, counted, rows), rows, op.Full(rows, 0));
}

// A result whose dims the meta gives and whose values nothing defines or reads.
Instruction* Unused(OpContext& op, int64_t k) { return op.b.Full(op.result_type(k), op.result_dims(k), 0); }

// `x` as result k, if that has as many elements.
Instruction* OrUnused(OpContext& op, Instruction* x, int64_t k) {
  if (!KnownEqual(Shape(PT::kS64, op.result_dims(k)).num_elements(), x->shape().num_elements())) return Unused(op, k);
  return Shaped(op, x, k);
}

struct Bags {
  Instruction *table, *index, *bag, *counted;  // counted: nullptr where every index counts
  Dim count, width;                            // bags, elements of a row
  std::optional<Dim> length = std::nullopt;    // of each bag, where all are as long
};

// `updates` [n, ...] of the indices reduced to those of the bags, which begin with the scalar `start`.
Instruction* IntoBags(OpContext& op, const Bags& bags, Instruction* start, Instruction* updates, std::string_view reduce) {
  std::vector<Dim> dims = DimsOf(updates);
  dims[0] = bags.count;
  if (!bags.length) return IntoRows(op, start, dims, bags.bag, updates, reduce);
  dims.insert(dims.begin() + 1, *bags.length);
  Instruction* x = op.b.Reshape(updates, dims);
  return op.b.Reduce({x}, {start}, {1}, Combiner(op, x->shape().element_type(), reduce));
}

// The largest row element of each bag and the index it comes from, the first one's; 0 of an empty bag.
Values LargestOf(OpContext& op, const Bags& bags, Instruction* sizes) {
  Builder& b = op.b;
  const PT type = bags.table->shape().element_type();
  Instruction* rows = Take(op, bags.table, bags.index, 0);
  Instruction* lowest = b.BroadcastTo(LimitConstant(op, type, true), rows->shape().dims());
  Instruction* eligible = bags.counted == nullptr ? rows : b.Select(Rows(op, bags.counted, rows), rows, lowest);
  Instruction* best = IntoBags(op, bags, LimitConstant(op, type, true), eligible, "amax");
  // The first position that holds its bag's maximum.
  Instruction* hit = b.Compare(rows, Take(op, best, bags.bag, 0), "EQ");
  if (bags.counted != nullptr) hit = b.Binary(kAnd, hit, Rows(op, bags.counted, rows));
  Instruction* none = op.SizeValue(rows->shape().dim(0), PT::kS64);
  Instruction* position = b.Iota(Shape(PT::kS64, rows->shape().dims()), 0);
  position = b.Select(hit, position, b.BroadcastTo(none, position->shape().dims()));
  Instruction* first = IntoBags(op, bags, none, position, "amin");
  Instruction* empty = Rows(op, b.Compare(sizes, op.Full(sizes, 0), "EQ"), best);
  Instruction* last = b.Binary(kSubtract, none, b.ScalarConstantInt(PT::kS64, 1));
  Instruction* safe = b.Binary(kMinimum, first, b.BroadcastTo(last, first->shape().dims()));
  Instruction* index = b.Select(empty, b.FullLike(first, 0), Take(op, bags.index, safe, 0));
  return {b.Select(empty, op.Full(best, 0), best), index};
}

}  // namespace

// _embedding_bag(weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset,
// padding_idx) -> output, offset2bag, bag_size, max_indices
Lowering LowerEmbeddingBag(OpContext& op) {
  Builder& b = op.b;
  Instruction *weight = op.tensor(0), *index = b.Convert(op.tensor(1), PT::kS64), *offsets = b.Convert(op.tensor(2), PT::kS64);
  const int64_t mode = op.integer(4);
  const Dim n = index->shape().dim(0), given = offsets->shape().dim(0);
  Bags bags{.table = b.Convert(weight, OpMath(op.result_type())), .count = op.result_dims()[0], .width = weight->shape().dim(1)};
  if (KnownEqual(n, 0) || KnownEqual(bags.count, 0) || KnownEqual(bags.width, 0)) {
    Values zeros;
    for (int64_t k = 0; k < op.result_count(); ++k) zeros.push_back(Unused(op, k));
    return zeros;
  }
  bags.length = EqualLength(offsets, bags.count, n);
  if (!bags.length) {
    Instruction *first = b.SliceDim(offsets, 0, 0, 1), *last = b.SliceDim(offsets, 0, given - 1, given);
    op.Check(b.Compare(first, b.FullLike(first, 0), "NE"), "RuntimeError",
             "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0.");
    op.Check(b.Compare(last, b.BroadcastTo(op.SizeValue(n, PT::kS64), last->shape().dims()), "GT"), "RuntimeError",
             absl::StrCat("offsets[-1] can not be greater than input's length ", n.ToString()));
  }
  const Dim rows = weight->shape().dim(0);
  const std::string wanted = absl::StrCat("embedding_bag: an index is not in the valid range [0, ", rows.ToString(), ")");
  bags.index = InRange(op, index, rows, {false, "RuntimeError", wanted});
  bags.bag = BagOf(op, offsets, bags.count, n);
  bags.counted = Counted(op, bags.index, op.integer_or(8, -1));
  Instruction* ones = ZeroUnless(op, bags.counted, b.Full(PT::kS64, {n}, 1));
  Instruction* sizes = IntoBags(op, bags, op.Scalar(PT::kS64, 0), ones, "add");
  Instruction *output, *largest = sizes;
  if (mode == kMax) {
    const Values found = LargestOf(op, bags, sizes);
    output = found[0];
    largest = found[1];
  } else {
    Instruction* read = Take(op, bags.table, bags.index, 0);
    if (!op.is_none(6)) read = b.Binary(kMultiply, read, Rows(op, b.Convert(op.tensor(6), read->shape().element_type()), read));
    read = ZeroUnless(op, bags.counted, read);
    output = IntoBags(op, bags, op.Scalar(read->shape().element_type(), 0), read, "add");
    if (mode == kMean) {
      Instruction* count = b.Convert(b.Binary(kMaximum, sizes, op.Full(sizes, 1)), read->shape().element_type());
      output = b.Binary(kDivide, output, Rows(op, count, output));
    }
  }
  if (mode == kSum) sizes = largest = op.Full(sizes, 0);  // eager does not count the bags of a sum
  return Values{Shaped(op, output, 0), OrUnused(op, bags.bag, 1), OrUnused(op, sizes, 2), OrUnused(op, largest, 3)};
}

namespace {

// What the gradient of the table is made of.
struct TableGradient {
  Instruction *grad, *index, *bag;  // bag of each index
  int64_t sizes_at, largest_at;     // arguments: bag sizes (means, maxima), the indices of the maxima
  int64_t mode, scales_at;          // argument: weights of the indices
  int64_t padding;
  bool by_frequency;
};

// By what ATen divides the terms of each index if scale_grad_by_freq: in the sorted indices, of which u are different, those of the
// k-th smallest are divided by the count of the one at position k (aten/src/ATen/native/EmbeddingBag.cpp,
// _embedding_bag_dense_backward_cpu_sum_mean). That is its own count only where every index occurs once, and is what eager computes.
Instruction* Frequencies(OpContext& op, Instruction* index, Dim rows) {
  Builder& b = op.b;
  Instruction* counts = IntoRows(op, op.Scalar(PT::kS64, 0), {rows}, index, b.FullLike(index, 1), "add");
  Instruction* present = b.Convert(b.Compare(counts, b.FullLike(counts, 0), "GT"), PT::kS64);
  const ScanBody sum = [](Builder& body, const Values& inputs, const Values& carries) {
    return Values{carries[0], body.Binary(kAdd, carries[0], inputs[0])};
  };
  Instruction* smaller = Scan(op, "smaller_indices", {present}, {op.Scalar(PT::kS64, 0)}, 0, sum)[0];
  Instruction* sorted = SortedAscending(op, index, 0);
  return Take(op, counts, Take(op, sorted, Take(op, smaller, index, 0), 0), 0);
}

Lowering GradientOfTable(OpContext& op, const TableGradient& g) {
  Builder& b = op.b;
  const PT math = OpMath(op.result_type());
  Instruction* grad = g.grad;
  if (g.mode == kMax) {
    Instruction* zeros = b.Full(math, op.result_dims(), 0);
    Instruction *sizes = b.Convert(op.tensor(g.sizes_at), PT::kS64), *largest = b.Convert(op.tensor(g.largest_at), PT::kS64);
    Instruction* empty = b.Compare(sizes, op.Full(sizes, 0), "EQ");
    grad = b.Select(Rows(op, empty, grad), op.Full(grad, 0), grad);
    Instruction* column = b.Iota(Shape(PT::kS64, grad->shape().dims()), 1);
    return op.One(Scatter(op, zeros, StackIndices(op, {largest, column}), grad, {0, 1}, 2, {}, Combiner(op, math, "add")));
  }
  if (g.mode == kMean) {
    Instruction* count = b.Convert(op.tensor(g.sizes_at), math);
    grad = b.Binary(kDivide, grad, Rows(op, b.Binary(kMaximum, count, op.Full(count, 1)), grad));
  }
  Instruction* update = Take(op, grad, g.bag, 0);
  if (!op.is_none(g.scales_at)) update = b.Binary(kMultiply, update, Rows(op, b.Convert(op.tensor(g.scales_at), math), update));
  if (g.by_frequency) {
    Instruction* divisor = b.Convert(Frequencies(op, g.index, op.result_dims()[0]), math);
    update = b.Binary(kDivide, update, Rows(op, divisor, update));
  }
  update = ZeroUnless(op, Counted(op, g.index, g.padding), update);
  return op.One(IntoRows(op, op.Scalar(math, 0), op.result_dims(), g.index, update, "add"));
}

bool SameCount(const Instruction* a, const Instruction* b) { return KnownEqual(a->shape().num_elements(), b->shape().num_elements()); }

}  // namespace

// _embedding_bag_backward(grad, indices, offsets, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode,
// sparse, per_sample_weights, padding_idx)
Lowering LowerEmbeddingBagBackward(OpContext& op) {
  Builder& b = op.b;
  Instruction *grad = b.Convert(op.tensor(0), OpMath(op.result_type())), *index = b.Convert(op.tensor(1), PT::kS64);
  Instruction *offsets = b.Convert(op.tensor(2), PT::kS64), *bag = b.Convert(op.tensor(3), PT::kS64);
  if (op.boolean(9)) return NotLowered("a sparse gradient");
  if (IsEmpty(grad) || IsEmpty(index)) return op.One(b.Full(op.result_type(), op.result_dims(), 0));
  const int64_t mode = op.integer(8);
  if (mode != kMax && !SameCount(bag, index)) {  // what is left out where the forward needs no bags
    bag = BagOf(op, offsets, grad->shape().dim(0), index->shape().dim(0));
  }
  return GradientOfTable(op, {.grad = grad, .index = index, .bag = bag, .sizes_at = 4, .largest_at = 5, .mode = mode, .scales_at = 10,
                              .padding = op.integer_or(11, -1), .by_frequency = op.boolean(7)});
}

// _embedding_bag_dense_backward(grad, indices, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode,
// per_sample_weights, padding_idx)
Lowering LowerEmbeddingBagDenseBackward(OpContext& op) {
  Builder& b = op.b;
  Instruction *grad = b.Convert(op.tensor(0), OpMath(op.result_type())), *index = b.Convert(op.tensor(1), PT::kS64);
  Instruction* bag = b.Convert(op.tensor(2), PT::kS64);
  if (IsEmpty(grad) || IsEmpty(index)) return op.One(b.Full(op.result_type(), op.result_dims(), 0));
  const int64_t mode = op.integer(7);
  if (mode != kMax && !SameCount(bag, index)) return NotLowered("no bag for each index");
  return GradientOfTable(op, {.grad = grad, .index = index, .bag = bag, .sizes_at = 3, .largest_at = 4, .mode = mode, .scales_at = 8,
                              .padding = op.integer_or(9, -1), .by_frequency = op.boolean(6)});
}

// _embedding_bag_per_sample_weights_backward(grad, weight, indices, offsets, offset2bag, mode, padding_idx)
Lowering LowerEmbeddingBagWeightsBackward(OpContext& op) {
  Builder& b = op.b;
  const PT math = OpMath(op.result_type());
  Instruction *grad = b.Convert(op.tensor(0), math), *table = b.Convert(op.tensor(1), math);
  Instruction *index = b.Convert(op.tensor(2), PT::kS64), *offsets = b.Convert(op.tensor(3), PT::kS64);
  if (IsEmpty(index) || IsEmpty(grad)) return op.One(b.Full(op.result_type(), op.result_dims(), 0));
  Instruction* bag = b.Convert(op.tensor(4), PT::kS64);
  if (!SameCount(bag, index)) bag = BagOf(op, offsets, grad->shape().dim(0), index->shape().dim(0));
  Instruction* product = b.Binary(kMultiply, Take(op, grad, bag, 0), Take(op, table, index, 0));
  Instruction* sum = ReduceSum(op, product, {1});
  return op.One(ZeroUnless(op, Counted(op, index, op.integer_or(6, -1)), sum));
}

}  // namespace tenon::aten
