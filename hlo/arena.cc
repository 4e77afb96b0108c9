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
int64_t AlignUp(int64_t bytes) { return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment; }

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
    const int64_t size = AlignUp(bytes[b]), offset = shelf.BestGap(lives[b], size);
    places.offsets[b] = offset;
    places.bytes = std::max(places.bytes, offset + size);
    shelf.Add(lives[b], offset, offset + size);
  }
  return places;
}

}  // namespace

int64_t MostAlive(absl::Span<const BufferLife> lives, absl::Span<const int64_t> bytes) {
  std::vector<std::pair<int64_t, int64_t>> changes;  // a position, and what is alive from there on more or less than before
  changes.reserve(2 * lives.size());
  for (size_t b = 0; b < lives.size(); ++b) {
    changes.emplace_back(lives[b].first, bytes[b]);
    changes.emplace_back(int64_t{lives[b].last} + 1, -bytes[b]);
  }
  std::sort(changes.begin(), changes.end());  // at one position what dies comes first
  int64_t alive = 0, most = 0;
  for (const auto& [position, change] : changes) most = std::max(most, alive += change);
  return most;
}

ArenaPlaces PlaceBuffers(absl::Span<const BufferLife> lives, absl::Span<const int64_t> bytes) {
  // Neither order is always the better. Many buffers: the first order only.
  std::vector<int32_t> order(lives.size());
  std::iota(order.begin(), order.end(), 0);
  auto sort = [&](auto key) { std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return key(a) < key(b); }); };
  sort([&](int32_t b) { return std::pair(-bytes[b], b); });
  ArenaPlaces best = PlaceInOrder(lives, bytes, order);
  if (order.size() > kMaxTwiceSorted || best.bytes == AlignUp(MostAlive(lives, bytes))) return best;
  sort([&](int32_t b) { return std::tuple(lives[b].first, -bytes[b], b); });  // of those born together large ones first
  ArenaPlaces by_birth = PlaceInOrder(lives, bytes, order);
  return by_birth.bytes < best.bytes ? std::move(by_birth) : std::move(best);
}

bool LieApart(absl::Span<const BufferLife> lives, absl::Span<const int64_t> bytes, const ArenaPlaces& places) {
  for (size_t a = 0; a < lives.size(); ++a) {
    const int64_t begin = places.offsets[a], end = begin + bytes[a];
    if (begin < 0 || begin % kArenaAlignment != 0 || end > places.bytes) return false;
    for (size_t b = 0; b < a; ++b) {
      if (lives[a].Meets(lives[b]) && begin < places.offsets[b] + bytes[b] && places.offsets[b] < end) return false;
    }
  }
  return true;
}

}  // namespace tenon
