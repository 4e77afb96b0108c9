#include "passes/memory/pack_arena.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "absl/status/statusor.h"
#include "hlo/arena.h"

namespace tenon {
namespace {

struct Packed {
  int64_t bytes = 0, most_alive = 0;
};

// Where the first of the buffers is born that lent memory cannot hold, if the framework brings memory of its own for a value (of a slot)
// before that; else 0. With all others in lent memory there need be no arena so far.
int64_t BirthOfArena(const BufferPlan& plan, absl::Span<const BufferLife> lives, absl::Span<const int64_t> bytes,
                     absl::Span<const LentMemory> lent) {
  int64_t first = INT32_MAX;
  for (size_t b = 0; b < lives.size(); ++b) {
    auto fits = [&](const LentMemory& memory) { return memory.CanHold(lives[b], bytes[b]); };
    if (bytes[b] > 0 && std::none_of(lent.begin(), lent.end(), fits)) first = std::min<int64_t>(first, lives[b].first);
  }
  const bool late = std::any_of(plan.allocations.begin(), plan.allocations.end(), [&](const Allocation& a) {
    return a.kind == Allocation::Kind::kSlot && a.first >= 0 && a.first < first;
  });
  return late ? first : 0;
}

Packed Pack(BufferPlan* plan, int64_t space) {
  std::vector<Allocation*> arena;
  std::vector<BufferLife> lives;
  std::vector<int64_t> bytes;
  bool symbolic = false;
  for (Allocation& a : plan->allocations) {
    if (a.kind != Allocation::Kind::kArena || a.first < 0 || a.space != space) continue;
    arena.push_back(&a);
    lives.push_back({static_cast<int32_t>(a.first), static_cast<int32_t>(a.last)});
    bytes.push_back(TypicalBytes(a.bytes));
    symbolic |= !a.bytes.is_constant();
  }
  std::vector<LentMemory> lent;
  std::vector<int32_t> lenders;
  for (int32_t k = 0; space == 0 && !symbolic && k < static_cast<int32_t>(plan->allocations.size()); ++k) {
    const Allocation& a = plan->allocations[k];
    if (a.kind != Allocation::Kind::kOutput || a.first <= 0 || a.space != 0 || !a.bytes.is_constant()) continue;
    lent.push_back({a.bytes.constant(), static_cast<int32_t>(a.first)});
    lenders.push_back(k);
  }
  const int64_t birth = BirthOfArena(*plan, lives, bytes, lent);
  ArenaPlaces places = PlaceBuffers(lives, bytes, lent, /*again=*/8, /*all_lent=*/birth > 0);
  for (size_t k = 0; birth > 0 && k < lives.size(); ++k) {
    if (places.lent.empty() || places.lent[k] >= 0 || bytes[k] == 0 || lives[k].first >= birth) continue;
    places = PlaceBuffers(lives, bytes, lent, /*again=*/8);  // lent memory is too small for all of them together
    break;
  }
  for (size_t k = 0; k < arena.size(); ++k) {
    arena[k]->offset = places.offsets[k];
    if (!places.lent.empty() && places.lent[k] >= 0) arena[k]->lender = lenders[places.lent[k]];
  }
  if (symbolic) plan->symbolic_arenas.insert(space);
  return {places.bytes, MostAlive(lives, bytes)};
}

}  // namespace

int64_t TypicalBytes(Dim bytes) {
  constexpr int64_t kMost = int64_t{1} << 40;
  if (bytes.is_constant()) return bytes.constant();
  const absl::StatusOr<int64_t> n = Evaluate(bytes, [&](std::string_view name) -> absl::StatusOr<int64_t> {
    const Dim symbol = bytes.expr()->table->Symbol(name);
    return std::min(std::max(Typical(symbol), kTypicalSize), UpperBound(symbol));
  });
  return n.ok() ? std::clamp<int64_t>(*n, 0, kMost) : kMost;
}

void PackArena(BufferPlan* plan) {
  const Packed host = Pack(plan, 0);
  plan->arena_bytes = host.bytes;
  plan->peak_live_bytes = host.most_alive;
  std::set<int64_t> devices;
  for (const Allocation& a : plan->allocations) {
    if (a.space != 0) devices.insert(a.space);
  }
  for (int64_t space : devices) plan->device_arenas.emplace_back(space, Pack(plan, space).bytes);
}

}  // namespace tenon
