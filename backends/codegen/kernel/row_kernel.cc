// kRow: several passes over one row at a time; reductions along the vector loop end in a scalar per row. Threads of a team share the row:
// each element is the same thread's in all passes, so what a pass keeps in scratch is read by who wrote it.
#include <algorithm>

#include "absl/algorithm/container.h"
#include "backends/codegen/kernel/kernel_parts.h"
#include "backends/codegen/kernel/reductions.h"
#include "backends/codegen/kernel/segments.h"
#include "backends/codegen/plan/wide_sums.h"
#include "hlo/check.h"
#include "llvm/IR/Intrinsics.h"

namespace tenon {

using llvm::Value;

namespace {

constexpr size_t kMaxSegments = 4;  // all of the row's passes are emitted for each

class RowKernel {
 public:
  RowKernel(KernelEmitter& e, const KernelPlan& plan)
      : e_(e),
        f_(e.fused()),
        plan_(plan),
        iteration_(e.space(), f_, plan.loops),
        reductions_(e, plan, iteration_, /*across_lanes=*/true),
        loops_(iteration_.vars) {
    while (first_reduced_ < plan.loops.size() && !plan.loops[first_reduced_].reduced) ++first_reduced_;
    CutIntoSegments();
    FindTables();
  }

  void Emit() {
    ForOuter(e_, plan_, loops_, 1, [&](Value*) { SplitLoops(0); });
  }

 private:
  llvm::IRBuilder<>& b() { return e_.Here(); }

  // ---- segments: loops_[i] is the variable of the loop that is open, iteration_.vars[i] where that is in the whole ----

  void CutIntoSegments() {
    if (e_.team().size > 1) return;  // whose threads share instructions, and keep rows in registers
    const std::vector<Segments> found = FindSegments(f_, plan_.loops, kMaxSegments);
    if (found.empty()) return;
    segments_ = found[0];
    for (Dim extent : segments_->extents) segment_vars_.push_back(e_.space().Var(extent));
  }

  bool IsCut(size_t loop) const { return segments_ && segments_->loop == loop; }

  void MoveTo(Index loop_var, Index place) {
    std::vector<Index> vars = iteration_.vars;
    vars[segments_->loop] = place;
    loops_[segments_->loop] = loop_var;
    iteration_ = Iteration(e_.space(), f_, plan_.loops, vars);
  }

  // body(segment) with the iteration in each of the segments.
  void ForSegments(const std::function<void(size_t)>& body) {
    const Index whole_var = loops_[segments_->loop], whole = iteration_.vars[segments_->loop];
    for (size_t k = 0; k < segment_vars_.size(); ++k) {
      if (segments_->extents[k] == Dim(0)) continue;
      MoveTo(segment_vars_[k], e_.space().AddConstant(segment_vars_[k], segments_->starts[k]));
      body(k);
    }
    MoveTo(whole_var, whole);
  }

  // body(from, to) with the part of [lo, hi) that lies in each of the segments, from its beginning.
  void ForSegments(Value* lo, Value* hi, const std::function<void(Value*, Value*)>& body) {
    ForSegments([&](size_t k) {
      Value *start = e_.EmitDim(segments_->starts[k]), *extent = e_.EmitDim(segments_->extents[k]);
      auto within = [&](Value* v) {
        v = b().CreateBinaryIntrinsic(llvm::Intrinsic::smax, b().CreateSub(v, start), e_.I64(0));
        return b().CreateBinaryIntrinsic(llvm::Intrinsic::smin, v, extent);
      };
      Value* from = within(lo);
      body(from, within(hi));
    });
  }

  // Loop `loop` over [lo, hi).
  void Along(size_t loop, Value* lo, Value* hi, const std::function<void()>& body) {
    if (!IsCut(loop)) return e_.LoopOver(loops_[loop], lo, hi, 1, body);
    ForSegments(lo, hi, [&](Value* from, Value* to) { e_.LoopOver(loops_[loop], from, to, 1, body); });
  }

  // Loops [first, last).
  void Nest(size_t first, size_t last, const std::function<void()>& body) {
    if (first >= last) return body();
    Along(first, e_.I64(0), e_.EmitDim(plan_.loops[first].extent), [&] { Nest(first + 1, last, body); });
  }

  // Split loops are bound; one that is cut into segments is asked in which it is.
  void SplitLoops(size_t i) {
    if (i == static_cast<size_t>(plan_.split)) return Nest(i, first_reduced_, [&] { Row(); });
    if (!IsCut(i)) return SplitLoops(i + 1);
    Value* at = e_.ScalarIndex(loops_[i]).v[0];
    ForSegments([&](size_t k) {
      Value* local = b().CreateSub(at, e_.EmitDim(segments_->starts[k]));
      e_.If(b().CreateICmpULT(local, e_.EmitDim(segments_->extents[k])), [&] {
        e_.BindVar(loops_[i], local);
        SplitLoops(i + 1);
      });
    });
  }

  // ---- rows of tables: which one comes next only the data know, so that no processor asks for it ----

  void FindTables() {
    if (!e_.specs().prefetches || first_reduced_ == 0 || IsCut(first_reduced_ - 1)) return;
    for (const Instruction* op : f_.order) {
      if (op->opcode() != Opcode::kGather || op->operand(0)->opcode() != Opcode::kParameter) continue;
      const bool large = Typical(op->operand(0)->shape().byte_size()) >= kCachedBytes;
      if (large && f_.RoleOf(op->shape()) == Role::kFull) tables_.push_back(op);
    }
    if (!tables_.empty()) next_ = e_.space().Var(plan_.loops[first_reduced_ - 1].extent);
  }

  // The next row, or the last one.
  void FindNext() {
    if (tables_.empty()) return;
    Value* next = b().CreateAdd(e_.ScalarIndex(loops_[first_reduced_ - 1]).v[0], e_.I64(1));
    Value* last = b().CreateSub(e_.EmitDim(plan_.loops[first_reduced_ - 1].extent), e_.I64(1));
    e_.BindVar(next_, b().CreateBinaryIntrinsic(llvm::Intrinsic::smin, next, last));
  }

  // What the next row has at this place of the tables.
  void AskForNext() {
    if (tables_.empty() || e_.mode().vector_var < 0) return;
    std::vector<Index> vars = iteration_.vars;
    vars[first_reduced_ - 1] = next_;
    const Iteration ahead(e_.space(), f_, plan_.loops, vars);
    for (const Instruction* op : tables_) {
      const OperandIndex at = *MapToOperand(e_.space(), *op, 0, ahead.IndexOf(e_.space(), f_, op->shape()));
      const Instruction& table = *op->operand(0);
      const Index offset = e_.space().Linear(at.index, f_.operands[static_cast<size_t>(table.parameter_number())].strides);
      if (AccessAlong(offset, e_.mode().vector_var).kind == Access::Kind::kContiguous) e_.Prefetch(table, offset);
    }
  }

  // ---- a row ----

  // A row of about the typical length is one case, any other one another.
  void Row() {
    const Dim length = RowLength(plan_);
    const std::optional<Stretch> stretch = StretchOf(f_, plan_, e_.team().size);
    const std::optional<UsualStretch> usual = UsualStretchOf(f_, plan_, e_.team().size);
    const bool keeps = absl::c_any_of(plan_.phases, [](const PlanPhase& p) { return !p.kept.empty(); });
    Value* fits = nullptr;
    auto demand = [&](Dim size, int64_t most) {
      Value* holds = b().CreateICmpSLE(e_.EmitDim(size), e_.I64(most));
      fits = fits == nullptr ? holds : b().CreateAnd(fits, holds);
    };
    if (keeps && !length.is_constant()) demand(length, KeptLength(plan_));
    if (usual) demand(usual->whole, usual->longest);
    if (fits == nullptr) return Row(/*keep=*/true, stretch);
    e_.If(fits, [&] { Row(/*keep=*/true, usual ? usual->stretch : stretch); });
    e_.If(b().CreateNot(fits), [&] { Row(/*keep=*/length.is_constant(), stretch); });
  }

  void Row(bool keep, std::optional<Stretch> stretch) {
    e_.ForgetInMemory();
    kept_.clear();
    stretch_ = stretch;
    FindNext();
    int64_t scratch = 0;
    for (size_t p = 0; p < plan_.phases.size(); ++p) Pass(plan_.phases[p], p + 1 == plan_.phases.size(), keep ? &scratch : nullptr);
    e_.ByOne([&] {
      StoreRoots(e_, iteration_, RootsWithRole(f_, Role::kKept));
      EmitChecks(e_, iteration_, Role::kKept);
    });
  }

  // A value that a pass leaves for later ones: in scratch, or where root `root` will be.
  struct Kept {
    const Instruction* op;
    Value* base;
    int64_t root = -1;
  };

  // scratch: how much of it is in use; null: nothing is kept.
  void Pass(const PlanPhase& phase, bool last, int64_t* scratch) {
    std::vector<Reductions::Partials> partials;
    for (int64_t r : phase.reduces) partials.push_back(reductions_.Start(f_.order[static_cast<size_t>(r)], stretch_.has_value()));
    std::vector<Kept> kept;
    if (scratch != nullptr) {
      for (int64_t k : phase.kept) kept.push_back(RowBuffer(*f_.order[static_cast<size_t>(k)], scratch));
    }
    for (const PlanPhase::Lent& l : phase.lent) {
      kept.push_back({f_.order[static_cast<size_t>(l.value)], e_.ResultPointer(static_cast<int>(l.root)), l.root});
    }
    // What the last pass finds in the first cache comes from memory for the next row: the processor prefetches no further than a page.
    if (last && plan_.phases.size() > 1 && first_reduced_ > 0) e_.PrefetchAhead(loops_[first_reduced_ - 1], 1);
    const bool first = &phase == plan_.phases.data();
    Stretches(partials, [&] {
      if (first) AskForNext();
      for (const Kept& k : kept_) e_.DefineInMemory(k.op, iteration_.IndexOf(e_.space(), f_, k.op->shape()), 0, PlaceOf(k));
      for (const Kept& k : kept) {
        Val v = e_.Eval(k.op, iteration_.IndexOf(e_.space(), f_, k.op->shape()));
        const KernelEmitter::InMemory where = PlaceOf(k);
        e_.StoreRaw(where.base, where.level, where.offset, where.type, v);
      }
      for (Reductions::Partials& p : partials) reductions_.Accumulate(p);
      if (last) EmitChecks(e_, iteration_, Role::kFull);
      StoreRoots(e_, iteration_, phase.roots);
    });
    e_.load_hook = nullptr;
    for (Reductions::Partials& p : partials) reductions_.FinishReduce(p);
    kept_.insert(kept_.end(), kept.begin(), kept.end());
  }

  // The reduced loops around `body`; partial results with a total are added to it after every stretch.
  void Stretches(std::vector<Reductions::Partials>& partials, const std::function<void()>& body) {
    const size_t vector = plan_.loops.size() - 1;
    const KernelEmitter::VectorLoopOptions options{plan_.lanes, plan_.unroll,   plan_.masked_tail,
                                                   IsHeavy(f_), /*multiple=*/1, /*shared=*/true};
    auto along = [&](Value* lo, Value* hi) {
      if (!IsCut(vector)) return e_.VectorLoop(loops_[vector], lo, hi, options, body);
      ForSegments(lo, hi, [&](Value* from, Value* to) { e_.VectorLoop(loops_[vector], from, to, options, body); });
    };
    auto whole = [&] { along(e_.I64(0), e_.EmitDim(plan_.loops[vector].extent)); };
    if (std::none_of(partials.begin(), partials.end(), [](const Reductions::Partials& p) { return p.in_stretches(); })) {
      Nest(first_reduced_, vector, whole);
      return;
    }
    const size_t loop = stretch_->loop;
    Nest(first_reduced_, loop, [&] {
      Value* n = e_.EmitDim(plan_.loops[loop].extent);
      e_.Loop(e_.I64(0), n, e_.I64(stretch_->count), [&](Value* lo) {
        Value* hi = b().CreateAdd(lo, e_.I64(stretch_->count));
        hi = b().CreateBinaryIntrinsic(llvm::Intrinsic::smin, hi, n);
        if (loop == vector)
          along(lo, hi);
        else
          Along(loop, lo, hi, [&] { Nest(loop + 1, vector, whole); });
        for (Reductions::Partials& p : partials) {
          if (p.in_stretches()) reductions_.AddToTotals(p);
        }
      });
    });
  }

  // Memory for a row of `op`.
  Kept RowBuffer(const Instruction& op, int64_t* scratch) {
    Kept kept{&op, e_.ScratchPointer(*scratch)};
    *scratch += (KeptLength(plan_) * StorageBytes(op.shape().element_type()) + 63) / 64 * 64;
    return kept;
  }

  // Its element at the place in the row that the iteration has.
  KernelEmitter::InMemory PlaceOf(const Kept& kept) {
    if (kept.root >= 0) {
      const size_t root = static_cast<size_t>(kept.root);
      const IndexTuple index = iteration_.IndexOf(e_.space(), f_, RootShape(f_, root));
      return {kept.base, 0, e_.space().Linear(index, f_.results[root].strides), kept.op->shape().element_type()};
    }
    std::vector<Dim> extents;
    std::vector<Index> vars;
    for (size_t i = first_reduced_; i < plan_.loops.size(); ++i) {
      extents.push_back(plan_.loops[i].extent);
      vars.push_back(iteration_.vars[i]);
    }
    return {kept.base, 0, e_.space().Linear(vars, DenseStrides(extents)), kept.op->shape().element_type()};
  }

  KernelEmitter& e_;
  const FusedKernel& f_;
  const KernelPlan& plan_;
  Iteration iteration_;
  Reductions reductions_;
  std::vector<Index> loops_;
  std::optional<Segments> segments_;
  std::vector<Index> segment_vars_;
  std::vector<Kept> kept_;                  // by the passes before
  std::optional<Stretch> stretch_;          // of the row that is emitted
  std::vector<const Instruction*> tables_;  // gathers of rows
  Index next_ = nullptr;                    // the row after this one, if there are any
  size_t first_reduced_ = 0;
};

}  // namespace

void EmitRowKernel(KernelEmitter& e, const KernelPlan& plan) {
  RowKernel(e, plan).Emit();
  EmitOthers(e);
}

}  // namespace tenon
