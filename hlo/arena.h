// Where the buffers of one arena lie, so that none shares a byte with another that is alive at the same time. Plain arithmetic: the buffer
// plan does it once where sizes are numbers, a frame for each set of sizes where they are expressions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tenon {

inline constexpr int64_t kArenaAlignment = 64;
inline constexpr int64_t AlignedUp(int64_t bytes) { return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment; }

// Positions between which a buffer is alive, inclusive.
struct BufferLife {
  int32_t first = 0, last = 0;
  bool Meets(const BufferLife& other) const { return first <= other.last && other.first <= last; }
};

// Memory that others need from a position on, and nobody before: a result's, until it is written.
struct LentMemory {
  int64_t bytes = 0;
  int32_t until = 0;
  bool CanHold(const BufferLife& life, int64_t size) const { return life.last < until && size <= bytes; }
};

struct ArenaPlaces {
  std::vector<int64_t> offsets;  // by buffer, aligned
  int64_t bytes = 0;
  std::vector<int32_t> lent;  // by buffer, the lent memory in which it lies; -1: in the arena. Empty: all do
};

// `bytes` by buffer, none negative; their sum must be no more than 2^62. Best fit (the offset calculation of Pisarchyk & Lee 2020), once by
// decreasing size and once by birth: the smaller arena is kept. Deterministic. A few hundred buffers take less than 100 us.
//
// Buffers that are gone by then lie in lent memory, those alone without which the arena is smaller. No lent memory lies in another.
// `all_lent`: all that fit do, so that there need be no arena before the first of the others is born.
// `again`: how often up to a few hundred are placed anew, what stuck out first, while the arena is larger than what is alive at once.
ArenaPlaces PlaceBuffers(absl::Span<const BufferLife> lives, absl::Span<const int64_t> bytes, absl::Span<const LentMemory> lent = {},
                         int again = 0, bool all_lent = false);

// Bytes of all that is alive at once, where that is most: no arena is smaller.
int64_t MostAlive(absl::Span<const BufferLife> lives, absl::Span<const int64_t> bytes);

// Does every buffer lie in the arena or in lent memory while it is lent, aligned, and apart from those alive with it? In O(n^2): for tests
// and guarded memory.
bool LieApart(absl::Span<const BufferLife> lives, absl::Span<const int64_t> bytes, const ArenaPlaces& places,
              absl::Span<const LentMemory> lent = {});

}  // namespace tenon
