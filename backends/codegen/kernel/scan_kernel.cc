// kScan: one row at a time along the scanned dim, or a vector of rows side by side. The carries stay
// in registers; each is of the rows' dims, one element a row, as the body works element by element.
#include "backends/codegen/kernel/kernel_parts.h"
#include "llvm/IR/Intrinsics.h"

namespace tenon {

using llvm::Value;

namespace {

class ScanKernel {
 public:
  ScanKernel(KernelEmitter& e, const KernelPlan& plan)
      : e_(e),
        f_(e.fused()),
        plan_(plan),
        op_(*f_.serial),
        carries_(op_.attrs().get_or<int64_t>(Attr::kNumCarries, op_.operand_count() / 2)),
        inputs_(op_.operand_count() - carries_),
        iteration_(e.space(), f_, plan.loops) {
    const int64_t parts =
        op_.shape().is_tuple() ? static_cast<int64_t>(op_.shape().elements().size()) : 1;
    outputs_ = parts - carries_;
    for (size_t i = 0; i < plan.loops.size(); ++i) {
      if (plan.loops[i].reduced) step_ = iteration_.vars[i];
    }
  }

  void Emit() {
    const bool blocks = plan_.block > 0;
    const Dim columns = blocks ? plan_.loops.back().extent : Dim(1);
    ForOuter(e_, plan_, iteration_.vars, blocks ? CeilDiv(columns, plan_.block) : Dim(1),
             [&](Value* block) {
               if (!blocks) return Rows();
               Value* lo = b().CreateMul(block, e_.I64(plan_.block));
               Value* hi = b().CreateAdd(lo, e_.I64(plan_.block));
               hi = b().CreateBinaryIntrinsic(llvm::Intrinsic::smin, hi, e_.EmitDim(columns));
               e_.VectorLoop(iteration_.vars.back(), lo, hi,
                             {plan_.lanes, 1, plan_.masked_tail, false}, [&] { Rows(); });
             });
  }

 private:
  llvm::IRBuilder<>& b() { return e_.Here(); }
  Value* Wide(const Val& v) { return e_.Splat(v.v[0], v.level); }

  void Rows() {
    const IndexTuple row = iteration_.kept;
    std::vector<llvm::AllocaInst*> state;
    for (int64_t c = 0; c < carries_; ++c) {
      Value* init = Wide(e_.Eval(op_.operand(inputs_ + c), row));
      state.push_back(e_.Alloca(init->getType()));
      b().CreateStore(init, state.back());
    }
    const Dim steps = SerialSteps();
    if (step_ == nullptr) {
      if (!(steps == Dim(0))) Step(state, iteration_.full);
    } else {
      const bool reverse = op_.attrs().get_or<bool>(Attr::kReverse, false);
      IndexTuple full = iteration_.full;
      if (reverse) {
        full[static_cast<size_t>(op_.dimensions()[0])] =
            e_.space().Combine(step_, -1, e_.space().Constant(steps - 1), 1);
      }
      e_.LoopOver(step_, e_.I64(0), e_.EmitDim(steps), 1, [&] { Step(state, full); });
    }
    for (size_t r = 0; r < f_.roots.size(); ++r) {
      const int64_t c = f_.components[r] - outputs_;
      if (c < 0) continue;
      llvm::AllocaInst* slot = state[static_cast<size_t>(c)];
      Store(r, row, b().CreateLoad(slot->getAllocatedType(), slot));
    }
  }

  Dim SerialSteps() const {
    return op_.operand(0)->shape().dim(op_.dimensions()[0]);
  }

  void Step(const std::vector<llvm::AllocaInst*>& state, const IndexTuple& full) {
    std::vector<Value*> args;
    for (int64_t k = 0; k < inputs_; ++k) args.push_back(Wide(e_.Eval(op_.operand(k), full)));
    for (llvm::AllocaInst* slot : state)
      args.push_back(b().CreateLoad(slot->getAllocatedType(), slot));
    std::vector<Value*> next = e_.Apply(b(), *op_.to_apply(), args, /*merging=*/false);
    for (size_t r = 0; r < f_.roots.size(); ++r) {
      if (f_.components[r] < outputs_)
        Store(r, full, next[static_cast<size_t>(f_.components[r])]);
    }
    for (size_t c = 0; c < state.size(); ++c) {
      Value* v = next[static_cast<size_t>(outputs_) + c];
      b().CreateStore(e_.Splat(v, e_.innermost()), state[c]);
    }
  }

  void Store(size_t root, const IndexTuple& index, Value* v) {
    e_.StoreResult(static_cast<int>(root), e_.space().Linear(index, f_.results[root].strides),
                   {.v = {v}, .level = e_.innermost()});
  }

  KernelEmitter& e_;
  const FusedKernel& f_;
  const KernelPlan& plan_;
  const Instruction& op_;
  const int64_t carries_, inputs_;
  int64_t outputs_ = 0;
  Iteration iteration_;
  Index step_ = nullptr;  // nullptr: the scanned dim has one element
};

}  // namespace

void EmitScanKernel(KernelEmitter& e, const KernelPlan& plan) {
  ScanKernel(e, plan).Emit();
  EmitOthers(e, /*all_checks=*/true);
}

}  // namespace tenon
