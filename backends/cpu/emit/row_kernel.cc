// kRow: several passes over one row at a time; reductions along the vector loop end in a scalar per
// row.
#include <algorithm>

#include "backends/cpu/plan/wide_sums.h"
#include "backends/cpu/emit/kernels.h"
#include "hlo/check.h"
#include "llvm/IR/Intrinsics.h"

namespace tenon {

using llvm::Value;

namespace {

// Partial results of one reduction in one pass: per component and copy a vector, and a scalar for a
// lane-by-lane tail. Long sums have totals in f64 too (wide_sums.h): of the vectors, of the scalar. Some have only those.
struct Partials {
  const Instruction* reduce;
  std::vector<Instruction*> wide_uses;
  std::vector<std::vector<llvm::AllocaInst*>> vectors;  // [component][copy]
  std::vector<llvm::AllocaInst*> scalars;               // empty: tails are masked
  llvm::AllocaInst *wide = nullptr, *wide_scalar = nullptr;  // nullptr: none

  bool each_step() const { return vectors.empty(); }
  bool in_stretches() const { return wide != nullptr && !each_step(); }
};

class RowKernel {
 public:
  RowKernel(KernelEmitter& e, const KernelPlan& plan)
      : e_(e), f_(e.fused()), plan_(plan), iteration_(e.space(), f_, plan.loops), stretch_(StretchOf(f_, plan)) {
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
    StoreRoots(e_, iteration_, RootsWithRole(f_, Role::kKept));
    EmitChecks(e_, iteration_, Role::kKept);
  }

  void Pass(const PlanPhase& phase, bool last, int64_t* scratch) {
    std::vector<Partials> partials;
    for (int64_t r : phase.reduces) partials.push_back(Start(f_.order[static_cast<size_t>(r)]));
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
      for (Partials& p : partials) Accumulate(p);
      if (last) EmitChecks(e_, iteration_, Role::kFull);
      StoreRoots(e_, iteration_, phase.roots);
    });
    e_.load_hook = nullptr;
    for (Partials& p : partials) FinishReduce(p);
    for (auto& [op, where] : kept)
      e_.DefineInMemory(op, iteration_.IndexOf(e_.space(), f_, op->shape()), 0, where);
  }

  // The reduced loops around `body`; partial results with a total are added to it after every stretch.
  void Stretches(std::vector<Partials>& partials, const std::function<void()>& body) {
    const size_t vector = plan_.loops.size() - 1;
    const KernelEmitter::VectorLoopOptions options{plan_.lanes, plan_.unroll, plan_.masked_tail, IsHeavy(f_)};
    auto along = [&](Value* lo, Value* hi) { e_.VectorLoop(iteration_.vars[vector], lo, hi, options, body); };
    auto whole = [&] { along(e_.I64(0), e_.EmitDim(plan_.loops[vector].extent)); };
    if (std::none_of(partials.begin(), partials.end(), [](const Partials& p) { return p.in_stretches(); })) {
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
        for (Partials& p : partials) {
          if (p.in_stretches()) AddToTotals(p);
        }
      });
    });
  }

  // In all lanes.
  Value* Wide(Value* scalar) {
    return plan_.lanes > 1 ? SplatValue(b(), static_cast<unsigned>(plan_.lanes), scalar) : scalar;
  }
  Value* Load(llvm::AllocaInst* slot) { return b().CreateLoad(slot->getAllocatedType(), slot); }

  void AddTo(llvm::AllocaInst* total, Value* partial) {
    Value* wide = b().CreateFPExt(partial, total->getAllocatedType());
    b().CreateStore(b().CreateFAdd(Load(total), wide), total);
  }
  Value* SumOf(std::vector<Value*> copies) {
    for (size_t width = copies.size(); width > 1; width /= 2) {
      for (size_t i = 0; i < width / 2; ++i) copies[i] = b().CreateFAdd(copies[i], copies[i + width / 2]);
    }
    return copies[0];
  }

  // The copies among themselves as a tree, then onto the total. The partial results start again.
  void AddToTotals(Partials& p) {
    Value* start = e_.PartialStart(*p.reduce, 0);
    std::vector<Value*> copies;
    for (llvm::AllocaInst* slot : p.vectors[0]) {
      copies.push_back(Load(slot));
      b().CreateStore(Wide(start), slot);
    }
    AddTo(p.wide, SumOf(std::move(copies)));
    if (p.wide_scalar == nullptr) return;
    AddTo(p.wide_scalar, Load(p.scalars[0]));
    b().CreateStore(start, p.scalars[0]);
  }

  // This step's copies, as a tree, onto the total in f64.
  void AccumulateWide(Partials& p) {
    const Instruction* operand = p.reduce->operand(0);
    const Val v = e_.Eval(operand, iteration_.IndexOf(e_.space(), f_, operand->shape()));
    if (plan_.lanes > 1 && e_.mode().lanes == 1) return AddTo(p.wide_scalar, v.at(0));
    std::vector<Value*> copies;
    for (int c = 0; c < e_.mode().copies; ++c) {
      Value *x = e_.Splat(v.at(static_cast<size_t>(c)), v.level), *mask = e_.LaneMask(c);
      copies.push_back(mask == nullptr ? x : SelectValue(b(), mask, x, Wide(e_.PartialStart(*p.reduce, 0))));
    }
    AddTo(p.wide, SumOf(std::move(copies)));
  }

  // The total over copies, lanes and tail, in f64.
  Value* TotalOf(const Partials& p) {
    auto widened = [&](Value* v) { return b().CreateFPExt(v, WithLanes(b().getDoubleTy(), LanesOf(v->getType()))); };
    std::vector<Value*> copies;
    if (p.wide == nullptr) {
      for (llvm::AllocaInst* slot : p.vectors[0]) copies.push_back(Load(slot));
    }
    Value* total = p.wide != nullptr ? Load(p.wide) : widened(SumOf(std::move(copies)));
    for (int lanes = plan_.lanes; lanes > 1; lanes /= 2) {
      llvm::SmallVector<int, 32> low, high;
      for (int i = 0; i < lanes / 2; ++i) {
        low.push_back(i);
        high.push_back(lanes / 2 + i);
      }
      total = lanes == 2 ? b().CreateFAdd(ExtractLane(b(), total, 0), ExtractLane(b(), total, 1))
                         : b().CreateFAdd(ShuffleValues(b(), total, total, low), ShuffleValues(b(), total, total, high));
    }
    if (p.wide_scalar != nullptr) return b().CreateFAdd(total, Load(p.wide_scalar));
    if (p.wide == nullptr && !p.scalars.empty()) return b().CreateFAdd(total, widened(Load(p.scalars[0])));
    return total;
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

  Partials Start(const Instruction* reduce) {
    Partials p{reduce, WideUsesOf(*reduce)};
    for (int64_t k = 0; k < reduce->operand_count() / 2; ++k) {
      Value* start = e_.PartialStart(*reduce, static_cast<int>(k));
      Value* wide = Wide(start);
      auto slot = [&](Value* v) {
        llvm::AllocaInst* a = e_.Alloca(v->getType());
        b().CreateStore(v, a);
        return a;
      };
      const bool scalar_tail = plan_.lanes > 1 && !plan_.masked_tail;
      if (!AddsEachStep(*reduce, true)) {
        p.vectors.emplace_back();
        for (int c = 0; c < plan_.unroll; ++c) p.vectors.back().push_back(slot(wide));
        if (scalar_tail) p.scalars.push_back(slot(start));
        if (!stretch_.has_value() || !HasWideTotal(*reduce)) continue;
      }
      Value* wide_start = b().CreateFPExt(start, b().getDoubleTy());
      p.wide = slot(Wide(wide_start));
      if (scalar_tail) p.wide_scalar = slot(wide_start);
    }
    return p;
  }

  void Accumulate(Partials& p) {
    if (p.each_step()) return AccumulateWide(p);
    std::vector<Val> values;
    for (size_t k = 0; k < p.vectors.size(); ++k) {
      const Instruction* operand = p.reduce->operand(static_cast<int64_t>(k));
      values.push_back(e_.Eval(operand, iteration_.IndexOf(e_.space(), f_, operand->shape())));
    }
    const bool scalar_tail = plan_.lanes > 1 && e_.mode().lanes == 1;
    for (int c = 0; c < (scalar_tail ? 1 : e_.mode().copies); ++c) {
      std::vector<Value*> args;
      for (size_t k = 0; k < p.vectors.size(); ++k) {
        llvm::AllocaInst* slot = scalar_tail ? p.scalars[k] : p.vectors[k][static_cast<size_t>(c)];
        args.push_back(b().CreateLoad(slot->getAllocatedType(), slot));
      }
      const std::vector<Value*> old = args;
      for (const Val& v : values) args.push_back(e_.Splat(v.at(static_cast<size_t>(c)), v.level));
      std::vector<Value*> next = e_.Apply(b(), *p.reduce->to_apply(), args, /*merging=*/true);
      for (size_t k = 0; k < next.size(); ++k) {
        Value* mask = e_.LaneMask(c);
        Value* n = mask != nullptr ? SelectValue(b(), mask, next[k], old[k]) : next[k];
        b().CreateStore(n, scalar_tail ? p.scalars[k] : p.vectors[k][static_cast<size_t>(c)]);
      }
    }
  }

  std::vector<Value*> Merge(const Instruction& reduce, const std::vector<Value*>& x, const std::vector<Value*>& y) {
    std::vector<Value*> args = x;
    args.insert(args.end(), y.begin(), y.end());
    return e_.Apply(b(), *reduce.to_apply(), args, /*merging=*/true);
  }

  // A fixed tree: copies pairwise, then halves of the vector, then the tail.
  std::vector<Value*> Merged(const Partials& p) {
    const Instruction& reduce = *p.reduce;
    const size_t n = p.vectors.size();
    std::vector<std::vector<Value*>> parts;  // [copy][component]
    for (int c = 0; c < plan_.unroll; ++c) {
      parts.emplace_back();
      for (size_t k = 0; k < n; ++k)
        parts.back().push_back(
            b().CreateLoad(p.vectors[k][c]->getAllocatedType(), p.vectors[k][c]));
    }
    auto merge = [&](const std::vector<Value*>& x, const std::vector<Value*>& y) { return Merge(reduce, x, y); };
    for (size_t width = parts.size(); width > 1; width /= 2) {
      for (size_t i = 0; i < width / 2; ++i) parts[i] = merge(parts[i], parts[i + width / 2]);
    }
    std::vector<Value*> total = parts[0];
    for (int lanes = plan_.lanes; lanes > 1; lanes /= 2) {
      auto half = [&](Value* v, int from) {
        llvm::SmallVector<int, 32> pick;
        for (int i = 0; i < lanes / 2; ++i) pick.push_back(from + i);
        return ShuffleValues(b(), v, v, pick);
      };
      std::vector<Value*> low, high;
      for (Value* v : total) {
        low.push_back(lanes == 2 ? ExtractLane(b(), v, 0) : half(v, 0));
        high.push_back(lanes == 2 ? ExtractLane(b(), v, 1) : half(v, lanes / 2));
      }
      total = merge(low, high);
    }
    if (!p.scalars.empty()) {
      std::vector<Value*> tail;
      for (llvm::AllocaInst* s : p.scalars)
        tail.push_back(b().CreateLoad(s->getAllocatedType(), s));
      total = merge(total, tail);
    }
    return total;
  }

  // The init value onto the total, which is rounded once. Its wide uses are without that.
  void FinishWide(const Partials& p) {
    const Instruction& reduce = *p.reduce;
    Value* init = e_.Eval(reduce.operand(1), {}).v[0];
    Value* total = b().CreateFAdd(b().CreateFPExt(init, b().getDoubleTy()), TotalOf(p));
    const IndexTuple index = iteration_.IndexOf(e_.space(), f_, reduce.shape());
    e_.Define(&reduce, index, 0, Val{.v = {b().CreateFPTrunc(total, init->getType())}, .level = e_.innermost()});
    if (!e_.specs().types.excess_precision) return;
    for (const Instruction* use : p.wide_uses) e_.Define(use, index, 0, Val{.v = {total}, .level = e_.innermost()});
  }

  // Then the init value.
  void FinishReduce(Partials& p) {
    if (p.wide != nullptr || !p.wide_uses.empty()) return FinishWide(p);
    const Instruction& reduce = *p.reduce;
    const size_t n = p.vectors.size();
    std::vector<Value*> total = Merged(p);
    if (CombineOf(reduce) == Combine::kIdentity) {
      std::vector<Value*> init;
      for (size_t k = 0; k < n; ++k)
        init.push_back(e_.Eval(reduce.operand(static_cast<int64_t>(n + k)), {}).v[0]);
      total = Merge(reduce, init, total);
    }
    const Shape& shape = reduce.shape().is_tuple() ? reduce.shape().element(0) : reduce.shape();
    IndexTuple index = iteration_.IndexOf(e_.space(), f_, shape);
    for (size_t k = 0; k < n; ++k)
      e_.Define(&reduce, index, static_cast<int>(k), Val{.v = {total[k]}, .level = e_.innermost()});
  }

  KernelEmitter& e_;
  const FusedKernel& f_;
  const KernelPlan& plan_;
  Iteration iteration_;
  const std::optional<Stretch> stretch_;
  size_t first_reduced_ = 0;
};

}  // namespace

void EmitRowKernel(KernelEmitter& e, const KernelPlan& plan) {
  RowKernel(e, plan).Emit();
  EmitOthers(e);
}

}  // namespace tenon
