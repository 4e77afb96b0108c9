#include "passes/memory/free_memory.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "hlo/arena.h"

namespace tenon {

MemoryRun FreeMemoryAt(const BufferPlan& plan, const Instruction* op) {
  MemoryRun longest;
  if (plan.symbolic_arenas.contains(0)) return longest;
  const int64_t at = plan.positions.at(op);
  struct Taken {
    int32_t lender;
    int64_t begin, end;
  };
  std::vector<Taken> taken = {{-1, plan.arena_bytes, plan.arena_bytes}};  // what is there, and where each memory ends
  for (int32_t k = 0; k < static_cast<int32_t>(plan.allocations.size()); ++k) {
    const Allocation& a = plan.allocations[static_cast<size_t>(k)];
    if (a.space != 0 || !a.bytes.is_constant()) continue;
    const int64_t bytes = a.bytes.constant();
    if (a.kind == Allocation::Kind::kOutput && a.first > at) taken.push_back({k, bytes, bytes});
    if (a.kind == Allocation::Kind::kArena && a.first <= at && at <= a.last) taken.push_back({a.lender, a.offset, a.offset + bytes});
  }
  const auto place = [](const Taken& t) { return std::pair(t.lender, t.begin); };
  std::sort(taken.begin(), taken.end(), [&](const Taken& a, const Taken& b) { return place(a) < place(b); });
  int64_t cursor = 0;
  for (size_t k = 0; k < taken.size(); ++k) {
    const Taken& t = taken[k];
    if (k == 0 || taken[k - 1].lender != t.lender) cursor = 0;
    const int64_t bytes = (t.begin - cursor) / kArenaAlignment * kArenaAlignment;
    if (bytes > longest.bytes) longest = {t.lender, cursor, bytes};
    cursor = std::max(cursor, AlignedUp(t.end));
  }
  return longest;
}

}  // namespace tenon
