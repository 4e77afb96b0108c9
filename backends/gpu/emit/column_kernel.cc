#include <algorithm>

#include "backends/codegen/kernel/reductions.h"
#include "backends/gpu/emit/kernels.h"
#include "llvm/IR/Intrinsics.h"

namespace tenon::gpu {

using llvm::Value;

namespace {

class ColumnKernel {
 public:
  ColumnKernel(KernelEmitter& e, const GpuPlan& plan, Value* thread)
      : e_(e),
        f_(e.fused()),
        plan_(plan.loops),
        team_(plan.team),
        thread_(thread),
        iteration_(e.space(), f_, plan_.loops),
        reductions_(e, plan_, iteration_, /*across_lanes=*/false) {
    while (!plan_.loops[first_reduced_].reduced) ++first_reduced_;
  }

  void Emit() {
    const Dim columns = plan_.loops.back().extent;
    ForOuter(e_, plan_, iteration_.vars, CeilDiv(columns, plan_.block), [&](Value* block) {
      Value* n = e_.EmitDim(columns);
      Value* lane = b().CreateAnd(thread_, e_.I64(kWarp - 1));
      Value* own = b().CreateAdd(b().CreateMul(block, e_.I64(plan_.block)), b().CreateMul(lane, e_.I64(plan_.lanes)));
      // Who is behind the last column computes it, too, for the barriers, and stores nothing.
      inside_ = b().CreateICmpSLT(own, n);
      Value* column = b().CreateBinaryIntrinsic(llvm::Intrinsic::smin, own, b().CreateSub(n, e_.I64(plan_.lanes)));
      e_.InLevel([&] {
        LaneMode mode;
        mode.lanes = plan_.lanes;
        mode.vector_var = plan_.lanes > 1 ? iteration_.vars.back()->var : -1;
        mode.level = e_.innermost();
        e_.BindVar(iteration_.vars.back(), column);
        e_.set_mode(mode);
        Columns();
        e_.set_mode({});
      });
    });
  }

 private:
  llvm::IRBuilder<>& b() { return e_.Here(); }

  void Columns() {
    for (size_t p = 0; p < plan_.phases.size(); ++p) Pass(plan_.phases[p], p + 1 == plan_.phases.size());
    Value* stores = inside_;
    if (team_ > 1) stores = b().CreateAnd(stores, b().CreateICmpEQ(e_.team().rank, e_.I64(0)));
    e_.If(stores, [&] {
      StoreRoots(e_, iteration_, RootsWithRole(f_, Role::kKept));
      EmitChecks(e_, iteration_, Role::kKept);
    });
  }

  void Pass(const PlanPhase& phase, bool last) {
    std::vector<Reductions::Partials> partials;
    for (int64_t r : phase.reduces) partials.push_back(reductions_.Start(f_.order[static_cast<size_t>(r)], /*in_stretches=*/false));
    const size_t inner = plan_.loops.size() - 2;
    ForLoops(e_, plan_, iteration_.vars, first_reduced_, inner, [&] {
      Rows(inner, [&] {
        for (Reductions::Partials& p : partials) reductions_.Accumulate(p);
        if (phase.roots.empty() && !last) return;
        e_.If(inside_, [&] {
          if (last) EmitChecks(e_, iteration_, Role::kFull);
          StoreRoots(e_, iteration_, phase.roots);
        });
      });
    });
    for (Reductions::Partials& p : partials) reductions_.FinishReduce(p);
  }

  // Rows in turn, `unroll` of them at once while there are so many for each thread of the team.
  void Rows(size_t loop, const std::function<void()>& body) {
    Index row = iteration_.vars[loop];
    Value *n = e_.EmitDim(plan_.loops[loop].extent), *rank = team_ > 1 ? e_.team().rank : e_.I64(0), *whole = e_.I64(0);
    if (plan_.unroll > 1) {
      const int64_t step = int64_t{team_} * plan_.unroll;
      whole = e_.Floor(whole, n, step);
      const LaneMode outer = e_.mode();
      LaneMode mode = outer;
      mode.copies = plan_.unroll;
      mode.unroll_var = row->var;
      mode.unroll_step = team_;
      e_.set_mode(mode);
      e_.LoopOver(row, rank, whole, step, body);
      e_.set_mode(outer);
    }
    e_.LoopOver(row, b().CreateAdd(whole, rank), n, team_, body);
  }

  KernelEmitter& e_;
  const FusedKernel& f_;
  const KernelPlan& plan_;
  const int team_;
  Value* const thread_;
  Iteration iteration_;
  Reductions reductions_;
  size_t first_reduced_ = 0;
  Value* inside_ = nullptr;
};

}  // namespace

void EmitColumnKernel(KernelEmitter& e, const GpuPlan& plan, Value* thread) {
  ColumnKernel(e, plan, thread).Emit();
  EmitOthers(e);
}

}  // namespace tenon::gpu
