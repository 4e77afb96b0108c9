// histc: elements counted by equal bins between two bounds.
#include <cmath>

#include "torch_plugin/aten/lower/indexing.h"
#include "torch_plugin/aten/lower/reduce.h"

namespace tenon::aten {

using enum Opcode;
using PT = PrimitiveType;

// histc(self, bins, min, max): equal bounds mean the extrema of `self`. What lies outside, and NaN, does not count; the last
// bin holds its upper bound. As HistogramKernel.cpp: bin = (x - min) * bins / (max - min), truncated;
// half types in f32. Counts are exact: eager's of half types stop at 256 (bf16) and 2048 (f16), where adding one changes nothing.
Lowering LowerHistc(OpContext& op) {
  Builder& b = op.b;
  const PT type = op.result_type(), math = OpMath(type);
  if (!IsFloat(type)) return NotLowered("histc of integers");
  Instruction* x = b.Convert(b.Reshape(op.tensor(0), {op.tensor(0)->shape().num_elements()}), math);
  const int64_t bins = op.integer(1);
  if (IsEmpty(x)) return op.One(b.Full(type, op.result_dims(), 0));
  Instruction *low = op.Scalar(math, op.number(2)), *high = op.Scalar(math, op.number(3));
  if (op.number(2) == op.number(3)) {
    low = ReduceMin(op, x, {0});
    high = ReduceMax(op, x, {0});
    Instruction* same = b.Compare(low, high, "EQ");
    Instruction* one = op.Scalar(math, 1);
    low = b.Select(same, b.Binary(kSubtract, low, one), low);
    high = b.Select(same, b.Binary(kAdd, high, one), high);
    Instruction* finite = b.Binary(kAnd, b.Unary(kIsFinite, low), b.Unary(kIsFinite, high));
    op.Check(b.Unary(kNot, finite), "RuntimeError", "torch.histc: range of the elements is not finite");
  }
  auto spread = [&](Instruction* v) { return b.BroadcastTo(v, x->shape().dims()); };
  Instruction* inside = b.Binary(kAnd, b.Compare(x, spread(low), "GE"), b.Compare(x, spread(high), "LE"));
  Instruction* scaled = b.Binary(kMultiply, b.Binary(kSubtract, x, spread(low)), op.Full(x, static_cast<double>(bins)));
  Instruction* position = b.Convert(b.Binary(kDivide, scaled, spread(b.Binary(kSubtract, high, low))), PT::kS64);
  position = b.Binary(kMinimum, position, b.FullLike(position, static_cast<double>(bins - 1)));
  position = b.Select(inside, position, b.FullLike(position, static_cast<double>(bins)));  // out of range: dropped
  Instruction* counts = b.Full(PT::kS64, {bins}, 0);
  counts = Scatter(op, counts, position, b.Full(PT::kS64, x->shape().dims(), 1), {0}, 1, {}, Combiner(op, PT::kS64, "add"));
  if (type == PT::kF16) counts = b.Binary(kMinimum, counts, b.FullLike(counts, 65504));  // its largest number
  return op.One(counts);
}

}  // namespace tenon::aten
