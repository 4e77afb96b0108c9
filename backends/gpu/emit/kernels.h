// The kinds of kernels that are the GPU's alone; those of all targets: backends/codegen/kernel/kernel_parts.h.
#pragma once

#include "backends/codegen/kernel/kernel_parts.h"
#include "backends/gpu/plan/gpu_plan.h"

namespace tenon::gpu {

// A thread has one vector of the result, or at the end of a row the elements that are left.
void EmitLoopKernel(KernelEmitter& e, const KernelPlan& plan);
// A block has 32 vectors of columns; its threads share the rows. `thread`: in the block, i64.
void EmitColumnKernel(KernelEmitter& e, const GpuPlan& plan, llvm::Value* thread);

// A block has a tile of the result of a contraction, whose operands it brings into shared memory by slices.
void EmitTiledContractionKernel(KernelEmitter& e, const GpuPlan& plan, llvm::Value* thread);

// A block has some query rows of attention; scores and weights stay in shared memory, tile by tile.
void EmitAttentionKernel(KernelEmitter& e, const GpuPlan& plan, llvm::Value* thread);
// With stages: scores and weights stay in registers.
void EmitAttentionInRegisters(KernelEmitter& e, const GpuPlan& plan, llvm::Value* thread);

// A block has a square of the result. Operands that lie across it are read along themselves into `tiles`, in shared memory.
void EmitTransposeKernel(KernelEmitter& e, const GpuPlan& plan, llvm::Value* thread, llvm::Value* tiles);

// What a launch works on beside operands and results; null: it has none.
struct LaunchMemory {
  llvm::Value *from = nullptr, *to = nullptr;  // temporaries
  llvm::Value* run = nullptr;                  // of a sort: elements of a run, i64
};
// Teams sort rows, or pieces of rows, in shared memory, or blocks merge a piece's worth of two runs.
void EmitSortKernel(KernelEmitter& e, const GpuPlan& plan, const LaunchMemory& memory);
// Of an associative combiner: a team shares a row, or a piece of one. `exchange`: shared memory, of a team of several warps.
void EmitTeamScanKernel(KernelEmitter& e, const GpuPlan& plan, const LaunchMemory& memory, llvm::Value* exchange);

}  // namespace tenon::gpu
