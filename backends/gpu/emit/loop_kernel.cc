#include "backends/gpu/emit/kernels.h"
#include "llvm/IR/Intrinsics.h"

namespace tenon::gpu {

using llvm::Value;

void EmitLoopKernel(KernelEmitter& e, const KernelPlan& plan) {
  const Iteration iteration(e.space(), e.fused(), plan.loops);
  const std::vector<int64_t> roots = RootsWithRole(e.fused(), Role::kFull);
  auto body = [&] {
    EmitChecks(e, iteration, Role::kFull);
    StoreRoots(e, iteration, roots);
  };
  const Dim extent = plan.loops.empty() ? Dim(1) : plan.loops.back().extent;
  ForOuter(e, plan, iteration.vars, plan.block > 0 ? CeilDiv(extent, plan.block) : Dim(1), [&](Value* block) {
    if (plan.loops.empty()) return body();
    const Index last = iteration.vars.back();
    Value *low = e.Here().CreateMul(block, e.I64(plan.lanes)), *n = e.EmitDim(extent);
    auto vector = [&] {
      const LaneMode outer = e.mode();
      LaneMode mode;
      mode.lanes = plan.lanes;
      mode.vector_var = plan.lanes > 1 ? last->var : -1;
      mode.level = e.innermost();
      e.BindVar(last, low);
      e.set_mode(mode);
      body();
      e.set_mode(outer);
    };
    if (plan.lanes == 1 || (extent.is_constant() && extent.constant() % plan.lanes == 0)) return e.InLevel(vector);
    Value* whole = e.Here().CreateICmpSLE(e.Here().CreateAdd(low, e.I64(plan.lanes)), n);
    e.If(whole, vector);
    e.If(e.Here().CreateNot(whole), [&] { e.LoopOver(last, low, n, 1, body); });
  });
  EmitOthers(e);
}

}  // namespace tenon::gpu
