// An emulator of kernels for NVPTX on the host: it takes the LLVM module that the code generator of NVPTX would be given, runs it thread by
// thread, and says what a GPU would not: which access was outside, uninitialised, misaligned or a race, which barrier diverged.
// docs/architecture/gpu_emulator.md says what it sees and what it cannot see. x86-64 Linux only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tenon::gpu {

struct EmulatorOptions {
  // 0: blocks, and the threads of each, in ascending order. Else blocks are permuted, and so are a block's warps, the threads of each
  // warp and what goes on after each barrier. Equal seeds give equal runs.
  uint64_t order_seed = 0;
  bool races = true;
  bool uninitialised = true;
  bool count_memory = false;             // LaunchCounts::sites and what is computed from them
  int64_t max_steps = int64_t{1} << 32;  // turns of loops, of all threads together, before the launch counts as a runaway
};

struct LaunchConfig {
  std::array<int64_t, 3> grid = {1, 1, 1};
  std::array<int32_t, 3> block = {1, 1, 1};
  int64_t dynamic_shared_bytes = 0;
};

// One instruction's accesses, by warp: the k-th execution of each of its lanes is taken for one access.
struct SiteCounts {
  std::string instruction, function;
  int64_t warp_accesses = 0;
  int64_t extra_wavefronts = 0;  // shared memory: 4-byte words of one bank that one access wants, beyond the first, summed
  int64_t sectors = 0;           // global memory: pieces of 32 bytes that were touched
  int64_t sectors_needed = 0;    // and how many the bytes would have filled
};

struct LaunchCounts {
  int64_t fibre_switches = 0;
  int64_t loads = 0, stores = 0, atomics = 0;  // executed by single threads
  int64_t global_bytes = 0, shared_bytes = 0, constant_bytes = 0, local_bytes = 0;
  // With EmulatorOptions::count_memory:
  int64_t extra_wavefronts = 0, sectors = 0, sectors_needed = 0;
  std::vector<SiteCounts> sites;  // those that accessed shared or global memory
};

// Immutable and shareable. Launches of all modules are one after another: each holds TheEmulatedMemory()'s lock. Loads may overlap.
class EmulatedModule {
 public:
  // `module` is LLVM's bitcode or text, of the triple nvptx64-nvidia-cuda. InvalidArgument: it is neither, or doesn't verify.
  // Unimplemented, by name: what NVPTX has no instruction for (functions of libm, external functions), what the emulator doesn't know.
  static absl::StatusOr<std::shared_ptr<EmulatedModule>> Load(std::string_view module);
  ~EmulatedModule();

  std::vector<std::string> kernels() const;
  // Of the shared arrays that a kernel reaches, without its dynamic one; -1: there is no such kernel.
  int64_t static_shared_bytes(std::string_view kernel) const;

  // `params`: a pointer to each parameter's value, as cuLaunchKernel takes them. Returns when the launch is over. What a detector saw
  // ends it; memory keeps what was written until then. The message's first words say which it was:
  //   OutOfRange          "out of bounds", "use after free"
  //   FailedPrecondition  "uninitialised", "misaligned", "wrong space", "divergent barrier", "bad barrier", "bad mask", "divergent warp",
  //                       "bad source lane", "undefined division", "trap"
  //   Aborted             "race"
  //   DeadlineExceeded    "runaway"
  //   ResourceExhausted   "too much shared memory", "stack overflow"
  //   InvalidArgument, NotFound: the launch itself
  // `counts`, if not null, is overwritten, also where the launch fails.
  absl::Status Launch(std::string_view kernel, const LaunchConfig& config, absl::Span<void* const> params,
                      const EmulatorOptions& options = {}, LaunchCounts* counts = nullptr) const;

  struct Image;  // of the emulator's own files
  explicit EmulatedModule(std::unique_ptr<Image> image);

 private:
  std::unique_ptr<Image> image_;
};

}  // namespace tenon::gpu
