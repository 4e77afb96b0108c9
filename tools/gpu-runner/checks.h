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
  std::function<bool()> time_is_up = [] { return false; };
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

// The modules of tests/backends and tests/regress, each kind of kernel (tools/lab/gpu/kernel_kinds.h) at its edges and in every type.
Checks RunChecks(const CheckOptions& options);

}  // namespace tenon::runner
