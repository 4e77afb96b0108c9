// kTranspose: some operand is contiguous along another loop than the result. Square tiles: the
// operand's vectors along its own direction are loaded and turned in registers, so that everything
// after them runs along the result's direction.
#include "backends/cpu/emit/kernels.h"
#include "hlo/check.h"
#include "llvm/IR/Intrinsics.h"

namespace tenon {

using llvm::Value;

namespace {

class TransposeKernel {
 public:
  TransposeKernel(KernelEmitter& e, const KernelPlan& plan)
      : e_(e),
        f_(e.fused()),
        plan_(plan),
        iteration_(e.space(), f_, plan.loops),
        tile_(plan.lanes) {
    u_ = iteration_.vars[static_cast<size_t>(plan.tile_loop)];
    v_ = iteration_.vars.back();
    rest_ = e.space().Var(plan.loops[static_cast<size_t>(plan.tile_loop)].extent);
  }

  void Emit() {
    const Dim u_extent = plan_.loops[static_cast<size_t>(plan_.tile_loop)].extent;
    const Dim blocks = plan_.block > 0 ? CeilDiv(u_extent, plan_.block) : Dim(1);
    ForOuter(e_, plan_, iteration_.vars, blocks, [&](Value* block) {
      Others(static_cast<size_t>(plan_.split), [&] {
        Value *n = e_.EmitDim(u_extent), *lo = e_.I64(0), *hi = n;
        if (plan_.block > 0) {
          lo = b().CreateMul(block, e_.I64(plan_.block));
          hi = b().CreateBinaryIntrinsic(llvm::Intrinsic::smin,
                                         b().CreateAdd(lo, e_.I64(plan_.block)), n);
        }
        const bool whole =
            u_extent.is_constant() && u_extent.constant() % tile_ == 0 && plan_.block % tile_ == 0;
        Value* done = whole ? hi : FloorTo(lo, hi);
        e_.LoopOver(u_, lo, done, tile_, [&] { TileRow(); });
        if (!whole) e_.LoopOver(rest_, done, hi, 1, [&] { Plain(e_.I64(0)); });
      });
    });
  }

 private:
  llvm::IRBuilder<>& b() { return e_.Here(); }

  Value* FloorTo(Value* from, Value* to) {
    return b().CreateAdd(from, b().CreateAnd(b().CreateSub(to, from), e_.I64(-tile_)));
  }

  void Others(size_t i, const std::function<void()>& body) {
    if (i + 1 == plan_.loops.size()) return body();
    if (static_cast<int>(i) == plan_.tile_loop) return Others(i + 1, body);
    e_.LoopOver(iteration_.vars[i], e_.I64(0), e_.EmitDim(plan_.loops[i].extent), 1,
                [&] { Others(i + 1, body); });
  }

  // One strip of tiles; what is left of it at the end row by row.
  void TileRow() {
    const Dim extent = plan_.loops.back().extent;
    Value* n = e_.EmitDim(extent);
    const bool whole = extent.is_constant() && extent.constant() % tile_ == 0;
    Value* done = whole ? n : FloorTo(e_.I64(0), n);
    const LaneMode outer = e_.mode();
    e_.LoopOver(v_, e_.I64(0), done, tile_, [&] {
      LaneMode mode;
      mode.lanes = mode.copies = tile_;
      mode.vector_var = v_->var;
      mode.unroll_var = u_->var;
      e_.set_mode(mode);
      e_.load_hook = [this](const Instruction* p, Index offset) { return Turned(p, offset); };
      Body(iteration_);
      e_.load_hook = nullptr;
      e_.set_mode(outer);
    });
    if (whole) return;
    Value* first = e_.ScalarIndex(u_).v[0];
    e_.LoopOver(rest_, first, b().CreateAdd(first, e_.I64(tile_)), 1, [&] { Plain(done); });
  }

  // One row, rest_, from column `from` on.
  void Plain(Value* from) {
    std::vector<Index> vars = iteration_.vars;
    vars[static_cast<size_t>(plan_.tile_loop)] = rest_;
    Iteration row(e_.space(), f_, plan_.loops, vars);
    e_.VectorLoop(v_, from, e_.EmitDim(plan_.loops.back().extent),
                  {tile_, 1, plan_.masked_tail, false}, [&] { Body(row); });
  }

  void Body(const Iteration& iteration) {
    EmitChecks(e_, iteration, Role::kFull);
    StoreRoots(e_, iteration, RootsWithRole(f_, Role::kFull));
  }

  std::optional<Val> Turned(const Instruction* parameter, Index offset) {
    if (AccessAlong(offset, v_->var).kind != Access::Kind::kStrided ||
        AccessAlong(offset, u_->var).kind != Access::Kind::kContiguous) {
      return std::nullopt;
    }
    const PrimitiveType type = parameter->shape().element_type();
    const LaneMode mode = e_.mode();
    LaneMode along = mode;
    std::swap(along.vector_var, along.unroll_var);
    e_.set_mode(along);
    const size_t p = static_cast<size_t>(parameter->parameter_number());
    Val v = e_.LoadElements(e_.OperandPointer(static_cast<int>(p)), 0,
                            MemoryType(e_.context(), type), offset, nullptr);
    e_.set_mode(mode);
    TurnSquare(e_.At(v.level), v, tile_);
    for (Value*& x : v.v) x = FromMemory(e_.At(v.level), type, x, e_.specs().types);
    return v;
  }

  KernelEmitter& e_;
  const FusedKernel& f_;
  const KernelPlan& plan_;
  Iteration iteration_;
  int tile_;
  Index u_, v_;
  Index rest_;  // the tile loop where it goes one by one
};

}  // namespace

void EmitTransposeKernel(KernelEmitter& e, const KernelPlan& plan) {
  TransposeKernel(e, plan).Emit();
  EmitOthers(e);
}

}  // namespace tenon
