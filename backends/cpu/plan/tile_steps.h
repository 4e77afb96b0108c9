// What a step of a contraction's tile takes: by it tiles are chosen (make_plan) and times estimated (work).
#pragma once

#include <algorithm>
#include <cstdint>

namespace tenon {

// A tile of `rows` times `vectors` sums, in vector multiply-adds: its own, two a cycle, and a share for its loads; below kLatency of them
// the sums wait for each other. `both`: each sum has vectors of its own of both operands. `parts`: registers of an element.
inline double TileStep(int64_t rows, int64_t vectors, bool both, int parts) {
  constexpr double kLatency = 8;  // multiply-adds that are under way at once
  constexpr double kLoadShare = 0.25, kOverhead = 1;
  if (rows == 0 || vectors == 0) return 0;
  const auto r = static_cast<double>(rows), v = static_cast<double>(vectors);
  const double loads = both ? r * v + v : r + v;
  return std::max({r * v * parts, loads * parts, kLatency}) + kLoadShare * loads + kOverhead;
}

// Sums that are written out for tiles of `unroll` rows by a `block` of columns in vectors of `lanes`: a whole tile's, and where something
// is left of rows, columns or both, those of the tiles for that too.
inline int64_t SumsWritten(int64_t rows, int64_t columns, int64_t unroll, int64_t block, int64_t lanes) {
  const int64_t left = (columns % block + lanes - 1) / lanes;
  return (rows >= unroll ? unroll + rows % unroll : rows) * ((columns >= block ? block / lanes : 0) + left);
}

}  // namespace tenon
