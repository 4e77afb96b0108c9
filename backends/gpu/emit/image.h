// The image of a GPU's code: what Target::Emit makes and a CodeLoader reads. Modules of PTX, or of LLVM bitcode for who has no GPU.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tenon::gpu {

struct ImageKernel {
  std::string symbol;
  int64_t pointers = 0, args = 0;  // words of its table (gpu_kernel.h)
};

struct ImageModule {
  std::string code;  // PTX text, or bitcode in LLVM's wrapper
  std::vector<ImageKernel> kernels;
};

struct Image {
  std::string architecture;  // "sm_90"
  bool bitcode = false;
  std::vector<ImageModule> modules;
};

std::vector<uint8_t> Serialize(const Image& image);
// DataLoss: it is none, or cut short.
absl::StatusOr<Image> ParseImage(std::span<const uint8_t> bytes);

}  // namespace tenon::gpu
