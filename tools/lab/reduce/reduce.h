// Reduce: cuts a module that shows a problem down to a small one that still shows it.
//
// What is reduced is a module *with its arguments*: a miscompare often needs the values that flow
// through the failing instruction, so an instruction that is cut off becomes a parameter whose
// argument is the value that the evaluator computes for it. The predicate is asked about every
// candidate that passes the verifier and was not asked about before, and must be deterministic.
// Same input, same predicate, same budget: same result (as long as the time limit is not what ends
// it).
//
// A module with symbols keeps them; its sizes are those that the arguments bring. Steps give a symbol a smaller size, or put its number
// into the module. What isn't there any more cannot be read: a parameter that alone has a symbol as its size stays.
//
// Steps, coarse before fine (delta debugging; Zeller & Hildebrandt 2002, Regehr et al. 2012): text
// around the graph; outputs; the shortest prefix and the latest start that still fail; chunks;
// single instructions; called computations; dimensions; values; attributes and types.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "hlo/literal.h"
#include "hlo/module.h"

namespace tenon::lab {

struct Case {
  std::unique_ptr<Module> module;
  std::vector<Literal> arguments;  // by parameter number of the entry
  Case Clone() const;
};

// True: the candidate still shows the problem. Gets verified modules only. What it throws counts as
// false.
using StillFails = std::function<bool(const Module&, absl::Span<const Literal>)>;

struct ReduceProgress {
  std::string step;
  int64_t instructions = 0, elements = 0, tries = 0;
  double seconds = 0;
};

struct ReduceOptions {
  double max_seconds = 60;
  int64_t max_tries = 20000;
  bool dims = true, values = true;  // shrink dimensions; simplify arguments and constants
  std::function<void(const ReduceProgress&)>
      progress;  // after each accepted candidate; may be empty
};

struct ReduceResult {
  std::unique_ptr<Module> module;
  std::vector<Literal> arguments;
  int64_t tries = 0;
  double seconds = 0;
  bool finished = false;              // false: the budget ended it
  std::vector<ReduceProgress> steps;  // accepted candidates
};

// FailedPrecondition: the module as given does not fail. InvalidArgument: arguments that don't fit,
// or a module that isn't valid.
absl::StatusOr<ReduceResult> Reduce(const Module& module, absl::Span<const Literal> arguments,
                                    const StillFails& still_fails,
                                    const ReduceOptions& options = {});

// For predicates that look at the module only.
absl::StatusOr<ReduceResult> Reduce(const Module& module,
                                    const std::function<bool(const Module&)>& still_fails,
                                    const ReduceOptions& options = {});

}  // namespace tenon::lab
