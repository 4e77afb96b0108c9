// Our declarations of the CUDA driver's library are those of cuda.h, where there is one.
#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

#include "backends/gpu/driver/functions.h"

#if __has_include(<cuda.h>)
#include <cuda.h>

namespace tenon::gpu {
namespace {

// What of a type a call depends on: enums are int, CUDA's handles and structures void*.
template <typename T>
struct Plain {
  using type = std::conditional_t<std::is_enum_v<T>, int, T>;
};
template <typename T>
struct Plain<T*> {
  using U = std::remove_cv_t<T>;
  using type = std::conditional_t<std::is_class_v<U> || !std::is_object_v<U>, void*, typename Plain<U>::type*>;
};
template <typename F>
struct Signature;
template <typename R, typename... Args>
struct Signature<R (*)(Args...)> {
  using type = typename Plain<R>::type (*)(typename Plain<Args>::type...);
};

// cuda.h's names of newer functions stand for those that it means by them.
#define CUDA(name, symbol, ...)                                                                                          \
  static_assert(std::is_same_v<Signature<decltype(CudaFunctions::name)>::type, Signature<decltype(&::symbol)>::type>, #symbol);
#include "backends/gpu/driver/functions.def"
#undef CUDA

static_assert(sizeof(CuPointer) == sizeof(CUdeviceptr));
static_assert(sizeof(CuCopy2D) == sizeof(CUDA_MEMCPY2D));
#define SAME_PLACE(ours, theirs) static_assert(offsetof(CuCopy2D, ours) == offsetof(CUDA_MEMCPY2D, theirs))
SAME_PLACE(from_x, srcXInBytes);
SAME_PLACE(from_type, srcMemoryType);
SAME_PLACE(from_host, srcHost);
SAME_PLACE(from_device, srcDevice);
SAME_PLACE(from_pitch, srcPitch);
SAME_PLACE(to_x, dstXInBytes);
SAME_PLACE(to_type, dstMemoryType);
SAME_PLACE(to_host, dstHost);
SAME_PLACE(to_device, dstDevice);
SAME_PLACE(to_pitch, dstPitch);
SAME_PLACE(width, WidthInBytes);
SAME_PLACE(height, Height);

TEST(CudaHeader, NumbersAreTheSame) {
  const std::pair<int, int> numbers[] = {
      {kCuSuccess, CUDA_SUCCESS},
      {kCuOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY},
      {kCuNotInitialized, CUDA_ERROR_NOT_INITIALIZED},
      {kCuNoDevice, CUDA_ERROR_NO_DEVICE},
      {kCuInvalidPtx, CUDA_ERROR_INVALID_PTX},
      {kCuUnsupportedPtx, CUDA_ERROR_UNSUPPORTED_PTX_VERSION},
      {kCuIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS},
      {kCuLaunchFailed, CUDA_ERROR_LAUNCH_FAILED},
      {kCuClockRate, CU_DEVICE_ATTRIBUTE_CLOCK_RATE},
      {kCuMultiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
      {kCuMemoryClockRate, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE},
      {kCuBusWidth, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH},
      {kCuL2Bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE},
      {kCuThreadsPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR},
      {kCuMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
      {kCuMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
      {kCuSharedPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR},
      {kCuSharedPerBlockOptin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
      {kCuBlocksPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR},
      {kCuStaticShared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES},
      {kCuRegisters, CU_FUNC_ATTRIBUTE_NUM_REGS},
      {kCuMaxDynamicShared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES},
      {kCuErrorLog, CU_JIT_ERROR_LOG_BUFFER},
      {kCuErrorLogBytes, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES},
      {kCuMemoryHost, CU_MEMORYTYPE_HOST},
      {kCuMemoryDevice, CU_MEMORYTYPE_DEVICE},
      {static_cast<int>(kCuStreamNonBlocking), CU_STREAM_NON_BLOCKING},
      {static_cast<int>(kCuEventNoTiming), CU_EVENT_DISABLE_TIMING},
  };
  for (const auto& [ours, theirs] : numbers) EXPECT_EQ(ours, theirs);
}

}  // namespace
}  // namespace tenon::gpu

#else

TEST(CudaHeader, NumbersAreTheSame) { GTEST_SKIP() << "no cuda.h where the compiler looks"; }

#endif
