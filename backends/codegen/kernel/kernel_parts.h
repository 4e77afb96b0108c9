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
std::vector<int64_t> RootsWithRole(const FusedKernel& fused, Role role);
bool IsHeavy(const FusedKernel& fused);

}  // namespace tenon
