// What a kernel's threads are, in LLVM IR: who a thread is, how teams exchange values.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/codegen/kernel/kernel_emitter.h"
#include "backends/gpu/plan/gpu_plan.h"

namespace tenon::gpu {

inline constexpr unsigned kGlobalSpace = 1, kSharedSpace = 3;  // LLVM's address spaces

// As i32.
llvm::Value* ThreadInBlock(llvm::IRBuilderBase& b);
llvm::Value* BlockInGrid(llvm::IRBuilderBase& b);
// Of all threads of the block, which must all come.
void Barrier(llvm::IRBuilderBase& b);

// 16 bytes of global to shared memory (generic pointers to both), later. What was begun since the last commit is a group; waits until no
// more than `groups` of them are under way, for this thread: what others have copied is there behind a barrier.
void CopyAsync(llvm::IRBuilderBase& b, llvm::Value* to, llvm::Value* from);
void CommitCopies(llvm::IRBuilderBase& b);
void WaitForCopies(llvm::IRBuilderBase& b, int64_t groups);

// `bytes` of the block's shared memory, a generic pointer. Beyond what an array may have it is what the launch gives.
llvm::Value* SharedMemory(llvm::IRBuilderBase& b, llvm::Module& module, const std::string& symbol, int64_t bytes);

// What the thread `distance` lanes before this one has of `v`, among `size` lanes side by side; of the first ones anything.
llvm::Value* ShuffleUp(llvm::IRBuilderBase& b, llvm::Value* v, int distance, int size);
// What the last of `size` lanes side by side has of `v`.
llvm::Value* ShuffleLast(llvm::IRBuilderBase& b, llvm::Value* v, int size);

// Is `condition` true for some lane of the warp? All of them must come.
llvm::Value* AnyInWarp(llvm::IRBuilderBase& b, llvm::Value* condition);

// The values of `size` lanes side by side, merged in halves: each of them has the result. `by_warps`: all lanes of the warp come.
std::vector<llvm::Value*> MergeLanes(KernelEmitter& e, std::vector<llvm::Value*> values, int size, const KernelTeam::Merge& merge,
                                     bool by_warps = false);

// The values of `count` contributors, one after the other: everybody gets all. `slot`: where this thread puts its own, if it `writes`.
void ExchangeValue(KernelEmitter& e, llvm::Value* v, llvm::Value* base, llvm::Value* slot, llvm::Value* writes, int64_t count,
                   std::vector<llvm::Value*>* values);

// The team of a planned kernel: its exchange through shuffles within a warp, and beyond it through `exchange`, in shared memory. `e`
// outlives it. The thread's place in its block is known: `thread`, i64.
KernelTeam MakeTeam(KernelEmitter& e, const GpuPlan& plan, llvm::Value* thread, llvm::Value* exchange);

}  // namespace tenon::gpu
