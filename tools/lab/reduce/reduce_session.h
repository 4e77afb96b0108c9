// The reducer's state: the smallest failing case so far, the budget, what was asked already.
// Private to tools/lab/reduce/.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "tools/lab/reduce/reduce_edit.h"

namespace tenon::lab {

class Session {
 public:
  Session(Case start, const StillFails& still_fails, const ReduceOptions& options);

  const Case& best() const { return best_; }
  Computation* entry() const { return best_.module->entry(); }
  const ReduceOptions& options() const { return options_; }
  const Values& values();  // of best
  bool exhausted() const { return exhausted_; }

  // Is the candidate valid, new and failing? Does not accept it.
  bool Fails(const Case& candidate);
  void Accept(Case candidate, std::string_view step, bool values_stay = false);
  // Accepts what is smaller than best and fails.
  bool Try(std::optional<Case> candidate, std::string_view step, bool values_stay = false);
  // The same for a copy of best that `edit` has changed, after Cleanup. False too if `edit` returns
  // false.
  template <typename Edit>
  bool TryEdit(std::string_view step, Edit&& edit, bool values_stay = false) {
    if (exhausted_) return false;
    std::optional<Case> candidate = best_.Clone();
    try {
      if (!edit(*candidate)) return false;
      Cleanup(&*candidate);
    } catch (const InternalError&) {  // an edit that doesn't fit here
      return false;
    }
    return Try(std::move(candidate), step, values_stay);
  }
  ReduceResult Finish();

 private:
  double Seconds() const;

  Case best_;
  Size size_;
  const StillFails& still_fails_;
  const ReduceOptions& options_;
  const std::chrono::steady_clock::time_point start_;
  absl::flat_hash_set<uint64_t> asked_;
  Values values_;
  bool values_known_ = false, exhausted_ = false;
  ReduceResult result_;
};

// Asks `attempt` about every instruction (the place, and its computation's instructions), from the last to the first; again at
// what then stands there after a success.
using Attempt = std::function<bool(const Position& at, const std::vector<Instruction*>& all)>;
bool TryEverywhere(Session& s, const Attempt& attempt);

// The groups of steps, coarse to fine; each returns whether it accepted anything. reduce_graph.cc:
bool StripText(Session& s);
bool ReduceOutputs(Session& s);
bool CutEnds(Session& s);  // the shortest prefix that fails, and the latest start
bool CutChunks(Session& s);
bool ReduceInstructions(Session& s);
// reduce_computations.cc
bool ReduceComputations(Session& s);
// reduce_details.cc
bool ReduceDims(Session& s);
// reduce_sizes.cc: of a module with symbols
bool ReduceSizes(Session& s);
bool ReduceValues(Session& s);
bool ReduceAttributes(Session& s);

}  // namespace tenon::lab
