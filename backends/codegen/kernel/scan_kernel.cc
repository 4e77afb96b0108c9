// kScan: one row at a time along the scanned dim, or a vector of rows side by side, whose elements are turned in registers, as squares,
// where they lie along the steps. The carries stay in registers; each is of the rows' dims, one element a row, as the body works element by
// element.
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
    if (step_ != nullptr && StepsLieSideBySide()) rest_ = e.space().Var(SerialSteps());
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
    if (steps == Dim(0)) {
      // Carries alone. An array without elements has no strides by which vectors of rows would be stored.
    } else if (step_ == nullptr) {
      Step(state, iteration_.full);
    } else if (rest_ != nullptr && e_.mode().lanes == plan_.lanes && e_.mode().masks.empty()) {
      Value *n = e_.EmitDim(steps), *done = e_.Floor(e_.I64(0), n, plan_.lanes);
      e_.LoopOver(step_, e_.I64(0), done, plan_.lanes, [&] { Square(state); });
      IndexTuple full = iteration_.full;
      full[static_cast<size_t>(op_.dimensions()[0])] = rest_;
      e_.LoopOver(rest_, done, n, 1, [&] { Step(state, full); });
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

  // Every result of the steps is written along them as it is, while vectors go across: squares of both can be turned in registers.
  bool StepsLieSideBySide() const {
    if (plan_.block == 0 || plan_.lanes < 4 || op_.attrs().get_or<bool>(Attr::kReverse, false)) return false;
    const size_t d = static_cast<size_t>(op_.dimensions()[0]);
    if (f_.MakesMoreOfScan()) return false;
    for (size_t r = 0; r < f_.roots.size(); ++r) {
      if (f_.components[r] < outputs_ && !(f_.results[r].strides[d] == Dim(1))) return false;
    }
    return true;
  }

  // As many steps as there are lanes.
  void Square(const std::vector<llvm::AllocaInst*>& state) {
    const LaneMode outer = e_.mode();
    LaneMode across = outer;  // the lanes are rows, the copies steps
    across.copies = outer.lanes;
    across.unroll_var = step_->var;
    across.level = e_.innermost();
    e_.set_mode(across);
    e_.load_hook = [this](const Instruction* p, Index offset) { return LoadTurned(p, offset); };
    std::vector<Val> inputs;
    for (int64_t k = 0; k < inputs_; ++k) inputs.push_back(e_.Eval(op_.operand(k), iteration_.full));
    e_.load_hook = nullptr;
    std::vector<Value*> carried;
    for (llvm::AllocaInst* slot : state) carried.push_back(b().CreateLoad(slot->getAllocatedType(), slot));
    std::vector<Val> made(static_cast<size_t>(outputs_), Val{.level = e_.innermost()});
    for (int step = 0; step < outer.lanes; ++step) {
      std::vector<Value*> args;
      for (const Val& x : inputs) args.push_back(e_.Splat(x.at(static_cast<size_t>(step)), x.level));
      args.insert(args.end(), carried.begin(), carried.end());
      std::vector<Value*> next = e_.Apply(b(), *op_.to_apply(), args, /*merging=*/false);
      for (Value*& v : next) v = e_.Splat(v, e_.innermost());
      for (size_t k = 0; k < made.size(); ++k) made[k].v.push_back(next[k]);
      carried.assign(next.begin() + outputs_, next.end());
    }
    for (size_t c = 0; c < state.size(); ++c) b().CreateStore(carried[c], state[c]);
    e_.set_mode(AlongSteps());
    for (size_t r = 0; r < f_.roots.size(); ++r) {
      if (f_.components[r] < outputs_) StoreTurned(r, made[static_cast<size_t>(f_.components[r])]);
    }
    e_.set_mode(outer);
  }

  LaneMode AlongSteps() const {
    LaneMode mode = e_.mode();
    std::swap(mode.vector_var, mode.unroll_var);
    return mode;
  }

  std::optional<Val> LoadTurned(const Instruction* parameter, Index offset) {
    const LaneMode mode = e_.mode();
    if (AccessAlong(offset, mode.unroll_var).kind != Access::Kind::kContiguous ||
        AccessAlong(offset, mode.vector_var).kind != Access::Kind::kStrided) {
      return std::nullopt;
    }
    const PrimitiveType type = parameter->shape().element_type();
    e_.set_mode(AlongSteps());
    Value* base = e_.OperandPointer(static_cast<int>(parameter->parameter_number()));
    Val v = e_.LoadElements(base, 0, MemoryType(e_.context(), type), offset, nullptr);
    e_.set_mode(mode);
    TurnSquare(e_.At(v.level), v, mode.lanes);
    for (Value*& x : v.v) x = FromMemory(e_.At(v.level), type, x, e_.specs().types);
    return v;
  }

  void StoreTurned(size_t root, Val v) {
    const PrimitiveType type = e_.ResultType(static_cast<int>(root));
    for (Value*& x : v.v) x = ToMemory(b(), type, x, e_.specs().types);
    TurnSquare(b(), v, plan_.lanes);
    e_.StoreElements(e_.ResultPointer(static_cast<int>(root)), 0, MemoryType(e_.context(), type),
                     e_.space().Linear(iteration_.full, f_.results[root].strides), v);
  }

  void Step(const std::vector<llvm::AllocaInst*>& state, const IndexTuple& full) {
    std::vector<Value*> args;
    for (int64_t k = 0; k < inputs_; ++k) args.push_back(Wide(e_.Eval(op_.operand(k), full)));
    for (llvm::AllocaInst* slot : state)
      args.push_back(b().CreateLoad(slot->getAllocatedType(), slot));
    std::vector<Value*> next = e_.Apply(b(), *op_.to_apply(), args, /*merging=*/false);
    for (int64_t c = 0; c < outputs_ && f_.MakesMoreOfScan(); ++c) {
      e_.Define(&op_, full, static_cast<int>(c), {.v = {next[static_cast<size_t>(c)]}, .level = e_.innermost()});
    }
    for (size_t r = 0; r < f_.roots.size(); ++r) {
      const int64_t c = f_.components[r];
      if (c < outputs_) Store(r, full, c < 0 ? Wide(e_.Eval(f_.roots[r], full)) : next[static_cast<size_t>(c)]);
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
  Index rest_ = nullptr;  // the steps that make no square; nullptr: none of them do
};

}  // namespace

void EmitScanKernel(KernelEmitter& e, const KernelPlan& plan) {
  ScanKernel(e, plan).Emit();
  EmitOthers(e, /*all_checks=*/true);
}

}  // namespace tenon
