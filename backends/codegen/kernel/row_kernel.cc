// kRow: several passes over one row at a time; reductions along the vector loop end in a scalar per row. Threads of a team share the row:
// each element is the same thread's in all passes, so what a pass keeps in scratch is read by who wrote it.
#include <algorithm>

#include "backends/codegen/kernel/kernel_parts.h"
#include "backends/codegen/kernel/reductions.h"
#include "backends/codegen/plan/wide_sums.h"
#include "hlo/check.h"
#include "llvm/IR/Intrinsics.h"

namespace tenon {

using llvm::Value;

namespace {

class RowKernel {
 public:
  RowKernel(KernelEmitter& e, const KernelPlan& plan)
      : e_(e), f_(e.fused()), plan_(plan), iteration_(e.space(), f_, plan.loops), stretch_(StretchOf(f_, plan, e.team().size)),
        reductions_(e, plan, iteration_, /*across_lanes=*/true, stretch_.has_value()) {
    while (first_reduced_ < plan.loops.size() && !plan.loops[first_reduced_].reduced)
      ++first_reduced_;
  }

  void Emit() {
    ForOuter(e_, plan_, iteration_.vars, 1, [&](Value*) {
      ForLoops(e_, plan_, iteration_.vars, static_cast<size_t>(plan_.split), first_reduced_,
               [&] { Row(); });
    });
  }

 private:
  llvm::IRBuilder<>& b() { return e_.Here(); }

  void Row() {
    e_.ForgetInMemory();
    int64_t scratch = 0;
    for (size_t p = 0; p < plan_.phases.size(); ++p)
      Pass(plan_.phases[p], p + 1 == plan_.phases.size(), &scratch);
    e_.ByOne([&] {
      StoreRoots(e_, iteration_, RootsWithRole(f_, Role::kKept));
      EmitChecks(e_, iteration_, Role::kKept);
    });
  }

  void Pass(const PlanPhase& phase, bool last, int64_t* scratch) {
    std::vector<Reductions::Partials> partials;
    for (int64_t r : phase.reduces) partials.push_back(reductions_.Start(f_.order[static_cast<size_t>(r)]));
    std::vector<std::pair<const Instruction*, KernelEmitter::InMemory>> kept;
    for (int64_t k : phase.kept)
      kept.emplace_back(f_.order[static_cast<size_t>(k)],
                        RowBuffer(*f_.order[static_cast<size_t>(k)], scratch));
    // What the last pass finds in the first cache comes from memory for the next row: the processor prefetches no further than a page.
    if (last && plan_.phases.size() > 1 && first_reduced_ > 0) e_.PrefetchAhead(iteration_.vars[first_reduced_ - 1], 1);
    Stretches(partials, [&] {
      for (auto& [op, where] : kept) {
        Val v = e_.Eval(op, iteration_.IndexOf(e_.space(), f_, op->shape()));
        e_.StoreRaw(where.base, where.level, where.offset, where.type, v);
      }
      for (Reductions::Partials& p : partials) reductions_.Accumulate(p);
      if (last) EmitChecks(e_, iteration_, Role::kFull);
      StoreRoots(e_, iteration_, phase.roots);
    });
    e_.load_hook = nullptr;
    for (Reductions::Partials& p : partials) reductions_.FinishReduce(p);
    for (auto& [op, where] : kept)
      e_.DefineInMemory(op, iteration_.IndexOf(e_.space(), f_, op->shape()), 0, where);
  }

  // The reduced loops around `body`; partial results with a total are added to it after every stretch.
  void Stretches(std::vector<Reductions::Partials>& partials, const std::function<void()>& body) {
    const size_t vector = plan_.loops.size() - 1;
    const KernelEmitter::VectorLoopOptions options{plan_.lanes,   plan_.unroll,   plan_.masked_tail,
                                                   IsHeavy(f_), /*multiple=*/1, /*shared=*/true};
    auto along = [&](Value* lo, Value* hi) { e_.VectorLoop(iteration_.vars[vector], lo, hi, options, body); };
    auto whole = [&] { along(e_.I64(0), e_.EmitDim(plan_.loops[vector].extent)); };
    if (std::none_of(partials.begin(), partials.end(), [](const Reductions::Partials& p) { return p.in_stretches(); })) {
      ForLoops(e_, plan_, iteration_.vars, first_reduced_, vector, whole);
      return;
    }
    const size_t loop = stretch_->loop;
    ForLoops(e_, plan_, iteration_.vars, first_reduced_, loop, [&] {
      Value* n = e_.EmitDim(plan_.loops[loop].extent);
      e_.Loop(e_.I64(0), n, e_.I64(stretch_->count), [&](Value* lo) {
        Value* hi = b().CreateAdd(lo, e_.I64(stretch_->count));
        hi = b().CreateBinaryIntrinsic(llvm::Intrinsic::smin, hi, n);
        if (loop == vector) {
          along(lo, hi);
        } else {
          e_.LoopOver(iteration_.vars[loop], lo, hi, 1,
                      [&] { ForLoops(e_, plan_, iteration_.vars, loop + 1, vector, whole); });
        }
        for (Reductions::Partials& p : partials) {
          if (p.in_stretches()) reductions_.AddToTotals(p);
        }
      });
    });
  }

  // A row of `op` in scratch, by the position in the row.
  KernelEmitter::InMemory RowBuffer(const Instruction& op, int64_t* scratch) {
    std::vector<Dim> extents;
    std::vector<Index> vars;
    for (size_t i = first_reduced_; i < plan_.loops.size(); ++i) {
      extents.push_back(plan_.loops[i].extent);
      vars.push_back(iteration_.vars[i]);
    }
    const PrimitiveType type = op.shape().element_type();
    KernelEmitter::InMemory where{e_.ScratchPointer(*scratch), 0,
                                  e_.space().Linear(vars, DenseStrides(extents)), type};
    int64_t elements = 1;
    for (Dim d : extents) elements *= d.constant();
    *scratch += (elements * StorageBytes(type) + 63) / 64 * 64;
    return where;
  }

  KernelEmitter& e_;
  const FusedKernel& f_;
  const KernelPlan& plan_;
  Iteration iteration_;
  const std::optional<Stretch> stretch_;
  Reductions reductions_;
  size_t first_reduced_ = 0;
};

}  // namespace

void EmitRowKernel(KernelEmitter& e, const KernelPlan& plan) {
  RowKernel(e, plan).Emit();
  EmitOthers(e);
}

}  // namespace tenon
