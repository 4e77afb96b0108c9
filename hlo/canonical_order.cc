#include "hlo/canonical_order.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"

namespace tenon {

bool IsTopological(const std::vector<Instruction*>& order) {
  absl::flat_hash_set<const Instruction*> done;
  done.reserve(order.size());
  auto all_done = [&](absl::Span<Instruction* const> list) {
    return std::all_of(list.begin(), list.end(), [&](const Instruction* i) { return done.contains(i); });
  };
  for (const Instruction* i : order) {
    if (!all_done(i->operands()) || !all_done(i->control_predecessors())) return false;
    done.insert(i);
  }
  return true;
}

std::vector<Instruction*> CanonicalOrder(const Computation& computation) {
  std::vector<Instruction*> all = computation.instructions();
  if (computation.module() != nullptr && computation.module()->is_scheduled) {
    return IsTopological(all) ? std::move(all) : computation.PostOrder();
  }
  std::vector<Instruction*> order;
  order.reserve(all.size());
  absl::flat_hash_set<const Instruction*> visited;
  visited.reserve(all.size());
  std::vector<std::pair<Instruction*, size_t>> stack;
  auto visit = [&](Instruction* start) {
    if (!visited.insert(start).second) return;
    stack.emplace_back(start, 0);
    while (!stack.empty()) {
      Instruction* i = stack.back().first;
      const size_t next = stack.back().second++;
      const size_t operands = i->operands().size();
      if (next < operands + i->control_predecessors().size()) {
        Instruction* before = next < operands ? i->operands()[next] : i->control_predecessors()[next - operands];
        if (visited.insert(before).second) stack.emplace_back(before, 0);
      } else {
        order.push_back(i);
        stack.pop_back();
      }
    }
  };
  for (Instruction* p : computation.parameters()) visit(p);
  if (computation.root() != nullptr) visit(computation.root());
  for (Instruction* i : all) visit(i);
  return order;
}

std::vector<const Computation*> CanonicalOrder(const Module& module) {
  struct Frame {
    const Computation* computation;
    std::vector<const Computation*> callees;
    size_t next = 0;
  };
  auto frame = [&](const Computation* c) {
    Frame f{c, {}};
    for (const Instruction* i : CanonicalOrder(*c)) {
      for (const Computation* callee : i->called_computations()) f.callees.push_back(callee);
    }
    return f;
  };
  std::vector<const Computation*> order;
  absl::flat_hash_set<const Computation*> visited;
  std::vector<Frame> stack;
  if (module.entry() == nullptr) return order;
  visited.insert(module.entry());
  stack.push_back(frame(module.entry()));
  while (!stack.empty()) {
    Frame& top = stack.back();
    if (top.next < top.callees.size()) {
      const Computation* callee = top.callees[top.next++];
      if (visited.insert(callee).second) stack.push_back(frame(callee));
    } else {
      order.push_back(top.computation);
      stack.pop_back();
    }
  }
  return order;
}

}  // namespace tenon
