// The modules that tests of the GPU are about, on a device, against the evaluator.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/lab/judge/miscompare.h"

namespace tenon::runner {

struct CheckOptions {
  std::string device;  // FindDevice's name
  std::string tests;   // the folder tests/ of the sources, or what was packed of it
  int every = 1;       // one of so many
  int jobs = 1;        // processes. One whose GPU a kernel has taken (an illegal address) is followed by another
  double seconds = 0;  // no check is begun after it; 0: no limit
  std::function<void(const std::string&)> tell = [](const std::string&) {};  // progress
};

struct CheckResult {
  std::string name;
  lab::Outcome outcome = lab::Outcome::kSame;
  std::string text;  // of what is not the same
};

struct Checks {
  int64_t right = 0, not_run = 0;
  int64_t refused = 0;               // nothing compiles them (Outcome::kRefused), or the evaluator has no value: named, and no failure
  std::vector<CheckResult> refusals, wrong;
};

// The modules of tests/backends and tests/regress, each kind of kernel (tools/lab/gpu/kernel_kinds.h) at its edges and in every type,
// attention with each mask. In processes that are forked here: the caller must not have used the GPU yet.
Checks RunChecks(const CheckOptions& options);

}  // namespace tenon::runner
