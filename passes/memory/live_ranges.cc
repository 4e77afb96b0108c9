#include "passes/memory/live_ranges.h"

#include "absl/algorithm/container.h"
#include "passes/expand/control_flow.h"

namespace tenon {

LiveRanges::LiveRanges(const Module& module) { Number(*module.entry(), nullptr); }

void LiveRanges::Number(const Computation& c, const Instruction* caller) {
  const int64_t begin = length_;
  for (const Instruction* op : c.instructions()) {
    const std::vector<Computation*> regions = ControlRegions(*op);
    if (!regions.empty()) begin_[op] = length_++;
    for (const Computation* region : regions) Number(*region, op);
    position_[op] = length_++;
    order_.push_back(op);
  }
  regions_[&c] = {caller, begin, length_++};
}

std::vector<LivePiece> LiveRanges::Born(const Instruction& owner) const {
  const int64_t at = position(&owner);
  std::vector<LivePiece> pieces = {{at, at}};
  if (owner.opcode() == Opcode::kWhile) {
    const Region& condition = region(owner.attrs().get<Computation*>(Attr::kCondition));
    pieces.push_back({condition.begin, condition.end});
  }
  return pieces;
}

std::vector<LivePiece> LiveRanges::ReadAt(const Instruction& owner, const Computation* in, int64_t last) const {
  std::vector<LivePiece> pieces;
  while (in != owner.parent()) {
    const Region& here = region(in);
    if (here.caller == &owner) {  // a loop's own state: as of the start of the condition
      pieces.push_back({region(owner.attrs().get<Computation*>(Attr::kCondition)).begin, last});
      return pieces;
    }
    if (here.caller->opcode() == Opcode::kWhile) {  // read again in the next round
      pieces.clear();
      last = position(here.caller);
    } else {
      pieces.push_back({here.begin, last});
      last = begin(here.caller);
    }
    in = here.caller->parent();
  }
  pieces.push_back({position(&owner), last});
  return pieces;
}

}  // namespace tenon
