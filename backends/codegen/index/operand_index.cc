// MapToOperand: one function per movement op.
#include <algorithm>

#include "absl/algorithm/container.h"
#include "backends/codegen/index/index_map.h"
#include "hlo/check.h"
#include "hlo/own_calls.h"

namespace tenon {
namespace {

OperandIndex Slice(IndexSpace& space, const Instruction& op, absl::Span<const Index> index) {
  const SliceSpec& spec = op.attrs().get<SliceSpec>(Attr::kSlice);
  OperandIndex r;
  for (size_t i = 0; i < index.size(); ++i) {
    r.index.push_back(space.AddConstant(space.Multiply(index[i], spec.strides[i]), spec.starts[i]));
  }
  return r;
}

OperandIndex Pad(IndexSpace& space, const Instruction& op, absl::Span<const Index> index) {
  const PaddingConfig& config = op.attrs().get<PaddingConfig>(Attr::kPadding);
  OperandIndex r;
  for (size_t i = 0; i < index.size(); ++i) {
    const PaddingDim& p = config.dims[i];
    const int64_t low = p.low;
    Index e = space.AddConstant(index[i], -low);
    if (p.interior != 0) {
      r.bounds.push_back({space.Mod(e, p.interior + 1), 1});
      // Below zero is out of bounds whatever the quotient.
      r.bounds.push_back(
          {e, Max((op.operand(0)->shape().dim(static_cast<int64_t>(i)) - 1) * Dim(p.interior + 1) + 1, 0)});
      e = space.FloorDiv(e, p.interior + 1);
    } else {
      r.bounds.push_back({e, op.operand(0)->shape().dim(static_cast<int64_t>(i))});
    }
    r.index.push_back(e);
  }
  return r;
}

OperandIndex Concatenate(IndexSpace& space, const Instruction& op, int64_t operand,
                         absl::Span<const Index> index) {
  const int64_t d = op.dimensions()[0];
  Dim start = 0;
  for (int64_t k = 0; k < operand; ++k) start += op.operand(k)->shape().dim(d);
  OperandIndex r{.index = IndexTuple(index.begin(), index.end())};
  r.index[d] = space.AddConstant(index[d], Dim(0) - start);
  r.bounds.push_back({r.index[d], op.operand(operand)->shape().dim(d)});
  return r;
}

// The scalar operands of dynamic-slice (first = 1) and dynamic-update-slice (first = 2), clamped so
// that the window fits.
Index DynamicStart(IndexSpace& space, const Instruction& op, int64_t first, int64_t dim, Dim max) {
  const Instruction* start = op.operand(
      op.operand_count() > first + dim && op.operand(first)->shape().is_scalar() ? first + dim
                                                                                 : first);
  if (start->shape().is_scalar()) return space.Runtime(start, {}, max);
  return space.Runtime(start, {space.Constant(dim)}, max);
}

OperandIndex DynamicSlice(IndexSpace& space, const Instruction& op, absl::Span<const Index> index) {
  OperandIndex r;
  for (int64_t i = 0; i < op.shape().rank(); ++i) {
    const Dim last = op.operand(0)->shape().dim(i) - op.shape().dim(i);
    r.bounds.push_back({space.Constant(0), Max(last + 1, 0)});  // there is a place
    r.index.push_back(space.Add(DynamicStart(space, op, 1, i, last), index[i]));
  }
  return r;
}

OperandIndex DynamicUpdate(IndexSpace& space, const Instruction& op,
                           absl::Span<const Index> index) {
  OperandIndex r;
  const Shape& update = op.operand(1)->shape();
  for (int64_t i = 0; i < op.shape().rank(); ++i) {
    Index start = DynamicStart(space, op, 2, i, op.shape().dim(i) - update.dim(i));
    Index e = space.Combine(index[i], 1, start, -1);
    r.bounds.push_back({e, update.dim(i)});
    r.index.push_back(e);
  }
  return r;
}

}  // namespace

IndexTuple UpdatePlace(IndexSpace& space, const Instruction& op, absl::Span<const Index> index) {
  IndexTuple place;
  const Shape& update = op.operand(1)->shape();
  for (int64_t i = 0; i < op.shape().rank(); ++i) {
    place.push_back(space.Add(DynamicStart(space, op, 2, i, op.shape().dim(i) - update.dim(i)), index[i]));
  }
  return place;
}

namespace {

OperandIndex Gather(IndexSpace& space, const Instruction& op, absl::Span<const Index> index) {
  const std::vector<int64_t> offset_dims = op.int_list(Attr::kOffsetDims),
                             collapsed = op.int_list(Attr::kCollapsedSliceDims),
                             start_map = op.int_list(Attr::kStartIndexMap),
                             batching = op.int_list(Attr::kOperandBatchingDims),
                             start_batching = op.int_list(Attr::kStartIndicesBatchingDims);
  const std::vector<Dim> sizes = op.dim_list(Attr::kSliceSizes);
  const int64_t vector_dim = op.attrs().get<int64_t>(Attr::kIndexVectorDim);
  auto has = [](const std::vector<int64_t>& v, int64_t x) {
    return std::find(v.begin(), v.end(), x) != v.end();
  };
  const Shape& data = op.operand(0)->shape();
  const Instruction* indices = op.operand(1);
  std::vector<Index> batch;
  for (int64_t i = 0; i < op.shape().rank(); ++i) {
    if (!has(offset_dims, i)) batch.push_back(index[i]);
  }
  // Index into start_indices for component k.
  auto start_at = [&](int64_t k) {
    IndexTuple at;
    size_t next = 0;
    for (int64_t i = 0; i < indices->shape().rank(); ++i) {
      at.push_back(i == vector_dim ? space.Constant(k) : batch[next++]);
    }
    return at;
  };
  OperandIndex r;
  size_t next_offset = 0;
  for (int64_t i = 0; i < data.rank(); ++i) {
    if (auto b = std::find(batching.begin(), batching.end(), i); b != batching.end()) {
      int64_t s = start_batching[b - batching.begin()];
      r.index.push_back(batch[s < vector_dim ? s : s - 1]);
      continue;
    }
    Index e = has(collapsed, i) ? space.Constant(0) : index[offset_dims[next_offset++]];
    if (auto m = std::find(start_map.begin(), start_map.end(), i); m != start_map.end()) {
      Dim last = data.dim(i) - sizes[i];
      r.bounds.push_back({space.Constant(0), Max(last + 1, 0)});  // there is a place
      e = space.Add(e, space.Runtime(indices, start_at(m - start_map.begin()), last));
    }
    r.index.push_back(e);
  }
  return r;
}

// Reinterprets memory: by the layouts of both shapes.
OperandIndex Bitcast(IndexSpace& space, const Instruction& op, absl::Span<const Index> index) {
  auto major_to_minor = [](const Shape& s) {
    Permutation p = s.minor_to_major();
    std::reverse(p.begin(), p.end());
    return p;
  };
  const Shape &to = op.operand(0)->shape(), &from = op.shape();
  IndexTuple physical;
  std::vector<Dim> from_dims, to_dims;
  for (int64_t d : major_to_minor(from)) {
    physical.push_back(index[d]);
    from_dims.push_back(from.dim(d));
  }
  Permutation to_order = major_to_minor(to);
  for (int64_t d : to_order) to_dims.push_back(to.dim(d));
  IndexTuple moved = space.Reshape(physical, from_dims, to_dims);
  OperandIndex r{.index = IndexTuple(to.rank())};
  for (size_t i = 0; i < to_order.size(); ++i) r.index[to_order[i]] = moved[i];
  return r;
}

}  // namespace

Window WindowOf(const Instruction& op) {
  Window window = op.attrs().get_or<Window>(Attr::kWindow, {});
  if (window.dims.empty()) window.dims.resize(static_cast<size_t>(op.operand(0)->shape().rank()));
  return window;
}

int64_t TapsOf(const Window& window) {
  int64_t taps = 1;
  for (const WindowDim& w : window.dims) taps = std::min(taps * w.size, kManyTaps);
  return taps;
}

OperandIndex MapWindow(IndexSpace& space, const Instruction& reduce_window, absl::Span<const Index> index, absl::Span<const Index> tap) {
  const Window window = WindowOf(reduce_window);
  OperandIndex r;
  for (size_t d = 0; d < index.size(); ++d) {
    const WindowDim& w = window.dims[d];
    Index e = space.Combine(space.Multiply(index[d], w.stride), 1, tap[d], w.window_dilation);
    e = space.AddConstant(e, -w.padding_low);
    const Dim size = reduce_window.operand(0)->shape().dim(static_cast<int64_t>(d));
    if (w.base_dilation > 1) {
      r.bounds.push_back({space.Mod(e, w.base_dilation), 1});
      r.bounds.push_back({e, Max((size - 1) * Dim(w.base_dilation) + 1, 0)});  // bounds are compared unsigned
      e = space.FloorDiv(e, w.base_dilation);
    } else {
      r.bounds.push_back({e, size});
    }
    r.index.push_back(e);
  }
  return r;
}

std::optional<OperandIndex> MapToOperand(IndexSpace& space, const Instruction& op, int64_t operand,
                                         absl::Span<const Index> index) {
  const IndexTuple same(index.begin(), index.end());
  switch (op.opcode()) {
    case Opcode::kBroadcast: {
      OperandIndex r;
      for (int64_t d : op.dimensions()) r.index.push_back(index[d]);
      return r;
    }
    case Opcode::kReshape:
      return OperandIndex{
          .index = space.Reshape(index, op.shape().dims(), op.operand(0)->shape().dims())};
    case Opcode::kBitcast:
      return Bitcast(space, op, index);
    case Opcode::kCopy:
    case Opcode::kOptBarrier:
      return OperandIndex{.index = same};
    case Opcode::kTranspose: {
      OperandIndex r{.index = IndexTuple(index.size())};
      for (size_t i = 0; i < index.size(); ++i) r.index[op.dimensions()[i]] = index[i];
      return r;
    }
    case Opcode::kSlice:
      return Slice(space, op, index);
    case Opcode::kReverse: {
      OperandIndex r{.index = same};
      for (int64_t d : op.dimensions())
        r.index[d] = space.Combine(index[d], -1, space.Constant(op.shape().dim(d) - 1), 1);
      return r;
    }
    case Opcode::kPad:
      if (operand == 1) return OperandIndex{};
      return Pad(space, op, index);
    case Opcode::kConcatenate:
      return Concatenate(space, op, operand, index);
    case Opcode::kDynamicSlice:
      if (operand != 0) return std::nullopt;
      return DynamicSlice(space, op, index);
    case Opcode::kDynamicUpdateSlice:
      if (operand == 0) return OperandIndex{.index = same};
      if (operand == 1) return DynamicUpdate(space, op, index);
      return std::nullopt;
    case Opcode::kGather:
      if (operand != 0) return std::nullopt;
      return Gather(space, op, index);
    case Opcode::kBitcastConvert: {
      OperandIndex r{.index = same};
      const int64_t rank = op.operand(0)->shape().rank();
      if (rank < op.shape().rank()) r.index.pop_back();
      if (rank > op.shape().rank()) r.index.push_back(space.Constant(0));  // and those behind it
      return r;
    }
    default:
      if (op.family() != Family::kElementwise && !IsPointwiseCall(op)) return std::nullopt;
      if (op.operand(operand)->shape().rank() == 0) return OperandIndex{};
      return OperandIndex{.index = same};
  }
}

}  // namespace tenon
