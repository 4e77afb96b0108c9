#include "passes/memory/live_sets.h"

#include <algorithm>

namespace tenon {

int32_t LiveSets::Add(std::vector<LivePiece> pieces) {
  const int32_t buffer = static_cast<int32_t>(pieces_.size());
  pieces_.emplace_back();
  parent_.push_back(buffer);
  Extend(buffer, pieces);
  return buffer;
}

void LiveSets::Extend(int32_t buffer, const std::vector<LivePiece>& pieces) {
  for (const LivePiece& p : pieces) pieces_[buffer].push_back({p.first, p.last, buffer});
}

void LiveSets::Normalize() {
  for (std::vector<Piece>& pieces : pieces_) {
    std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.first < b.first; });
    size_t kept = 0;
    for (const Piece& p : pieces) {
      if (kept > 0 && p.first <= pieces[kept - 1].last) pieces[kept - 1].last = std::max(pieces[kept - 1].last, p.last);
      else pieces[kept++] = p;
    }
    pieces.resize(kept);
  }
}

int32_t LiveSets::Find(int32_t buffer) const {
  while (parent_[buffer] != buffer) buffer = parent_[buffer] = parent_[parent_[buffer]];
  return buffer;
}

bool LiveSets::CanMerge(int32_t a, int32_t b, const MayTakeOver& may_take_over) const {
  if (pieces_[a].size() > pieces_[b].size()) std::swap(a, b);
  const std::vector<Piece>& larger = pieces_[b];
  for (const Piece& p : pieces_[a]) {
    auto it = std::partition_point(larger.begin(), larger.end(), [&](const Piece& q) { return q.last < p.first; });
    for (; it != larger.end() && it->first <= p.last; ++it) {
      const bool p_dies = p.last == it->first && p.first < it->first, it_dies = it->last == p.first && it->first < p.first;
      if (p_dies && may_take_over(p.buffer, it->buffer, p.last)) continue;
      if (it_dies && may_take_over(it->buffer, p.buffer, it->last)) continue;
      return false;
    }
  }
  return true;
}

void LiveSets::Merge(int32_t into, int32_t from) {
  std::vector<Piece>& to = pieces_[into];
  if (to.size() < pieces_[from].size()) std::swap(to, pieces_[from]);
  for (const Piece& p : pieces_[from]) {
    to.insert(std::upper_bound(to.begin(), to.end(), p, [](const Piece& x, const Piece& y) { return x.first < y.first; }), p);
  }
  pieces_[from].clear();
  parent_[from] = into;
}

LivePiece LiveSets::Hull(int32_t buffer) const {
  const std::vector<Piece>& pieces = pieces_[buffer];
  if (pieces.empty()) return {-1, -1};
  int64_t last = 0;
  for (const Piece& p : pieces) last = std::max(last, p.last);
  return {pieces.front().first, last};
}

}  // namespace tenon
