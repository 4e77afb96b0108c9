// kSort: sort and topk, row by row. A row is copied to scratch, sorted there by a stable merge sort
// and written to the results: columns (operands; for topk also the positions) move together.
//
// Runs are made by insertion, then merged in passes between two buffers. Two whole runs are merged
// from both ends at once, without a branch that depends on data and without a bounds check: w
// steps from either end take w elements of each run. Which is so for a strict weak order; after any
// other comparator (LT with NaN) the ends may not meet, and the merge is done again step by step,
// which always gives a permutation. No comparator leads outside of the row or to an endless loop.
#include "backends/codegen/emit/elementwise.h"
#include "backends/cpu/emit/kernels.h"
#include "backends/codegen/plan/serial_plan.h"
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
  using Row = std::vector<Value*>;  // an element of each column, as in memory; or a pointer to each

  llvm::IRBuilder<>& b() { return e_.Here(); }
  size_t columns() const { return layout_.types.size(); }
  llvm::Type* TypeOf(size_t k) { return MemoryType(e_.context(), layout_.types[k]); }
  llvm::AllocaInst* Slot(Value* start) {
    llvm::AllocaInst* slot = e_.Alloca(start->getType());
    b().CreateStore(start, slot);
    return slot;
  }
  Value* Get(llvm::AllocaInst* slot) { return b().CreateLoad(slot->getAllocatedType(), slot); }
  void Set(llvm::AllocaInst* slot, Value* v) { b().CreateStore(v, slot); }
  Value* Add(Value* x, Value* y) { return b().CreateAdd(x, y, "", false, true); }
  Value* Sub(Value* x, Value* y) { return b().CreateSub(x, y, "", false, true); }
  Value* Min(Value* x, Value* y) { return b().CreateBinaryIntrinsic(llvm::Intrinsic::smin, x, y); }

  Row Pointers(const std::vector<llvm::AllocaInst*>& slots) {
    Row r;
    for (llvm::AllocaInst* s : slots) r.push_back(Get(s));
    return r;
  }
  llvm::Align AlignOf(size_t k) {
    return llvm::Align(std::max(1u, PartBits(TypeOf(k)) / 8));
  }
  Value* LoadAt(size_t k, const Row& base, Value* i) {
    return b().CreateAlignedLoad(TypeOf(k), b().CreateGEP(TypeOf(k), base[k], i), AlignOf(k));
  }
  Row LoadRow(const Row& base, Value* i) {
    Row r;
    for (size_t k = 0; k < columns(); ++k) r.push_back(LoadAt(k, base, i));
    return r;
  }
  void StoreRow(const Row& base, Value* i, const Row& row) {
    for (size_t k = 0; k < columns(); ++k)
      b().CreateAlignedStore(row[k], b().CreateGEP(TypeOf(k), base[k], i), AlignOf(k));
  }
  void Copy(const Row& from, Value* i, const Row& to, Value* j) {
    StoreRow(to, j, LoadRow(from, i));
  }

  // ---- the order ----

  bool Compares(size_t k, int side) const {
    if (op_.opcode() == Opcode::kTopk) return k == 0;
    return op_.to_apply()->parameter(static_cast<int64_t>(2 * k) + side)->user_count() > 0 ||
           op_.to_apply()->root()->opcode() == Opcode::kParameter;
  }
  // Registers of the columns that the order looks at; null: not looked at.
  Row Keys(int side, const std::function<Value*(size_t)>& element) {
    Row r(columns(), nullptr);
    for (size_t k = 0; k < columns(); ++k) {
      if (Compares(k, side)) {
        Value* v = element(k);
        r[k] = FromMemory(b(), layout_.types[k], v, e_.specs().types);
      }
    }
    return r;
  }
  Row KeysAt(int side, const Row& base, Value* i) {
    return Keys(side, [&](size_t k) { return LoadAt(k, base, i); });
  }
  // Must x stand before y?
  Value* Before(const Row& x, const Row& y) {
    if (op_.opcode() == Opcode::kTopk) return Better(x[0], y[0]);
    std::vector<Value*> args;
    for (size_t k = 0; k < columns(); ++k) args.insert(args.end(), {x[k], y[k]});
    return e_.Apply(b(), *op_.to_apply(), args, /*merging=*/false)[0];
  }
  Value* Before(const Row& base, Value* i, Value* j) {
    Row x = KeysAt(0, base, i), y = KeysAt(1, base, j);
    return Before(x, y);
  }
  // topk: NaN is above all numbers.
  Value* Better(Value* x, Value* y) {
    const bool largest = op_.attrs().get<bool>(Attr::kLargest);
    const PrimitiveType type = layout_.types[0];
    if (!IsFloat(type)) {
      if (!largest) std::swap(x, y);
      return IsSigned(type) ? b().CreateICmpSGT(x, y) : b().CreateICmpUGT(x, y);
    }
    if (!largest) std::swap(x, y);
    Value* only = b().CreateAnd(b().CreateFCmpUNO(x, x), b().CreateFCmpORD(y, y));
    return b().CreateOr(b().CreateFCmpOGT(x, y), only);
  }

  // ---- rows ----

  void AlongRow(const std::function<void()>& body) {
    if (position_->kind != IndexNode::Kind::kVar) return body();
    e_.VectorLoop(position_, e_.I64(0), e_.I64(n_), {plan_.lanes, 1, plan_.masked_tail, false},
                  body);
  }

  // Parameters are moved bit by bit, what is computed comes from registers.
  void Load() {
    const Row base = Pointers(from_);
    const int level = e_.innermost();
    AlongRow([&] {
      for (size_t k = 0; k < columns(); ++k) {
        Val v;
        if (k < static_cast<size_t>(op_.operand_count())) {
          v = Element(op_.operand(static_cast<int64_t>(k)), layout_.types[k]);
        } else {
          v = e_.IsVectorIndex(position_) ? e_.VectorIndex(position_) : e_.ScalarIndex(position_);
          for (Value*& x : v.v)
            x = e_.At(v.level).CreateSExtOrTrunc(x, WithLanesOf(x->getType(), TypeOf(k)));
        }
        e_.StoreElements(base[k], level, TypeOf(k), position_, v);
      }
    });
  }

  Val Element(const Instruction* operand, PrimitiveType type) {
    if (operand->opcode() == Opcode::kParameter) {
      const int p = static_cast<int>(operand->parameter_number());
      Index offset =
          e_.space().Linear(iteration_.full, f_.operands[static_cast<size_t>(p)].strides);
      return e_.LoadElements(e_.OperandPointer(p), 0, MemoryType(e_.context(), type), offset,
                             nullptr);
    }
    Val v = e_.Eval(operand, iteration_.full);
    Val r{.level = e_.innermost()};
    for (Value* x : v.v) r.v.push_back(ToMemory(b(), type, x, e_.specs().types));
    return r;
  }

  void Store() {
    const Row base = Pointers(from_);
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
    const Row base = Pointers(from_);
    e_.Loop(e_.I64(0), e_.I64(n_), e_.I64(kRun), [&](Value* start) {
      Value* end = Min(Add(start, e_.I64(kRun)), e_.I64(n_));
      e_.Loop(Add(start, e_.I64(1)), end, e_.I64(1), [&](Value* i) {
        const Row element = LoadRow(base, i);
        const Row key = Keys(0, [&](size_t k) { return element[k]; });
        llvm::AllocaInst* hole = Slot(i);
        e_.While(
            [&] {
              Value* j = Get(hole);
              Value* open = b().CreateICmpSGT(j, start);
              Value* previous = b().CreateSelect(open, Sub(j, e_.I64(1)), start);
              return b().CreateAnd(open, Before(key, KeysAt(1, base, previous)));
            },
            [&] {
              Value* j = Get(hole);
              Value* previous = Sub(j, e_.I64(1));
              Copy(base, previous, base, j);
              Set(hole, previous);
            });
        StoreRow(base, Get(hole), element);
      });
    });
  }

  void MergeRuns() {
    llvm::AllocaInst* width = Slot(e_.I64(kRun));
    e_.While([&] { return b().CreateICmpSLT(Get(width), e_.I64(n_)); },
             [&] {
               Value* w = Get(width);
               Value* pair = b().CreateShl(w, 1);
               const Row from = Pointers(from_), to = Pointers(to_);
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
    Value* alone = b().CreateICmpSGE(middle, end);
    Value* second = b().CreateSelect(alone, start, middle);
    Value* ordered =
        b().CreateOr(alone, b().CreateNot(Before(from, second, Sub(middle, e_.I64(1)))));
    llvm::AllocaInst* done = Slot(ordered);
    e_.If(ordered, [&] { CopyRange(from, start, end, to, start); });
    Value* whole = b().CreateAnd(b().CreateNot(ordered), b().CreateICmpEQ(Sub(end, middle), w));
    e_.If(whole, [&] { Set(done, MergeBothEnds(from, to, start, middle, end, w)); });
    e_.If(b().CreateNot(Get(done)), [&] { MergeForward(from, to, start, middle, end); });
  }

  void CopyRange(const Row& from, Value* i, Value* end, const Row& to, Value* j) {
    Value* distance = Sub(j, i);
    e_.Loop(i, end, e_.I64(1), [&](Value* at) { Copy(from, at, to, Add(at, distance)); });
  }

  // x if `take`, else y: by arithmetic, as the compiler would make a branch of a select.
  Value* Choose(Value* take, Value* x, Value* y) {
    Value* mask = b().CreateSExt(take, b().getInt64Ty());
    return b().CreateXor(y, b().CreateAnd(b().CreateXor(x, y), mask));
  }
  Value* One(Value* condition) { return b().CreateZExt(condition, b().getInt64Ty()); }

  // True if each end has taken what the other one left.
  Value* MergeBothEnds(const Row& from, const Row& to, Value* start, Value* middle, Value* end,
                       Value* w) {
    Value* last = Sub(end, e_.I64(1));
    llvm::AllocaInst *i = Slot(start), *j = Slot(middle);
    llvm::AllocaInst *p = Slot(Sub(middle, e_.I64(1))), *q = Slot(last);
    e_.Loop(e_.I64(0), w, e_.I64(1), [&](Value* step) {
      Value *left = Get(i), *right = Get(j);
      Value* take_right = Before(from, right, left);
      Copy(from, Choose(take_right, right, left), to, Add(start, step));
      Set(i, Add(left, One(b().CreateNot(take_right))));
      Set(j, Add(right, One(take_right)));
      left = Get(p);
      right = Get(q);
      Value* take_left = Before(from, right, left);
      Copy(from, Choose(take_left, left, right), to, Sub(last, step));
      Set(p, Sub(left, One(take_left)));
      Set(q, Sub(right, One(b().CreateNot(take_left))));
    });
    return b().CreateICmpEQ(Get(i), Add(Get(p), e_.I64(1)));
  }

  void MergeForward(const Row& from, const Row& to, Value* start, Value* middle, Value* end) {
    llvm::AllocaInst *i = Slot(start), *j = Slot(middle), *o = Slot(start);
    e_.While(
        [&] {
          return b().CreateAnd(b().CreateICmpSLT(Get(i), middle), b().CreateICmpSLT(Get(j), end));
        },
        [&] {
          Value *left = Get(i), *right = Get(j), *out = Get(o);
          Value* take_right = Before(from, right, left);
          Copy(from, Choose(take_right, right, left), to, out);
          Set(i, Add(left, One(b().CreateNot(take_right))));
          Set(j, Add(right, One(take_right)));
          Set(o, Add(out, e_.I64(1)));
        });
    Value *left = Get(i), *right = Get(j), *out = Get(o);
    CopyRange(from, left, middle, to, out);
    CopyRange(from, right, end, to, Add(out, Sub(middle, left)));
  }

  KernelEmitter& e_;
  const FusedKernel& f_;
  const KernelPlan& plan_;
  const Instruction& op_;
  const SortColumns layout_;
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
