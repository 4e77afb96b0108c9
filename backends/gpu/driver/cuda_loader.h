// The GPU of this machine for programs: who loads and launches its code, and a host with its memory.
//
// The driver is opened when it is first wanted, by the first call below that needs it. Where that fails, the next call tries again.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "backends/contract/target.h"
#include "backends/gpu/driver/cuda_device.h"
#include "runtime/execute/code_loader.h"
#include "runtime/tenon_c.h"

namespace tenon::gpu {

// The process's one. Never closed.
absl::StatusOr<CudaDevice*> TheCudaDevice();
// Before the first use: another library than libcuda.so.1, by its path, another device than the first.
void UseCuda(std::string library, int ordinal = 0);

// What is compiled for it and runs on it. `model`: FindGpuModel's, for other plans than the device's own. `bitcode`: GpuOptions', for a
// library that takes it (tests/gpu_driver).
absl::StatusOr<std::shared_ptr<const Target>> ThisGpu(std::string_view model = "", bool bitcode = false);

// Of images of PTX (backends/gpu/emit/image.h), on TheCudaDevice.
CodeLoader* CudaLoader();

// `host` and the device's memory as space 1. Work is on one stream. Never destroyed.
const TenonHost* CudaHost(const TenonHost* host);

}  // namespace tenon::gpu
