#include <utility>

#include "absl/algorithm/container.h"
#include "backends/gpu/emit/kernels.h"
#include "backends/gpu/emit/threads.h"
#include "llvm/IR/Intrinsics.h"

namespace tenon::gpu {

using llvm::Value;

namespace {

// u: the tile loop, along which the turned operands lie; v: the vector loop, along which the results do. A thread reads `lanes` elements
// along u of as many rows, turns them in registers, and puts each vector along v in shared memory; from there it takes such vectors.
class TransposeKernel {
 public:
  TransposeKernel(KernelEmitter& e, const GpuPlan& plan, Value* thread, Value* tiles)
      : e_(e),
        f_(e.fused()),
        plan_(plan.loops),
        rows_(plan.threads / kTile),
        lanes_(plan.loops.lanes),
        iteration_(e.space(), f_, plan_.loops),
        u_(iteration_.vars[static_cast<size_t>(plan_.tile_loop)]),
        v_(iteration_.vars.back()),
        uses_(TurnedUses(e.space(), f_, plan_, iteration_)) {
    along_ = b().CreateAnd(thread, e_.I64(kTile - 1));
    first_ = b().CreateUDiv(thread, e_.I64(kTile));
    for (const MemoryUse& use : uses_) {
      tiles_.push_back(tiles);
      tiles = b().CreateConstGEP1_64(b().getInt8Ty(), tiles, static_cast<uint64_t>(TileBytes(plan_, *use.op)));
    }
  }

  void Emit() {
    const Dim v_extent = plan_.loops.back().extent, u_extent = plan_.loops[static_cast<size_t>(plan_.tile_loop)].extent;
    const int64_t side = plan_.block;
    const Dim v_squares = CeilDiv(v_extent, side), u_squares = CeilDiv(u_extent, side);
    whole_ = v_extent.is_constant() && v_extent.constant() % side == 0 && u_extent.is_constant() && u_extent.constant() % side == 0;
    ForOuter(e_, plan_, iteration_.vars, v_squares * u_squares, [&](Value* square) {
      Value* across = e_.EmitDim(v_squares);
      v_low_ = b().CreateMul(b().CreateURem(square, across), e_.I64(side));
      u_low_ = b().CreateMul(b().CreateUDiv(square, across), e_.I64(side));
      v_end_ = e_.EmitDim(v_extent);
      u_end_ = e_.EmitDim(u_extent);
      std::vector<llvm::AllocaInst*> slots;
      Rows([&](Value* row) { Inside(Above(u_low_, along_), Above(v_low_, row), [&] { Load(&slots); }); });
      size_t next = 0;
      Rows([&](Value* row) { Inside(Above(u_low_, along_), Above(v_low_, row), [&] { Fill(row, slots, &next); }); });
      Barrier(b());
      for (int64_t plane = 0; plane < lanes_; ++plane) {
        Rows([&](Value* row) {
          Inside(b().CreateAdd(Above(u_low_, row), e_.I64(plane)), Above(v_low_, along_), [&] {
            e_.load_hook = [&](const Instruction* parameter, Index offset) { return Turned(plane, row, parameter, offset); };
            InMode(v_, nullptr, [&] {
              EmitChecks(e_, iteration_, Role::kFull);
              StoreRoots(e_, iteration_, RootsWithRole(f_, Role::kFull));
            });
            e_.load_hook = nullptr;
          });
        });
      }
    });
  }

 private:
  llvm::IRBuilder<>& b() { return e_.Here(); }

  // Vector `n` of a side that begins at `low`.
  Value* Above(Value* low, Value* n) { return b().CreateAdd(low, b().CreateMul(n, e_.I64(lanes_))); }

  // Vectors along `vector`, as many of them along `copies`.
  void InMode(Index vector, Index copies, const std::function<void()>& body) {
    const LaneMode outer = e_.mode();
    LaneMode mode = outer;
    if (lanes_ > 1) {
      mode.lanes = static_cast<int>(lanes_);
      mode.vector_var = vector->var;
      if (copies != nullptr) {
        mode.copies = mode.lanes;
        mode.unroll_var = copies->var;
      }
    }
    mode.level = e_.innermost();
    e_.set_mode(mode);
    body();
    e_.set_mode(outer);
  }

  // The rows of vectors of the square that are this thread's.
  void Rows(const std::function<void(Value*)>& body) {
    for (int64_t k = 0; k < kTile; k += rows_) body(b().CreateAdd(first_, e_.I64(k)));
  }

  void Inside(Value* u, Value* v, const std::function<void()>& body) {
    e_.If(whole_ ? b().getTrue() : b().CreateAnd(b().CreateICmpSLT(u, u_end_), b().CreateICmpSLT(v, v_end_)), [&] {
      e_.BindVar(u_, u);
      e_.BindVar(v_, v);
      body();
    });
  }

  llvm::Type* ElementOf(size_t use) const { return MemoryType(e_.context(), uses_[use].op->shape().element_type()); }
  llvm::Type* VectorOf(size_t use) const { return WithLanes(ElementOf(use), static_cast<unsigned>(lanes_)); }
  llvm::Align AlignOf(size_t use) const {
    const llvm::Type* element = ElementOf(use);
    return llvm::Align(static_cast<uint64_t>(PartBits(ElementOf(use)) / 8 * (element->isStructTy() ? 1 : lanes_)));
  }

  // Vector `column` of row `lanes * row + plane` of the turned square.
  Value* Place(size_t use, int64_t plane, Value* row, Value* column) {
    if (plane > 0) row = b().CreateAdd(row, e_.I64(plane * kTile));
    Value* at = b().CreateAdd(b().CreateMul(row, e_.I64(kTileRow)), column);
    return b().CreateGEP(VectorOf(use), tiles_[use], at);
  }

  // All loads are under way before the first is waited for.
  void Load(std::vector<llvm::AllocaInst*>* slots) {
    for (size_t k = 0; k < uses_.size(); ++k) {
      InMode(u_, v_, [&] {
        Value* base = e_.OperandPointer(static_cast<int>(uses_[k].op->parameter_number()));
        for (Value* v : e_.LoadElements(base, 0, ElementOf(k), uses_[k].offset, nullptr).v) {
          slots->push_back(e_.Alloca(VectorOf(k)));
          b().CreateStore(v, slots->back());
        }
      });
    }
  }

  void Fill(Value* row, const std::vector<llvm::AllocaInst*>& slots, size_t* next) {
    for (size_t k = 0; k < uses_.size(); ++k) {
      Val square{.level = e_.innermost()};
      for (int64_t i = 0; i < lanes_; ++i) square.v.push_back(b().CreateLoad(VectorOf(k), slots[(*next)++]));
      TurnSquare(b(), square, static_cast<int>(lanes_));
      for (int64_t plane = 0; plane < lanes_; ++plane) {
        b().CreateAlignedStore(square.v[static_cast<size_t>(plane)], Place(k, plane, along_, row), AlignOf(k));
      }
    }
  }

  std::optional<Val> Turned(int64_t plane, Value* row, const Instruction* parameter, Index offset) {
    const auto use = absl::c_find_if(uses_, [&](const MemoryUse& u) { return u.op == parameter && u.offset == offset; });
    if (use == uses_.end()) return std::nullopt;
    const PrimitiveType type = parameter->shape().element_type();
    const size_t k = static_cast<size_t>(use - uses_.begin());
    Value* v = b().CreateAlignedLoad(VectorOf(k), Place(k, plane, row, along_), AlignOf(k));
    return Val{.v = {FromMemory(b(), type, v, e_.specs().types)}, .level = e_.innermost()};
  }

  KernelEmitter& e_;
  const FusedKernel& f_;
  const KernelPlan& plan_;
  const int64_t rows_;  // of a square's vectors, at once
  const int64_t lanes_;
  Iteration iteration_;
  const Index u_, v_;
  const std::vector<MemoryUse> uses_;
  std::vector<Value*> tiles_;                  // by use
  bool whole_ = false;                         // all squares are
  Value *along_ = nullptr, *first_ = nullptr;  // this thread's place in a row of vectors of the square, and its first row
  Value *u_low_ = nullptr, *v_low_ = nullptr, *u_end_ = nullptr, *v_end_ = nullptr;
};

}  // namespace

void EmitTransposeKernel(KernelEmitter& e, const GpuPlan& plan, Value* thread, Value* tiles) {
  TransposeKernel(e, plan, thread, tiles).Emit();
  EmitOthers(e);
}

}  // namespace tenon::gpu
