// kContraction: the sums of a tile of the result are registers: `unroll` rows (iterations of the tile loop) of `across` vectors. A vector
// of one operand is loaded once for all rows, an element of the other once for all vectors (kernel_contraction.cc). What the fusion does
// with the sums it does before they are stored.
//
// A unit is a block of vectors in some rows; blocks are the slowest to change, so that what is read of the vectors' operand stays in cache.
#include <algorithm>

#include "backends/cpu/emit/kernels.h"

namespace tenon {
namespace {

using llvm::Value;

class ContractionKernel {
 public:
  ContractionKernel(KernelEmitter& e, const KernelPlan& plan) : e_(e), f_(e.fused()), plan_(plan), columns_(plan.loops.back().extent) {
    for (const PlanLoop& l : plan.loops) vars_.push_back(e.space().Var(l.extent));
    index_.assign(vars_.begin(), vars_.end());
    if (plan.tile_loop >= 0) rows_ = plan.loops[static_cast<size_t>(plan.tile_loop)].extent;
    // A column is a place in a block, if they are all whole: an operand that lies in such blocks needs no division.
    column_ = vars_.back();
    if (!WholeBlocks()) return;
    block_ = e.space().Var(FloorDiv(columns_, plan.block));
    column_ = e.space().Var(plan.block);
    index_.back() = e.space().Combine(block_, plan.block, column_, 1);
  }

  void Emit() {
    e_.Loop(e_.begin(), e_.end(), e_.I64(1), [&](Value* unit) {
      Value* rest = unit;
      auto digit = [&](Dim extent) {
        Value* n = e_.EmitDim(extent);
        Value* d = b().CreateURem(rest, n);
        rest = b().CreateUDiv(rest, n);
        return d;
      };
      Value* from = e_.I64(0);
      Value* to = e_.EmitDim(rows_);
      if (plan_.rows > 0) {
        from = b().CreateMul(digit(CeilDiv(rows_, plan_.rows)), e_.I64(plan_.rows));
        to = b().CreateBinaryIntrinsic(llvm::Intrinsic::smin, to, b().CreateAdd(from, e_.I64(plan_.rows)));
      }
      for (int i = plan_.split; i-- > 0;) e_.BindVar(vars_[static_cast<size_t>(i)], digit(plan_.loops[static_cast<size_t>(i)].extent));
      if (block_ != nullptr) e_.BindVar(block_, rest);
      Blocks(rest, from, to);
    });
  }

 private:
  llvm::IRBuilder<>& b() { return e_.Here(); }

  bool WholeBlocks() const { return columns_.is_constant() && columns_.constant() % plan_.block == 0; }

  // Whole blocks, and the last one, which has fewer vectors.
  void Blocks(Value* block, Value* from, Value* to) {
    const int across = static_cast<int>(plan_.block / plan_.lanes);
    if (WholeBlocks()) return Columns(e_.I64(0), across, nullptr, from, to);
    Value* first = b().CreateMul(block, e_.I64(plan_.block));
    Value* left = b().CreateSub(e_.EmitDim(columns_), first);
    Value* whole = b().CreateICmpSGE(left, e_.I64(plan_.block));
    if (columns_.constant_or(plan_.block) >= plan_.block) e_.If(whole, [&] { Columns(first, across, nullptr, from, to); });
    e_.If(b().CreateNot(whole), [&] {
      if (!columns_.is_constant()) {
        if (plan_.masked_tail) return Columns(first, across, left, from, to);
        return OneByOne(first, from, to);
      }
      const int64_t known = columns_.constant() % plan_.block;
      const int vectors = static_cast<int>(known / plan_.lanes);
      if (known % plan_.lanes == 0) return Columns(first, vectors, nullptr, from, to);
      if (plan_.masked_tail) return Columns(first, vectors + 1, left, from, to);
      if (vectors > 0) Columns(first, vectors, nullptr, from, to);
      OneByOne(b().CreateAdd(first, e_.I64(int64_t{vectors} * plan_.lanes)), from, to);
    });
  }

  // `across` vectors from `first` on; `left`: so many elements are there, if not all.
  void Columns(Value* first, int across, Value* left, Value* from, Value* to) {
    LaneMode mode;
    mode.lanes = plan_.lanes;
    mode.vector_var = plan_.lanes > 1 ? column_->var : -1;
    mode.across = plan_.lanes > 1 ? across : 1;
    mode.remaining = left;
    Rows(mode, first, from, to);
  }

  // Without masks: what is left from `first` on element by element.
  void OneByOne(Value* first, Value* from, Value* to) {
    e_.LoopOver(column_, first, e_.EmitDim(columns_), 1, [&] { Rows({}, nullptr, from, to); });
  }

  // `unroll` rows at a time, then those that are left: at once if their number is known. `column`: the first one, unless it is bound.
  void Rows(const LaneMode& mode, Value* column, Value* from, Value* to) {
    if (plan_.tile_loop < 0) return Tile(mode, column, 1, [&] { Body(); });
    const Index row = vars_[static_cast<size_t>(plan_.tile_loop)];
    const int64_t step = plan_.unroll, known = rows_.constant_or(-1);
    Value* whole = from;
    if (known < 0 || known >= step) {
      whole = b().CreateAdd(from, b().CreateMul(b().CreateUDiv(b().CreateSub(to, from), e_.I64(step)), e_.I64(step)));
      if (known >= 0) e_.set_tile_starts({row->var, 0, (known / step - 1) * step, step});
      Tile(mode, column, step, [&] { e_.LoopOver(row, from, whole, step, [&] { Body(); }); });
    }
    if (known >= 0 && known % step == 0) return;
    const int64_t left = known < 0 ? 1 : known % step;
    if (known >= 0) e_.set_tile_starts({row->var, known - left, known - left, 1});
    Tile(mode, column, left, [&] { e_.LoopOver(row, whole, to, left, [&] { Body(); }); });
  }

  // A level of its own: what is remembered there has this number of copies.
  void Tile(LaneMode mode, Value* column, int64_t rows, const std::function<void()>& body) {
    mode.copies = static_cast<int>(rows) * mode.across;
    if (plan_.tile_loop >= 0) mode.unroll_var = vars_[static_cast<size_t>(plan_.tile_loop)]->var;
    e_.If(b().getTrue(), [&] {
      mode.level = e_.innermost();
      e_.set_mode(mode);
      if (column != nullptr) e_.BindVar(column_, column);
      if (mode.remaining != nullptr) e_.MakeMasks();
      body();
    });
    e_.set_mode({});
    e_.set_tile_starts({});
  }

  void Body() {
    Iteration iteration(e_.space(), f_, plan_.loops, index_);
    EmitChecks(e_, iteration, Role::kFull);
    StoreRoots(e_, iteration, RootsWithRole(f_, Role::kFull));
  }

  KernelEmitter& e_;
  const FusedKernel& f_;
  const KernelPlan& plan_;
  const Dim columns_;
  Dim rows_ = 1;
  std::vector<Index> vars_, index_;
  Index block_ = nullptr, column_ = nullptr;
};

}  // namespace

void EmitContractionKernel(KernelEmitter& e, const KernelPlan& plan) {
  ContractionKernel(e, plan).Emit();
  EmitOthers(e);
}

}  // namespace tenon
