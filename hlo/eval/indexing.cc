#include <algorithm>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "hlo/eval/internal.h"
#include "hlo/eval/region.h"

namespace tenon::eval {
namespace {

std::vector<int64_t> Dims(const Literal& l) { return l.shape().constant_dims(); }

// An index of any integer type; unsigned ones beyond int64_t are just as far out of range.
int64_t IndexAt(const Literal& l, int64_t i) {
  if (l.type() == PrimitiveType::kU64 && l.GetAsDouble(i) >= 0x1p63) return INT64_MAX;
  return l.GetAsInt64(i);
}

// Start indices are one scalar per dimension, or one vector. Clamped so that the slice lies inside.
absl::StatusOr<Index> Starts(const Instruction& i, Operands indices,
                             absl::Span<const int64_t> dims, absl::Span<const int64_t> sizes) {
  const bool vector = indices.size() == 1 && indices[0].shape().rank() == 1;
  const size_t count = vector ? indices[0].num_elements() : indices.size();
  if (count != dims.size()) return Invalid(i, absl::StrCat(count, " start indices"));
  Index starts;
  for (size_t d = 0; d < dims.size(); ++d) {
    int64_t start = vector ? IndexAt(indices[0], d) : IndexAt(indices[d], 0);
    starts.push_back(std::clamp<int64_t>(start, 0, dims[d] - sizes[d]));
  }
  return starts;
}

absl::StatusOr<Literal> DynamicSlice(Context&, const Instruction& i, Operands operands) {
  const Literal& x = operands[0];
  std::vector<int64_t> dims = Dims(x);
  const auto& sizes = i.attrs().get<std::vector<int64_t>>(Attr::kDynamicSliceSizes);
  TENON_ASSIGN_OR_RETURN(Index starts, Starts(i, operands.subspan(1), dims, sizes));
  Literal result(i.shape());
  Index strides = StridesOf(dims);
  const int64_t width = ByteWidth(x.type());
  CopyStrided(width, sizes, x.bytes() + Offset(starts, strides) * width, strides,
              result.mutable_bytes(), StridesOf(sizes));
  return result;
}

absl::StatusOr<Literal> DynamicUpdateSlice(Context&, const Instruction& i, Operands operands) {
  const Literal& update = operands[1];
  std::vector<int64_t> dims = Dims(operands[0]), sizes = Dims(update);
  TENON_ASSIGN_OR_RETURN(Index starts, Starts(i, operands.subspan(2), dims, sizes));
  Literal result = operands[0];
  Index strides = StridesOf(dims);
  const int64_t width = ByteWidth(update.type());
  CopyStrided(width, sizes, update.bytes(), StridesOf(sizes),
              result.mutable_bytes() + Offset(starts, strides) * width, strides);
  return result;
}

// Where gather and scatter find an index vector: the batch position with the vector's dimension put back in.
class IndexVectors {
 public:
  IndexVectors(const Literal& indices, int64_t vector_dim)
      : indices_(indices), dims_(Dims(indices)), vector_dim_(vector_dim) {
    if (vector_dim == static_cast<int64_t>(dims_.size())) dims_.push_back(1);
    strides_ = StridesOf(dims_);
    for (size_t d = 0; d < dims_.size(); ++d) {
      if (static_cast<int64_t>(d) != vector_dim) {
        batch_dims_.push_back(dims_[d]);
        batch_strides_.push_back(strides_[d]);
      }
    }
  }
  const Index& batch_dims() const { return batch_dims_; }
  int64_t At(absl::Span<const int64_t> batch, int64_t k) const {
    return IndexAt(indices_, Offset(batch, batch_strides_) + k * strides_[vector_dim_]);
  }
  // The batch position's coordinate along dimension d of the indices array.
  int64_t Coordinate(absl::Span<const int64_t> batch, int64_t d) const {
    return batch[d < vector_dim_ ? d : d - 1];
  }

 private:
  const Literal& indices_;
  std::vector<int64_t> dims_;
  int64_t vector_dim_;
  Index strides_, batch_dims_, batch_strides_;
};

absl::StatusOr<Literal> Gather(Context&, const Instruction& i, Operands operands) {
  const Literal &x = operands[0], &indices = operands[1];
  const std::vector<int64_t> offset_dims = i.int_list(Attr::kOffsetDims),
                             collapsed = i.int_list(Attr::kCollapsedSliceDims),
                             index_map = i.int_list(Attr::kStartIndexMap),
                             batching = i.int_list(Attr::kOperandBatchingDims),
                             indices_batching = i.int_list(Attr::kStartIndicesBatchingDims);
  std::vector<int64_t> sizes;
  for (Dim size : i.dim_list(Attr::kSliceSizes)) sizes.push_back(size.constant());
  IndexVectors vectors(indices, i.attrs().get<int64_t>(Attr::kIndexVectorDim));
  Literal result(i.shape());
  std::vector<int64_t> dims = Dims(x), out_dims = Dims(result);
  Index strides = StridesOf(dims), out_strides = StridesOf(out_dims);
  // One slice per batch position, copied whole.
  Index slice, slice_strides, slice_out, batch_out;
  for (size_t d = 0; d < out_dims.size(); ++d) {
    if (!Contains(offset_dims, d)) batch_out.push_back(out_strides[d]);
  }
  size_t next = 0;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (Contains(collapsed, d) || Contains(batching, d)) continue;
    slice.push_back(sizes[d]);
    slice_strides.push_back(strides[d]);
    slice_out.push_back(out_strides[offset_dims[next++]]);
  }
  const int64_t width = ByteWidth(x.type());
  std::byte* to = result.mutable_bytes();
  if (result.num_elements() == 0) return result;
  ForEachIndex(vectors.batch_dims(), [&](const Index& batch) {
    int64_t from = 0;
    for (size_t k = 0; k < index_map.size(); ++k) {
      int64_t d = index_map[k];
      from += std::clamp<int64_t>(vectors.At(batch, k), 0, dims[d] - sizes[d]) * strides[d];
    }
    for (size_t k = 0; k < batching.size(); ++k) {
      from += vectors.Coordinate(batch, indices_batching[k]) * strides[batching[k]];
    }
    CopyStrided(width, slice, x.bytes() + from * width, slice_strides,
                to + Offset(batch, batch_out) * width, slice_out);
  });
  return result;
}

absl::StatusOr<Literal> Scatter(Context& context, const Instruction& i, Operands operands) {
  const size_t count = (operands.size() - 1) / 2;
  Operands inputs = operands.subspan(0, count), updates = operands.subspan(count + 1);
  const std::vector<int64_t> window_dims = i.int_list(Attr::kUpdateWindowDims),
                             inserted = i.int_list(Attr::kInsertedWindowDims),
                             index_map = i.int_list(Attr::kScatterDimsToOperandDims),
                             batching = i.int_list(Attr::kInputBatchingDims),
                             indices_batching = i.int_list(Attr::kScatterIndicesBatchingDims);
  IndexVectors vectors(operands[count], i.attrs().get<int64_t>(Attr::kIndexVectorDim));
  TENON_ASSIGN_OR_RETURN(Region region, Region::Make(context, *i.to_apply()));
  std::vector<Literal> results(inputs.begin(), inputs.end());
  std::vector<int64_t> dims = Dims(inputs[0]), update_dims = Dims(updates[0]);
  Index strides = StridesOf(dims), update_strides = StridesOf(update_dims);
  // The operand dimension of each update window dimension.
  Index window, window_of, window_strides, batch_strides;
  for (size_t d = 0; d < update_dims.size(); ++d) {
    if (!Contains(window_dims, d)) batch_strides.push_back(update_strides[d]);
  }
  size_t next = 0;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (Contains(inserted, d) || Contains(batching, d)) continue;
    window_of.push_back(d);
    window.push_back(update_dims[window_dims[next]]);
    window_strides.push_back(update_strides[window_dims[next++]]);
  }
  if (updates[0].num_elements() == 0) {
    return i.shape().is_tuple() ? Literal::Tuple(std::move(results)) : std::move(results[0]);
  }
  absl::InlinedVector<std::byte*, 2> data;
  for (Literal& r : results) data.push_back(r.mutable_bytes());
  Index batch(vectors.batch_dims().size(), 0), start(dims.size()), w(window.size());
  absl::InlinedVector<ScalarOp::Operand, 4> args(2 * count);
  absl::InlinedVector<std::byte*, 2> outs(count);
  do {
    std::fill(start.begin(), start.end(), 0);
    // What lies beyond the end does so from the end on too, and the window's steps can be added to that.
    for (size_t k = 0; k < index_map.size(); ++k) start[index_map[k]] = std::min(vectors.At(batch, k), dims[index_map[k]]);
    for (size_t k = 0; k < batching.size(); ++k) {
      start[batching[k]] = vectors.Coordinate(batch, indices_batching[k]);
    }
    const int64_t update_base = Offset(batch, batch_strides);
    std::fill(w.begin(), w.end(), 0);
    do {
      // An update outside the operand is skipped, element by element.
      bool inside = true;
      Index at = start;
      for (size_t k = 0; k < w.size(); ++k) at[window_of[k]] += w[k];
      for (size_t d = 0; d < dims.size(); ++d) inside = inside && at[d] >= 0 && at[d] < dims[d];
      if (!inside) continue;
      const int64_t to = Offset(at, strides), from = update_base + Offset(w, window_strides);
      for (size_t k = 0; k < count; ++k) {
        const int64_t width = ByteWidth(results[k].type());
        outs[k] = data[k] + to * width;
        args[k] = {outs[k]};
        args[count + k] = {updates[k].bytes() + from * width};
      }
      TENON_RETURN_IF_ERROR(region.Run(args, outs, 1));
    } while (Next(window, &w));
  } while (Next(vectors.batch_dims(), &batch));
  return i.shape().is_tuple() ? Literal::Tuple(std::move(results)) : std::move(results[0]);
}

// Calls f(base offset) for every line along `dim`.
template <typename F>
void ForEachLine(const std::vector<int64_t>& dims, int64_t dim, F&& f) {
  Index others(dims.begin(), dims.end());
  others[dim] = 1;
  Index strides = StridesOf(dims);
  if (Product(dims) == 0) return;
  ForEachIndex(others, [&](const Index& index) { f(Offset(index, strides)); });
}

absl::StatusOr<Literal> Sort(Context& context, const Instruction& i, Operands operands) {
  TENON_ASSIGN_OR_RETURN(Region less, Region::Make(context, *i.to_apply()));
  std::vector<int64_t> dims = Dims(operands[0]);
  const int64_t dim = i.dimensions()[0], n = dims[dim], stride = StridesOf(dims)[dim];
  std::vector<Literal> results;
  for (const Literal& x : operands) results.emplace_back(x.shape());
  std::vector<int64_t> order(n);
  absl::Status status;
  absl::InlinedVector<ScalarOp::Operand, 4> args(2 * operands.size());
  ForEachLine(dims, dim, [&](int64_t base) {
    std::iota(order.begin(), order.end(), 0);
    // Always stable: an unstable sort may give any of the orders that stability allows.
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      for (size_t k = 0; k < operands.size(); ++k) {
        const int64_t width = ByteWidth(operands[k].type());
        args[2 * k] = {operands[k].bytes() + (base + a * stride) * width};
        args[2 * k + 1] = {operands[k].bytes() + (base + b * stride) * width};
      }
      std::byte answer{0};
      absl::Status run = less.Run(args, {&answer}, 1);
      if (!run.ok()) status = run;
      return answer != std::byte{0};
    });
    for (size_t k = 0; k < operands.size(); ++k) {
      const int64_t width = ByteWidth(operands[k].type());
      std::byte* to = results[k].mutable_bytes() + base * width;
      const std::byte* from = operands[k].bytes() + base * width;
      for (int64_t e = 0; e < n; ++e) {
        std::memcpy(to + e * stride * width, from + order[e] * stride * width, width);
      }
    }
  });
  if (!status.ok()) return status;
  if (results.size() == 1) return std::move(results[0]);
  return Literal::Tuple(std::move(results));
}

// The k largest (or smallest) of each row in order, NaN above everything, ties by position.
absl::StatusOr<Literal> TopK(Context&, const Instruction& i, Operands operands) {
  return TopKOf(operands[0], i.attrs().get<int64_t>(Attr::kK), i.attrs().get<bool>(Attr::kLargest), i.shape());
}

constexpr HandlerRow kRows[] = {
    {Opcode::kDynamicSlice, DynamicSlice},
    {Opcode::kDynamicUpdateSlice, DynamicUpdateSlice},
    {Opcode::kGather, Gather},
    {Opcode::kScatter, Scatter},
    {Opcode::kSort, Sort},
    {Opcode::kTopk, TopK},
};

}  // namespace

Literal TopKOf(const Literal& x, int64_t k, bool largest, const Shape& result) {
  std::vector<int64_t> dims = Dims(x);
  const int64_t n = dims.back(), rows = n == 0 ? 0 : x.num_elements() / n;
  Literal values(result.element(0)), indices(result.element(1));
  const bool exact = IsFloat(x.type());
  const int64_t width = ByteWidth(x.type());
  std::vector<int64_t> order(n);
  auto before = [&](int64_t a, int64_t b) {
    if (exact) {
      double u = x.GetAsDouble(a), v = x.GetAsDouble(b);
      if (u != u || v != v) return largest ? (u != u && v == v) : (u == u && v != v);
      return largest ? u > v : u < v;
    }
    if (x.type() == PrimitiveType::kU64) {
      uint64_t u = x.GetAsInt64(a), v = x.GetAsInt64(b);
      return largest ? u > v : u < v;
    }
    return largest ? x.GetAsInt64(a) > x.GetAsInt64(b) : x.GetAsInt64(a) < x.GetAsInt64(b);
  };
  for (int64_t r = 0; r < rows; ++r) {
    std::iota(order.begin(), order.end(), r * n);
    std::stable_sort(order.begin(), order.end(), before);
    for (int64_t j = 0; j < k; ++j) {
      std::memcpy(values.mutable_bytes() + (r * k + j) * width, x.bytes() + order[j] * width, width);
      indices.SetFromInt64(r * k + j, order[j] - r * n);
    }
  }
  return Literal::Tuple({std::move(values), std::move(indices)});
}

absl::Span<const HandlerRow> IndexingHandlers() { return kRows; }

}  // namespace tenon::eval
