// Devices that modules of the lab run on, by name:
//   gpu-emulated[:MODEL]   the emulator (emulated_target.h)
//   gpu[:MODEL]            this machine's GPU, by its driver (backends/gpu/driver); MODEL: planned as for this one
//   gpu-rehearsed[:MODEL]  the same, with code that the fake driver of tests/gpu_driver takes
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "backends/contract/target.h"
#include "runtime/tenon_c.h"

namespace tenon::gpu {

struct LabDevice {
  std::shared_ptr<const Target> target;
  const TenonHost* (*host)(const TenonHost*) = nullptr;  // a host with the device's memory besides
};

// InvalidArgument: there is none of that name. Unavailable: this machine hasn't got it.
absl::StatusOr<LabDevice> FindDevice(std::string_view name);

// Whether this process used this machine's GPU and can do so no more: after a kernel's illegal address every call of the driver fails.
bool GpuIsLost();

}  // namespace tenon::gpu
