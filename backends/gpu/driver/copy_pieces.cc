#include "backends/gpu/driver/copy_pieces.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace tenon::gpu {
namespace {

struct Loop {
  int64_t size = 0, to = 0, from = 0;  // strides in bytes
};

// Nested loops, the innermost last, of as few levels as do.
std::vector<Loop> Loops(const DeviceCopy& copy) {
  std::vector<Loop> loops;
  for (int32_t d = 0; d < copy.ndim; ++d) {
    if (copy.dims[d] == 1) continue;
    loops.push_back({copy.dims[d], copy.to_strides[d] * copy.width, copy.from_strides[d] * copy.width});
  }
  // What lies closest together in the destination is innermost.
  std::stable_sort(loops.begin(), loops.end(), [](const Loop& a, const Loop& b) { return a.to > b.to; });
  std::vector<Loop> merged;
  for (const Loop& loop : loops) {
    if (!merged.empty() && merged.back().to == loop.to * loop.size && merged.back().from == loop.from * loop.size)
      merged.back() = {merged.back().size * loop.size, loop.to, loop.from};
    else
      merged.push_back(loop);
  }
  return merged;
}

}  // namespace

std::vector<CopyPiece> CutCopy(const DeviceCopy& copy) {
  std::vector<Loop> loops = Loops(copy);
  CopyPiece piece{.width = copy.width};
  if (!loops.empty() && loops.back().to == copy.width && loops.back().from == copy.width) {
    piece.width *= loops.back().size;
    loops.pop_back();
  }
  // The rows: the longest loop whose pitches a driver takes.
  constexpr int64_t kMaxPitch = std::numeric_limits<int32_t>::max();
  const auto fits = [&](const Loop& l) { return std::min(l.to, l.from) >= piece.width && std::max(l.to, l.from) <= kMaxPitch; };
  const auto rows = std::max_element(loops.begin(), loops.end(), [&](const Loop& a, const Loop& b) {
    return (fits(a) ? a.size : 0) < (fits(b) ? b.size : 0);
  });
  if (rows != loops.end() && fits(*rows)) {
    piece.height = rows->size;
    piece.to_pitch = rows->to;
    piece.from_pitch = rows->from;
    loops.erase(rows);
  }
  std::vector<CopyPiece> pieces = {piece};
  for (const Loop& loop : loops) {
    std::vector<CopyPiece> more;
    more.reserve(pieces.size() * static_cast<size_t>(loop.size));
    for (const CopyPiece& p : pieces) {
      for (int64_t i = 0; i < loop.size; ++i) {
        more.push_back(p);
        more.back().to += i * loop.to;
        more.back().from += i * loop.from;
      }
    }
    pieces = std::move(more);
  }
  return pieces;
}

Extent ExtentOf(const int64_t* strides, const DeviceCopy& copy) {
  Extent extent{0, copy.width};
  for (int32_t d = 0; d < copy.ndim; ++d) {
    const int64_t last = (copy.dims[d] - 1) * strides[d] * copy.width;
    (last < 0 ? extent.begin : extent.end) += last;
  }
  return extent;
}

}  // namespace tenon::gpu
