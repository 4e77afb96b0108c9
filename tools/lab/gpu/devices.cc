#include "tools/lab/gpu/devices.h"

#include "absl/strings/str_cat.h"
#include "backends/gpu/driver/cuda_loader.h"
#include "hlo/check.h"
#include "tools/lab/gpu/emulated_target.h"

namespace tenon::gpu {

absl::StatusOr<LabDevice> FindDevice(std::string_view name) {
  const size_t colon = name.find(':');
  const std::string_view kind = name.substr(0, colon), model = colon == name.npos ? "" : name.substr(colon + 1);
  LabDevice device{.host = kind == kEmulatedName ? EmulatedHost : CudaHost};
  if (kind == kEmulatedName) {
    TENON_ASSIGN_OR_RETURN(device.target, MakeEmulatedGpu(name));
  } else if (kind == "gpu" || kind == "gpu-rehearsed") {
    TENON_ASSIGN_OR_RETURN(device.target, ThisGpu(model, /*bitcode=*/kind != "gpu"));
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("wanted gpu-emulated, gpu or gpu-rehearsed, each with :MODEL or without, got \"", std::string(name), "\""));
  }
  return device;
}

bool GpuIsLost() {
  const absl::StatusOr<CudaDevice*> device = TheCudaDevice();
  return device.ok() && !(*device)->Synchronize((*device)->stream()).ok();
}

}  // namespace tenon::gpu
