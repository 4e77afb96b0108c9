// GpuModel: a GPU as plans and estimates see it. Numbers are NVIDIA's, of the product named; plans only need them to be about right.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tenon::gpu {

struct GpuModel {
  std::string name;     // of the architecture: "sm_90"
  std::string product;  // whose numbers these are
  std::string ptx;      // LLVM's feature for the lowest PTX version that knows the architecture: "+ptx78"
  int sms = 0;          // multiprocessors
  int threads_per_sm = 2048, blocks_per_sm = 32, registers_per_sm = 65536;
  int64_t shared_per_sm = 0;            // bytes
  int64_t shared_per_block = 48 << 10;  // bytes of static shared memory
  int64_t shared_opt_in = 48 << 10;     // of dynamic shared memory, for which a kernel must ask
  int64_t l2_bytes = 0;
  double bytes_per_ns = 0;       // GB/s: its memory
  double f32_flops_per_ns = 0;   // GFLOP/s, multiply-adds counted twice
  double bf16_flops_per_ns = 0;  // tensor cores, dense
  double launch_ns = 2000;       // of one more kernel in a stream, from graphs

  // All of it that plans depend on.
  std::string Key() const;
};

// The architectures that there are plans for, the oldest first.
absl::Span<const GpuModel> GpuModels();
// By name, with or without "sm_"; InvalidArgument: lists the known ones. Further numbers may be given, "sm_90,sms=1": for tests.
absl::StatusOr<GpuModel> FindGpuModel(std::string_view name);

// Blocks of a kernel that are on one multiprocessor at once.
int BlocksPerSm(const GpuModel& model, int threads, int registers, int64_t shared_bytes);

}  // namespace tenon::gpu
