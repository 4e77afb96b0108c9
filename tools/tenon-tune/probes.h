// Probes: what this machine does in a nanosecond, measured with kernels that tenon generates, called on tenon's own threads.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "backends/contract/machine.h"
#include "backends/contract/target.h"

namespace tenon::tune {

struct ProbeOptions {
  std::string isa;     // "": this machine's best
  bool quick = false;  // trials a twentieth as long, and a memory array of a few MB: figures are rough
  std::function<void(const std::string& what, int done, int of)> progress;  // before each probe; null: nobody asks
};

// The model of this machine, measured; its name is "tuned". Runs for some four seconds (quick: a fifth of one) and takes up to 768 MB.
// Errors: an instruction set that this machine hasn't got, no memory.
absl::StatusOr<MachineModel> Measure(const ProbeOptions& options);

}  // namespace tenon::tune
