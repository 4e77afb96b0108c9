// kLoop: one nest over the result.
#include <algorithm>

#include "backends/codegen/emit/elementwise.h"
#include "backends/cpu/emit/kernels.h"
#include "hlo/own_calls.h"
#include "llvm/IR/Intrinsics.h"

namespace tenon {

using llvm::Value;

namespace {

// Pieces of one loop in which every concatenate of the fusion reads one known operand.
struct Segments {
  size_t loop = 0;
  std::vector<Dim> starts, extents;  // in iterations of that loop
};

constexpr int64_t kMaxSegments = 8;

std::optional<Segments> FindSegments(const FusedKernel& f, const KernelPlan& plan) {
  const Instruction* concat = nullptr;
  for (const Instruction* op : f.order) {
    if (op->opcode() == Opcode::kConcatenate && f.RoleOf(op->shape()) == Role::kFull &&
        concat == nullptr)
      concat = op;
  }
  if (concat == nullptr || concat->operand_count() > kMaxSegments ||
      concat->shape().rank() != static_cast<int64_t>(f.dims.size()))
    return std::nullopt;
  const int64_t d = concat->dimensions()[0];
  if (!KnownEqual(concat->shape().dim(d), f.dims[static_cast<size_t>(d)])) return std::nullopt;
  for (size_t i = 0; i < plan.loops.size(); ++i) {
    if (plan.loops[i].dims[0] != d) continue;
    Dim inner = 1;
    for (size_t k = 1; k < plan.loops[i].dims.size(); ++k)
      inner *= f.dims[static_cast<size_t>(plan.loops[i].dims[k])];
    Segments s{.loop = i};
    Dim start = 0;
    for (const Instruction* o : concat->operands()) {
      s.starts.push_back(start * inner);
      s.extents.push_back(o->shape().dim(d) * inner);
      start += o->shape().dim(d);
    }
    return s;
  }
  return std::nullopt;
}

class LoopKernel {
 public:
  LoopKernel(KernelEmitter& e, const KernelPlan& plan) : e_(e), f_(e.fused()), plan_(plan) {
    for (const PlanLoop& l : plan.loops) vars_.push_back(e.space().Var(l.extent));
    index_.assign(vars_.begin(), vars_.end());
    segments_ = FindSegments(f_, plan);
    if (Tiled() && segments_ && segments_->loop == Tile()) segments_ = std::nullopt;
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
    if (!segments_ || segments_->loop != static_cast<size_t>(i)) return InSegment(i + 1);
    Value* x = e_.ScalarIndex(vars_[static_cast<size_t>(i)]).v[0];
    ForSegments([&](Index var, Dim start, Dim extent) {
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

  void Inner(size_t i) {
    if (Tiled() && i == Tile()) return Tiles([&] { Inner(i + 1); });
    if (i + 1 >= plan_.loops.size()) {
      if (i == plan_.loops.size()) return Body();  // no loop at all, or all of them split
      Value* n = e_.EmitDim(plan_.loops.back().extent);
      if (plan_.block == 0) return Vectors(e_.I64(0), n);
      Value* lo = b().CreateMul(block_, e_.I64(plan_.block));
      return Vectors(lo, Min(b().CreateAdd(lo, e_.I64(plan_.block)), n));
    }
    if (segments_ && segments_->loop == i) {
      return ForSegments([&](Index var, Dim, Dim extent) {
        e_.LoopOver(var, e_.I64(0), e_.EmitDim(extent), 1, [&] { Inner(i + 1); });
      });
    }
    e_.LoopOver(vars_[i], e_.I64(0), e_.EmitDim(plan_.loops[i].extent), 1, [&] { Inner(i + 1); });
  }

  void Vectors(Value* lo, Value* hi) {
    KernelEmitter::VectorLoopOptions options{
        plan_.lanes, plan_.unroll, plan_.masked_tail, IsHeavy(f_)};
    const int64_t n = plan_.loops.back().extent.constant_or(1);
    const int64_t step = plan_.lanes * options.unroll;
    if (plan_.block > 0 && plan_.block % step == 0 && n % step == 0) options.multiple = step;
    if (!segments_ || segments_->loop + 1 != plan_.loops.size())
      return e_.VectorLoop(vars_.back(), lo, hi, options, [&] { Body(); });
    options.multiple = 1;
    ForSegments([&](Index var, Dim start, Dim extent) {
      Value *from = e_.EmitDim(start), *to = e_.EmitDim(start + extent);
      Value* first = b().CreateSub(Max(lo, from), from);
      Value* last = Max(b().CreateSub(Min(hi, to), from), first);  // [lo, hi) may lie apart from it
      e_.VectorLoop(var, first, last, options, [&] { Body(); });
    });
  }

  void ForSegments(const std::function<void(Index var, Dim start, Dim extent)>& body) {
    const size_t loop = segments_->loop;
    for (size_t k = 0; k < segments_->starts.size(); ++k) {
      if (segments_->extents[k] == Dim(0)) continue;
      Index var = e_.space().Var(segments_->extents[k]);
      index_[loop] = e_.space().AddConstant(var, segments_->starts[k]);
      body(var, segments_->starts[k], segments_->extents[k]);
    }
    index_[loop] = vars_[loop];
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
  std::optional<Segments> segments_;
  Value* block_ = nullptr;
};

}  // namespace

void EmitLoopKernel(KernelEmitter& e, const KernelPlan& plan) {
  LoopKernel(e, plan).Emit();
  EmitOthers(e);
}

}  // namespace tenon
