// Partial results of a kernel's reductions in registers, and how they become results: what row kernels of all targets, and the GPU's column
// kernels, are made of.
#pragma once

#include <utility>
#include <vector>

#include "backends/codegen/kernel/kernel_emitter.h"
#include "backends/codegen/plan/kernel_plan.h"
#include "backends/codegen/plan/wide_sums.h"

namespace tenon {

class Reductions {
 public:
  // Of one reduction in one pass: per component and copy a vector, and a scalar for a lane-by-lane tail. Long sums have totals in f64 too
  // (wide_sums.h): of the vectors, of the scalar. Some have only those.
  struct Partials {
    const Instruction* reduce;
    std::vector<Instruction*> wide_uses;
    std::vector<std::vector<llvm::AllocaInst*>> vectors;       // [component][copy]
    std::vector<llvm::AllocaInst*> scalars;                    // empty: there is no such tail
    llvm::AllocaInst *wide = nullptr, *wide_scalar = nullptr;  // nullptr: none

    bool each_step() const { return vectors.empty(); }
    bool in_stretches() const { return wide != nullptr && !each_step(); }
  };

  // `across_lanes`: the lanes are elements of one reduction, else of as many. The arguments by reference outlive this.
  Reductions(KernelEmitter& e, const KernelPlan& plan, const Iteration& iteration, bool across_lanes)
      : e_(e), plan_(plan), iteration_(iteration), across_lanes_(across_lanes) {}

  // `in_stretches`: long sums are added to totals now and then (AddToTotals).
  Partials Start(const Instruction* reduce, bool in_stretches);
  // What the mode's lanes and copies have of this step.
  void Accumulate(Partials& p);
  // The copies among themselves as a tree, then onto the total. The partial results start again.
  void AddToTotals(Partials& p);
  // Merges copies, lanes, tail and the threads of the team, as one fixed tree, then the init value; the reduction is a known value from
  // here on.
  void FinishReduce(Partials& p);

 private:
  llvm::IRBuilder<>& b() { return e_.Here(); }
  llvm::Value* Wide(llvm::Value* scalar);
  llvm::Value* Load(llvm::AllocaInst* slot);
  void AddTo(llvm::AllocaInst* total, llvm::Value* partial);
  llvm::Value* SumOf(std::vector<llvm::Value*> copies);
  void AccumulateWide(Partials& p);
  llvm::Value* TotalOf(const Partials& p);
  std::vector<llvm::Value*> Merge(const Instruction& reduce, const std::vector<llvm::Value*>& x, const std::vector<llvm::Value*>& y);
  std::vector<llvm::Value*> Merged(const Partials& p);
  void FinishWide(const Partials& p);

  KernelEmitter& e_;
  const KernelPlan& plan_;
  const Iteration& iteration_;
  const bool across_lanes_;
};

}  // namespace tenon
