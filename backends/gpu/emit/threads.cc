#include "backends/gpu/emit/threads.h"

#include <string>

#include "backends/codegen/emit/emit_types.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include "llvm/IR/Module.h"

namespace tenon::gpu {

using llvm::Value;
using Values = std::vector<Value*>;

namespace {

constexpr uint32_t kAllLanes = 0xffffffff, kWholeWarp = 31;  // PTX's shfl: a segment of 32 lanes

Value* Read(llvm::IRBuilderBase& b, llvm::Intrinsic::ID id) {
  return b.CreateIntrinsic(id, llvm::ArrayRef<llvm::Type*>(), llvm::ArrayRef<Value*>());
}

// shfl.sync of `v`, word by word. `from`: which lane, as the mode says; `segment`: PTX's operand c.
Value* Shuffle(llvm::IRBuilderBase& b, llvm::Intrinsic::ID mode, Value* v, int from, uint32_t segment, Value* mask) {
  llvm::Type* type = v->getType();
  if (type->isStructTy()) {
    Value* r = llvm::PoisonValue::get(type);
    for (unsigned k = 0; k < type->getStructNumElements(); ++k) {
      r = b.CreateInsertValue(r, Shuffle(b, mode, b.CreateExtractValue(v, k), from, segment, mask), k);
    }
    return r;
  }
  const unsigned bits = type->getPrimitiveSizeInBits();
  llvm::Type *i32 = b.getInt32Ty(), *integer = b.getIntNTy(bits);
  auto shuffle = [&](Value* word) {
    return b.CreateIntrinsic(mode, {}, {mask, word, b.getInt32(static_cast<uint32_t>(from)), b.getInt32(segment)});
  };
  Value* x = b.CreateBitCast(v, integer);
  if (bits <= 32) return b.CreateBitCast(b.CreateTrunc(shuffle(b.CreateZExt(x, i32)), integer), type);
  Value* all = llvm::ConstantInt::get(integer, 0);
  for (unsigned at = 0; at < bits; at += 32) {
    Value* word = shuffle(b.CreateTrunc(b.CreateLShr(x, at), i32));
    all = b.CreateOr(all, b.CreateShl(b.CreateZExt(word, integer), at));
  }
  return b.CreateBitCast(all, type);
}

// The lanes of a team of `size`, side by side in a warp.
Value* TeamMask(llvm::IRBuilderBase& b, int size) {
  if (size >= kWarp) return b.getInt32(kAllLanes);
  Value* lane = b.CreateAnd(ThreadInBlock(b), b.getInt32(static_cast<uint32_t>(kWarp - size)));
  return b.CreateShl(b.getInt32((1u << size) - 1), lane);
}
uint32_t Segment(int size) { return static_cast<uint32_t>(kWarp - size) << 8; }

// One value in memory: register values, predicates as bytes.
llvm::Type* SlotType(llvm::IRBuilderBase& b, llvm::Type* type) {
  if (!type->isIntOrIntVectorTy() || type->getScalarSizeInBits() % 8 == 0) return type;
  return WithLanesOf(type, b.getInt8Ty());
}
Value* ToSlot(llvm::IRBuilderBase& b, Value* v) {
  llvm::Type* slot = SlotType(b, v->getType());
  return slot == v->getType() ? v : b.CreateZExt(v, slot);
}
Value* FromSlot(llvm::IRBuilderBase& b, Value* v, llvm::Type* type) { return v->getType() == type ? v : b.CreateTrunc(v, type); }

// One set of values for each of `count` contributors, which everybody visits one after the other. `slot`: the place of this thread's set;
// `first`: that of the set to begin with; `stride`: from a contributor's to the next. `writes`: null: every thread contributes.
void ExchangeAll(KernelEmitter& e, const Values& values, Value* base, Value* slot, Value* first, int64_t stride, int64_t count,
                 int64_t slots, Value* writes, const std::function<void(Values)>& visit) {
  const llvm::DataLayout& layout = e.Here().GetInsertBlock()->getModule()->getDataLayout();
  std::vector<int64_t> offsets;
  std::vector<llvm::Type*> types;
  int64_t bytes = 0;
  for (Value* v : values) {
    types.push_back(SlotType(e.Here(), v->getType()));
    offsets.push_back(static_cast<int64_t>(llvm::alignTo(static_cast<uint64_t>(bytes), layout.getABITypeAlign(types.back()))));
    bytes = offsets.back() + slots * static_cast<int64_t>(layout.getTypeAllocSize(types.back()));
  }
  auto place = [&](llvm::IRBuilderBase& b, size_t k, Value* at) {
    Value* column = b.CreateConstGEP1_64(b.getInt8Ty(), base, static_cast<uint64_t>(offsets[k]));
    return b.CreateGEP(types[k], column, at);
  };
  Barrier(e.Here());  // what was exchanged before has been read
  auto store = [&] {
    for (size_t k = 0; k < values.size(); ++k) {
      llvm::IRBuilder<>& b = e.Here();
      b.CreateStore(ToSlot(b, values[k]), place(b, k, slot));
    }
  };
  if (writes != nullptr)
    e.If(writes, store);
  else
    store();
  Barrier(e.Here());
  auto load = [&](int64_t i) {
    Values v;
    for (size_t k = 0; k < values.size(); ++k) {
      llvm::IRBuilder<>& b = e.Here();
      Value* at = b.CreateAdd(first, e.I64(i * stride));
      v.push_back(FromSlot(b, b.CreateLoad(types[k], place(b, k, at)), values[k]->getType()));
    }
    return v;
  };
  for (int64_t i = 0; i < count; ++i) visit(load(i));
}

// All of them, merged.
Values Exchange(KernelEmitter& e, const Values& values, Value* base, Value* slot, Value* first, int64_t stride, int64_t count,
                int64_t slots, Value* writes, const KernelTeam::Merge& merge) {
  Values total;
  ExchangeAll(e, values, base, slot, first, stride, count, slots, writes,
              [&](Values v) { total = total.empty() ? std::move(v) : merge(total, v); });
  return total;
}

}  // namespace

Value* ThreadInBlock(llvm::IRBuilderBase& b) { return Read(b, llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x); }
Value* BlockInGrid(llvm::IRBuilderBase& b) { return Read(b, llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x); }
void Barrier(llvm::IRBuilderBase& b) { b.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier_cta_sync_aligned_all, {}, {b.getInt32(0)}); }

void CopyAsync(llvm::IRBuilderBase& b, Value* to, Value* from) {
  to = b.CreateAddrSpaceCast(to, b.getPtrTy(kSharedSpace));
  from = b.CreateAddrSpaceCast(from, b.getPtrTy(kGlobalSpace));
  b.CreateIntrinsic(llvm::Intrinsic::nvvm_cp_async_cg_shared_global_16, {}, {to, from});
}
void CommitCopies(llvm::IRBuilderBase& b) {
  b.CreateIntrinsic(llvm::Intrinsic::nvvm_cp_async_commit_group, {}, llvm::ArrayRef<Value*>());
}
void WaitForCopies(llvm::IRBuilderBase& b, int64_t groups) {
  b.CreateIntrinsic(llvm::Intrinsic::nvvm_cp_async_wait_group, {}, {b.getInt32(static_cast<uint32_t>(groups))});
}

Value* ShuffleUp(llvm::IRBuilderBase& b, Value* v, int distance, int size) {
  return Shuffle(b, llvm::Intrinsic::nvvm_shfl_sync_up_i32, v, distance, Segment(size), TeamMask(b, size));
}
Value* ShuffleLast(llvm::IRBuilderBase& b, Value* v, int size) {
  return Shuffle(b, llvm::Intrinsic::nvvm_shfl_sync_idx_i32, v, size - 1, Segment(size) | kWholeWarp, TeamMask(b, size));
}

Value* AnyInWarp(llvm::IRBuilderBase& b, Value* condition) {
  return b.CreateIntrinsic(llvm::Intrinsic::nvvm_vote_any_sync, {}, {b.getInt32(kAllLanes), condition});
}

Values MergeLanes(KernelEmitter& e, Values values, int size, const KernelTeam::Merge& merge, bool by_warps) {
  llvm::IRBuilder<>& b = e.Here();
  Value* mask = TeamMask(b, by_warps ? kWarp : size);
  for (int distance = size / 2; distance > 0; distance /= 2) {
    Values others;
    for (Value* v : values) others.push_back(Shuffle(e.Here(), llvm::Intrinsic::nvvm_shfl_sync_bfly_i32, v, distance, kWholeWarp, mask));
    values = merge(values, others);
  }
  return values;
}

void ExchangeValue(KernelEmitter& e, Value* v, Value* base, Value* slot, Value* writes, int64_t count, Values* values) {
  ExchangeAll(e, {v}, base, slot, e.I64(0), 1, count, count, writes, [values](Values of) { values->push_back(of[0]); });
}

Value* SharedMemory(llvm::IRBuilderBase& b, llvm::Module& module, const std::string& symbol, int64_t bytes) {
  if (bytes > kStaticShared) {
    auto* memory = new llvm::GlobalVariable(module, llvm::ArrayType::get(b.getInt8Ty(), 0), /*isConstant=*/false,
                                            llvm::GlobalValue::ExternalLinkage, nullptr, symbol + "_shared", nullptr,
                                            llvm::GlobalValue::NotThreadLocal, kSharedSpace);
    memory->setAlignment(llvm::Align(16));
    return b.CreateAddrSpaceCast(memory, b.getPtrTy());
  }
  auto* type = llvm::ArrayType::get(b.getInt8Ty(), static_cast<uint64_t>(bytes));
  auto* memory =
      new llvm::GlobalVariable(module, type, /*isConstant=*/false, llvm::GlobalValue::InternalLinkage, llvm::UndefValue::get(type),
                               symbol + "_shared", nullptr, llvm::GlobalValue::NotThreadLocal, kSharedSpace);
  memory->setAlignment(llvm::Align(16));
  return b.CreateAddrSpaceCast(memory, b.getPtrTy());
}

KernelTeam MakeTeam(KernelEmitter& e, const GpuPlan& plan, Value* thread, Value* exchange) {
  KernelTeam team{.size = plan.team};
  if (plan.team == 1) return team;
  llvm::IRBuilder<>& b = e.Here();
  if (plan.loops.kind == PlanKind::kColumn) {
    // Threads one above the other: each column of them is a team.
    Value* column = b.CreateAnd(thread, e.I64(kWarp - 1));
    team.rank = b.CreateLShr(thread, e.I64(std::bit_width(static_cast<unsigned>(kWarp)) - 1));
    team.all_merge = [&e, plan, thread, column, exchange](Values values, const KernelTeam::Merge& merge) {
      return Exchange(e, std::move(values), exchange, thread, column, kWarp, plan.team, plan.threads, nullptr, merge);
    };
    return team;
  }
  team.rank = b.CreateAnd(thread, e.I64(plan.team - 1));
  if (plan.team <= kWarp) {
    team.all_merge = [&e, plan](Values values, const KernelTeam::Merge& merge) {
      return MergeLanes(e, std::move(values), plan.team, merge);
    };
    return team;
  }
  Value* lane = b.CreateAnd(thread, e.I64(kWarp - 1));
  Value* warp = b.CreateLShr(thread, e.I64(std::bit_width(static_cast<unsigned>(kWarp)) - 1));
  Value* first_lane = b.CreateICmpEQ(lane, e.I64(0));
  const int64_t warps = plan.team / kWarp;
  team.all_merge = [&e, exchange, warp, first_lane, warps](Values values, const KernelTeam::Merge& merge) {
    values = MergeLanes(e, std::move(values), kWarp, merge);
    return Exchange(e, std::move(values), exchange, warp, e.I64(0), 1, warps, warps, first_lane, merge);
  };
  return team;
}

}  // namespace tenon::gpu
