// Planted bugs of a GPU's code: known miscompiles, one at a time, to prove that the emulator, the check of plans or a comparison finds
// what emission or plans get wrong.
//
// A plant changes a kernel that was emitted (GpuOptions::sabotage), the program (CompileOptions::sabotage) or a plan into what a wrong
// emission, a wrong launch or a wrong planner would have made of it. The compiler itself knows of none.
#pragma once

#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "runtime/program/program.h"

namespace llvm {
class Function;
}

namespace tenon::gpu {

struct GpuPlant {
  std::string_view name;  // "missing-barrier"
  std::string_view doc;   // what is wrong
  // One of them is not null. Whether it found a place and changed it; of a plan's text (gpu_plan.h), what it becomes, "" for no place.
  bool (*kernel)(llvm::Function&) = nullptr;
  bool (*program)(Program&) = nullptr;
  std::string (*plan)(std::string_view text) = nullptr;
};
absl::Span<const GpuPlant> AllGpuPlants();
// Checked: there is one of that name.
const GpuPlant& FindGpuPlant(std::string_view name);

}  // namespace tenon::gpu
