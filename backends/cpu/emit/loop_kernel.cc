// kLoop: one nest over the result.
#include <algorithm>

#include "backends/codegen/emit/elementwise.h"
#include "backends/codegen/kernel/segments.h"
#include "backends/codegen/plan/nest_planner.h"
#include "backends/cpu/emit/kernels.h"
#include "hlo/own_calls.h"
#include "llvm/IR/Intrinsics.h"

namespace tenon {

using llvm::Value;

namespace {

constexpr size_t kMaxSegments = 8, kMaxMovedSegments = 32;

// Code for each segment is short where values are only moved.
size_t MostSegments(const FusedKernel& f) {
  const bool computes = std::any_of(f.order.begin(), f.order.end(),
                                    [](const Instruction* op) { return op->opcode() != Opcode::kParameter && CostOf(*op) > 1; });
  return computes ? kMaxSegments : kMaxMovedSegments;
}

class LoopKernel {
 public:
  LoopKernel(KernelEmitter& e, const KernelPlan& plan) : e_(e), f_(e.fused()), plan_(plan) {
    for (const PlanLoop& l : plan.loops) vars_.push_back(e.space().Var(l.extent));
    index_.assign(vars_.begin(), vars_.end());
    segments_ = FindSegments(f_, plan.loops, MostSegments(f_));
    if (Tiled()) std::erase_if(segments_, [this](const Segments& s) { return s.loop == Tile(); });
  }

  void Emit() {
    if (plan_.loops.size() == 1 && plan_.split == 0 && plan_.block > 0) return Flat();
    const Dim blocks = plan_.block > 0 ? CeilDiv(plan_.loops.back().extent, plan_.block) : Dim(1);
    ForOuter(e_, plan_, vars_, blocks, [&](Value* block) {
      block_ = block;
      InSegment(0);
    });
  }

 private:
  llvm::IRBuilder<>& b() { return e_.Here(); }
  Value* Min(Value* x, Value* y) { return b().CreateBinaryIntrinsic(llvm::Intrinsic::smin, x, y); }
  Value* Max(Value* x, Value* y) { return b().CreateBinaryIntrinsic(llvm::Intrinsic::smax, x, y); }

  // The only loop is the vector loop: [begin, end) is one range of elements.
  void Flat() {
    Value* n = e_.EmitDim(plan_.loops[0].extent);
    Value* lo = b().CreateMul(e_.begin(), e_.I64(plan_.block));
    Value* hi = Min(b().CreateMul(e_.end(), e_.I64(plan_.block)), n);
    Vectors(lo, hi);
  }

  // Split loops are bound; one that is cut into segments is asked in which it is.
  void InSegment(int i) {
    if (i == plan_.split) return Inner(static_cast<size_t>(i));
    const Segments* segments = SegmentsOf(static_cast<size_t>(i));
    if (segments == nullptr) return InSegment(i + 1);
    Value* x = e_.ScalarIndex(vars_[static_cast<size_t>(i)]).v[0];
    ForSegments(*segments, [&](Index var, Dim start, Dim extent) {
      Value* local = b().CreateSub(x, e_.EmitDim(start));
      e_.If(b().CreateICmpULT(local, e_.EmitDim(extent)), [&] {
        e_.BindVar(var, local);
        InSegment(i + 1);
      });
    });
  }

  bool Tiled() const { return plan_.kind == PlanKind::kLoop && plan_.rows > 0; }
  size_t Tile() const { return static_cast<size_t>(plan_.tile_loop); }

  // The tile loop, `rows` iterations at once, and those that are left.
  void Tiles(const std::function<void()>& body) {
    if (!plan_.loops[Tile()].extent.is_constant()) return TilesOfAnyNumber(body);
    const int64_t extent = plan_.loops[Tile()].extent.constant(), whole = extent / plan_.rows;
    tile_count_ = plan_.rows;
    if (whole == 1) {
      tile_ = e_.space().Constant(0);
      body();
    } else if (whole > 1) {
      Index at = e_.space().Var(whole);
      tile_ = e_.space().Multiply(at, plan_.rows);
      e_.LoopOver(at, e_.I64(0), e_.I64(whole), 1, body);
    }
    if (extent % plan_.rows == 0) return;
    tile_count_ = extent % plan_.rows;
    tile_ = e_.space().Constant(whole * plan_.rows);
    body();
  }

  // Those that are left one by one.
  void TilesOfAnyNumber(const std::function<void()>& body) {
    const Dim extent = plan_.loops[Tile()].extent, whole = FloorDiv(extent, plan_.rows), done = whole * Dim(plan_.rows);
    tile_count_ = plan_.rows;
    Index at = e_.space().Var(whole);
    tile_ = e_.space().Multiply(at, plan_.rows);
    e_.LoopOver(at, e_.I64(0), e_.EmitDim(whole), 1, body);
    tile_count_ = 1;
    at = e_.space().Var(extent - done);
    tile_ = e_.space().AddConstant(at, done);
    e_.LoopOver(at, e_.I64(0), e_.EmitDim(extent - done), 1, body);
  }

  void Inner(size_t i) {
    if (Tiled() && i == Tile()) return Tiles([&] { Inner(i + 1); });
    if (i + 1 >= plan_.loops.size()) {
      if (i == plan_.loops.size()) return Body();  // no loop at all, or all of them split
      Value* n = e_.EmitDim(plan_.loops.back().extent);
      if (plan_.block == 0) return Vectors(e_.I64(0), n);
      Value* lo = b().CreateMul(block_, e_.I64(plan_.block));
      return Vectors(lo, Min(b().CreateAdd(lo, e_.I64(plan_.block)), n));
    }
    if (const Segments* segments = SegmentsOf(i)) {
      return ForSegments(*segments,
                         [&](Index var, Dim, Dim extent) { e_.LoopOver(var, e_.I64(0), e_.EmitDim(extent), 1, [&] { Inner(i + 1); }); });
    }
    e_.LoopOver(vars_[i], e_.I64(0), e_.EmitDim(plan_.loops[i].extent), 1, [&] { Inner(i + 1); });
  }

  void Vectors(Value* lo, Value* hi) {
    KernelEmitter::VectorLoopOptions options{plan_.lanes, plan_.unroll, plan_.masked_tail, IsHeavy(f_)};
    const int64_t n = plan_.loops.back().extent.constant_or(1);
    const int64_t step = plan_.lanes * options.unroll;
    if (plan_.block > 0 && plan_.block % step == 0 && n % step == 0) options.multiple = step;
    const Segments* segments = SegmentsOf(plan_.loops.size() - 1);
    if (segments == nullptr) return e_.VectorLoop(vars_.back(), lo, hi, options, [&] { Body(); });
    options.multiple = 1;
    ForSegments(*segments, [&](Index var, Dim start, Dim extent) {
      Value *from = e_.EmitDim(start), *to = e_.EmitDim(start + extent);
      Value* first = b().CreateSub(Max(lo, from), from);
      Value* last = Max(b().CreateSub(Min(hi, to), from), first);  // [lo, hi) may lie apart from it
      e_.VectorLoop(var, first, last, options, [&] { Body(); });
    });
  }

  const Segments* SegmentsOf(size_t loop) const {
    for (const Segments& s : segments_) {
      if (s.loop == loop) return &s;
    }
    return nullptr;
  }

  void ForSegments(const Segments& s, const std::function<void(Index var, Dim start, Dim extent)>& body) {
    for (size_t k = 0; k < s.starts.size(); ++k) {
      if (s.extents[k] == Dim(0)) continue;
      Index var = e_.space().Var(s.extents[k]);
      index_[s.loop] = e_.space().AddConstant(var, s.starts[k]);
      body(var, s.starts[k], s.extents[k]);
    }
    index_[s.loop] = vars_[s.loop];
  }

  void Body() {
    if (Tiled()) return TileBody();
    Iteration iteration(e_.space(), f_, plan_.loops, index_);
    EmitChecks(e_, iteration, Role::kFull);  // before a result takes an operand's memory
    StoreRoots(e_, iteration, RootsWithRole(f_, Role::kFull));
  }

  // All values of the tile, then its stores.
  void TileBody() {
    const std::vector<int64_t> roots = RootsWithRole(f_, Role::kFull);
    std::vector<std::vector<Val>> values(roots.size());
    std::vector<std::vector<Index>> offsets(roots.size());
    for (int64_t c = 0; c < tile_count_; ++c) {
      index_[Tile()] = e_.space().AddConstant(tile_, c);
      Iteration iteration(e_.space(), f_, plan_.loops, index_);
      EmitChecks(e_, iteration, Role::kFull);
      for (size_t k = 0; k < roots.size(); ++k) {
        const size_t root = static_cast<size_t>(roots[k]);
        IndexTuple index = iteration.IndexOf(e_.space(), f_, RootShape(f_, root));
        values[k].push_back(e_.Eval(f_.roots[root], index));
        if (f_.updated != nullptr) index = UpdatePlace(e_.space(), *f_.updated, index);
        offsets[k].push_back(e_.space().Linear(index, f_.results[root].strides));
      }
    }
    for (size_t k = 0; k < roots.size(); ++k) {
      const int root = static_cast<int>(roots[k]);
      if (e_.StoreInterleaved(root, offsets[k], values[k])) continue;
      for (size_t c = 0; c < values[k].size(); ++c) e_.StoreResult(root, offsets[k][c], values[k][c]);
    }
    index_[Tile()] = vars_[Tile()];
  }

  KernelEmitter& e_;
  const FusedKernel& f_;
  const KernelPlan& plan_;
  std::vector<Index> vars_, index_;
  Index tile_ = nullptr;  // the first of tile_count_ iterations of the tile loop
  int64_t tile_count_ = 0;
  std::vector<Segments> segments_;
  Value* block_ = nullptr;
};

}  // namespace

void EmitLoopKernel(KernelEmitter& e, const KernelPlan& plan) {
  LoopKernel(e, plan).Emit();
  EmitOthers(e);
}

}  // namespace tenon
