#include <utility>

#include "absl/algorithm/container.h"
#include "backends/gpu/emit/kernels.h"
#include "backends/gpu/emit/threads.h"
#include "llvm/IR/Intrinsics.h"

namespace tenon::gpu {

using llvm::Value;

namespace {

// u: the tile loop, along which the turned operands lie; v: the vector loop, along which the results do.
class TransposeKernel {
 public:
  TransposeKernel(KernelEmitter& e, const GpuPlan& plan, Value* thread, Value* tiles)
      : e_(e),
        f_(e.fused()),
        plan_(plan.loops),
        rows_(plan.threads / kTile),
        iteration_(e.space(), f_, plan_.loops),
        u_(iteration_.vars[static_cast<size_t>(plan_.tile_loop)]),
        v_(iteration_.vars.back()),
        uses_(TurnedUses(e.space(), f_, plan_, iteration_)) {
    along_ = b().CreateAnd(thread, e_.I64(kTile - 1));
    first_ = b().CreateUDiv(thread, e_.I64(kTile));
    for (const MemoryUse& use : uses_) {
      tiles_.push_back(tiles);
      tiles = b().CreateConstGEP1_64(b().getInt8Ty(), tiles, static_cast<uint64_t>(TileBytes(*use.op)));
    }
  }

  void Emit() {
    const Dim v_extent = plan_.loops.back().extent, u_extent = plan_.loops[static_cast<size_t>(plan_.tile_loop)].extent;
    const Dim v_squares = CeilDiv(v_extent, kTile), u_squares = CeilDiv(u_extent, kTile);
    ForOuter(e_, plan_, iteration_.vars, v_squares * u_squares, [&](Value* square) {
      Value* across = e_.EmitDim(v_squares);
      v_low_ = b().CreateMul(b().CreateURem(square, across), e_.I64(kTile));
      u_low_ = b().CreateMul(b().CreateUDiv(square, across), e_.I64(kTile));
      v_end_ = e_.EmitDim(v_extent);
      u_end_ = e_.EmitDim(u_extent);
      Rows([&](Value* row) { Inside(b().CreateAdd(u_low_, along_), b().CreateAdd(v_low_, row), [&] { Fill(row); }); });
      Barrier(b());
      Rows([&](Value* row) {
        Inside(b().CreateAdd(u_low_, row), b().CreateAdd(v_low_, along_), [&] {
          e_.load_hook = [&](const Instruction* parameter, Index offset) { return Turned(row, parameter, offset); };
          EmitChecks(e_, iteration_, Role::kFull);
          StoreRoots(e_, iteration_, RootsWithRole(f_, Role::kFull));
          e_.load_hook = nullptr;
        });
      });
    });
  }

 private:
  llvm::IRBuilder<>& b() { return e_.Here(); }

  // The rows of the square that are this thread's.
  void Rows(const std::function<void(Value*)>& body) {
    for (int64_t k = 0; k < kTile; k += rows_) body(b().CreateAdd(first_, e_.I64(k)));
  }

  void Inside(Value* u, Value* v, const std::function<void()>& body) {
    Value* inside = b().CreateAnd(b().CreateICmpSLT(u, u_end_), b().CreateICmpSLT(v, v_end_));
    e_.If(inside, [&] {
      e_.BindVar(u_, u);
      e_.BindVar(v_, v);
      body();
    });
  }

  // Element (row, column) of a square.
  Value* Place(size_t use, Value* row, Value* column) {
    Value* at = b().CreateAdd(b().CreateMul(row, e_.I64(kTileRow)), column);
    return b().CreateGEP(MemoryType(e_.context(), uses_[use].op->shape().element_type()), tiles_[use], at);
  }

  void Fill(Value* row) {
    for (size_t k = 0; k < uses_.size(); ++k) {
      llvm::Type* element = MemoryType(e_.context(), uses_[k].op->shape().element_type());
      Value* base = e_.OperandPointer(static_cast<int>(uses_[k].op->parameter_number()));
      const Val v = e_.LoadElements(base, 0, element, uses_[k].offset, nullptr);
      b().CreateAlignedStore(v.v[0], Place(k, row, along_), llvm::Align(static_cast<uint64_t>(PartBits(element)) / 8));
    }
  }

  std::optional<Val> Turned(Value* row, const Instruction* parameter, Index offset) {
    const auto use = absl::c_find_if(uses_, [&](const MemoryUse& u) { return u.op == parameter && u.offset == offset; });
    if (use == uses_.end()) return std::nullopt;
    const PrimitiveType type = parameter->shape().element_type();
    llvm::Type* element = MemoryType(e_.context(), type);
    Value* place = Place(static_cast<size_t>(use - uses_.begin()), along_, row);
    Value* v = b().CreateAlignedLoad(element, place, llvm::Align(static_cast<uint64_t>(PartBits(element)) / 8));
    return Val{.v = {FromMemory(b(), type, v, e_.specs().types)}, .level = e_.innermost()};
  }

  KernelEmitter& e_;
  const FusedKernel& f_;
  const KernelPlan& plan_;
  const int64_t rows_;  // of a square, at once
  Iteration iteration_;
  const Index u_, v_;
  const std::vector<MemoryUse> uses_;
  std::vector<Value*> tiles_;                  // by use
  Value *along_ = nullptr, *first_ = nullptr;  // this thread's place in a row of the square, and its first row
  Value *u_low_ = nullptr, *v_low_ = nullptr, *u_end_ = nullptr, *v_end_ = nullptr;
};

}  // namespace

void EmitTransposeKernel(KernelEmitter& e, const GpuPlan& plan, Value* thread, Value* tiles) {
  TransposeKernel(e, plan, thread, tiles).Emit();
  EmitOthers(e);
}

}  // namespace tenon::gpu
