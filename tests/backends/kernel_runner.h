// Runs one computation as one generated kernel: plan, emit, load, call; in pieces if asked. Operands, results and scratch lie in
// memory that faults when it is touched outside (runtime/guarded_memory.h): behind its end, or with TENON_GUARD=2 before it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/cpu/plan/kernel.h"
#include "backends/codegen/plan/kernel_plan.h"
#include "hlo/literal.h"
#include "hlo/module.h"
#include "runtime/execute/code_loader.h"

namespace tenon {

// The entry of `module` becomes the called computation of one fusion instruction, which is
// returned.
Instruction* WrapEntryAsFusion(Module& module);
// Dense layouts of its operands and results by their shapes' layouts.
KernelRequest DenseRequest(const Instruction* fusion);

struct RunnerOptions {
  std::string isa;
  bool excess_precision = true;
  std::optional<KernelPlan> plan;
  bool keep_text = false;                               // LLVM IR and assembly
  std::function<absl::Status(llvm::Module&)> break_ir;  // a planted fault
};

class KernelRunner {
 public:
  static absl::StatusOr<KernelRunner> Make(const KernelRequest& request,
                                           const RunnerOptions& options);

  const CpuPlannedKernel& kernel() const { return *kernel_; }
  const std::string& llvm_ir() const { return llvm_ir_; }
  const std::string& assembly() const { return assembly_; }
  const std::vector<uint8_t>& object() const { return object_; }

  struct RunOptions {
    int64_t pieces = 1;                      // calls over consecutive parts of the outer range
    std::map<std::string, int64_t> symbols;  // sizes
    bool aligned = false;   // buffers at 64 bytes, not just at their element's size
    int64_t in_place = -1;  // this operand has the memory of result 0
  };
  // Arguments row-major; one literal per result leaf. InternalError if memory between a result's elements was written.
  absl::StatusOr<std::vector<Literal>> Run(absl::Span<const Literal> args,
                                           const RunOptions& options) const;
  absl::StatusOr<std::vector<Literal>> Run(absl::Span<const Literal> args) const {
    return Run(args, RunOptions());
  }
  // The error word of the last run (0: no check failed).
  int64_t error_word() const { return error_word_; }
  // Best of `repeats` calls on aligned memory, microseconds; one thread.
  absl::StatusOr<double> Time(absl::Span<const Literal> args, int repeats) const;

 private:
  struct Memory;
  absl::Status Prepare(absl::Span<const Literal> args, const RunOptions& options,
                       Memory* memory) const;

  KernelRequest request_;
  std::unique_ptr<CpuPlannedKernel> kernel_;
  std::shared_ptr<LoadedCode> code_;
  std::vector<uint8_t> object_;
  std::string llvm_ir_, assembly_;
  mutable int64_t error_word_ = 0;
};

}  // namespace tenon
