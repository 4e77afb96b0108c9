#include "passes/memory/moves.h"

#include "absl/container/flat_hash_map.h"

namespace tenon {

std::vector<BufferMove> OrderMoves(std::vector<BufferMove> moves, const std::function<int32_t(BufferKey)>& allocation,
                                   const std::function<int32_t(const BufferMove&)>& temporary) {
  absl::flat_hash_map<int32_t, int64_t> unread;  // allocation -> moves that have yet to read it
  for (const BufferMove& m : moves) ++unread[allocation(m.from)];
  std::vector<BufferMove> order;
  while (!moves.empty()) {
    std::vector<BufferMove> blocked;
    for (BufferMove& m : moves) {
      if (unread[allocation(m.to)] > 0) {
        blocked.push_back(m);
        continue;
      }
      if (m.from_temporary < 0) --unread[allocation(m.from)];
      order.push_back(m);
    }
    if (blocked.size() == moves.size()) {  // every target is still to be read: one source is put aside
      for (BufferMove& m : blocked) {
        if (m.from_temporary >= 0) continue;
        BufferMove save{.from = m.from, .to_temporary = temporary(m)};
        m.from_temporary = save.to_temporary;
        --unread[allocation(m.from)];
        order.push_back(save);
        break;
      }
    }
    moves = std::move(blocked);
  }
  return order;
}

}  // namespace tenon
