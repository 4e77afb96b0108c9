// Linear maps along one dim whose rows have few entries: resampling, average pooling, and their transposes (the
// backwards). The entries are known when the graph is lowered, so indices and weights are constants.
#pragma once

#include <utility>
#include <vector>

#include "torch_plugin/aten/lower/op_context.h"

namespace tenon::aten {

// Up to here the terms of a row are added one by one, in registers; longer rows are a reduction over a dim of their own.
inline constexpr int64_t kUnrolledTaps = 8;

struct Taps {
  int64_t in = 0;  // elements of the dim that is read
  // Per result element the (element, weight) pairs that it sums, in this order; a row may be empty.
  std::vector<std::vector<std::pair<int64_t, double>>> rows;

  int64_t longest() const;
};

// The map from the results back to the elements; each row in ascending order of the results.
Taps Transposed(const Taps& taps);

// x[..., index[o], ...] for each o of the new dim `axis`; every index is in range.
Instruction* TakeAt(OpContext& op, Instruction* x, int64_t axis, const std::vector<int64_t>& index);

// Sums weight * x[element] along `axis` in x's dtype: rows[o] gives result element o.
Instruction* ApplyTaps(OpContext& op, Instruction* x, int64_t axis, const Taps& taps);

// The elements of all rows: [..., rows, longest row, ...] from dim `axis` on; element 0 where a row is shorter.
Instruction* TakeRows(OpContext& op, Instruction* x, int64_t axis, const Taps& taps);
// Where TakeRows holds elements of rows, with the dims `like` of its result; nullptr: everywhere.
Instruction* InsideRows(OpContext& op, const Taps& taps, absl::Span<const Dim> like, int64_t axis);

// Rows that follow from sizes: [rows, longest], the elements of a dim that a row may have, and which of them are its own.
struct Places {
  Instruction *at, *inside;
};
// Elements `start` to `end`, which each row has (s64); `longest`: no row has more.
Places PlacesFrom(OpContext& op, Instruction* start, Instruction* end, Dim longest);
// ApplyTaps of them: `weight` is [rows, longest]; nullptr: 1.
Instruction* SumAtPlaces(OpContext& op, Instruction* x, int64_t axis, const Places& places, Instruction* weight = nullptr);

// The k-th element of each row (element 0 where the row is shorter) and, per row, whether it has one.
struct TapColumn {
  std::vector<int64_t> index;
  std::vector<double> weight;   // 0 where the row is shorter
  std::vector<int64_t> inside;  // 0 or 1
  bool all_inside = true, all_ones = true;
};
TapColumn ColumnOf(const Taps& taps, int64_t k);

// A literal along dim `axis` of a value of dims `like`.
Instruction* AlongAxis(OpContext& op, Literal literal, absl::Span<const Dim> like, int64_t axis);
Instruction* MaskAlongAxis(OpContext& op, const std::vector<int64_t>& mask, absl::Span<const Dim> like, int64_t axis);

}  // namespace tenon::aten
