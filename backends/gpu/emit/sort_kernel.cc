// kSort on a GPU: sort and topk, a stable merge sort whose merges are shared by threads.
//
// Each thread sorts some elements by insertion, then runs are merged two by two: in shared memory as long as a team has them, by further
// launches beyond that, from one temporary into the other. A thread makes `elements` of a merge's output, which begin at a multiple of
// that. Which elements of either run those are it finds by halves: it splits both runs where the output's half ends, goes on in the half
// that is its own, and so on. All threads make the same splits, each inside of the one before: so whatever the comparator says, even one
// that is no strict weak order, every element goes to one place, and the result is a permutation.
#include "backends/codegen/kernel/sort_rows.h"
#include "backends/gpu/emit/kernels.h"
#include "backends/gpu/emit/threads.h"
#include "llvm/IR/Intrinsics.h"

namespace tenon::gpu {

using llvm::Value;

namespace {

class SortKernel {
 public:
  SortKernel(KernelEmitter& e, const GpuPlan& plan, const LaunchMemory& memory)
      : e_(e),
        f_(e.fused()),
        op_(*f_.serial),
        plan_(plan),
        memory_(memory),
        columns_(SortScratch(f_, plan.piece)),
        rows_(e, columns_),
        n_(SerialExtent(f_).constant()),
        elements_(plan.piece / plan.team),
        pieces_(plan.pass == GpuPass::kWhole ? 1 : (n_ + plan.piece - 1) / plan.piece),
        iteration_(e.space(), f_, plan.loops.loops) {
    const bool row = !plan.loops.loops.empty() && plan.loops.loops.back().reduced;
    position_ = row ? iteration_.vars.back() : e_.space().Constant(0);
  }

  void Emit() {
    inside_ = b().getTrue();
    if (plan_.has_barriers() && plan_.units_per_block() > 1) inside_ = b().CreateICmpSLT(e_.begin(), e_.EmitDim(GpuUnits(plan_)));
    first_ = b().CreateMul(b().CreateURem(e_.begin(), e_.I64(pieces_)), e_.I64(plan_.piece));
    row_ = b().CreateUDiv(e_.begin(), e_.I64(pieces_));
    length_ = Min(b().CreateSub(e_.I64(n_), first_), e_.I64(plan_.piece));
    rank_ = plan_.team > 1 ? e_.team().rank : e_.I64(0);
    own_ = b().CreateMul(rank_, e_.I64(elements_));
    if (plan_.merges()) return MergeRuns();
    for (size_t k = 0; k < rows_.columns(); ++k) {
      from_.push_back(rows_.Slot(e_.ScratchPointer(columns_.offsets[k])));
      to_.push_back(rows_.Slot(e_.ScratchPointer(columns_.offsets[k] + columns_.distances[k])));
    }
    Load();
    Meet();
    if (elements_ > 1) {
      IfOwn([&] {
        rows_.SortByInsertion(rows_.Pointers(from_), own_, Min(b().CreateAdd(own_, e_.I64(elements_)), length_));
      });
      Meet();
    }
    if (plan_.team > 1) MergeInside();
    Store();
  }

 private:
  using Row = SortRows::Row;

  llvm::IRBuilder<>& b() { return e_.Here(); }
  Value* Min(Value* x, Value* y) { return b().CreateBinaryIntrinsic(llvm::Intrinsic::smin, x, y); }
  Value* Max(Value* x, Value* y) { return b().CreateBinaryIntrinsic(llvm::Intrinsic::smax, x, y); }
  void Meet() {
    if (plan_.has_barriers()) Barrier(b());
  }
  // By threads whose own elements begin inside of the piece.
  void IfOwn(const std::function<void()>& body) { e_.If(b().CreateAnd(inside_, b().CreateICmpSLT(own_, length_)), body); }

  // Threads take the unit's elements in turn: body(place in the piece), the loops' variables bound.
  void InTurn(const std::function<void(Value*)>& body) {
    e_.If(inside_, [&] {
      ForOuter(e_, plan_.loops, iteration_.vars, Dim(pieces_), [&](Value*) {
        e_.Loop(rank_, length_, e_.I64(plan_.team), [&](Value* i) {
          Bind(b().CreateAdd(first_, i));
          body(i);
        });
      });
    });
  }
  void Bind(Value* position) {
    if (position_->kind == IndexNode::Kind::kVar) e_.BindVar(position_, position);
  }

  void Load() {
    const Row base = rows_.Pointers(from_);
    InTurn([&](Value* i) {
      Row row;
      for (size_t k = 0; k < rows_.columns(); ++k) row.push_back(rows_.Column(k, iteration_.full, position_).v[0]);
      rows_.StoreRow(base, i, row);
    });
  }

  void Store() {
    const Row base = rows_.Pointers(from_);
    if (plan_.pass == GpuPass::kWhole) return InTurn([&](Value* i) { StoreResults(rows_.LoadRow(base, i), b().CreateAdd(first_, i)); });
    const Row to = RowsOf(memory_.to);
    e_.Loop(rank_, length_, e_.I64(plan_.team), [&](Value* i) { rows_.Copy(base, i, to, b().CreateAdd(first_, i)); });
  }

  // At the position that is bound; `position`: the same, as a value.
  void StoreResults(const Row& row, Value* position) {
    auto store = [&] {
      for (size_t i = 0; i < f_.roots.size(); ++i) {
        const size_t k = static_cast<size_t>(f_.components[i]);
        const Index offset = e_.space().Linear(iteration_.full, f_.results[i].strides);
        e_.StoreElements(e_.ResultPointer(static_cast<int>(i)), 0, rows_.TypeOf(k), offset, {.v = {row[k]}, .level = e_.innermost()});
      }
    };
    if (op_.opcode() != Opcode::kTopk) return store();
    e_.If(b().CreateICmpSLT(position, e_.I64(op_.attrs().get<int64_t>(Attr::kK))), store);
  }

  // A temporary's columns, at this row.
  Row RowsOf(Value* temporary) {
    const SortTemporary layout = SortTemporaryOf(f_);
    Row row;
    for (size_t k = 0; k < rows_.columns(); ++k) {
      Value* column = b().CreateGEP(b().getInt8Ty(), temporary, e_.EmitDim(layout.offsets[k]));
      row.push_back(b().CreateGEP(rows_.TypeOf(k), column, b().CreateMul(row_, e_.I64(n_))));
    }
    return row;
  }

  void MergeInside() {
    llvm::AllocaInst* width = rows_.Slot(e_.I64(elements_));
    // The same for all threads that meet: a unit alone has its block, units side by side have one length.
    e_.While([&] { return b().CreateICmpSLT(rows_.Get(width), length_); },
             [&] {
               const Row from = rows_.Pointers(from_), to = rows_.Pointers(to_);
               Value* run = rows_.Get(width);
               IfOwn([&] { MergeOwn(from, length_, run, own_, [&](Value* i, Value* j) { rows_.Copy(from, i, to, j); }); });
               Meet();
               for (size_t k = 0; k < rows_.columns(); ++k) {
                 rows_.Set(from_[k], to[k]);
                 rows_.Set(to_[k], from[k]);
               }
               rows_.Set(width, b().CreateShl(run, 1));
             });
  }

  void MergeRuns() {
    Value* own = b().CreateAdd(first_, own_);
    e_.If(b().CreateICmpSLT(own, e_.I64(n_)), [&] {
      ForOuter(e_, plan_.loops, iteration_.vars, Dim(pieces_), [&](Value*) {
        const Row from = RowsOf(memory_.from);
        if (plan_.pass == GpuPass::kMerge) {
          const Row to = RowsOf(memory_.to);
          return MergeOwn(from, e_.I64(n_), memory_.run, own, [&](Value* i, Value* j) { rows_.Copy(from, i, to, j); });
        }
        MergeOwn(from, e_.I64(n_), memory_.run, own, [&](Value* i, Value* j) {
          Bind(j);
          StoreResults(rows_.LoadRow(from, i), j);
        });
      });
    });
  }

  // Runs of `run` elements lie side by side in `length` elements: those of the merged ones that begin at `own`.
  void MergeOwn(const Row& from, Value* length, Value* run, Value* own, const SortRows::Move& move) {
    Value* begin = b().CreateAnd(own, b().CreateNeg(b().CreateShl(run, 1)));
    Value* middle = Min(b().CreateAdd(begin, run), length);
    llvm::AllocaInst *left = rows_.Slot(begin), *left_end = rows_.Slot(middle), *right = rows_.Slot(middle),
                     *right_end = rows_.Slot(Min(b().CreateAdd(middle, run), length)), *half = rows_.Slot(run);
    e_.While([&] { return b().CreateICmpSGE(rows_.Get(half), e_.I64(elements_)); },
             [&] {
               Value *i = rows_.Get(left), *i_end = rows_.Get(left_end), *j = rows_.Get(right), *j_end = rows_.Get(right_end);
               Value *ni = b().CreateSub(i_end, i), *nj = b().CreateSub(j_end, j), *first = rows_.Get(half);
               e_.If(b().CreateICmpSLT(first, b().CreateAdd(ni, nj)), [&] {
                 Value* of_left = Split(from, i, ni, j, nj, first);
                 Value *i_mid = b().CreateAdd(i, of_left), *j_mid = b().CreateAdd(j, b().CreateSub(first, of_left));
                 Value* second = b().CreateICmpNE(b().CreateAnd(own, first), e_.I64(0));
                 rows_.Set(left, b().CreateSelect(second, i_mid, i));
                 rows_.Set(left_end, b().CreateSelect(second, i_end, i_mid));
                 rows_.Set(right, b().CreateSelect(second, j_mid, j));
                 rows_.Set(right_end, b().CreateSelect(second, j_end, j_mid));
               });
               rows_.Set(half, b().CreateLShr(first, 1));
             });
    rows_.Merge(from, rows_.Get(left), rows_.Get(left_end), rows_.Get(right), rows_.Get(right_end), own, move);
  }

  // How many of the first `count` merged elements are of the left run, which has `ni` from `i` on; the right one has `nj` from `j` on.
  Value* Split(const Row& from, Value* i, Value* ni, Value* j, Value* nj, Value* count) {
    llvm::AllocaInst *low = rows_.Slot(Max(e_.I64(0), b().CreateSub(count, nj))), *high = rows_.Slot(Min(count, ni));
    e_.While([&] { return b().CreateICmpSLT(rows_.Get(low), rows_.Get(high)); },
             [&] {
               Value *lo = rows_.Get(low), *hi = rows_.Get(high), *middle = b().CreateLShr(b().CreateAdd(lo, hi), 1);
               Value* of_right = b().CreateAdd(j, b().CreateSub(b().CreateSub(count, middle), e_.I64(1)));
               Value* right_first = rows_.Before(from, of_right, b().CreateAdd(i, middle));
               rows_.Set(low, b().CreateSelect(right_first, lo, b().CreateAdd(middle, e_.I64(1))));
               rows_.Set(high, b().CreateSelect(right_first, middle, hi));
             });
    return rows_.Get(low);
  }

  KernelEmitter& e_;
  const FusedKernel& f_;
  const Instruction& op_;
  const GpuPlan& plan_;
  const LaunchMemory& memory_;
  const SortColumns columns_;
  SortRows rows_;
  const int64_t n_, elements_, pieces_;
  Iteration iteration_;
  Index position_;
  Value *inside_ = nullptr, *first_ = nullptr, *row_ = nullptr, *length_ = nullptr, *rank_ = nullptr, *own_ = nullptr;
  std::vector<llvm::AllocaInst*> from_, to_;  // per column: where the piece lies, and the other buffer
};

}  // namespace

void EmitSortKernel(KernelEmitter& e, const GpuPlan& plan, const LaunchMemory& memory) {
  SortKernel(e, plan, memory).Emit();
}

}  // namespace tenon::gpu
