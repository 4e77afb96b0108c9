// Running sums, products and extrema: scans along one dim, O(n). Sums, products and logcumsumexp accumulate in ATen's
// acc_type (f64 for f32, f32 for half types; aten/src/ATen/AccumulateType.h) and round every element once.
//
// One long row is scanned in two passes, as blocks: the total of each block, the running total of those, then every block from
// where it starts. The number of blocks follows from sizes alone, so any number of threads gives the same bits. Extrema go so too:
// a block's total is its extremum and where that stands last, which is exact.
#include "torch_plugin/aten/lower/scan.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "torch_plugin/aten/lower/reduce.h"

namespace tenon::aten {

using enum Opcode;
using PT = PrimitiveType;

namespace {

constexpr int64_t kFewRows = 4;            // with more of them, rows are what threads share
constexpr int64_t kLongScan = 128 << 10;   // elements in all that are worth a second pass
constexpr int64_t kShortestBlock = 2 << 10;
constexpr int64_t kMostBlocks = 256;

PT AccumulatorOf(PT type) {
  switch (type) {
    case PT::kF16:
    case PT::kBF16: return PT::kF32;
    case PT::kF32: return PT::kF64;
    case PT::kC64: return PT::kC128;
    default: return type;
  }
}

}  // namespace

Values Scan(OpContext& op, std::string_view name, const Values& inputs, const Values& starts, int64_t axis, const ScanBody& body) {
  Builder& b = op.b;
  Builder inner(b.module()->AddComputation(std::string(name)));
  inner.set_metadata(b.metadata());
  Values args, carries;
  for (const Instruction* x : inputs) {
    DimVector slice(x->shape().dims().begin(), x->shape().dims().end());
    slice.erase(slice.begin() + axis);
    args.push_back(inner.Parameter(static_cast<int64_t>(args.size()), Shape(x->shape().element_type(), slice)));
  }
  for (const Instruction* c : starts) {
    const int64_t number = static_cast<int64_t>(args.size() + carries.size());
    carries.push_back(inner.Parameter(number, Shape(c->shape().element_type(), c->shape().dims())));
  }
  const Values made = body(inner, args, carries);
  inner.computation()->set_root(inner.Tuple(made));
  Attributes attrs;
  attrs.set(Attr::kDimensions, std::vector<int64_t>{axis});
  attrs.set(Attr::kToApply, inner.computation());
  attrs.set(Attr::kNumCarries, static_cast<int64_t>(starts.size()));
  Values operands = inputs;
  operands.insert(operands.end(), starts.begin(), starts.end());
  Instruction* scan = b.Make(kScan, operands, std::move(attrs));
  Values results;
  for (size_t k = 0; k < made.size(); ++k) results.push_back(b.GetTupleElement(scan, static_cast<int64_t>(k)));
  return results;
}

std::pair<Instruction*, Instruction*> RunningCount(OpContext& op, Instruction* x) {
  Builder& b = op.b;
  Computation* add = b.module()->AddComputation("running_count");
  Builder inner(add);
  const Shape scalar = Shape::Scalar(PT::kS64);
  Instruction *one = inner.Parameter(0, scalar), *before = inner.Parameter(1, scalar);
  Instruction* total = inner.Binary(kAdd, before, one);
  add->set_root(inner.Tuple({total, total}));
  Attributes attrs;
  attrs.set(Attr::kDimensions, std::vector<int64_t>{0});
  attrs.set(Attr::kToApply, add);
  attrs.set(Attr::kNumCarries, int64_t{1});
  Instruction* scan = b.Make(kScan, {b.Convert(x, PT::kS64), b.ScalarConstantInt(PT::kS64, 0)}, std::move(attrs));
  return {b.GetTupleElement(scan, 0), b.GetTupleElement(scan, 1)};
}

namespace {

DimVector Without(const Instruction* x, int64_t axis) {
  DimVector dims(x->shape().dims().begin(), x->shape().dims().end());
  dims.erase(dims.begin() + axis);
  return dims;
}

// Joins two partial results; associative up to rounding, with the identity `start`.
struct Join {
  std::string_view name;
  double start;
  Instruction* (*apply)(Builder& b, Instruction* total, Instruction* x);
};

// Inclusive: the total up to and with each element, in `result`'s type. Exclusive: the total before it.
Instruction* RunningTotal(OpContext& op, const Join& join, Instruction* x, Instruction* start, int64_t axis, PT result, bool inclusive) {
  const PT type = start->shape().element_type();
  return Scan(op, join.name, {x}, {start}, axis, [&](Builder& b, const Values& inputs, const Values& carries) {
    Instruction* next = join.apply(b, carries[0], b.Convert(inputs[0], type));
    return Values{b.Convert(inclusive ? next : carries[0], result), next};
  })[0];
}

// Into how many blocks, whose steps an s32 can count, the scan of `x` goes; 1: not at all.
int64_t Blocks(const Instruction* x, int64_t axis) {
  if (!x->shape().num_elements().is_constant()) return 1;
  const int64_t n = x->shape().dim(axis).constant(), all = x->shape().num_elements().constant();
  if (all / n > kFewRows || all < kLongScan) return 1;
  for (int64_t blocks = std::min(kMostBlocks, n / kShortestBlock); blocks >= 16; --blocks) {
    if (n % blocks == 0 && n / blocks <= std::numeric_limits<int32_t>::max()) return blocks;
  }
  return 1;
}

// x's dims with `axis` as two: blocks, and the steps of one.
DimVector InBlocks(const Instruction* x, int64_t axis, int64_t blocks) {
  DimVector dims(x->shape().dims().begin(), x->shape().dims().end());
  dims[axis] = dims[axis].constant() / blocks;
  dims.insert(dims.begin() + axis, Dim(blocks));
  return dims;
}

Instruction* BlockTotals(OpContext& op, const Join& join, Instruction* x, int64_t axis, PT type) {
  Builder& b = op.b;
  Builder body(b.module()->AddComputation(absl::StrCat(std::string(join.name), "_block")));
  Instruction* total = body.Parameter(0, Shape::Scalar(type));
  body.computation()->set_root(join.apply(body, total, body.Parameter(1, Shape::Scalar(type))));
  return b.Reduce({b.Convert(x, type)}, {op.Scalar(type, join.start)}, {axis}, body.computation());
}

Lowering Running(OpContext& op, const Join& join) {
  Builder& b = op.b;
  Instruction* x = op.tensor(0);
  if (x->shape().element_type() != op.result_type()) x = op.Cast(x, op.result_type());
  if (Rank(x) == 0 || KnownEqual(x->shape().num_elements(), 0)) return Values{Shaped(op, x)};
  const int64_t axis = op.axis(1, Rank(x));
  const PT result = op.result_type(), type = AccumulatorOf(result);
  const int64_t blocks = Blocks(x, axis);
  if (blocks == 1) {
    return Values{Shaped(op, RunningTotal(op, join, x, b.Full(type, Without(x, axis), join.start), axis, result, /*inclusive=*/true))};
  }
  const DimVector dims(x->shape().dims().begin(), x->shape().dims().end());
  x = b.Reshape(x, InBlocks(x, axis, blocks));
  Instruction* totals = BlockTotals(op, join, x, axis + 1, type);
  Instruction* none = b.Full(type, Without(totals, axis), join.start);
  Instruction* starts = RunningTotal(op, join, totals, none, axis, type, /*inclusive=*/false);
  return Values{Shaped(op, b.Reshape(RunningTotal(op, join, x, starts, axis + 1, result, /*inclusive=*/true), dims))};
}

Instruction* Sum(Builder& b, Instruction* total, Instruction* x) { return b.Binary(kAdd, total, x); }
Instruction* Product(Builder& b, Instruction* total, Instruction* x) { return b.Binary(kMultiply, total, x); }

// log(exp(total) + exp(x)) as ATen's _log_add_exp_helper: of two equal infinities, that one; NaN stays.
Instruction* LogSum(Builder& b, Instruction* total, Instruction* x) {
  if (IsComplex(x->shape().element_type())) return ComplexLogAddExp(b, x, total);
  Instruction *low = b.Binary(kMinimum, x, total), *high = b.Binary(kMaximum, x, total);
  Instruction* sum = b.Binary(kAdd, b.Unary(kLogPlusOne, b.Unary(kExponential, b.Binary(kSubtract, low, high))), high);
  Instruction* infinite = b.Compare(b.Unary(kAbs, high), b.FullLike(high, INFINITY), "EQ");
  return b.Select(b.Binary(kAnd, infinite, b.Compare(low, high, "EQ")), x, sum);
}

struct Place {
  Instruction *value, *position;
};

// Each element's running extremum from `start` on, or before it if not `inclusive`; every NaN is taken, and after one nothing else
// (ATen's cummax_cummin_helper).
Place RunningPlace(OpContext& op, bool max, Place x, Place start, int64_t axis, bool inclusive) {
  const bool has_nan = IsFloat(x.value->shape().element_type());
  const Values made = Scan(op, max ? "cummax" : "cummin", {x.value, x.position}, {start.value, start.position}, axis,
                           [&](Builder& c, const Values& inputs, const Values& carries) {
                             Instruction* take = c.Compare(inputs[0], carries[0], max ? "GE" : "LE");
                             if (has_nan) {
                               take = c.Binary(kAnd, take, c.Compare(carries[0], carries[0], "EQ"));
                               take = c.Binary(kOr, take, c.Compare(inputs[0], inputs[0], "NE"));
                             }
                             Instruction* best = c.Select(take, inputs[0], carries[0]);
                             Instruction* at = c.Select(take, inputs[1], carries[1]);
                             return inclusive ? Values{best, at, best, at} : Values{carries[0], carries[1], best, at};
                           });
  return {made[0], made[1]};
}

// Of each block of steps along `axis`: where the extremum stands last, and what stands there (of -0 and 0 the right one).
Place LastExtremum(OpContext& op, bool max, Place x, Instruction* limit, int64_t axis) {
  Builder& b = op.b;
  auto extremum = [&](Instruction* of) { return max ? ReduceMax(op, of, {axis}) : ReduceMin(op, of, {axis}); };
  Instruction* hit = b.Compare(x.value, SpreadBack(op, extremum(x.value), x.value, {axis}), "EQ");
  if (IsFloat(x.value->shape().element_type())) hit = b.Binary(kOr, hit, b.Compare(x.value, x.value, "NE"));
  Instruction* last = ReduceMax(op, b.Select(hit, x.position, b.FullLike(x.position, -1)), {axis});
  Instruction* there = b.Compare(x.position, SpreadBack(op, last, x.position, {axis}), "EQ");
  return {extremum(b.Select(there, x.value, b.BroadcastTo(limit, x.value->shape().dims()))), last};
}

// The running extremum and its last position.
Lowering RunningExtremum(OpContext& op, bool max) {
  Builder& b = op.b;
  Instruction* x = op.tensor(0);
  const PT type = x->shape().element_type();
  if (Rank(x) == 0) return Values{x, b.Full(PT::kS64, {}, 0)};
  if (KnownEqual(x->shape().num_elements(), 0)) return Values{x, b.Full(PT::kS64, x->shape().dims(), 0)};
  const int64_t axis = op.axis(1, Rank(x)), blocks = type == PT::kPred ? 1 : Blocks(x, axis);
  Instruction* limit = LimitConstant(op, type, max);
  auto nothing = [&](const DimVector& dims) { return Place{b.BroadcastTo(limit, dims), b.Full(PT::kS64, dims, 0)}; };
  if (blocks == 1) {
    const Place at{x, b.Iota(Shape(PT::kS64, x->shape().dims()), axis)};
    const Place made = RunningPlace(op, max, at, nothing(Without(x, axis)), axis, /*inclusive=*/true);
    return Values{Shaped(op, made.value, 0), Shaped(op, made.position, 1)};
  }
  const DimVector dims(x->shape().dims().begin(), x->shape().dims().end()), split = InBlocks(x, axis, blocks);
  x = b.Reshape(x, split);
  // Positions before each block, and in it: iotas cost nothing, so that no kernel writes positions for another one.
  auto first_of = [&](const Shape& s) {
    Instruction* block = b.Iota(s, axis);
    return b.Binary(kMultiply, block, b.FullLike(block, static_cast<double>(split[axis + 1].constant())));
  };
  Place totals = LastExtremum(op, max, {x, b.Iota(Shape(PT::kS32, split), axis + 1)}, limit, axis + 1);
  Instruction* last = b.Convert(totals.position, PT::kS64);
  totals.position = b.Binary(kAdd, first_of(last->shape()), last);
  const Place starts = RunningPlace(op, max, totals, nothing(Without(totals.value, axis)), axis, /*inclusive=*/false);
  Instruction* step = b.Iota(Shape(PT::kS64, split), axis + 1);
  const Place at{x, b.Binary(kAdd, first_of(step->shape()), step)};
  const Place made = RunningPlace(op, max, at, starts, axis + 1, /*inclusive=*/true);
  return Values{Shaped(op, b.Reshape(made.value, dims), 0), Shaped(op, b.Reshape(made.position, dims), 1)};
}

}  // namespace

Lowering LowerCumsum(OpContext& op) { return Running(op, {"cumsum", 0, Sum}); }
Lowering LowerCumprod(OpContext& op) { return Running(op, {"cumprod", 1, Product}); }
Lowering LowerLogcumsumexp(OpContext& op) {
  return Running(op, {"logcumsumexp", -INFINITY, LogSum});
}
Lowering LowerCummax(OpContext& op) { return RunningExtremum(op, true); }
Lowering LowerCummin(OpContext& op) { return RunningExtremum(op, false); }

}  // namespace tenon::aten
