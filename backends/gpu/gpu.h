// The GPU's target: NVPTX code for one architecture (docs/gpu.md).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "backends/contract/target.h"
#include "backends/gpu/plan/gpu_model.h"

namespace llvm {
class Function;
}

namespace tenon::gpu {

inline constexpr int32_t kSpace = 1;  // of its memory
inline constexpr char kTargetName[] = "gpu";

struct GpuOptions {
  GpuModel model;
  std::string name = kTargetName;  // TargetFacts::name: whose loader takes the code
  CodeLoader* loader = nullptr;    // null: code is made and never loaded; a program of it is refused when it is bound
  bool bitcode = false;            // the image has LLVM bitcode instead of PTX: for a loader without a GPU
  bool ptx_besides = false;        // with `bitcode`: PTX is made, too, and left; what NVPTX cannot select is an error as on a GPU
  // cuBLASLt and cuDNN take contractions, and the framework's operators work on its memory: a program as PyTorch would have it on a GPU.
  // Nothing runs such a program yet (Program::Validate refuses it).
  bool libraries = false;
  // Tests: planted bugs (tools/lab/gpu/plant.h). Makes of each kernel, once it is emitted, what a wrong emission would have made. May be
  // called by several threads, for kernels of different modules.
  std::function<void(llvm::Function&)> sabotage;
};
std::shared_ptr<const Target> MakeGpu(GpuOptions options);

}  // namespace tenon::gpu
