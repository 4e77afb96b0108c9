#include "hlo/arena.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <tuple>
#include <utility>

namespace tenon {
namespace {

constexpr size_t kMaxTwiceSorted = 2000;
constexpr size_t kMaxAgain = 500;
constexpr size_t kMostLent = 16;  // the largest

// The buffers that have their places, by offset. Columns, so that a pass over 64 of them finds which meet a life.
class Shelf {
 public:
  explicit Shelf(size_t most) : begins_(most + kWord), ends_(most + kWord), firsts_(most + kWord, INT32_MAX), lasts_(most + kWord, -1) {}

  // The smallest gap that it fits into, between what is alive with it; else behind all that. Without branches that depend on sizes, which
  // would be guessed wrong.
  int64_t BestGap(BufferLife life, int64_t size) const {
    int64_t best = -1, best_gap = INT64_MAX, cursor = 0;
    for (size_t word = 0; word < count_; word += kWord) {
      for (uint64_t bits = Meeting(life, word); bits != 0; bits &= bits - 1) {
        const size_t k = word + static_cast<size_t>(std::countr_zero(bits));
        const int64_t gap = begins_[k] - cursor;
        const bool better = (gap >= size) & (gap < best_gap);
        best = better ? cursor : best;
        best_gap = better ? gap : best_gap;
        cursor = std::max(cursor, ends_[k]);
      }
    }
    return best >= 0 ? best : cursor;
  }

  void Add(BufferLife life, int64_t begin, int64_t end) {
    const auto last = begins_.begin() + static_cast<int64_t>(count_);
    const auto at = static_cast<size_t>(std::upper_bound(begins_.begin(), last, begin) - begins_.begin());
    Insert(&begins_, at, begin);
    Insert(&ends_, at, end);
    Insert(&firsts_, at, life.first);
    Insert(&lasts_, at, life.last);
    ++count_;
  }

 private:
  static constexpr size_t kWord = 64;

  template <typename T>
  void Insert(std::vector<T>* column, size_t at, T value) {
    std::memmove(column->data() + at + 1, column->data() + at, (count_ - at) * sizeof(T));
    (*column)[at] = value;
  }

  // Of those from `word` on, a bit for each.
  uint64_t Meeting(BufferLife life, size_t word) const {
    const int32_t *firsts = &firsts_[word], *lasts = &lasts_[word];
    std::array<uint8_t, kWord> meets;
    for (size_t k = 0; k < kWord; ++k) meets[k] = static_cast<uint8_t>((firsts[k] <= life.last) & (life.first <= lasts[k]));
    uint64_t bits = 0;
    for (size_t eight = 0; eight < kWord; eight += 8) {
      uint64_t marks;
      std::memcpy(&marks, &meets[eight], 8);
      bits |= (marks * 0x0102040810204080 >> 56) << eight;
    }
    return bits;
  }

  size_t count_ = 0;
  std::vector<int64_t> begins_, ends_;
  std::vector<int32_t> firsts_, lasts_;  // behind the last what meets nothing
};

ArenaPlaces PlaceInOrder(absl::Span<const BufferLife> lives, absl::Span<const int64_t> bytes, absl::Span<const int32_t> order) {
  ArenaPlaces places{.offsets = std::vector<int64_t>(lives.size())};
  Shelf shelf(lives.size());
  for (const int32_t b : order) {
    const int64_t size = AlignedUp(bytes[b]), offset = shelf.BestGap(lives[b], size);
    places.offsets[b] = offset;
    places.bytes = std::max(places.bytes, offset + size);
    shelf.Add(lives[b], offset, offset + size);
  }
  return places;
}

// A position, and what is alive from there on more or less than before. Ascending; at one position what dies comes first.
std::vector<std::pair<int64_t, int64_t>> Changes(absl::Span<const BufferLife> lives, absl::Span<const int64_t> bytes) {
  std::vector<std::pair<int64_t, int64_t>> changes;
  changes.reserve(2 * lives.size());
  for (size_t b = 0; b < lives.size(); ++b) {
    changes.emplace_back(lives[b].first, bytes[b]);
    changes.emplace_back(int64_t{lives[b].last} + 1, -bytes[b]);
  }
  std::sort(changes.begin(), changes.end());
  return changes;
}

// Positions at which more than `most` bytes are alive, ascending.
std::vector<BufferLife> FullerThan(int64_t most, absl::Span<const BufferLife> lives, absl::Span<const int64_t> bytes) {
  std::vector<BufferLife> full;
  int64_t alive = 0;
  const std::vector<std::pair<int64_t, int64_t>> changes = Changes(lives, bytes);
  for (size_t k = 0; k < changes.size();) {
    const int64_t at = changes[k].first;
    for (; k < changes.size() && changes[k].first == at; ++k) alive += changes[k].second;
    if (alive <= most) continue;
    const auto end = static_cast<int32_t>(changes[k].first - 1);  // the last change ends all lives
    if (!full.empty() && full.back().last + 1 == at) {
      full.back().last = end;
    } else {
      full.push_back({static_cast<int32_t>(at), end});
    }
  }
  return full;
}

// `again`: how often it is tried again while the arena is larger than what is alive at once.
ArenaPlaces Pack(absl::Span<const BufferLife> lives, absl::Span<const int64_t> bytes, int again) {
  // Neither order is always the better. Many buffers: the first order only.
  std::vector<int32_t> order(lives.size());
  std::iota(order.begin(), order.end(), 0);
  auto sort = [&](auto key) { std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return key(a) < key(b); }); };
  sort([&](int32_t b) { return std::pair(-bytes[b], b); });
  ArenaPlaces best = PlaceInOrder(lives, bytes, order);
  const int64_t least = AlignedUp(MostAlive(lives, bytes));
  if (order.size() > kMaxTwiceSorted || best.bytes == least) return best;
  std::vector<int32_t> best_order = order;
  sort([&](int32_t b) { return std::tuple(lives[b].first, -bytes[b], b); });  // of those born together large ones first
  if (ArenaPlaces by_birth = PlaceInOrder(lives, bytes, order); by_birth.bytes < best.bytes) {
    best = std::move(by_birth);
    best_order = order;
  }
  // What stuck out goes first.
  order = std::move(best_order);
  ArenaPlaces last = best;
  for (; again > 0 && order.size() <= kMaxAgain && best.bytes > least; --again) {
    std::stable_partition(order.begin(), order.end(), [&](int32_t b) { return last.offsets[b] + bytes[b] > least; });
    last = PlaceInOrder(lives, bytes, order);
    if (last.bytes < best.bytes) best = last;
  }
  return best;
}

// The buffers of `which`.
ArenaPlaces PackSome(absl::Span<const BufferLife> lives, absl::Span<const int64_t> bytes, absl::Span<const int32_t> which, int again) {
  std::vector<BufferLife> some_lives;
  std::vector<int64_t> some_bytes;
  for (const int32_t b : which) {
    some_lives.push_back(lives[b]);
    some_bytes.push_back(bytes[b]);
  }
  return Pack(some_lives, some_bytes, again);
}

}  // namespace

int64_t MostAlive(absl::Span<const BufferLife> lives, absl::Span<const int64_t> bytes) {
  int64_t alive = 0, most = 0;
  for (const auto& [position, change] : Changes(lives, bytes)) most = std::max(most, alive += change);
  return most;
}

ArenaPlaces PlaceBuffers(absl::Span<const BufferLife> lives, absl::Span<const int64_t> bytes, absl::Span<const LentMemory> lent,
                         int again, bool all_lent) {
  ArenaPlaces without = Pack(lives, bytes, again);
  if (lent.empty()) return without;
  std::vector<int32_t> largest(lent.size());  // first
  std::iota(largest.begin(), largest.end(), 0);
  std::stable_sort(largest.begin(), largest.end(), [&](int32_t a, int32_t b) { return lent[a].bytes > lent[b].bytes; });
  if (largest.size() > kMostLent) largest.resize(kMostLent);
  auto fits = [&](int32_t b, int32_t memory) { return lent[memory].CanHold(lives[b], bytes[b]); };
  std::vector<BufferLife> others;
  std::vector<int64_t> others_bytes;
  std::vector<int32_t> movable;
  for (int32_t b = 0; b < static_cast<int32_t>(lives.size()); ++b) {
    if (bytes[b] > 0 && std::any_of(largest.begin(), largest.end(), [&](int32_t memory) { return fits(b, memory); })) {
      movable.push_back(b);
    } else {
      others.push_back(lives[b]);
      others_bytes.push_back(bytes[b]);
    }
  }
  // Those that are alive where less would be, but for them. The arena is in the caches when a call begins: what need not leave it stays.
  const std::vector<BufferLife> full = FullerThan(MostAlive(others, others_bytes), lives, bytes);
  auto needless = [&](int32_t b) {
    return !all_lent && std::none_of(full.begin(), full.end(), [&](BufferLife at) { return lives[b].Meets(at); });
  };
  movable.erase(std::remove_if(movable.begin(), movable.end(), needless), movable.end());
  // Large ones first, of those that were born last: they meet what cannot go, which is near the lenders' own values.
  std::sort(movable.begin(), movable.end(), [&](int32_t a, int32_t b) {
    return std::tuple(-bytes[a], -lives[a].first, a) < std::tuple(-bytes[b], -lives[b].first, b);
  });

  ArenaPlaces places{.offsets = std::vector<int64_t>(lives.size()), .lent = std::vector<int32_t>(lives.size(), -1)};
  std::vector<Shelf> shelves(largest.size(), Shelf(movable.size()));
  for (const int32_t b : movable) {
    for (size_t k = 0; k < largest.size() && places.lent[b] < 0; ++k) {
      const int32_t memory = largest[k];
      const int64_t size = AlignedUp(bytes[b]), offset = fits(b, memory) ? shelves[k].BestGap(lives[b], size) : lent[memory].bytes;
      if (offset > lent[memory].bytes - bytes[b]) continue;
      places.lent[b] = memory;
      places.offsets[b] = offset;
      shelves[k].Add(lives[b], offset, offset + size);
    }
  }
  std::vector<int32_t> stay;
  for (int32_t b = 0; b < static_cast<int32_t>(lives.size()); ++b) {
    if (places.lent[b] < 0) stay.push_back(b);
  }
  const ArenaPlaces arena = PackSome(lives, bytes, stay, again);
  if (!all_lent && arena.bytes >= without.bytes) return without;
  places.bytes = arena.bytes;
  for (size_t k = 0; k < stay.size(); ++k) places.offsets[stay[k]] = arena.offsets[k];
  return places;
}

bool LieApart(absl::Span<const BufferLife> lives, absl::Span<const int64_t> bytes, const ArenaPlaces& places,
              absl::Span<const LentMemory> lent) {
  auto memory = [&](size_t b) { return places.lent.empty() ? -1 : places.lent[b]; };
  for (size_t a = 0; a < lives.size(); ++a) {
    const int64_t begin = places.offsets[a], end = begin + bytes[a];
    if (memory(a) >= 0 && lives[a].last >= lent[memory(a)].until) return false;
    if (begin < 0 || begin % kArenaAlignment != 0 || end > (memory(a) < 0 ? places.bytes : lent[memory(a)].bytes)) return false;
    for (size_t b = 0; b < a; ++b) {
      if (memory(a) != memory(b) || !lives[a].Meets(lives[b])) continue;
      if (begin < places.offsets[b] + bytes[b] && places.offsets[b] < end) return false;
    }
  }
  return true;
}

}  // namespace tenon
