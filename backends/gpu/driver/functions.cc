#include "backends/gpu/driver/functions.h"

#include <dlfcn.h>

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace tenon::gpu {
namespace {

absl::StatusCode CodeOf(CuResult result) {
  if (IsSticky(result) || result == kCuNoDevice) return absl::StatusCode::kUnavailable;
  if (result == kCuOutOfMemory) return absl::StatusCode::kResourceExhausted;
  if (result == kCuUnsupportedPtx || result == kCuNotInitialized) return absl::StatusCode::kFailedPrecondition;
  return absl::StatusCode::kInternal;
}

std::string_view Advice(CuResult result) {
  if (IsSticky(result)) {
    return "; a kernel that was launched before this call failed, and this process can use the GPU no more (with "
           "CUDA_LAUNCH_BLOCKING=1 the launch itself fails, and names it)";
  }
  if (result == kCuUnsupportedPtx) return "; the driver is older than the PTX: a newer driver, or an older GpuModel";
  if (result == kCuNotInitialized) return "; a child of a process that used the GPU before it forked cannot use it";
  return "";
}

}  // namespace

bool IsSticky(CuResult result) {
  constexpr CuResult kSticky[] = {700, 702, 710, 714, 715, 716, 717, 718, 719, 721};
  return std::find(std::begin(kSticky), std::end(kSticky), result) != std::end(kSticky);
}

absl::Status CudaFunctions::Error(CuResult result, std::string_view what) const {
  const char *name = nullptr, *text = nullptr;
  if (GetErrorName(result, &name) != kCuSuccess || name == nullptr) name = "an error without a name";
  if (GetErrorString(result, &text) != kCuSuccess || text == nullptr) text = "the driver has no text for it";
  return absl::Status(CodeOf(result), absl::StrCat("CUDA: ", std::string(what), ": ", name, " (", result, "): ", text,
                                                   std::string(Advice(result))));
}

absl::StatusOr<CudaFunctions> OpenCudaLibrary(const std::string& path) {
  const std::string name = path.empty() ? "libcuda.so.1" : path;
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    return absl::UnavailableError(absl::StrCat("CUDA: no driver: ", why != nullptr ? why : name));
  }
  CudaFunctions functions;
#define CUDA(member, symbol, ...)                                                                                 \
  functions.member = reinterpret_cast<CuResult (*)(__VA_ARGS__)>(dlsym(library, #symbol));                        \
  if (functions.member == nullptr) {                                                                              \
    return absl::UnavailableError(absl::StrCat("CUDA: ", name, " has no " #symbol ": the driver is too old"));    \
  }
#include "backends/gpu/driver/functions.def"
#undef CUDA
  return functions;
}

}  // namespace tenon::gpu
