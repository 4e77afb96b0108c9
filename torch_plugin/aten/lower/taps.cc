#include "torch_plugin/aten/lower/taps.h"

#include <algorithm>

#include "torch_plugin/aten/lower/indexing.h"
#include "torch_plugin/aten/lower/reduce.h"

namespace tenon::aten {
namespace {

using enum Opcode;
using PT = PrimitiveType;

// Each element `times` times in a row: a broadcast and a reshape.
Instruction* RepeatAlong(OpContext& op, Instruction* x, int64_t axis, int64_t times) {
  std::vector<Dim> dims = DimsOf(x), split = dims;
  split.insert(split.begin() + axis + 1, times);
  std::vector<int64_t> position;
  for (int64_t d = 0; d < Rank(x); ++d) position.push_back(d <= axis ? d : d + 1);
  dims[axis] = x->shape().dim(axis) * times;
  return op.b.Reshape(op.b.Broadcast(x, split, position), dims);
}

// Rows of any length: all their elements in a dim of their own, summed.
Instruction* ApplyLongTaps(OpContext& op, Instruction* x, int64_t axis, const Taps& taps) {
  Builder& b = op.b;
  Instruction* terms = TakeRows(op, x, axis, taps);
  bool all_ones = true;
  const int64_t longest = taps.longest();
  Literal weight(Shape::Array(x->shape().element_type(), {static_cast<int64_t>(taps.rows.size()), longest}));
  for (int64_t k = 0; k < longest; ++k) {
    const TapColumn column = ColumnOf(taps, k);
    all_ones = all_ones && column.all_ones;
    for (size_t o = 0; o < taps.rows.size(); ++o) weight.SetFromDouble(static_cast<int64_t>(o) * longest + k, column.weight[o]);
  }
  if (!all_ones) {
    terms = b.Binary(kMultiply, b.Broadcast(b.Constant(std::move(weight)), terms->shape().dims(), {axis, axis + 1}), terms);
  }
  if (Instruction* inside = InsideRows(op, taps, terms->shape().dims(), axis)) terms = b.Select(inside, terms, op.Full(terms, 0));
  return ReduceSum(op, terms, {axis + 1});
}

}  // namespace

int64_t Taps::longest() const {
  size_t n = 0;
  for (const auto& row : rows) n = std::max(n, row.size());
  return static_cast<int64_t>(n);
}

Taps Transposed(const Taps& taps) {
  Taps t{.in = static_cast<int64_t>(taps.rows.size())};
  t.rows.resize(taps.in);
  for (int64_t o = 0; o < t.in; ++o) {
    for (const auto& [element, weight] : taps.rows[o]) {
      auto& row = t.rows[element];
      if (!row.empty() && row.back().first == o) {  // clamped at an edge: one element, several times
        row.back().second += weight;
      } else {
        row.emplace_back(o, weight);
      }
    }
  }
  return t;
}

TapColumn ColumnOf(const Taps& taps, int64_t k) {
  TapColumn c;
  for (const auto& row : taps.rows) {
    const bool inside = k < static_cast<int64_t>(row.size());
    c.index.push_back(inside ? row[k].first : 0);
    c.weight.push_back(inside ? row[k].second : 0);
    c.inside.push_back(inside);
    c.all_inside = c.all_inside && inside;
    c.all_ones = c.all_ones && (!inside || row[k].second == 1);
  }
  return c;
}

Instruction* AlongAxis(OpContext& op, Literal literal, absl::Span<const Dim> like, int64_t axis) {
  return op.b.Broadcast(op.b.Constant(std::move(literal)), like, {axis});
}

Instruction* MaskAlongAxis(OpContext& op, const std::vector<int64_t>& mask, absl::Span<const Dim> like, int64_t axis) {
  Literal literal(Shape::Array(PT::kPred, {static_cast<int64_t>(mask.size())}));
  for (size_t o = 0; o < mask.size(); ++o) literal.SetFromInt64(static_cast<int64_t>(o), mask[o]);
  return AlongAxis(op, std::move(literal), like, axis);
}

Instruction* TakeAt(OpContext& op, Instruction* x, int64_t axis, const std::vector<int64_t>& index) {
  const int64_t in = x->shape().constant_dim(axis), out = static_cast<int64_t>(index.size());
  bool run = out > 0, repeats = out > 0 && out % in == 0;
  for (int64_t o = 0; o < out; ++o) {
    run = run && index[o] == index[0] + o;
    repeats = repeats && index[o] == o / (out / in);
  }
  if (run && out == in) return x;
  if (run) return op.b.SliceDim(x, axis, index[0], index[0] + out);
  if (repeats) return RepeatAlong(op, x, axis, out / in);
  return Take(op, x, op.b.Constant(Literal::FromSpan<int64_t>(PT::kS64, {out}, index)), axis);
}

Instruction* TakeRows(OpContext& op, Instruction* x, int64_t axis, const Taps& taps) {
  const int64_t rows = static_cast<int64_t>(taps.rows.size()), longest = taps.longest();
  Literal index(Shape::Array(PT::kS64, {rows, longest}));
  bool split = rows * longest == taps.in;
  for (int64_t o = 0; o < rows; ++o) {
    const auto& row = taps.rows[o];
    for (int64_t k = 0; k < longest; ++k) {
      const int64_t at = k < static_cast<int64_t>(row.size()) ? row[k].first : 0;
      index.SetFromInt64(o * longest + k, at);
      split = split && at == o * longest + k;
    }
  }
  if (!split) return Take(op, x, op.b.Constant(std::move(index)), axis);
  std::vector<Dim> dims = DimsOf(x);
  dims[axis] = rows;
  dims.insert(dims.begin() + axis + 1, longest);
  return op.b.Reshape(x, dims);
}

Instruction* InsideRows(OpContext& op, const Taps& taps, absl::Span<const Dim> like, int64_t axis) {
  const int64_t rows = static_cast<int64_t>(taps.rows.size()), longest = taps.longest();
  Literal inside(Shape::Array(PT::kPred, {rows, longest}));
  bool all = true;
  for (int64_t o = 0; o < rows; ++o) {
    for (int64_t k = 0; k < longest; ++k) {
      const bool in = k < static_cast<int64_t>(taps.rows[o].size());
      inside.SetFromInt64(o * longest + k, in);
      all = all && in;
    }
  }
  if (all) return nullptr;
  return op.b.Broadcast(op.b.Constant(std::move(inside)), like, {axis, axis + 1});
}

Instruction* ApplyTaps(OpContext& op, Instruction* x, int64_t axis, const Taps& taps) {
  Builder& b = op.b;
  const int64_t longest = taps.longest(), rows = static_cast<int64_t>(taps.rows.size());
  std::vector<Dim> dims = DimsOf(x);
  dims[axis] = rows;
  if (longest == 0) return b.Full(x->shape().element_type(), dims, 0);
  if (longest > kUnrolledTaps) return ApplyLongTaps(op, x, axis, taps);
  Instruction* sum = nullptr;
  for (int64_t k = 0; k < longest; ++k) {
    const TapColumn column = ColumnOf(taps, k);
    Instruction* term = TakeAt(op, x, axis, column.index);
    if (!column.all_ones) {
      Literal weight(Shape::Array(x->shape().element_type(), {rows}));
      for (int64_t o = 0; o < rows; ++o) weight.SetFromDouble(o, column.weight[o]);
      term = b.Binary(kMultiply, AlongAxis(op, std::move(weight), dims, axis), term);
    }
    // Not a weight of 0: an infinity elsewhere would become NaN here.
    if (!column.all_inside) term = b.Select(MaskAlongAxis(op, column.inside, dims, axis), term, op.Full(term, 0));
    sum = sum == nullptr ? term : b.Binary(kAdd, sum, term);
  }
  return sum;
}

Places PlacesFrom(OpContext& op, Instruction* start, Instruction* end, Dim longest) {
  Builder& b = op.b;
  const std::vector<Dim> dims = {start->shape().dim(0), longest};
  Instruction* at = b.Binary(kAdd, b.Broadcast(start, dims, {0}), b.Iota(Shape(PT::kS64, dims), 1));
  return {at, b.Compare(at, b.Broadcast(end, dims, {0}), "LT")};
}

Instruction* SumAtPlaces(OpContext& op, Instruction* x, int64_t axis, const Places& places, Instruction* weight) {
  Builder& b = op.b;
  Instruction* terms = Take(op, x, b.Select(places.inside, places.at, op.Full(places.at, 0)), axis);
  const std::vector<Dim> dims = DimsOf(terms);
  if (weight != nullptr) terms = b.Binary(kMultiply, b.Broadcast(weight, dims, {axis, axis + 1}), terms);
  terms = b.Select(b.Broadcast(places.inside, dims, {axis, axis + 1}), terms, op.Full(terms, 0));  // infinities elsewhere stay there
  return ReduceSum(op, terms, {axis + 1});
}

}  // namespace tenon::aten
