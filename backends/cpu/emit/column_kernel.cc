// kColumn: reductions across the vector loop. Accumulator rows live in scratch and every pass
// streams whole row segments, eight rows at a time: reading one cache line per row and column
// instead would be five times slower (TLB, prefetcher).
#include <algorithm>
#include <bit>

#include "absl/algorithm/container.h"
#include "backends/codegen/plan/wide_sums.h"
#include "backends/cpu/emit/kernels.h"
#include "hlo/check.h"
#include "llvm/IR/Intrinsics.h"

namespace tenon {

using llvm::Value;

namespace {

// Rows of so few vectors, and of so many operations and vectors together, that their loop is written out: LLVM keeps accumulators that
// lie in a stack slot of their own in registers.
constexpr int64_t kMostVectors = 4, kMostCode = 64;

class ColumnKernel {
 public:
  ColumnKernel(KernelEmitter& e, const KernelPlan& plan)
      : e_(e), f_(e.fused()), plan_(plan), iteration_(e.space(), f_, plan.loops), stretch_(StretchOf(f_, plan)) {
    while (!plan.loops[first_reduced_].reduced) ++first_reduced_;
  }

  void Emit() {
    const Dim extent = plan_.loops.back().extent;
    const int64_t vectors = CeilDiv(Typical(extent), plan_.lanes).constant(), operations = static_cast<int64_t>(f_.order.size());
    const bool whole = extent.is_constant() && extent.constant() % plan_.lanes == 0;
    const bool few = vectors > 0 && vectors <= kMostVectors && vectors * operations <= kMostCode && vectors * plan_.lanes <= plan_.block;
    columns_ = e_.EmitDim(extent);
    if (!few || !(whole || plan_.masked_tail)) return Blocks();
    if (extent.is_constant()) return ShortRows(vectors, whole ? nullptr : columns_);
    Value* above = b().CreateICmpSGT(columns_, e_.I64((vectors - 1) * plan_.lanes));
    Value* typical = b().CreateAnd(above, b().CreateICmpSLE(columns_, e_.I64(vectors * plan_.lanes)));
    e_.If(typical, [&] { ShortRows(vectors, columns_); });
    e_.If(b().CreateNot(typical), [&] { Blocks(); });
  }

 private:
  llvm::IRBuilder<>& b() { return e_.Here(); }
  Value* Min(Value* x, Value* y) { return b().CreateBinaryIntrinsic(llvm::Intrinsic::smin, x, y); }
  Index column() const { return iteration_.vars.back(); }

  // A row of columns is one chunk of so many vectors, the last of them below `limit`.
  void ShortRows(int64_t vectors, Value* limit) {
    vectors_ = vectors;
    limit_ = limit;
    lo_ = e_.I64(0);
    hi_ = columns_;
    e_.Loop(e_.begin(), e_.end(), e_.I64(1), [&](Value* row) { Chunks(row); });
    vectors_ = 0;
  }

  // The outer range counts blocks of columns within the split loops; blocks that lie side by side
  // go together as one chunk.
  void Blocks() {
    Value* blocks = e_.EmitDim(CeilDiv(plan_.loops.back().extent, plan_.block));
    llvm::AllocaInst* at = e_.Alloca(blocks->getType());
    b().CreateStore(e_.begin(), at);
    // At most end - begin rounds; a round takes all blocks up to the row's end, the range's end or
    // a full chunk.
    e_.Loop(e_.begin(), e_.end(), e_.I64(1), [&](Value*) {
      Value* o = b().CreateLoad(blocks->getType(), at);
      e_.If(b().CreateICmpSLT(o, e_.end()), [&] {
        Value* block = b().CreateURem(o, blocks);
        Value* n = Min(Min(b().CreateSub(blocks, block), b().CreateSub(e_.end(), o)),
                       e_.I64(kColumnChunk / plan_.block));
        b().CreateStore(b().CreateAdd(o, n), at);
        lo_ = b().CreateMul(block, e_.I64(plan_.block));
        hi_ = Min(b().CreateAdd(lo_, b().CreateMul(n, e_.I64(plan_.block))), columns_);
        Chunks(b().CreateUDiv(o, blocks));
      });
    });
  }

  void Columns(const std::function<void()>& body) {
    KernelEmitter::VectorLoopOptions options{plan_.lanes, 1, plan_.masked_tail, false};
    if (plan_.loops.back().extent.constant_or(1) % plan_.lanes == 0 &&
        plan_.block % plan_.lanes == 0)
      options.multiple = plan_.lanes;
    if (vectors_ == 0) return e_.VectorLoop(column(), lo_, hi_, options, body);
    for (int64_t k = 0; k < vectors_; ++k) {
      e_.OneVector(column(), k * plan_.lanes, plan_.lanes, k + 1 == vectors_ ? limit_ : nullptr, body);
    }
  }

  // The columns [lo_, hi_) of the split loops' iteration `place`, and of all of the loops between those and the reduced ones.
  void Chunks(Value* place) {
    for (int i = plan_.split; i-- > 0;) {
      Value* extent = e_.EmitDim(plan_.loops[static_cast<size_t>(i)].extent);
      e_.BindVar(iteration_.vars[static_cast<size_t>(i)], i == 0 ? place : b().CreateURem(place, extent));
      if (i > 0) place = b().CreateUDiv(place, extent);
    }
    ForLoops(e_, plan_, iteration_.vars, static_cast<size_t>(plan_.split), first_reduced_, [&] { Chunk(); });
  }

  void Chunk() {
    e_.ForgetInMemory();
    scratch_ = 0;
    for (size_t p = 0; p < plan_.phases.size(); ++p)
      Pass(plan_.phases[p], p + 1 == plan_.phases.size());
    const std::vector<int64_t> kept = RootsWithRole(f_, Role::kKept);
    Columns([&] {
      StoreRoots(e_, iteration_, kept);
      EmitChecks(e_, iteration_, Role::kKept);
    });
  }

  struct Accumulator {
    const Instruction* reduce;
    std::vector<Instruction*> wide_uses;
    std::vector<KernelEmitter::InMemory> rows;  // per component
    // Totals in f64 of a long sum, to which each stretch is added, or of one with wide uses, to which each step is (wide_sums.h).
    std::optional<KernelEmitter::InMemory> wide;
    std::optional<KernelEmitter::InMemory> half;  // with wide uses: the partial sum of the latter half of four steps

    bool in_stretches() const { return wide.has_value() && wide_uses.empty(); }
  };

  // A row of a chunk's columns, indexed by the column itself.
  KernelEmitter::InMemory ScratchRow(PrimitiveType type) {
    llvm::Type* element = StorageType(e_.context(), type);
    if (vectors_ > 0) return {e_.Alloca(llvm::ArrayType::get(element, static_cast<uint64_t>(vectors_ * plan_.lanes))), 0, column(), type};
    Value* row = e_.ScratchPointer(scratch_);
    scratch_ += kColumnChunk * StorageBytes(type) + kColumnGap;
    return {b().CreateGEP(element, row, b().CreateNeg(lo_)), e_.innermost(), column(), type};
  }

  Accumulator Start(const Instruction* reduce) {
    Accumulator a{reduce, WideUsesOf(*reduce)};
    for (int64_t k = 0; k < reduce->operand_count() / 2; ++k) {
      a.rows.push_back(ScratchRow(reduce->operand(k)->shape().element_type()));
    }
    if (!a.wide_uses.empty() || (stretch_.has_value() && HasWideTotal(*reduce))) a.wide = ScratchRow(PrimitiveType::kF64);
    if (!a.wide_uses.empty()) a.half = ScratchRow(reduce->shape().element_type());
    Columns([&] {
      for (size_t k = 0; k < a.rows.size() && a.wide_uses.empty(); ++k)
        Store(a.rows[k], {.v = {e_.PartialStart(*reduce, static_cast<int>(k))}});
      if (a.wide) Store(*a.wide, {.v = {b().CreateFPExt(e_.PartialStart(*reduce, 0), b().getDoubleTy())}});
    });
    return a;
  }

  // Rows in stack slots are of whole vectors, and LLVM keeps in registers what is never masked.
  template <typename F>
  void InWholeVectors(const F& body) {
    const LaneMode mode = e_.mode();
    LaneMode whole = mode;
    if (vectors_ > 0) {
      whole.remaining = nullptr;
      whole.masks.clear();
    }
    e_.set_mode(whole);
    body();
    e_.set_mode(mode);
  }

  void Store(const KernelEmitter::InMemory& row, const Val& v) {
    InWholeVectors([&] { e_.StoreRaw(row.base, row.level, row.offset, row.type, v); });
  }
  Val Load(const KernelEmitter::InMemory& row) {
    Val v;
    InWholeVectors([&] { v = e_.LoadRaw(row); });
    return v;
  }

  void Pass(const PlanPhase& phase, bool last) {
    std::vector<Accumulator> accumulators;
    for (int64_t r : phase.reduces) accumulators.push_back(Start(f_.order[static_cast<size_t>(r)]));
    const bool wide = absl::c_any_of(accumulators, [](const Accumulator& a) { return a.half.has_value(); });
    steps_ = wide && plan_.unroll >= 8 ? 4 : 1;
    const size_t inner = plan_.loops.size() - 2;  // the innermost reduced loop
    auto rows = [&] {
      Columns([&] {
        for (Accumulator& a : accumulators) Accumulate(a);
        if (last) EmitChecks(e_, iteration_, Role::kFull);
        StoreRoots(e_, iteration_, phase.roots);
      });
    };
    if (accumulators.empty() && phase.roots.empty()) return;
    if (std::none_of(accumulators.begin(), accumulators.end(), [](const Accumulator& a) { return a.in_stretches(); })) {
      ForLoops(e_, plan_, iteration_.vars, first_reduced_, inner,
               [&] { Rows(e_.I64(0), e_.EmitDim(plan_.loops[inner].extent), rows); });
    } else {
      Stretches(rows, [&] {
        for (Accumulator& a : accumulators) {
          if (a.in_stretches()) AddToTotals(a);
        }
      });
    }
    for (Accumulator& a : accumulators) FinishReduce(a);
  }

  // Iterations [lo, hi) of the innermost reduced loop, as many at once as the plan unrolls.
  void Rows(Value* lo, Value* hi, const std::function<void()>& body) {
    const size_t inner = plan_.loops.size() - 2;
    Index row = iteration_.vars[inner];
    const Dim extent = plan_.loops[inner].extent;
    const int64_t step = plan_.unroll;
    const bool unroll = step > 1 && std::has_single_bit(static_cast<uint64_t>(step)) && extent.constant_or(step) >= step;
    Value* whole = lo;
    if (unroll) {
      whole = e_.Floor(lo, hi, step);
      const LaneMode outer = e_.mode();
      LaneMode unrolled = outer;
      unrolled.copies = static_cast<int>(step);
      unrolled.unroll_var = row->var;
      unrolled.unroll_step = 1;
      e_.set_mode(unrolled);
      e_.PrefetchAhead(row, step);  // the processor follows one row, not eight a page apart
      Value* most = lo;
      if (steps_ > 1) {
        most = e_.Rounds(row, lo, whole, step, steps_, [&](int64_t k) {
          step_ = k;
          body();
        });
        step_ = -1;
      }
      e_.LoopOver(row, most, whole, step, body);
      e_.load_hook = nullptr;
      e_.set_mode(outer);
    }
    // A stretch is a multiple of the step.
    if (!unroll || !extent.is_constant() || extent.constant() % step != 0) e_.LoopOver(row, whole, hi, 1, body);
  }

  // The reduced loops around `body`, `flush` after every stretch.
  void Stretches(const std::function<void()>& body, const std::function<void()>& flush) {
    const size_t inner = plan_.loops.size() - 2, loop = stretch_->loop;
    ForLoops(e_, plan_, iteration_.vars, first_reduced_, loop, [&] {
      Value* n = e_.EmitDim(plan_.loops[loop].extent);
      e_.Loop(e_.I64(0), n, e_.I64(stretch_->count), [&](Value* lo) {
        Value* hi = Min(b().CreateAdd(lo, e_.I64(stretch_->count)), n);
        if (loop == inner) {
          Rows(lo, hi, body);
        } else {
          e_.LoopOver(iteration_.vars[loop], lo, hi, 1, [&] {
            ForLoops(e_, plan_, iteration_.vars, loop + 1, inner,
                     [&] { Rows(e_.I64(0), e_.EmitDim(plan_.loops[inner].extent), body); });
          });
        }
        flush();
      });
    });
  }

  // Partial sums onto their totals; they start again.
  void AddToTotals(const Accumulator& a) {
    Columns([&] {
      Value *partial = Load(a.rows[0]).v[0], *total = Load(*a.wide).v[0];
      total = b().CreateFAdd(total, b().CreateFPExt(partial, total->getType()));
      Store(*a.wide, {.v = {total}, .level = e_.innermost()});
      Store(a.rows[0], {.v = {e_.PartialStart(*a.reduce, 0)}});
    });
  }

  // Four steps with a total in f64 are a tree in f32, too: (first + second) + (third + fourth) goes to the total, which is dear.
  // False: `sum` is kept for later.
  bool InTree(const Accumulator& a, Value** sum) {
    const KernelEmitter::InMemory& kept = step_ < 2 ? a.rows[0] : *a.half;
    if (step_ < 0) return true;
    if (step_ % 2 == 1) *sum = b().CreateFAdd(Load(kept).v[0], *sum);
    if (step_ == 3) *sum = b().CreateFAdd(Load(a.rows[0]).v[0], *sum);
    if (step_ < 3) Store(kept, {.v = {*sum}, .level = e_.innermost()});
    return step_ == 3;
  }

  // The rows of one step among themselves as a tree, then onto the accumulator row.
  void Accumulate(Accumulator& a) {
    const Instruction& reduce = *a.reduce;
    const bool wide = !a.wide_uses.empty();
    std::vector<Val> values, old;
    for (size_t k = 0; k < a.rows.size(); ++k) {
      const Instruction* operand = reduce.operand(static_cast<int64_t>(k));
      values.push_back(e_.Eval(operand, iteration_.IndexOf(e_.space(), f_, operand->shape())));
    }
    const std::vector<KernelEmitter::InMemory> rows = wide ? std::vector<KernelEmitter::InMemory>{*a.wide} : a.rows;
    for (const KernelEmitter::InMemory& row : rows) old.push_back(Load(row));
    std::vector<std::vector<Value*>> parts;
    for (int c = 0; c < e_.mode().copies; ++c) {
      parts.emplace_back();
      for (const Val& v : values)
        parts.back().push_back(e_.Splat(v.at(static_cast<size_t>(c)), v.level));
    }
    auto merge = [&](const std::vector<Value*>& x, const std::vector<Value*>& y) {
      std::vector<Value*> args = x;
      args.insert(args.end(), y.begin(), y.end());
      return e_.Apply(b(), *reduce.to_apply(), args, /*merging=*/true);
    };
    for (size_t width = parts.size(); width > 1; width /= 2) {
      for (size_t i = 0; i < width / 2; ++i) parts[i] = merge(parts[i], parts[i + width / 2]);
    }
    std::vector<Value*> accumulated;
    for (const Val& v : old) accumulated.push_back(v.v[0]);
    if (wide) {
      Value *total = accumulated[0], *sum = parts[0][0];
      if (!InTree(a, &sum)) return;
      accumulated[0] = b().CreateFAdd(total, b().CreateFPExt(sum, total->getType()));
    } else {
      accumulated = merge(accumulated, parts[0]);
    }
    for (size_t k = 0; k < rows.size(); ++k) Store(rows[k], {.v = {accumulated[k]}, .level = e_.innermost()});
  }

  // The init value onto the totals, which are rounded once. Wide uses are without that.
  void FinishWide(Accumulator& a) {
    Columns([&] {
      const Val init = e_.Eval(a.reduce->operand(1), {});
      Value *start = e_.Splat(init.v[0], init.level), *total = Load(*a.wide).v[0];
      total = b().CreateFAdd(b().CreateFPExt(start, total->getType()), total);
      Store(*a.wide, {.v = {total}, .level = e_.innermost()});
      Store(a.rows[0], {.v = {b().CreateFPTrunc(total, start->getType())}, .level = e_.innermost()});
    });
    const IndexTuple index = iteration_.IndexOf(e_.space(), f_, a.reduce->shape());
    e_.DefineInMemory(a.reduce, index, 0, a.rows[0]);
    if (!e_.specs().types.excess_precision) return;
    for (const Instruction* use : a.wide_uses) e_.DefineInMemory(use, index, 0, *a.wide);
  }

  void FinishReduce(Accumulator& a) {
    if (a.wide) return FinishWide(a);
    const Instruction& reduce = *a.reduce;
    const int64_t n = reduce.operand_count() / 2;
    if (CombineOf(reduce) == Combine::kIdentity) {
      Columns([&] {
        std::vector<Value*> args;
        for (int64_t k = 0; k < n; ++k) {
          Val init = e_.Eval(reduce.operand(n + k), {});
          args.push_back(e_.Splat(init.v[0], init.level));
        }
        for (const KernelEmitter::InMemory& row : a.rows) args.push_back(Load(row).v[0]);
        std::vector<Value*> total = e_.Apply(b(), *reduce.to_apply(), args, /*merging=*/true);
        for (size_t k = 0; k < a.rows.size(); ++k)
          Store(a.rows[k], {.v = {total[k]}, .level = e_.innermost()});
      });
    }
    const Shape& shape = reduce.shape().is_tuple() ? reduce.shape().element(0) : reduce.shape();
    IndexTuple index = iteration_.IndexOf(e_.space(), f_, shape);
    for (size_t k = 0; k < a.rows.size(); ++k)
      e_.DefineInMemory(&reduce, index, static_cast<int>(k), a.rows[k]);
  }

  KernelEmitter& e_;
  const FusedKernel& f_;
  const KernelPlan& plan_;
  Iteration iteration_;
  const std::optional<Stretch> stretch_;
  int64_t steps_ = 1, step_ = -1;  // in a tree with wide uses, and which of them is being emitted
  size_t first_reduced_ = 0;
  int64_t scratch_ = 0;
  Value* columns_ = nullptr;
  int64_t vectors_ = 0;      // of a chunk, written out, accumulators in stack slots; 0: a loop of them, accumulators in scratch
  Value* limit_ = nullptr;  // of the last of them
  Value *lo_ = nullptr, *hi_ = nullptr;
};

}  // namespace

void EmitColumnKernel(KernelEmitter& e, const KernelPlan& plan) {
  ColumnKernel(e, plan).Emit();
  EmitOthers(e);
}

}  // namespace tenon
