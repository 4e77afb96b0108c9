// The CUDA driver's library, opened at run time: nothing of tenon is linked with it, and nothing of CUDA's is needed to build. Its types
// and numbers are those of cuda.h, whose ABI does not change.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tenon::gpu {

using CuResult = int;
using CuDevice = int;
using CuPointer = unsigned long long;  // NOLINT: as cuda.h has it

inline constexpr CuResult kCuSuccess = 0, kCuOutOfMemory = 2, kCuNotInitialized = 3, kCuNoDevice = 100, kCuInvalidPtx = 218,
                          kCuUnsupportedPtx = 222, kCuIllegalAddress = 700, kCuLaunchFailed = 719;
// CU_DEVICE_ATTRIBUTE_...
inline constexpr int kCuClockRate = 13, kCuMultiprocessors = 16, kCuMemoryClockRate = 36, kCuBusWidth = 37, kCuL2Bytes = 38,
                     kCuThreadsPerMultiprocessor = 39, kCuMajor = 75, kCuMinor = 76, kCuSharedPerMultiprocessor = 81,
                     kCuSharedPerBlockOptin = 97, kCuBlocksPerMultiprocessor = 106;
// CU_FUNC_ATTRIBUTE_...
inline constexpr int kCuStaticShared = 1, kCuRegisters = 4, kCuMaxDynamicShared = 8;
// CU_JIT_...
inline constexpr int kCuErrorLog = 5, kCuErrorLogBytes = 6;
inline constexpr int kCuMemoryHost = 1, kCuMemoryDevice = 2;
inline constexpr unsigned kCuStreamNonBlocking = 1, kCuEventNoTiming = 2;

// CUDA_MEMCPY2D.
struct CuCopy2D {
  size_t from_x = 0, from_y = 0;
  int from_type = 0;
  const void* from_host = nullptr;
  CuPointer from_device = 0;
  void* from_array = nullptr;
  size_t from_pitch = 0;
  size_t to_x = 0, to_y = 0;
  int to_type = 0;
  void* to_host = nullptr;
  CuPointer to_device = 0;
  void* to_array = nullptr;
  size_t to_pitch = 0;
  size_t width = 0, height = 0;
};

struct CudaFunctions {
#define CUDA(name, symbol, ...) CuResult (*name)(__VA_ARGS__) = nullptr;
#include "backends/gpu/driver/functions.def"
#undef CUDA

  // "CUDA: WHAT: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory", of a result that is no success:
  //   ResourceExhausted  no memory
  //   Unavailable        no device; a kernel failed before, and this process can use the GPU no more
  //   FailedPrecondition PTX of a version that the driver doesn't know; a child of fork()
  //   Internal           the rest: ours, or the machine's
  absl::Status Error(CuResult result, std::string_view what) const;
  absl::Status Check(CuResult result, std::string_view what) const {
    return result == kCuSuccess ? absl::OkStatus() : Error(result, what);
  }
};

// `path` "": libcuda.so.1, where the system finds it. The library stays open. Unavailable: there is none, or it lacks a function.
absl::StatusOr<CudaFunctions> OpenCudaLibrary(const std::string& path);

// One that "leaves the process in an inconsistent state and any further CUDA work will return the same error" (cuda.h, CUresult).
bool IsSticky(CuResult result);

}  // namespace tenon::gpu
