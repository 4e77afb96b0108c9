// kScan on a GPU, where the combiner is associative: a team shares a row, or a piece of one.
//
// The team takes `piece` elements at a time. Each thread combines its own, which lie side by side, one after the other; the threads' totals
// go through the warp by shuffles (Hillis and Steele), those of warps through shared memory, and what stands before a thread's elements is
// combined with them last. The first thread begins with what was carried so far. So the tree follows from the team and the piece alone.
// `unroll` pieces are read before the first of them is combined. Where rows are whole shares of threads, these are read and written as
// vectors.
//
// Rows that are few and long have three launches: totals of pieces, their scan, and the scan of each piece from there.
#include <algorithm>

#include "backends/codegen/plan/nest_planner.h"
#include "backends/codegen/plan/serial_plan.h"
#include "backends/gpu/emit/kernels.h"
#include "backends/gpu/emit/threads.h"
#include "llvm/IR/Intrinsics.h"

namespace tenon::gpu {

using llvm::Value;

namespace {

class ScanKernel {
 public:
  ScanKernel(KernelEmitter& e, const GpuPlan& plan, const LaunchMemory& memory, Value* exchange)
      : e_(e),
        f_(e.fused()),
        op_(*f_.serial),
        plan_(plan),
        memory_(memory),
        exchange_(exchange),
        type_(op_.operand(0)->shape().element_type()),
        register_(RegisterType(e.context(), type_)),
        n_(SerialExtent(f_).constant()),
        elements_(plan.piece / plan.team),
        pieces_((n_ + plan.piece - 1) / plan.piece),
        warp_(std::min(plan.team, kWarp)),
        reverse_(op_.attrs().get_or<bool>(Attr::kReverse, false)),
        vectors_(elements_ > 1 && n_ % elements_ == 0 && plan.pass != GpuPass::kCarries && !OnScalars(f_)),
        iteration_(e.space(), f_, plan.loops.loops),
        step_(iteration_.vars.back()) {}

  void Emit() {
    const bool row = plan_.pass == GpuPass::kWhole || plan_.pass == GpuPass::kCarries;
    ForOuter(e_, plan_.loops, iteration_.vars, Dim(row ? 1 : pieces_), [&](Value* piece) {
      Value *first = e_.I64(0), *end = e_.I64(plan_.pass == GpuPass::kCarries ? pieces_ : n_);
      // Of this row in the temporaries: the place of its first piece.
      Value* places = b().CreateMul(e_.begin(), e_.I64(pieces_));
      if (!row) {
        first = b().CreateMul(piece, e_.I64(plan_.piece));
        end = b().CreateBinaryIntrinsic(llvm::Intrinsic::smin, b().CreateAdd(first, e_.I64(plan_.piece)), end);
        places = b().CreateSub(e_.begin(), piece);
      }
      llvm::AllocaInst* carry = Slot();
      if (plan_.pass != GpuPass::kTotals) b().CreateStore(e_.Eval(op_.operand(1), iteration_.kept).v[0], carry);
      if (plan_.pass == GpuPass::kCarried) {
        e_.If(b().CreateICmpSGT(piece, e_.I64(0)), [&] {
          Value* before = b().CreateSub(b().CreateAdd(places, piece), e_.I64(1));
          b().CreateStore(FromTemporary(before), carry);
        });
      }
      Value* own = b().CreateMul(Rank(), e_.I64(elements_));
      const int64_t unroll = plan_.loops.unroll;
      e_.Loop(first, end, e_.I64(plan_.piece * unroll), [&](Value* at) {
        std::vector<Value*> owns;
        std::vector<std::vector<llvm::AllocaInst*>> loaded;
        for (int64_t k = 0; k < unroll; ++k) {
          owns.push_back(b().CreateAdd(b().CreateAdd(at, e_.I64(k * plan_.piece)), own));
          loaded.push_back(LoadOwn(owns.back(), end, places));
        }
        for (size_t k = 0; k < owns.size(); ++k) Round(owns[k], end, loaded[k], places, piece, carry);
      });
    });
  }

 private:
  llvm::IRBuilder<>& b() { return e_.Here(); }
  Value* Rank() { return e_.team().rank; }
  llvm::AllocaInst* Slot() {
    llvm::AllocaInst* slot = e_.Alloca(register_);
    b().CreateStore(llvm::Constant::getNullValue(register_), slot);
    return slot;
  }
  // What stands before, then after.
  Value* Combine(Value* before, Value* after) {
    std::vector<Value*> args = {after, before};
    return e_.Apply(b(), *op_.to_apply(), args, /*merging=*/false)[0];
  }
  Value* CombineIf(Value* condition, Value* before, Value* after) {
    return SelectValue(b(), condition, Combine(before, after), after);
  }

  llvm::Type* StorageOf() { return StorageType(e_.context(), type_); }
  Value* FromTemporary(Value* i) {
    Value* v = b().CreateLoad(StorageOf(), b().CreateGEP(StorageOf(), memory_.from, i));
    return IsStoredAsInMemory(type_) ? FromMemory(b(), type_, v, e_.specs().types) : v;
  }
  void ToTemporary(Value* v, Value* i) {
    if (IsStoredAsInMemory(type_)) v = ToMemory(b(), type_, v, e_.specs().types);
    b().CreateStore(v, b().CreateGEP(StorageOf(), memory_.to, i));
  }

  // This thread's elements from `own` on, of those before `end`. Where there are none it combines zeros, behind all that is.
  std::vector<llvm::AllocaInst*> LoadOwn(Value* own, Value* end, Value* places) {
    std::vector<llvm::AllocaInst*> loaded;
    for (int64_t k = 0; k < elements_; ++k) loaded.push_back(Slot());
    if (vectors_) {
      AsVector(own, end, [&] {
        Value* v = e_.Splat(e_.Eval(op_.operand(0), iteration_.full).v[0], e_.innermost());
        for (size_t k = 0; k < loaded.size(); ++k) b().CreateStore(ExtractLane(b(), v, Lane(k)), loaded[k]);
      });
      return loaded;
    }
    ForOwn(own, end, [&](size_t k, Value* at) {
      const bool carries = plan_.pass == GpuPass::kCarries;
      b().CreateStore(carries ? FromTemporary(b().CreateAdd(places, at)) : e_.Eval(op_.operand(0), iteration_.full).v[0], loaded[k]);
    });
    return loaded;
  }

  void Round(Value* own, Value* end, const std::vector<llvm::AllocaInst*>& loaded, Value* places, Value* piece, llvm::AllocaInst* carry) {
    std::vector<Value*> x;
    for (llvm::AllocaInst* slot : loaded) x.push_back(b().CreateLoad(register_, slot));
    Value* leads = b().CreateICmpEQ(Rank(), e_.I64(0));
    if (plan_.pass != GpuPass::kTotals) x[0] = CombineIf(leads, b().CreateLoad(register_, carry), x[0]);
    for (size_t k = 1; k < x.size(); ++k) x[k] = Combine(x[k - 1], x[k]);
    Value* total = nullptr;
    Value* before = Before(x.back(), &total);
    if (plan_.pass == GpuPass::kTotals) return e_.If(leads, [&] { ToTemporary(total, b().CreateAdd(places, piece)); });
    for (Value*& v : x) v = SelectValue(b(), leads, v, Combine(before, v));
    b().CreateStore(total, carry);
    if (vectors_) {
      return AsVector(own, end, [&] {
        Value* all = llvm::PoisonValue::get(WithLanes(register_, static_cast<unsigned>(elements_)));
        for (size_t k = 0; k < x.size(); ++k) all = b().CreateInsertElement(all, x[k], uint64_t{Lane(k)});
        StoreOutputs(all, x.back(), b().CreateAdd(own, e_.I64(elements_ - 1)));
      });
    }
    ForOwn(own, end, [&](size_t k, Value* at) {
      if (plan_.pass == GpuPass::kCarries) return ToTemporary(x[k], b().CreateAdd(places, at));
      StoreOutputs(x[k], x[k], at);
    });
  }

  // The scan's loop variable is the place in the row, of step `at` or the last of some.
  void BindPlace(Value* at) { e_.BindVar(step_, reverse_ ? b().CreateSub(e_.I64(n_ - 1), at) : at); }

  // body(k, step) for the thread's elements before `end`.
  void ForOwn(Value* own, Value* end, const std::function<void(size_t, Value*)>& body) {
    for (int64_t k = 0; k < elements_; ++k) {
      Value* at = b().CreateAdd(own, e_.I64(k));
      e_.If(b().CreateICmpSLT(at, end), [&] {
        BindPlace(at);
        body(static_cast<size_t>(k), at);
      });
    }
  }

  // The lane of the vector in which the thread's k-th step is.
  unsigned Lane(size_t k) const { return static_cast<unsigned>(reverse_ ? static_cast<size_t>(elements_) - 1 - k : k); }

  // body() with all of the thread's elements as the lanes, if they are before `end`.
  void AsVector(Value* own, Value* end, const std::function<void()>& body) {
    const bool all = plan_.pass == GpuPass::kWhole && n_ % (plan_.piece * plan_.loops.unroll) == 0;
    e_.If(all ? b().getTrue() : b().CreateICmpSLT(own, end), [&] {
      BindPlace(reverse_ ? b().CreateAdd(own, e_.I64(elements_ - 1)) : own);
      const LaneMode outer = e_.mode();
      LaneMode along = outer;
      along.lanes = static_cast<int>(elements_);
      along.vector_var = step_->var;
      along.level = e_.innermost();
      e_.set_mode(along);
      body();
      e_.set_mode(outer);
    });
  }

  // What stands before this thread's elements, given all of them together; of the first thread anything. `total`: of the whole team.
  Value* Before(Value* own, Value** total) {
    Value* lane = b().CreateAnd(Rank(), e_.I64(warp_ - 1));
    Value* sum = own;
    for (int distance = 1; distance < warp_; distance *= 2) {
      Value* other = ShuffleUp(b(), sum, distance, warp_);
      sum = CombineIf(b().CreateICmpSGE(lane, e_.I64(distance)), other, sum);
    }
    Value* before = ShuffleUp(b(), sum, 1, warp_);
    if (plan_.team <= kWarp) {
      *total = ShuffleLast(b(), sum, warp_);
      return before;
    }
    // Warps, one after the other.
    const int64_t warps = plan_.team / kWarp;
    Value* warp = b().CreateLShr(Rank(), e_.I64(5));
    std::vector<Value*> sums;
    ExchangeValue(e_, sum, exchange_, warp, b().CreateICmpEQ(lane, e_.I64(kWarp - 1)), warps, &sums);
    Value *so_far = sums[0], *ahead = sums[0];
    for (int64_t w = 1; w < warps; ++w) {
      ahead = SelectValue(b(), b().CreateICmpEQ(warp, e_.I64(w)), so_far, ahead);
      so_far = Combine(so_far, sums[static_cast<size_t>(w)]);
    }
    *total = so_far;
    Value* with_warps = SelectValue(b(), b().CreateICmpEQ(lane, e_.I64(0)), ahead, Combine(ahead, before));
    return SelectValue(b(), b().CreateICmpEQ(warp, e_.I64(0)), before, with_warps);
  }

  // Each result of the fusion is the scan's one output, what is made of it, or what is carried in the end: the last element's, `v` of step
  // `at`. `all`: what the lanes have.
  void StoreOutputs(Value* all, Value* v, Value* at) {
    auto store = [&](size_t root, const IndexTuple& index, const Val& value) {
      e_.StoreResult(static_cast<int>(root), e_.space().Linear(index, f_.results[root].strides), value);
    };
    const Val output{.v = {all}, .level = e_.innermost()};
    if (f_.MakesMoreOfScan()) e_.Define(&op_, iteration_.full, 0, output);
    const int64_t parts = op_.shape().is_tuple() ? static_cast<int64_t>(op_.shape().elements().size()) : 1;
    for (size_t r = 0; r < f_.roots.size(); ++r) {
      if (f_.components[r] < parts - 1) {
        store(r, iteration_.full, f_.components[r] < 0 ? e_.Eval(f_.roots[r], iteration_.full) : output);
      } else {
        e_.If(b().CreateICmpEQ(at, e_.I64(n_ - 1)), [&] { store(r, iteration_.kept, {.v = {v}, .level = e_.innermost()}); });
      }
    }
  }

  KernelEmitter& e_;
  const FusedKernel& f_;
  const Instruction& op_;
  const GpuPlan& plan_;
  const LaunchMemory& memory_;
  Value* const exchange_;
  const PrimitiveType type_;
  llvm::Type* const register_;
  const int64_t n_, elements_, pieces_;
  const int warp_;  // threads of the team within a warp
  const bool reverse_;
  const bool vectors_;  // each thread has all of its elements, or none
  Iteration iteration_;
  Index step_;
};

}  // namespace

void EmitTeamScanKernel(KernelEmitter& e, const GpuPlan& plan, const LaunchMemory& memory, Value* exchange) {
  ScanKernel(e, plan, memory, exchange).Emit();
}

}  // namespace tenon::gpu
