// LiveRanges: one line of time through a scheduled module and its regions, and when each buffer holds a value that is read later.
//
// Instructions are numbered in the order of the schedule; what a while or conditional runs stands between its `begin` and its own
// position: condition, body; branch after branch. Each region ends at a position of its own, where its results move into the state
// or the conditional's results; a while's initial values move at `begin`.
//
// A range is a set of pieces [first, last], inclusive. It is no hull: a value that one branch reads is dead in the branches beside it.
// Around a loop: what comes from outside and is read inside lives until the loop is done. State holds its old value from the start
// of the condition until the last read, its end until the condition is done (the loop may leave there).
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "hlo/module.h"

namespace tenon {

struct LivePiece {
  int64_t first = 0, last = 0;
};

class LiveRanges {
 public:
  explicit LiveRanges(const Module& module);

  struct Region {
    const Instruction* caller = nullptr;  // null: the entry
    int64_t begin = 0, end = 0;
  };

  int64_t position(const Instruction* op) const { return position_.at(op); }
  int64_t begin(const Instruction* control) const { return begin_.at(control); }
  const Region& region(const Computation* c) const { return regions_.at(c); }
  int64_t length() const { return length_; }
  // Every instruction of every region, by position.
  const std::vector<const Instruction*>& order() const { return order_; }

  // When a buffer that `owner` owns is alive because `owner` writes it...
  std::vector<LivePiece> Born(const Instruction& owner) const;
  // ... and because it is read at `position` in computation `in`.
  std::vector<LivePiece> ReadAt(const Instruction& owner, const Computation* in, int64_t position) const;

 private:
  void Number(const Computation& c, const Instruction* caller);

  absl::flat_hash_map<const Instruction*, int64_t> position_, begin_;
  absl::flat_hash_map<const Computation*, Region> regions_;
  std::vector<const Instruction*> order_;
  int64_t length_ = 0;
};

}  // namespace tenon
