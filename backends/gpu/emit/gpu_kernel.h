// A fusion's kernel on a GPU: planned, then emitted as LLVM IR for NVPTX.
//
// A kernel is `void symbol(ptr addrspace(1) table)`. The table is 64-bit words in the device's memory: the pointers of runtime/kernel_abi.h
// (operands, results), then its args (sizes, literals). So a CUDA graph is re-pointed by one copy.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "backends/codegen/fused/fused_kernel.h"
#include "backends/contract/kernel.h"
#include "backends/gpu/plan/gpu_model.h"
#include "backends/gpu/plan/gpu_plan.h"

namespace llvm {
class Module;
}

namespace tenon::gpu {

class GpuKernel : public PlannedKernel {
 public:
  GpuKernel(FusedKernel fused, GpuLaunch launch, const GpuModel& model, bool excess_precision);

  const KernelInfo& info() const override { return info_; }
  const std::string& fingerprint() const override { return fingerprint_; }
  const FusedKernel& fused() const { return fused_; }
  const GpuPlan& plan() const { return launch_.plan; }
  const GpuLaunch& launch() const { return launch_; }
  // Words of its table.
  int64_t pointers() const { return static_cast<int64_t>(launch_.reads.size() + launch_.writes.size()); }
  int64_t args() const { return static_cast<int64_t>(info_.size_args.size() + info_.literals.size()); }

  // Into `module`, whose triple and data layout are NVPTX's. Thread-safe for different modules.
  absl::Status Emit(llvm::Module& module, const std::string& symbol) const;

 private:
  // The word of the table that points to this; -1: none does.
  int WordOf(Launches::Memory memory) const;

  FusedKernel fused_;
  GpuLaunch launch_;
  bool excess_precision_;
  bool packs_bf16_;
  std::vector<bool> aligned_;  // by pointer
  KernelInfo info_;
  std::string fingerprint_;
};

// Can this instruction be part of a GPU's kernel (opcode, types)?
bool GpuCanGenerate(const Instruction& op);

// LaunchPlan's targets are GpuKernels. Unimplemented: names the instruction for which there is no code. `given`: instead of MakeGpuPlans';
// InvalidArgument if they do not fit.
absl::StatusOr<LaunchPlan> PlanGpuLaunches(const KernelRequest& request, const GpuModel& model, bool excess_precision,
                                           const std::vector<GpuPlan>* given = nullptr);

}  // namespace tenon::gpu
