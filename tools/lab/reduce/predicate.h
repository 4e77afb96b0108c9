// Predicates for Reduce: what "still fails" means.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/lab/judge/miscompare.h"
#include "tools/lab/reduce/reduce.h"

namespace tenon::lab {

// Evaluator against CPU backend. The lab's rule (miscompare.h) says nothing of what was computed
// from inexact values, which in a large module is nearly everything; `tolerance` > 0 judges those
// too: by tolerance * the largest magnitude in the result, and a NaN only equals a NaN. Once a
// candidate has broken the lab's rule only that rule counts: what rounding did is not reduced to.
// So the predicate has a state, and belongs to one reduction. Errors count as no difference.
struct MiscompareOptions {
  RunOptions run;
  double tolerance = 0;
  double isolate_seconds =
      0;  // > 0: asked in a child process; one that dies of it, or needs longer, says no
};
StillFails Miscompares(const MiscompareOptions& options);

// The lab's judgement, what it leaves open by tolerance.
Verdict JudgeByTolerance(const Module& module, absl::Span<const Literal> arguments,
                         const RunOptions& run, double tolerance);

// Compiling or running for the CPU, or evaluating, ends in an error whose message has a match of
// `regex` (std::regex, ECMAScript).
absl::StatusOr<StillFails> FailsWith(const std::string& regex, const RunOptions& run,
                                     double isolate_seconds = 0);

// The process dies of it (a signal, an abort) or needs longer than the limit.
StillFails Crashes(const RunOptions& run, double timeout_seconds);

// `command FILE` with the module in FILE and the arguments in FILE's neighbour FILE.npz; exit code
// 0 counts.
StillFails Script(const std::string& command);

// Whether fn() says so, asked in a child process: no if that crashes, or takes longer.
bool SaysInTime(const std::function<bool()>& fn, double seconds);

}  // namespace tenon::lab
