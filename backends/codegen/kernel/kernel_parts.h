// How a plan's loops are emitted around the values of a fusion: the kinds of kernels that all targets have, and what their own are made of.
#pragma once

#include "backends/codegen/kernel/kernel_emitter.h"
#include "backends/codegen/plan/kernel_plan.h"

namespace tenon {

void EmitContractionKernel(KernelEmitter& e, const KernelPlan& plan);
void EmitRowKernel(KernelEmitter& e, const KernelPlan& plan);
void EmitScatterKernel(KernelEmitter& e, const KernelPlan& plan);
void EmitSelectAndScatterKernel(KernelEmitter& e, const KernelPlan& plan);
void EmitScanKernel(KernelEmitter& e, const KernelPlan& plan);

// ---- parts ----

// For each unit of [begin, end): binds the split loops' variables (and calls body with the block number, 0
// if the plan has none).
void ForOuter(KernelEmitter& e, const KernelPlan& plan, absl::Span<const Index> vars, Dim blocks,
              const std::function<void(llvm::Value* block)>& body);
// Loops over loops[first, last) of the plan, one element at a time.
void ForLoops(KernelEmitter& e, const KernelPlan& plan, absl::Span<const Index> vars, size_t first,
              size_t last, const std::function<void()>& body);
// Evaluates these roots (all before any is stored: a result may share memory with an operand) and
// stores them.
void StoreRoots(KernelEmitter& e, const Iteration& iteration, absl::Span<const int64_t> roots);
// tenon.checks of this role.
void EmitChecks(KernelEmitter& e, const Iteration& iteration, Role role);
// Roots and checks outside the iteration space (or all checks): serially, by the piece that has
// unit 0.
void EmitOthers(KernelEmitter& e, bool all_checks = false);
// `m`: one vector of `lanes` lanes a copy, as many copies; in place, lanes become copies: rounds of interleaving exchange halves,
// quarters, ... between vectors (Eklundh).
void TurnSquare(llvm::IRBuilder<>& b, Val& m, int lanes);
// The same in memory: rows of `lanes` elements, squares one behind the other.
struct TurningSpec {
  llvm::Type* element;
  int lanes = 0;
  int64_t ahead = 0;  // asks the first cache for so many squares ahead, which may lie outside
};
// void (from, bytes between its rows, to, bytes between its rows, squares): a square's rows in `to` follow those of the one before. One
// function for all kernels of kernel's module: written out in each it would be a third of a contraction's code.
llvm::Function* TurningFunction(llvm::Function& kernel, const TurningSpec& spec);
std::vector<int64_t> RootsWithRole(const FusedKernel& fused, Role role);
bool IsHeavy(const FusedKernel& fused);

}  // namespace tenon
