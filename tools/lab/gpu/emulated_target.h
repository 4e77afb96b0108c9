// The GPU's target on the emulator: what is compiled for it runs on this machine, thread by thread, and is told what a GPU would not
// (docs/architecture/gpu_emulator.md). For tests and the lab.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "backends/contract/target.h"
#include "backends/gpu/plan/gpu_model.h"
#include "runtime/tenon_c.h"
#include "tools/lab/gpu/emulator.h"

namespace llvm {
class Function;
}

namespace tenon::gpu {

inline constexpr char kEmulatedName[] = "gpu-emulated";

// "gpu-emulated" (sm_90), or "gpu-emulated:MODEL", MODEL as FindGpuModel takes it; ",ptx" behind it: PTX is made,
// too (GpuOptions::ptx_besides). InvalidArgument: it is neither.
// `sabotage`: GpuOptions', of planted bugs.
absl::StatusOr<std::shared_ptr<const Target>> MakeEmulatedGpu(std::string_view name,
                                                              std::function<void(llvm::Function&)> sabotage = nullptr);

// `host` and the emulated memory as space 1. Never destroyed.
const TenonHost* EmulatedHost(const TenonHost* host);

// What launches do from now on, in the whole process.
void SetEmulation(const EmulatorOptions& options);
// Since the process began.
struct EmulationCounts {
  int64_t launches = 0, loads = 0, stores = 0, fibre_switches = 0;
  int64_t extra_wavefronts = 0;  // with EmulatorOptions::count_memory
};
EmulationCounts CountsOfEmulation();

}  // namespace tenon::gpu
