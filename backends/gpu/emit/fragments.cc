#include "backends/gpu/emit/fragments.h"

#include "backends/gpu/emit/threads.h"
#include "llvm/IR/IntrinsicsNVPTX.h"

namespace tenon::gpu {

using llvm::Value;

Value* Fragments::Lane() { return b().CreateAnd(b().CreateTrunc(thread_, b().getInt32Ty()), I32(kWarp - 1)); }
Value* Fragments::Warp() { return b().CreateUDiv(b().CreateTrunc(thread_, b().getInt32Ty()), I32(kWarp)); }

Value* Fragments::Shared(int64_t bytes_before, Value* bytes) {
  Value* base = e_.ScratchPointer(bytes_before);
  Value* place = b().CreateGEP(b().getInt8Ty(), base, b().CreateZExt(bytes, b().getInt64Ty()));
  return b().CreateAddrSpaceCast(place, b().getPtrTy(kSharedSpace));
}

// ldmatrix: lane l names row l % 8 of matrix l / 8, all of 8 by 8 halves. A register of A has rows first, of B terms first (PTX ISA,
// "Matrix Fragments for mma.m16n8k16"): matrix 1 is the one further along that. Where a row in shared memory is one term's, they are
// turned on the way.
Value* Fragments::LaneOffset(const SharedHalves& halves, Value* begin, bool rows_first) {
  Value *in = b().CreateAnd(Lane(), I32(kMatrix - 1)), *matrix = b().CreateUDiv(Lane(), I32(kMatrix));
  Value* odd = b().CreateMul(b().CreateAnd(matrix, I32(1)), I32(kMatrix));
  Value* upper = b().CreateMul(b().CreateUDiv(matrix, I32(2)), I32(kMatrix));
  Value *place = rows_first ? odd : upper, *term = rows_first ? upper : odd;
  (halves.term_rows ? term : place) = b().CreateAdd(halves.term_rows ? term : place, in);
  place = b().CreateAdd(place, begin);
  Value* offset = halves.term_rows ? b().CreateAdd(b().CreateMul(term, I32(halves.row)), place)
                                   : b().CreateAdd(b().CreateMul(place, I32(halves.row)), term);
  return halves.further == nullptr ? offset : b().CreateAdd(offset, halves.further);
}

std::vector<Value*> Fragments::Load(const SharedHalves& halves, Value* lane_offset, int64_t place, int64_t term) {
  const int64_t further = halves.term_rows ? term * halves.row + place : place * halves.row + term;
  Value* at = Shared(halves.bytes_before, b().CreateMul(b().CreateAdd(lane_offset, I32(further)), I32(2)));
  const auto id = halves.term_rows ? llvm::Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x4_trans_b16
                                   : llvm::Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x4_b16;
  Value* all = b().CreateIntrinsic(id, {at->getType()}, {at});
  std::vector<Value*> registers;
  for (unsigned i = 0; i < 4; ++i) registers.push_back(b().CreateExtractValue(all, i));
  return registers;
}

void Fragments::MultiplyAdd(PrimitiveType type, const std::vector<Value*>& x, Value* const* y, llvm::AllocaInst* const* sums) {
  const bool f16 = type == PrimitiveType::kF16;
  llvm::Type* pair = f16 ? static_cast<llvm::Type*>(llvm::FixedVectorType::get(b().getHalfTy(), 2)) : b().getInt32Ty();
  std::vector<Value*> args;
  for (Value* v : {x[0], x[1], x[2], x[3], y[0], y[1]}) args.push_back(b().CreateBitCast(v, pair));
  for (int i = 0; i < 4; ++i) args.push_back(b().CreateLoad(b().getFloatTy(), sums[i]));
  const auto id = f16 ? llvm::Intrinsic::nvvm_mma_m16n8k16_row_col_f32_f32 : llvm::Intrinsic::nvvm_mma_m16n8k16_row_col_bf16;
  Value* all = b().CreateIntrinsic(id, {}, args);
  for (unsigned i = 0; i < 4; ++i) b().CreateStore(b().CreateExtractValue(all, i), sums[i]);
}

}  // namespace tenon::gpu
