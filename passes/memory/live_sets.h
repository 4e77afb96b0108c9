// LiveSets: which buffers are one. Starts with a buffer per allocation; Merge makes two into one if no two of their values are ever
// alive together, or meet only where an instruction may overwrite what it reads for the last time.
#pragma once

#include <functional>
#include <vector>

#include "passes/memory/live_ranges.h"

namespace tenon {

class LiveSets {
 public:
  // One buffer's value is read for the last time at `position`, where another's piece begins: may the one take the other's memory?
  using MayTakeOver = std::function<bool(int32_t dying, int32_t born, int64_t position)>;

  int32_t Add(std::vector<LivePiece> pieces);  // returns its number, from 0
  void Extend(int32_t buffer, const std::vector<LivePiece>& pieces);
  void Normalize();  // after the last Extend, before Merge

  int32_t Find(int32_t buffer) const;  // the buffer that it has become part of
  bool CanMerge(int32_t a, int32_t b, const MayTakeOver& may_take_over) const;
  void Merge(int32_t into, int32_t from);  // both as Find gives them
  // First and last position at which it is alive; {-1, -1} if it is part of another.
  LivePiece Hull(int32_t buffer) const;

 private:
  struct Piece {
    int64_t first, last;
    int32_t buffer;  // as added
  };
  std::vector<std::vector<Piece>> pieces_;  // by buffer, ascending and disjoint
  mutable std::vector<int32_t> parent_;
};

}  // namespace tenon
