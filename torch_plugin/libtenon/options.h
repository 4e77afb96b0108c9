// The options of tenon_compile, checked one by one.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/driver/compile.h"
#include "runtime/tenon_c.h"
#include "torch_plugin/aten/lower.h"

namespace tenon {

struct RequestOptions {
  std::string name;            // "name": whose runs these are, in profiles; the graph's if ""
  bool eager_program = false;  // "tier": "native" (default) or "eager_program"
  std::string reason;          // "reason": why the caller wants the eager program
  std::vector<std::pair<std::string, int64_t>>
      symbols;               // "symbols": [["s0", 8]]: the graph is specialised to these
  std::vector<int64_t> frozen;  // "frozen": inputs that stay as they are from call to call (backends/driver/freeze.h)
  bool any_inputs = false;   // "any_inputs": the graph's tensors may be of any dtype and size; for the eager program
  bool cache = true;         // "cache"
  int64_t lost_operators = 0;  // "lost_operators": how many the framework has had that are gone; those of their names may be others now
  std::string repro_dir;     // "repro_dir": "" means TENON_REPRO_DIR, else ~/.cache/tenon/repro
  aten::LowerOptions lower;  // "disable_lowering": [overloads], "excess_precision", "default_dtype", "fill_empty"
  CompileOptions
      compile;  // "isa", "passes", "disable_passes", "stop_after", "verify_passes", "threads",
                // "compile_threads", "dump_dir", "dump_prefix", "inject_fault", "excess_precision", "report"
};

// Errors: an unknown name (the message lists the known ones), a value of the wrong type.
absl::StatusOr<RequestOptions> ReadOptions(const TenonOption* given, int64_t count);

}  // namespace tenon
