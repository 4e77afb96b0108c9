// Padding with a number, by reflection or by repetition of the edge, and the backwards of the latter two.
#include <algorithm>

#include "torch_plugin/aten/lower/indexing.h"
#include "torch_plugin/aten/lower/reduce.h"
#include "torch_plugin/aten/lower/taps.h"

namespace tenon::aten {
namespace {

using enum Opcode;

// The same for a dim of which whole rows are read: by where each row comes from.
Instruction* MirrorRows(OpContext& op, Instruction* x, int64_t axis, int64_t low, int64_t high, bool reflect) {
  const int64_t n = x->shape().dim(axis).constant();
  std::vector<int64_t> from;
  for (int64_t i = -low; i < n + high; ++i) {
    const int64_t mirrored = i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
    from.push_back(reflect ? mirrored : std::clamp<int64_t>(i, 0, n - 1));
  }
  return TakeAt(op, x, axis, from);
}

// Reflects or repeats `low` and `high` elements at the ends of dim `axis`.
Instruction* PadByMirror(OpContext& op, Instruction* x, int64_t axis, int64_t low, int64_t high, bool reflect) {
  Builder& b = op.b;
  const Dim n = x->shape().dim(axis);
  std::vector<Instruction*> parts;
  auto edge = [&](int64_t count, bool front) {
    if (reflect) {
      Instruction* s = front ? b.SliceDim(x, axis, 1, 1 + count) : b.SliceDim(x, axis, n - 1 - count, n - 1);
      return b.Reverse(s, {axis});
    }
    std::vector<Dim> dims = DimsOf(x);
    dims[axis] = count;
    return b.BroadcastTo(b.SliceDim(x, axis, front ? 0 : n - 1, front ? 1 : n), dims);
  };
  if (low > 0) parts.push_back(edge(low, true));
  parts.push_back(low < 0 || high < 0 ? b.SliceDim(x, axis, std::max<int64_t>(0, -low), n - std::max<int64_t>(0, -high)) : x);
  if (high > 0) parts.push_back(edge(high, false));
  return parts.size() == 1 ? parts[0] : b.Concatenate(parts, axis);
}

Lowering MirrorPad(OpContext& op, bool reflect) {
  Instruction* x = op.tensor(0);
  const std::vector<int64_t> pad = op.integers(1);
  for (size_t k = 0; k < pad.size() / 2; ++k) {
    const Dim n = x->shape().dim(Rank(x) - 1 - static_cast<int64_t>(k));
    const int64_t low = pad[2 * k], high = pad[2 * k + 1], cut = std::max<int64_t>(0, -low) + std::max<int64_t>(0, -high);
    const int64_t least = std::max(cut, reflect ? std::max(low, high) + 1 : int64_t{1});
    if (!n.is_constant() && LowerBound(n) < least) return NotLowered("padding: a dim of a size that may be too small");
  }
  for (size_t k = pad.size() / 2; k-- > 1;) {  // the fastest dim last: one kernel for all
    const int64_t axis = Rank(x) - 1 - static_cast<int64_t>(k);
    x = x->shape().dim(axis).is_constant() ? MirrorRows(op, x, axis, pad[2 * k], pad[2 * k + 1], reflect)
                                           : PadByMirror(op, x, axis, pad[2 * k], pad[2 * k + 1], reflect);
  }
  return op.One(PadByMirror(op, x, Rank(x) - 1, pad[0], pad[1], reflect));
}

// `x` with zeros around it in dim `axis`.
Instruction* Surrounded(OpContext& op, Instruction* x, int64_t axis, int64_t low, int64_t high) {
  if (low == 0 && high == 0) return x;
  PaddingConfig config{.dims = std::vector<PaddingDim>(Rank(x))};
  config.dims[axis] = {low, high, 0};
  return op.b.Pad(x, op.Scalar(x->shape().element_type(), 0), config);
}

// The transpose of PadByMirror: what was repeated is summed, in ATen's order (ascending positions of `grad`).
Instruction* FoldMirror(OpContext& op, Instruction* grad, int64_t axis, int64_t n, int64_t low, int64_t high, bool reflect) {
  Builder& b = op.b;
  const int64_t cut_low = std::max<int64_t>(0, -low), cut_high = std::max<int64_t>(0, -high);
  const int64_t start = std::max<int64_t>(0, low), kept = n - cut_low - cut_high;
  auto summed = [&](Instruction* edge) {
    std::vector<Dim> dims = DimsOf(edge);
    dims[axis] = 1;
    return b.Reshape(ReduceSum(op, edge, {axis}), dims);
  };
  Instruction* sum = Surrounded(op, b.SliceDim(grad, axis, start, start + kept), axis, cut_low, cut_high);
  if (low > 0) {
    Instruction* edge = b.SliceDim(grad, axis, 0, low);
    edge = reflect ? Surrounded(op, b.Reverse(edge, {axis}), axis, 1, n - 1 - low) : Surrounded(op, summed(edge), axis, 0, n - 1);
    sum = b.Binary(kAdd, edge, sum);
  }
  if (high > 0) {
    Instruction* edge = b.SliceDim(grad, axis, start + kept, start + kept + high);
    edge = reflect ? Surrounded(op, b.Reverse(edge, {axis}), axis, n - 1 - high, 1) : Surrounded(op, summed(edge), axis, n - 1, 0);
    sum = b.Binary(kAdd, sum, edge);
  }
  return sum;
}

// reflection_pad_backward, replication_pad_backward(grad, self, padding)
Lowering MirrorPadBackward(OpContext& op, bool reflect) {
  Instruction* grad = op.b.Convert(op.tensor(0), OpMath(op.result_type()));
  if (IsEmpty(op.result_dims())) return op.One(op.b.Full(op.result_type(), op.result_dims(), 0));
  const std::vector<int64_t> pad = op.integers(2);
  for (size_t k = 0; k < pad.size() / 2; ++k) {
    const int64_t axis = Rank(grad) - 1 - static_cast<int64_t>(k);
    grad = FoldMirror(op, grad, axis, op.result_dims()[axis].constant(), pad[2 * k], pad[2 * k + 1], reflect);
  }
  return op.One(grad);
}

}  // namespace

Lowering LowerConstantPad(OpContext& op) {
  Instruction* x = op.tensor(0);
  const std::vector<int64_t> pad = op.integers(1);
  PaddingConfig config{.dims = std::vector<PaddingDim>(Rank(x))};
  for (size_t k = 0; k < pad.size() / 2; ++k) {
    config.dims[Rank(x) - 1 - k] = {pad[2 * k], pad[2 * k + 1], 0};
  }
  Instruction* value = op.is_none(2) ? op.Scalar(op.result_type(), 0) : op.NumberConstant(op.arg(2), op.result_type());
  return Values{op.b.Pad(x, value, config)};
}
Lowering LowerReflectionPad(OpContext& op) { return MirrorPad(op, true); }
Lowering LowerReplicationPad(OpContext& op) { return MirrorPad(op, false); }
Lowering LowerReflectionPadBackward(OpContext& op) { return MirrorPadBackward(op, true); }
Lowering LowerReplicationPadBackward(OpContext& op) { return MirrorPadBackward(op, false); }

}  // namespace tenon::aten
