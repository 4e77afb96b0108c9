// Halves in shared memory as operands of tensor cores: mma.sync.m16n8k16, summed in f32.
#pragma once

#include <vector>

#include "backends/codegen/kernel/kernel_emitter.h"

namespace tenon::gpu {

inline constexpr int64_t kMmaRows = 16, kMmaColumns = 8, kMatrix = 8;

// Where an operand lies in shared memory.
struct SharedHalves {
  int64_t bytes_before = 0;
  int64_t row = 0;         // elements from one row to the next
  bool term_rows = false;  // a row has all places of one term, else all terms of one place
  llvm::Value* further = nullptr;  // elements, i32, that it begins behind that
};

class Fragments {
 public:
  Fragments(KernelEmitter& e, llvm::Value* thread) : e_(e), thread_(thread) {}

  llvm::Value* I32(int64_t c) { return b().getInt32(static_cast<uint32_t>(c)); }
  llvm::Value* Lane();  // of this thread in its warp, i32
  llvm::Value* Warp();  // of this thread in its block, i32
  // The place `bytes` (i32) behind, as a pointer to shared memory.
  llvm::Value* Shared(int64_t bytes_before, llvm::Value* bytes);

  // Of the first fragment whose places begin at `begin`, the element that this lane names. `rows_first`: of the first operand, A.
  llvm::Value* LaneOffset(const SharedHalves& halves, llvm::Value* begin, bool rows_first);
  // The four registers of 16 places from `place` on by 16 terms from `term` on.
  std::vector<llvm::Value*> Load(const SharedHalves& halves, llvm::Value* lane_offset, int64_t place, int64_t term);
  // x: four registers, y: two, of `type`; sums: four floats.
  void MultiplyAdd(PrimitiveType type, const std::vector<llvm::Value*>& x, llvm::Value* const* y, llvm::AllocaInst* const* sums);

 private:
  llvm::IRBuilder<>& b() { return e_.Here(); }

  KernelEmitter& e_;
  llvm::Value* const thread_;  // in the block, i64
};

}  // namespace tenon::gpu
