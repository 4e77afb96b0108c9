// What both kernels of attention are made of: a block's tile, its operands on their way to shared memory, places there, the softmax's
// numbers of a row, and results on their way out.
#pragma once

#include <vector>

#include "backends/codegen/kernel/kernel_emitter.h"
#include "backends/gpu/emit/fragments.h"
#include "backends/gpu/plan/attention_tile.h"
#include "backends/gpu/plan/gpu_plan.h"

namespace tenon::gpu {

class AttentionParts {
 protected:
  AttentionParts(KernelEmitter& e, const GpuPlan& plan, llvm::Value* thread);

  // body() for the block's unit: batch, block of rows and rows_left_ are known.
  void ForTiles(const std::function<void()>& body);

  llvm::IRBuilder<>& b() { return e_.Here(); }
  llvm::Value* Constant(double v) { return llvm::ConstantFP::get(b().getFloatTy(), v); }
  llvm::Value* Load(llvm::AllocaInst* slot) { return b().CreateLoad(slot->getAllocatedType(), slot); }
  llvm::AllocaInst* NewSlot(llvm::Type* type, llvm::Value* first);
  std::vector<llvm::AllocaInst*> NewSums(int64_t count);  // of f32, 0

  LaneMode VectorsAlong(Index variable, int64_t lanes);
  // `left`: places from the tile's first on.
  void Fill(const AttentionOperand& operand, llvm::Value* left);
  // Halves as they lie in memory, anything else in registers.
  Val Read(const AttentionOperand& operand);
  // Of an operand, or what one is made of.
  llvm::Type* ElementType() { return gpu_.mma ? MemoryType(e_.context(), half_) : b().getFloatTy(); }

  llvm::Value* Place(int64_t bytes_before, llvm::Value* row, int64_t row_elements, llvm::Value* column, llvm::Type* element);
  llvm::Value* LoadFloat(int64_t bytes_before, llvm::Value* row, int64_t row_elements, llvm::Value* column);
  // Of each row: what its sums are rescaled by, in the end what they are divided by.
  llvm::Value* LoadFactor(llvm::Value* row) { return LoadFloat(0, row, 1, e_.I64(0)); }
  void StoreFactor(llvm::Value* row, llvm::Value* factor);
  void Rescale(llvm::AllocaInst* sum, llvm::Value* factor) { b().CreateStore(b().CreateFMul(Load(sum), factor, "rescaled"), sum); }

  // ---- by tensor cores: a warp has 16 rows ----
  llvm::Value* WarpsRow() { return b().CreateMul(fragments_.Warp(), fragments_.I32(kWarpRows)); }
  // Row and column of a lane's sum `i` of fragments side by side: columns 2 (l % 4) and the next one of rows l / 4 and l / 4 + 8.
  llvm::Value* LanesRow(size_t i);
  llvm::Value* LanesColumn(size_t i);
  void StoreFragment(const std::vector<llvm::AllocaInst*>& sums, int64_t bytes_before, int64_t row_elements);

  // ---- the softmax, of row `row` ----
  llvm::Value* IsMinusInfinity(llvm::Value* v) { return b().CreateFCmpOEQ(v, Constant(-INFINITY)); }
  void DefineRow(const Instruction* reduction, llvm::Value* v) {
    e_.Define(reduction, kept_, 0, {.v = {v}, .level = e_.innermost()});
  }
  llvm::Value* RowValue(const Instruction* op) { return e_.Eval(op, kept_).v[0]; }
  // What results are divided by, of a row that is known: its largest score and its sum.
  llvm::Value* Divisor(llvm::Value* maximum, llvm::Value* sum);

  // Weights are at most 1, and f16 has so few exponents that what is left of a small one would be lost.
  static constexpr double kWeightScale = 0x1p15;
  bool scaled() const { return gpu_.mma && half_ == PrimitiveType::kF16; }

  // Sums in shared memory, divided, to the result.
  void Results();

  KernelEmitter& e_;
  const FusedKernel& f_;
  const GpuPlan& gpu_;
  llvm::Value* const thread_;  // in the block, i64
  Fragments fragments_;
  const Attention a_;
  const AttentionTile tile_;
  const AttentionIndex at_;
  Dim queries_, keys_;
  PrimitiveType half_ = PrimitiveType::kF32;
  IndexTuple full_, kept_, scores_index_;
  llvm::Value* rows_left_ = nullptr;  // from the tile's first on
};

}  // namespace tenon::gpu
