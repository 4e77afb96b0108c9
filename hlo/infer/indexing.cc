// Shape inference of ops that read or write at computed positions.
#include "hlo/infer/context.h"

#include <algorithm>

namespace tenon::infer {
namespace {

// Start indices: one integer scalar per dimension, or one vector of them (an older form).
absl::Status CheckStarts(const Inference& in, int64_t first, int64_t rank) {
  const int64_t given = in.count() - first;
  if (given == 1 && in.shape(first).rank() == 1) {
    TENON_WANT(IsIntegral(in.shape(first).element_type()) && KnownEqual(in.shape(first).dim(0), rank),
               "start_indices_c1", absl::StrCat("an integer vector of ", rank), OperandShapes(in));
    return absl::OkStatus();
  }
  TENON_WANT(given == rank, "start_indices_c2", absl::StrCat(rank, " start indices"), given);
  for (int64_t i = first; i < in.count(); ++i) {
    TENON_WANT(IsIntegralScalar(in.shape(i)) && in.shape(i).element_type() == in.shape(first).element_type(),
               "start_indices_c3", "integer scalars of one type", OperandShapes(in));
  }
  return absl::OkStatus();
}

bool Sorted(const std::vector<int64_t>& v) { return std::is_sorted(v.begin(), v.end()); }
bool Holds(const std::vector<int64_t>& v, int64_t d) { return std::find(v.begin(), v.end(), d) != v.end(); }

// Gather and scatter describe the same correspondence: names differ, so both fill this in.
struct IndexedDims {
  std::vector<int64_t> window;            // offset_dims | update_window_dims
  std::vector<int64_t> dropped;           // collapsed_slice_dims | inserted_window_dims
  std::vector<int64_t> index_map;         // start_index_map | scatter_dims_to_operand_dims
  std::vector<int64_t> operand_batching, indices_batching;
  int64_t vector_dim = 0;
};

absl::Status CheckIndexedDims(const Inference& in, const Shape& operand, const Shape& indices, const IndexedDims& g) {
  TENON_WANT(operand.is_array() && IsIntegral(indices.element_type()), "indexed_c1",
             "an array and integer indices", OperandShapes(in));
  TENON_WANT(g.vector_dim >= 0 && g.vector_dim <= indices.rank(), "indexed_c2",
             absl::StrCat("index_vector_dim in [0, ", indices.rank(), "]"), g.vector_dim);
  TENON_WANT(Sorted(g.window) && Sorted(g.dropped) && Sorted(g.operand_batching), "indexed_c3",
             "ascending window, collapsed and operand batching dimensions", Ints(g.window), " ", Ints(g.dropped), " ",
             Ints(g.operand_batching));
  std::vector<int64_t> gone = g.dropped;
  gone.insert(gone.end(), g.operand_batching.begin(), g.operand_batching.end());
  TENON_WANT(InRangeAndUnique(gone, operand.rank()), "indexed_c4",
             absl::StrCat("different collapsed and batching dimensions in [0, ", operand.rank(), ")"), Ints(gone));
  std::vector<int64_t> mapped = g.index_map;
  mapped.insert(mapped.end(), g.operand_batching.begin(), g.operand_batching.end());
  TENON_WANT(InRangeAndUnique(mapped, operand.rank()), "indexed_c5",
             absl::StrCat("an index map of different, not batching dimensions in [0, ", operand.rank(), ")"),
             Ints(g.index_map));
  const Dim components = g.vector_dim == indices.rank() ? Dim(1) : indices.dim(g.vector_dim);
  TENON_WANT(KnownEqual(components, static_cast<int64_t>(g.index_map.size())), "indexed_c6",
             absl::StrCat("index vectors of ", g.index_map.size()), components.ToString());
  TENON_WANT(g.operand_batching.size() == g.indices_batching.size() &&
                 InRangeAndUnique(g.indices_batching, indices.rank()) && !Holds(g.indices_batching, g.vector_dim),
             "indexed_c7", "as many batching dimensions of the indices, without index_vector_dim",
             Ints(g.indices_batching));
  for (size_t i = 0; i < g.operand_batching.size(); ++i) {
    TENON_WANT(KnownEqual(operand.dim(g.operand_batching[i]), indices.dim(g.indices_batching[i])), "indexed_c8",
               "equal batching sizes", OperandShapes(in));
  }
  return absl::OkStatus();
}

// The dims of the indices without the index vector, in order.
DimVector IndexBatch(const Shape& indices, int64_t vector_dim) {
  DimVector dims;
  for (int64_t i = 0; i < indices.rank(); ++i) {
    if (i != vector_dim) dims.push_back(indices.dim(i));
  }
  return dims;
}

}  // namespace

TENON_INFER(kDynamicSlice) {
  const Shape& x = in.shape(0);
  const std::vector<int64_t> sizes = in.ints(Attr::kDynamicSliceSizes);
  TENON_WANT(x.is_array() && static_cast<int64_t>(sizes.size()) == x.rank(), "dynamic_slice_c1",
             absl::StrCat("an array and ", x.rank(), " slice sizes"), Ints(sizes));
  TENON_RETURN_IF_ERROR(CheckStarts(in, 1, x.rank()));
  for (int64_t i = 0; i < x.rank(); ++i) {
    TENON_WANT(sizes[i] >= 0 && sizes[i] <= kMaxDim && Less(x.dim(i), sizes[i]) != Ternary::kYes, "dynamic_slice_c2",
               absl::StrCat("a size from 0 to ", x.dim(i).ToString(), " in dimension ", i), sizes[i]);
  }
  return Shape::Array(x.element_type(), sizes);
}

TENON_INFER(kDynamicUpdateSlice) {
  const Shape &x = in.shape(0), &update = in.shape(1);
  TENON_WANT(x.is_array() && update.is_array() && x.element_type() == update.element_type() &&
                 x.rank() == update.rank(),
             "dynamic_update_slice_c1", "operand and update of one type and rank", OperandShapes(in));
  TENON_RETURN_IF_ERROR(CheckStarts(in, 2, x.rank()));
  for (int64_t i = 0; i < x.rank(); ++i) {
    TENON_WANT(Less(x.dim(i), update.dim(i)) != Ternary::kYes, "dynamic_update_slice_c2",
               absl::StrCat("an update of at most ", x.dim(i).ToString(), " in dimension ", i),
               update.dim(i).ToString());
  }
  return WithType(x, x.element_type());
}

TENON_INFER(kGather) {
  const Shape &x = in.shape(0), &indices = in.shape(1);
  const IndexedDims g{in.ints(Attr::kOffsetDims), in.ints(Attr::kCollapsedSliceDims), in.ints(Attr::kStartIndexMap),
                      in.ints(Attr::kOperandBatchingDims), in.ints(Attr::kStartIndicesBatchingDims),
                      in.integer(Attr::kIndexVectorDim, 0)};
  const std::vector<Dim> sizes = in.dims(Attr::kSliceSizes);
  TENON_RETURN_IF_ERROR(CheckIndexedDims(in, x, indices, g));
  TENON_WANT(static_cast<int64_t>(sizes.size()) == x.rank(), "gather_c1", absl::StrCat(x.rank(), " slice_sizes"), sizes.size());
  DimVector slice;
  for (int64_t i = 0; i < x.rank(); ++i) {
    // A number may turn out to be too large for a symbolic dim (a range of it says so); of a symbolic size it has to be known.
    const Ternary beyond = Less(x.dim(i), sizes[i]);
    const bool fits = sizes[i].is_constant() ? sizes[i].constant() >= 0 && sizes[i].constant() <= kMaxDim && beyond != Ternary::kYes
                                             : LowerBound(sizes[i]) >= 0 && beyond == Ternary::kNo;
    TENON_WANT(fits, "gather_c2",
               absl::StrCat("a slice size from 0 to ", x.dim(i).ToString(), " in dimension ", i), sizes[i].ToString());
    const bool gone = Holds(g.dropped, i) || Holds(g.operand_batching, i);
    TENON_WANT(!gone || (sizes[i].is_constant() && sizes[i].constant() <= 1), "gather_c3",
               absl::StrCat("slice size 1 in collapsed dimension ", i), sizes[i].ToString());
    if (!gone) slice.push_back(sizes[i]);
  }
  const DimVector batch = IndexBatch(indices, g.vector_dim);
  const int64_t rank = static_cast<int64_t>(batch.size() + slice.size());
  TENON_WANT(g.window.size() == slice.size() && InRangeAndUnique(g.window, rank), "gather_c4",
             absl::StrCat(slice.size(), " different offset_dims in [0, ", rank, ")"), Ints(g.window));
  DimVector dims;
  size_t next_slice = 0, next_batch = 0;
  for (int64_t i = 0; i < rank; ++i) {
    dims.push_back(Holds(g.window, i) ? slice[next_slice++] : batch[next_batch++]);
  }
  return Shape(x.element_type(), dims);
}

TENON_INFER(kScatter) {
  TENON_WANT(in.count() % 2 == 1, "scatter_c1", "n operands, the indices, n updates", in.count(), " operands");
  const int64_t n = in.count() / 2;
  const Shape &x = in.shape(0), &indices = in.shape(n), &updates = in.shape(n + 1);
  const IndexedDims g{in.ints(Attr::kUpdateWindowDims), in.ints(Attr::kInsertedWindowDims),
                      in.ints(Attr::kScatterDimsToOperandDims), in.ints(Attr::kInputBatchingDims),
                      in.ints(Attr::kScatterIndicesBatchingDims), in.integer(Attr::kIndexVectorDim, 0)};
  TENON_RETURN_IF_ERROR(CheckIndexedDims(in, x, indices, g));
  std::vector<PrimitiveType> types;
  for (int64_t i = 0; i < n; ++i) {
    TENON_WANT(in.shape(i).is_array() && KnownSameDims(in.shape(i), x) && in.shape(n + 1 + i).is_array() &&
                   KnownSameDims(in.shape(n + 1 + i), updates) &&
                   in.shape(i).element_type() == in.shape(n + 1 + i).element_type(),
               "scatter_c2", "operands of equal dimensions and updates of equal dimensions and their types",
               OperandShapes(in));
    types.push_back(in.shape(i).element_type());
  }
  DimVector window;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (!Holds(g.dropped, i) && !Holds(g.operand_batching, i)) window.push_back(x.dim(i));
  }
  const DimVector batch = IndexBatch(indices, g.vector_dim);
  const int64_t rank = static_cast<int64_t>(batch.size() + window.size());
  TENON_WANT(updates.rank() == rank && g.window.size() == window.size() && InRangeAndUnique(g.window, rank),
             "scatter_c3", absl::StrCat("updates of rank ", rank, " and ", window.size(), " update_window_dims"),
             updates.ToString(), " and ", Ints(g.window));
  size_t next_window = 0, next_batch = 0;
  for (int64_t i = 0; i < rank; ++i) {
    if (Holds(g.window, i)) {
      TENON_WANT(Less(window[next_window], updates.dim(i)) != Ternary::kYes, "scatter_c4",
                 absl::StrCat("an update window of at most ", window[next_window].ToString()),
                 updates.dim(i).ToString());
      ++next_window;
    } else {
      TENON_WANT(KnownEqual(batch[next_batch], updates.dim(i)), "scatter_c5",
                 absl::StrCat("size ", batch[next_batch].ToString(), " of the indices in update dimension ", i),
                 updates.dim(i).ToString());
      ++next_batch;
    }
  }
  TENON_RETURN_IF_ERROR(CheckReducer(in.comp(Attr::kToApply), types, types).status());
  std::vector<Shape> results;
  for (PrimitiveType t : types) results.push_back(WithType(x, t));
  return OneOrTuple(std::move(results));
}

TENON_INFER(kSort) {
  const std::vector<int64_t> dims = in.ints(Attr::kDimensions);
  std::vector<Shape> args, results;
  for (int64_t i = 0; i < in.count(); ++i) {
    const Shape& s = in.shape(i);
    TENON_WANT(s.is_array() && KnownSameDims(s, in.shape(0)), "sort_c1", "arrays of equal dimensions",
               OperandShapes(in));
    args.insert(args.end(), 2, Shape::Scalar(s.element_type()));
    results.push_back(WithType(s, s.element_type()));
  }
  TENON_WANT(dims.size() == 1 && InRangeAndUnique(dims, in.shape(0).rank()), "sort_c2",
             absl::StrCat("one dimension in [0, ", in.shape(0).rank(), ")"), Ints(dims));
  const Computation* comparator = in.comp(Attr::kToApply);
  TENON_RETURN_IF_ERROR(CheckCallee(comparator, args, "the comparator"));
  TENON_WANT(KnownCompatible(comparator->root()->shape(), Shape::Scalar(PrimitiveType::kPred)), "sort_c3",
             "a comparator that returns pred[]", comparator->root()->shape().ToString());
  return OneOrTuple(std::move(results));
}

TENON_INFER(kTopk) {
  const Shape& x = in.shape(0);
  const int64_t k = in.integer(Attr::kK, -1);
  TENON_WANT(x.is_array() && x.rank() >= 1, "topk_c1", "an array of rank 1 or more", x.ToString());
  const Dim last = x.dim(x.rank() - 1);
  TENON_WANT(k >= 0 && k <= kMaxDim && Less(last, k) != Ternary::kYes, "topk_c2",
             absl::StrCat("k from 0 to ", last.ToString()), k);
  Shape values = WithType(x, x.element_type());
  values.set_dim(x.rank() - 1, k);
  values.set_dynamic(x.rank() - 1, false);
  return Shape::Tuple({values, WithType(values, PrimitiveType::kS32)});
}

}  // namespace tenon::infer
