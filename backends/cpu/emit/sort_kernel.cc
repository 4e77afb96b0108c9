// kSort: sort and topk, row by row. A row is copied to scratch, sorted there by a stable merge sort
// and written to the results: columns (operands; for topk also the positions) move together.
//
// Runs are made by insertion, then merged in passes between two buffers. Two whole runs are merged
// from both ends at once, without a branch that depends on data and without a bounds check: w
// steps from either end take w elements of each run. Which is so for a strict weak order; after any
// other comparator (LT with NaN) the ends may not meet, and the merge is done again step by step,
// which always gives a permutation. No comparator leads outside of the row or to an endless loop.
#include "backends/codegen/kernel/sort_rows.h"
#include "backends/codegen/plan/serial_plan.h"
#include "backends/cpu/emit/kernels.h"
#include "llvm/IR/Intrinsics.h"

namespace tenon {

using llvm::Value;

namespace {

constexpr int64_t kRun = 8;  // elements sorted by insertion

class SortKernel {
 public:
  SortKernel(KernelEmitter& e, const KernelPlan& plan)
      : e_(e),
        f_(e.fused()),
        plan_(plan),
        op_(*f_.serial),
        layout_(SortScratch(f_)),
        rows_(e, layout_),
        n_(SerialExtent(f_).constant()),
        iteration_(e.space(), f_, plan.loops) {
    const bool row = !plan.loops.empty() && plan.loops.back().reduced;
    position_ = row ? iteration_.vars.back() : e_.space().Constant(0);
  }

  void Emit() {
    ForOuter(e_, plan_, iteration_.vars, Dim(1), [&](Value*) {
      for (size_t k = 0; k < columns(); ++k) {
        from_.push_back(Slot(e_.ScratchPointer(layout_.offsets[k])));
        to_.push_back(Slot(e_.ScratchPointer(layout_.offsets[k] + layout_.distances[k])));
      }
      Load();
      if (n_ > 1) MakeRuns();
      if (n_ > kRun) MergeRuns();
      Store();
    });
  }

 private:
  using Row = SortRows::Row;

  llvm::IRBuilder<>& b() { return e_.Here(); }
  size_t columns() const { return layout_.types.size(); }
  llvm::Type* TypeOf(size_t k) { return rows_.TypeOf(k); }
  llvm::AllocaInst* Slot(Value* start) { return rows_.Slot(start); }
  Value* Get(llvm::AllocaInst* slot) { return rows_.Get(slot); }
  void Set(llvm::AllocaInst* slot, Value* v) { rows_.Set(slot, v); }
  Value* Add(Value* x, Value* y) { return b().CreateAdd(x, y, "", false, true); }
  Value* Sub(Value* x, Value* y) { return b().CreateSub(x, y, "", false, true); }
  Value* Min(Value* x, Value* y) { return b().CreateBinaryIntrinsic(llvm::Intrinsic::smin, x, y); }

  // ---- rows ----

  void AlongRow(const std::function<void()>& body) {
    if (position_->kind != IndexNode::Kind::kVar) return body();
    e_.VectorLoop(position_, e_.I64(0), e_.I64(n_), {plan_.lanes, 1, plan_.masked_tail, false},
                  body);
  }

  void Load() {
    const Row base = rows_.Pointers(from_);
    const int level = e_.innermost();
    AlongRow([&] {
      for (size_t k = 0; k < columns(); ++k)
        e_.StoreElements(base[k], level, TypeOf(k), position_, rows_.Column(k, iteration_.full, position_));
    });
  }

  void Store() {
    const Row base = rows_.Pointers(from_);
    const int level = e_.innermost();
    Dim wanted = n_;
    if (op_.opcode() == Opcode::kTopk) wanted = op_.attrs().get<int64_t>(Attr::kK);
    auto store = [&] {
      for (size_t i = 0; i < f_.roots.size(); ++i) {
        const size_t k = static_cast<size_t>(f_.components[i]);
        Val v = e_.LoadElements(base[k], level, TypeOf(k), position_, nullptr);
        Index offset = e_.space().Linear(iteration_.full, f_.results[i].strides);
        e_.StoreElements(e_.ResultPointer(static_cast<int>(i)), 0, TypeOf(k), offset, v);
      }
    };
    if (position_->kind != IndexNode::Kind::kVar) return store();
    e_.VectorLoop(position_, e_.I64(0), e_.EmitDim(wanted),
                  {plan_.lanes, 1, plan_.masked_tail, false}, store);
  }

  // ---- sorting ----

  void MakeRuns() {
    const Row base = rows_.Pointers(from_);
    e_.Loop(e_.I64(0), e_.I64(n_), e_.I64(kRun), [&](Value* start) {
      Value* end = Min(Add(start, e_.I64(kRun)), e_.I64(n_));
      rows_.SortByInsertion(base, start, end);
    });
  }

  void MergeRuns() {
    llvm::AllocaInst* width = Slot(e_.I64(kRun));
    e_.While([&] { return b().CreateICmpSLT(Get(width), e_.I64(n_)); },
             [&] {
               Value* w = Get(width);
               Value* pair = b().CreateShl(w, 1);
               const Row from = rows_.Pointers(from_), to = rows_.Pointers(to_);
               e_.Loop(e_.I64(0), e_.I64(n_), pair, [&](Value* start) {
                 Merge(from, to, start, Min(Add(start, w), e_.I64(n_)),
                       Min(Add(start, pair), e_.I64(n_)), w);
               });
               for (size_t k = 0; k < columns(); ++k) {
                 Set(from_[k], to[k]);
                 Set(to_[k], from[k]);
               }
               Set(width, pair);
             });
  }

  // [start, middle) and [middle, end) of `from`, either sorted, the second possibly empty.
  void Merge(const Row& from, const Row& to, Value* start, Value* middle, Value* end, Value* w) {
    const SortRows::Move move = [&](Value* i, Value* j) { rows_.Copy(from, i, to, j); };
    Value* alone = b().CreateICmpSGE(middle, end);
    Value* second = b().CreateSelect(alone, start, middle);
    Value* ordered =
        b().CreateOr(alone, b().CreateNot(rows_.Before(from, second, Sub(middle, e_.I64(1)))));
    llvm::AllocaInst* done = Slot(ordered);
    e_.If(ordered, [&] { rows_.MoveRange(start, end, start, move); });
    Value* whole = b().CreateAnd(b().CreateNot(ordered), b().CreateICmpEQ(Sub(end, middle), w));
    e_.If(whole, [&] { Set(done, MergeBothEnds(from, to, start, middle, end, w)); });
    e_.If(b().CreateNot(Get(done)), [&] { rows_.Merge(from, start, middle, middle, end, start, move); });
  }

  // True if each end has taken what the other one left.
  Value* MergeBothEnds(const Row& from, const Row& to, Value* start, Value* middle, Value* end,
                       Value* w) {
    Value* last = Sub(end, e_.I64(1));
    llvm::AllocaInst *i = Slot(start), *j = Slot(middle);
    llvm::AllocaInst *p = Slot(Sub(middle, e_.I64(1))), *q = Slot(last);
    e_.Loop(e_.I64(0), w, e_.I64(1), [&](Value* step) {
      Value *left = Get(i), *right = Get(j);
      Value* take_right = rows_.Before(from, right, left);
      rows_.Copy(from, rows_.Choose(take_right, right, left), to, Add(start, step));
      Set(i, Add(left, rows_.One(b().CreateNot(take_right))));
      Set(j, Add(right, rows_.One(take_right)));
      left = Get(p);
      right = Get(q);
      Value* take_left = rows_.Before(from, right, left);
      rows_.Copy(from, rows_.Choose(take_left, left, right), to, Sub(last, step));
      Set(p, Sub(left, rows_.One(take_left)));
      Set(q, Sub(right, rows_.One(b().CreateNot(take_left))));
    });
    return b().CreateICmpEQ(Get(i), Add(Get(p), e_.I64(1)));
  }

  KernelEmitter& e_;
  const FusedKernel& f_;
  const KernelPlan& plan_;
  const Instruction& op_;
  const SortColumns layout_;
  SortRows rows_;
  const int64_t n_;
  Iteration iteration_;
  Index position_;
  std::vector<llvm::AllocaInst*> from_, to_;  // per column: where the row lies, and the other buffer
};

}  // namespace

void EmitSortKernel(KernelEmitter& e, const KernelPlan& plan) {
  SortKernel(e, plan).Emit();
  EmitOthers(e, /*all_checks=*/true);
}

}  // namespace tenon
