// _embedding_bag and its backwards: sums, means or maxima of table rows over bags of indices. Bags are scattered into:
// their rows follow each other, so each bag's sum has eager's order.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "torch_plugin/aten/lower/indexing.h"
#include "torch_plugin/aten/lower/reduce.h"

namespace tenon::aten {
namespace {

using enum Opcode;
using PT = PrimitiveType;

enum BagMode : int64_t { kSum = 0, kMean = 1, kMax = 2 };

Instruction* Rows(OpContext& op, Instruction* per_row, const Instruction* like) {
  return op.b.Broadcast(per_row, like->shape().dims(), {0});
}

// The bag of each of `count` indices: the number of bags that start at or before it, less one. `offsets` ascend from 0.
Instruction* BagOf(OpContext& op, Instruction* offsets, int64_t count) {
  Builder& b = op.b;
  const int64_t bags = offsets->shape().constant_dim(0);
  // A binary search over the bags' starts, in parallel for all indices: `at` is the last start known to be <= the index.
  Instruction* position = b.Iota(Shape(PT::kS64, {count}), 0);
  Instruction* at = b.Full(PT::kS64, {count}, 0);
  int64_t step = 1;
  while (step < bags) step *= 2;
  for (step /= 2; step > 0; step /= 2) {
    Instruction* next = b.Binary(kAdd, at, b.FullLike(at, static_cast<double>(step)));
    Instruction* last = b.FullLike(at, static_cast<double>(bags - 1));
    Instruction* start = Take(op, offsets, b.Binary(kMinimum, next, last), 0);
    Instruction* reached = b.Binary(kAnd, b.Compare(next, last, "LE"), b.Compare(start, position, "LE"));
    at = b.Select(reached, next, at);
  }
  return at;
}

// Table rows summed or counted into bags: `updates` [n, ...] at bag[n].
Instruction* IntoBags(OpContext& op, Instruction* start, Instruction* bag, Instruction* updates, std::string_view reduce) {
  std::vector<int64_t> window;
  for (int64_t d = 1; d < Rank(updates); ++d) window.push_back(d);
  return Scatter(op, start, bag, updates, {0}, 1, window, Combiner(op, start->shape().element_type(), reduce));
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
  if (Shape(PT::kS64, op.result_dims(k)).num_elements_constant() != x->shape().num_elements_constant()) return Unused(op, k);
  return Shaped(op, x, k);
}

struct Bags {
  Instruction *table, *index, *bag, *counted;  // counted: nullptr where every index counts
  int64_t count, width;                        // bags, elements of a row
};

// The largest row element of each bag and the index it comes from, the first one's; 0 of an empty bag.
Values LargestOf(OpContext& op, const Bags& bags, Instruction* sizes) {
  Builder& b = op.b;
  const PT type = bags.table->shape().element_type();
  const Shape dims(type, {bags.count, bags.width});
  Instruction* rows = Take(op, bags.table, bags.index, 0);
  Instruction* lowest = b.BroadcastTo(LimitConstant(op, type, true), rows->shape().dims());
  Instruction* eligible = bags.counted == nullptr ? rows : b.Select(Rows(op, bags.counted, rows), rows, lowest);
  Instruction* best = IntoBags(op, b.BroadcastTo(LimitConstant(op, type, true), dims.dims()), bags.bag, eligible, "amax");
  // The first position that holds its bag's maximum.
  Instruction* hit = b.Compare(rows, Take(op, best, bags.bag, 0), "EQ");
  if (bags.counted != nullptr) hit = b.Binary(kAnd, hit, Rows(op, bags.counted, rows));
  const double none = static_cast<double>(rows->shape().constant_dim(0));
  Instruction* position = b.Iota(Shape(PT::kS64, rows->shape().dims()), 0);
  position = b.Select(hit, position, b.FullLike(position, none));
  Instruction* first = IntoBags(op, b.Full(PT::kS64, dims.dims(), none), bags.bag, position, "amin");
  Instruction* empty = Rows(op, b.Compare(sizes, op.Full(sizes, 0), "EQ"), best);
  Instruction* safe = b.Binary(kMinimum, first, b.FullLike(first, none - 1));
  Instruction* index = b.Select(empty, b.FullLike(first, 0), Take(op, bags.index, safe, 0));
  return {b.Select(empty, op.Full(best, 0), best), index};
}

}  // namespace

// _embedding_bag(weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset,
// padding_idx) -> output, offset2bag, bag_size, max_indices
Lowering LowerEmbeddingBag(OpContext& op) {
  Builder& b = op.b;
  Instruction *weight = op.tensor(0), *index = b.Convert(op.tensor(1), PT::kS64), *offsets = b.Convert(op.tensor(2), PT::kS64);
  if (!weight->shape().is_static() || !index->shape().is_static() || !offsets->shape().is_static()) return NotLowered("symbolic sizes");
  const int64_t mode = op.integer(4), n = index->shape().constant_dim(0), given = offsets->shape().constant_dim(0);
  Bags bags{.table = b.Convert(weight, OpMath(op.result_type())), .count = op.result_dims()[0].constant(),
            .width = weight->shape().constant_dim(1)};
  if (n == 0 || bags.count == 0 || bags.width == 0) {
    Values zeros;
    for (int64_t k = 0; k < op.result_count(); ++k) zeros.push_back(Unused(op, k));
    return zeros;
  }
  Instruction *first = b.SliceDim(offsets, 0, 0, 1), *last = b.SliceDim(offsets, 0, given - 1, given);
  op.Check(b.Compare(first, b.FullLike(first, 0), "NE"), "RuntimeError",
           "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0.");
  op.Check(b.Compare(last, b.FullLike(last, static_cast<double>(n)), "GT"), "RuntimeError",
           absl::StrCat("offsets[-1] can not be greater than input's length ", n));
  const int64_t rows = weight->shape().constant_dim(0);
  const std::string wanted = absl::StrCat("embedding_bag: an index is not in the valid range [0, ", rows, ")");
  bags.index = InRange(op, index, rows, {false, "RuntimeError", wanted});
  bags.bag = BagOf(op, b.SliceDim(offsets, 0, 0, bags.count), n);
  bags.counted = Counted(op, bags.index, op.integer_or(8, -1));
  Instruction* ones = ZeroUnless(op, bags.counted, b.Full(PT::kS64, {n}, 1));
  Instruction* sizes = IntoBags(op, b.Full(PT::kS64, {bags.count}, 0), bags.bag, ones, "add");
  Instruction *output, *largest = sizes;
  if (mode == kMax) {
    const Values found = LargestOf(op, bags, sizes);
    output = found[0];
    largest = found[1];
  } else {
    Instruction* read = Take(op, bags.table, bags.index, 0);
    if (!op.is_none(6)) read = b.Binary(kMultiply, read, Rows(op, b.Convert(op.tensor(6), read->shape().element_type()), read));
    read = ZeroUnless(op, bags.counted, read);
    Instruction* zeros = b.Full(read->shape().element_type(), op.result_dims(), 0);
    output = IntoBags(op, zeros, bags.bag, read, "add");
    if (mode == kMean) {
      Instruction* count = b.Convert(b.Binary(kMaximum, sizes, op.Full(sizes, 1)), read->shape().element_type());
      output = b.Binary(kDivide, output, Rows(op, count, output));
    }
  }
  if (mode == kSum) sizes = largest = op.Full(sizes, 0);  // eager does not count the bags of a sum
  return Values{Shaped(op, output, 0), OrUnused(op, bags.bag, 1), OrUnused(op, sizes, 2), OrUnused(op, largest, 3)};
}

// _embedding_bag_dense_backward(grad, indices, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode,
// per_sample_weights, padding_idx)
Lowering LowerEmbeddingBagBackward(OpContext& op) {
  Builder& b = op.b;
  const PT math = OpMath(op.result_type());
  Instruction *grad = b.Convert(op.tensor(0), math), *index = b.Convert(op.tensor(1), PT::kS64);
  Instruction* bag = b.Convert(op.tensor(2), PT::kS64);
  if (!grad->shape().is_static() || !index->shape().is_static()) return NotLowered("symbolic sizes");
  if (op.boolean(6)) return NotLowered("scale_grad_by_freq of bags: ATen's kernel divides by the count of another row");
  const int64_t mode = op.integer(7);
  Instruction* zeros = b.Full(math, op.result_dims(), 0);
  if (IsEmpty(grad) || IsEmpty(index)) return op.One(zeros);
  if (mode == kMax) {
    Instruction *sizes = b.Convert(op.tensor(3), PT::kS64), *largest = b.Convert(op.tensor(4), PT::kS64);
    Instruction* empty = b.Compare(sizes, op.Full(sizes, 0), "EQ");
    grad = b.Select(Rows(op, empty, grad), op.Full(grad, 0), grad);
    Instruction* column = b.Iota(Shape(PT::kS64, grad->shape().dims()), 1);
    return op.One(Scatter(op, zeros, StackIndices(op, {largest, column}), grad, {0, 1}, 2, {}, Combiner(op, math, "add")));
  }
  if (bag->shape().num_elements_constant() != index->shape().num_elements_constant()) return NotLowered("no bag for each index");
  if (mode == kMean) {
    Instruction* count = b.Convert(op.tensor(3), math);
    grad = b.Binary(kDivide, grad, Rows(op, b.Binary(kMaximum, count, op.Full(count, 1)), grad));
  }
  Instruction* update = Take(op, grad, bag, 0);
  if (!op.is_none(8)) update = b.Binary(kMultiply, update, Rows(op, b.Convert(op.tensor(8), math), update));
  update = ZeroUnless(op, Counted(op, index, op.integer_or(9, -1)), update);
  return op.One(IntoBags(op, zeros, index, update, "add"));
}

// _embedding_bag_per_sample_weights_backward(grad, weight, indices, offsets, offset2bag, mode, padding_idx)
Lowering LowerEmbeddingBagWeightsBackward(OpContext& op) {
  Builder& b = op.b;
  const PT math = OpMath(op.result_type());
  Instruction *grad = b.Convert(op.tensor(0), math), *table = b.Convert(op.tensor(1), math);
  Instruction *index = b.Convert(op.tensor(2), PT::kS64), *offsets = b.Convert(op.tensor(3), PT::kS64);
  if (!table->shape().is_static() || !index->shape().is_static() || !grad->shape().is_static()) return NotLowered("symbolic sizes");
  if (IsEmpty(index) || IsEmpty(grad)) return op.One(b.Full(op.result_type(), op.result_dims(), 0));
  Instruction* bag = b.Convert(op.tensor(4), PT::kS64);
  if (bag->shape().num_elements_constant() != index->shape().num_elements_constant()) {
    bag = BagOf(op, b.SliceDim(offsets, 0, 0, grad->shape().dim(0)), index->shape().constant_dim(0));
  }
  Instruction* product = b.Binary(kMultiply, Take(op, grad, bag, 0), Take(op, table, index, 0));
  Instruction* sum = ReduceSum(op, product, {1});
  return op.One(ZeroUnless(op, Counted(op, index, op.integer_or(6, -1)), sum));
}

}  // namespace tenon::aten
