#include "passes/memory/pack_arena.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace tenon {
namespace {

constexpr int64_t kAlignment = 64;
constexpr size_t kMaxTwiceSorted = 2000;
Dim AlignUp(Dim bytes) { return CeilDiv(bytes, kAlignment) * kAlignment; }

class Packer {
 public:
  Packer(BufferPlan* plan, int64_t length, int64_t space) : plan_(plan), length_(length), space_(space) {}

  // Best fit by decreasing size into gaps of what is live at the same time (the offset calculation of Pisarchyk & Lee 2020).
  // Its size.
  Dim Run() {
    std::vector<int32_t> arena;
    for (int32_t a = 0; a < static_cast<int32_t>(plan_->allocations.size()); ++a) {
      const Allocation& x = plan_->allocations[a];
      if (x.kind == Allocation::Kind::kArena && x.first >= 0 && x.space == space_) arena.push_back(a);
    }
    FindPeak(arena);
    const bool all_constant = std::all_of(arena.begin(), arena.end(), [&](int32_t a) { return plan_->allocations[a].bytes.is_constant(); });
    if (!all_constant) return StackSymbolic(arena);
    // Neither order is always the better: the smaller arena is kept. Many buffers: the first order only.
    const std::vector<int32_t> packed = arena;
    std::vector<int64_t> best;  // by `packed`
    int64_t best_end = INT64_MAX;
    for (const bool by_birth : {false, true}) {
      SortForPacking(by_birth, &arena);
      const int64_t end = Place(arena);
      if (end < best_end) {
        best_end = end;
        best.clear();
        for (int32_t a : packed) best.push_back(plan_->allocations[a].offset.constant());
      }
      if (best_end == AlignUp(peak_).constant() || arena.size() > kMaxTwiceSorted) break;
    }
    for (size_t a = 0; a < best.size(); ++a) plan_->allocations[packed[a]].offset = best[a];
    return arena.empty() ? 0 : best_end;
  }
  Dim peak() const { return peak_; }

 private:
  // Large before small; or by birth, large before small among those born together.
  void SortForPacking(bool by_birth, std::vector<int32_t>* arena) const {
    auto key = [&](int32_t a) {
      const Allocation& x = plan_->allocations[a];
      return std::tuple(by_birth ? x.first : 0, -x.bytes.constant(), a);
    };
    std::sort(arena->begin(), arena->end(), [&](int32_t x, int32_t y) { return key(x) < key(y); });
  }

  // Offsets in the order given; the arena's size.
  int64_t Place(const std::vector<int32_t>& arena) {
    std::vector<int32_t> placed;  // by offset
    int64_t end = 0;
    for (int32_t a : arena) {
      const int64_t size = AlignUp(plan_->allocations[a].bytes).constant();
      const int64_t offset = BestGap(placed, a, size);
      plan_->allocations[a].offset = offset;
      end = std::max(end, offset + size);
      auto lower = [&](int32_t x, int32_t y) { return plan_->allocations[x].offset.constant() < plan_->allocations[y].offset.constant(); };
      placed.insert(std::upper_bound(placed.begin(), placed.end(), a, lower), a);
    }
    return end;
  }

  int64_t BestGap(const std::vector<int32_t>& placed, int32_t a, int64_t size) const {
    const Allocation& wanted = plan_->allocations[a];
    int64_t best = -1, best_gap = INT64_MAX, cursor = 0;
    for (int32_t p : placed) {
      const Allocation& other = plan_->allocations[p];
      if (other.last < wanted.first || wanted.last < other.first) continue;
      const int64_t gap = other.offset.constant() - cursor;
      if (gap >= size && gap < best_gap) {
        best = cursor;
        best_gap = gap;
      }
      cursor = std::max(cursor, other.offset.constant() + AlignUp(other.bytes).constant());
    }
    return best >= 0 ? best : cursor;
  }

  // Symbolic sizes: one after the other; reuse only between equal sizes whose lives don't meet.
  Dim StackSymbolic(const std::vector<int32_t>& arena) {
    Dim end = 0;
    std::vector<std::vector<int32_t>> shelves;
    for (int32_t a : arena) {
      Allocation& wanted = plan_->allocations[a];
      bool found = false;
      for (std::vector<int32_t>& shelf : shelves) {
        const Allocation& first = plan_->allocations[shelf[0]];
        const bool free = std::all_of(shelf.begin(), shelf.end(), [&](int32_t p) {
          return plan_->allocations[p].last < wanted.first || wanted.last < plan_->allocations[p].first;
        });
        if (!free || !KnownEqual(first.bytes, wanted.bytes)) continue;
        wanted.offset = first.offset;
        shelf.push_back(a);
        found = true;
        break;
      }
      if (found) continue;
      wanted.offset = end;
      end += AlignUp(wanted.bytes);
      shelves.push_back({a});
    }
    return end;
  }

  void FindPeak(const std::vector<int32_t>& arena) {
    std::vector<int64_t> delta(length_ + 2, 0);
    for (int32_t a : arena) {
      const Allocation& x = plan_->allocations[a];
      if (!x.bytes.is_constant()) return;
      delta[x.first] += x.bytes.constant();
      delta[x.last + 1] -= x.bytes.constant();
    }
    int64_t live = 0, peak = 0;
    for (int64_t d : delta) peak = std::max(peak, live += d);
    peak_ = peak;
  }

  BufferPlan* plan_;
  const int64_t length_, space_;
  Dim peak_ = 0;  // of live bytes
};

}  // namespace

void PackArena(BufferPlan* plan, int64_t length) {
  Packer host(plan, length, 0);
  plan->arena_bytes = host.Run();
  plan->peak_live_bytes = host.peak();
  std::set<int64_t> devices;
  for (const Allocation& a : plan->allocations) {
    if (a.space != 0) devices.insert(a.space);
  }
  for (int64_t space : devices) plan->device_arenas.emplace_back(space, Packer(plan, length, space).Run());
}

}  // namespace tenon
