#include "tools/lab/gpu/plant.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "hlo/check.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include "llvm/IR/Module.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"

namespace tenon::gpu {
namespace {

using llvm::Function;
using llvm::Value;

template <typename T>
std::vector<T*> All(Function& f) {
  std::vector<T*> found;
  for (llvm::Instruction& i : llvm::instructions(f)) {
    if (auto* t = llvm::dyn_cast<T>(&i)) found.push_back(t);
  }
  return found;
}

std::vector<llvm::IntrinsicInst*> Calls(Function& f, llvm::Intrinsic::ID id) {
  std::vector<llvm::IntrinsicInst*> found = All<llvm::IntrinsicInst>(f);
  std::erase_if(found, [&](llvm::IntrinsicInst* call) { return call->getIntrinsicID() != id; });
  return found;
}

Value* Read(llvm::IRBuilderBase& b, llvm::Intrinsic::ID id) {
  return b.CreateIntrinsic(id, llvm::ArrayRef<llvm::Type*>(), llvm::ArrayRef<Value*>());
}

// Of a block's shared memory?
bool IsShared(const Value* pointer) {
  const auto* global = llvm::dyn_cast<llvm::GlobalVariable>(llvm::getUnderlyingObject(pointer));
  return global != nullptr && global->getAddressSpace() == 3;
}
template <typename T>
std::vector<T*> OfShared(Function& f) {
  std::vector<T*> found = All<T>(f);
  std::erase_if(found, [](T* access) { return !IsShared(access->getPointerOperand()); });
  return found;
}

// Of each exchange: the barrier before its values are stored (0), or before they are loaded (1).
bool DropBarriers(Function& f, size_t which) {
  const auto barriers = Calls(f, llvm::Intrinsic::nvvm_barrier_cta_sync_aligned_all);
  for (size_t i = which; i < barriers.size(); i += 2) barriers[i]->eraseFromParent();
  return barriers.size() > which;
}
bool MissingBarrier(Function& f) { return DropBarriers(f, 1); }
bool MissingFirstBarrier(Function& f) { return DropBarriers(f, 0); }

// One thread does not come to the first one, and waits at the second while the others wait at the first.
bool DivergentBarrier(Function& f) {
  const auto barriers = Calls(f, llvm::Intrinsic::nvvm_barrier_cta_sync_aligned_all);
  if (barriers.empty()) return false;
  llvm::IntrinsicInst* barrier = barriers.front();
  llvm::IRBuilder<> b(barrier);
  Value* some = b.CreateICmpNE(Read(b, llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x), b.getInt32(0));
  barrier->moveBefore(llvm::SplitBlockAndInsertIfThen(some, barrier->getIterator(), /*Unreachable=*/false)->getIterator());
  return true;
}

// Segments of half a warp.
bool WrongShuffleWidth(Function& f) {
  const auto shuffles = Calls(f, llvm::Intrinsic::nvvm_shfl_sync_bfly_i32);
  for (llvm::IntrinsicInst* s : shuffles) s->setArgOperand(3, llvm::ConstantInt::get(s->getArgOperand(3)->getType(), 16 << 8 | 31));
  return !shuffles.empty();
}

// All contributors to an exchange store at one place.
bool SharedRace(Function& f) {
  bool found = false;
  for (llvm::StoreInst* store : OfShared<llvm::StoreInst>(f)) {
    auto* place = llvm::dyn_cast<llvm::GetElementPtrInst>(store->getPointerOperand());
    if (place == nullptr || place->hasAllConstantIndices()) continue;
    place->setOperand(1, llvm::ConstantInt::get(place->getOperand(1)->getType(), 0));
    found = true;
  }
  return found;
}

bool UninitialisedShared(Function& f) {
  const auto stores = OfShared<llvm::StoreInst>(f);
  for (llvm::StoreInst* store : stores) store->eraseFromParent();
  return !stores.empty();
}

// Vectors are said to lie at whole vectors, though what they are of is aligned to an element.
bool MisalignedVector(Function& f) {
  bool found = false;
  auto align = [&](auto* access, llvm::Type* type) {
    const uint64_t bytes = type->getPrimitiveSizeInBits() / 8;
    if (!type->isVectorTy() || bytes > 16 || IsShared(access->getPointerOperand())) return;
    access->setAlignment(llvm::Align(bytes));
    found = true;
  };
  for (llvm::LoadInst* load : All<llvm::LoadInst>(f)) align(load, load->getType());
  for (llvm::StoreInst* store : All<llvm::StoreInst>(f)) align(store, store->getValueOperand()->getType());
  return found;
}

// Indices of elements have 32 bits.
bool IndexOverflow(Function& f) {
  bool found = false;
  for (llvm::GetElementPtrInst* place : All<llvm::GetElementPtrInst>(f)) {
    Value* index = place->getOperand(1);
    if (place->getNumIndices() != 1 || !index->getType()->isIntegerTy(64)) continue;
    llvm::IRBuilder<> b(place);
    place->setOperand(1, b.CreateSExt(b.CreateTrunc(index, b.getInt32Ty()), b.getInt64Ty()));
    found = true;
  }
  return found;
}

// A vector that begins inside of a row is taken for one that lies inside.
bool WrongTailMask(Function& f) {
  bool found = false;
  for (llvm::ICmpInst* compare : All<llvm::ICmpInst>(f)) {
    auto* end = llvm::dyn_cast<llvm::BinaryOperator>(compare->getOperand(0));
    if (compare->getPredicate() != llvm::CmpInst::ICMP_SLE || end == nullptr || end->getOpcode() != llvm::Instruction::Add) continue;
    compare->setOperand(0, end->getOperand(0));
    found = true;
  }
  return found;
}

// Threads behind the last unit of a block, or the last column, go on.
bool NoGuard(Function& f) {
  bool found = false;
  for (llvm::BranchInst* branch : All<llvm::BranchInst>(f)) {
    if (!branch->isConditional() || branch->getSuccessor(1)->getName() != "leave") continue;
    branch->setCondition(llvm::ConstantInt::getTrue(f.getContext()));
    found = true;
  }
  return found;
}

// What a team's threads have is merged beginning with another one in each block.
bool TreeByGrid(Function& f) {
  std::vector<llvm::LoadInst*> loads = OfShared<llvm::LoadInst>(f);
  const llvm::DataLayout& layout = f.getParent()->getDataLayout();
  std::vector<int64_t> offsets;
  const Value* base = nullptr;
  for (llvm::LoadInst* load : loads) {
    llvm::APInt offset(layout.getIndexTypeSizeInBits(load->getPointerOperandType()), 0);
    base = load->getPointerOperand()->stripAndAccumulateConstantOffsets(layout, offset, /*AllowNonInbounds=*/true);
    offsets.push_back(offset.getSExtValue());
  }
  if (loads.size() < 2 || (loads.size() & (loads.size() - 1)) != 0 || !llvm::isa<llvm::GlobalVariable>(base)) return false;
  const int64_t step = offsets[1] - offsets[0];
  for (size_t i = 0; i < loads.size(); ++i) {
    if (offsets[i] != offsets[0] + step * static_cast<int64_t>(i)) return false;
  }
  for (size_t i = 0; i < loads.size(); ++i) {
    llvm::IRBuilder<> b(loads[i]);
    Value* block = b.CreateZExt(Read(b, llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x), b.getInt64Ty());
    Value* turn = b.CreateAnd(b.CreateAdd(block, b.getInt64(i)), b.getInt64(loads.size() - 1));
    Value* at = b.CreateAdd(b.CreateMul(turn, b.getInt64(static_cast<uint64_t>(step))), b.getInt64(static_cast<uint64_t>(offsets[0])));
    Value* memory = b.CreateAddrSpaceCast(const_cast<Value*>(base), b.getPtrTy());
    loads[i]->setOperand(0, b.CreateGEP(b.getInt8Ty(), memory, at));
  }
  return true;
}

// A row of a square in shared memory is as long as there are banks: a column lies in one.
bool NoBankPadding(Function& f) {
  constexpr uint64_t kBanks = 32;
  bool found = false;
  for (llvm::BinaryOperator* product : All<llvm::BinaryOperator>(f)) {
    auto* row = llvm::dyn_cast<llvm::ConstantInt>(product->getOperand(1));
    if (product->getOpcode() != llvm::Instruction::Mul || row == nullptr || row->getZExtValue() != kBanks + 1) continue;
    product->setOperand(1, llvm::ConstantInt::get(row->getType(), kBanks));
    found = true;
  }
  return found;
}

// The vectors of a square's odd rows lie where those of its even rows do.
bool WrongTileOffset(Function& f) {
  constexpr uint64_t kBanks = 32;
  bool found = false;
  for (llvm::BinaryOperator* product : All<llvm::BinaryOperator>(f)) {
    auto* size = llvm::dyn_cast<llvm::ConstantInt>(product->getOperand(1));
    if (product->getOpcode() != llvm::Instruction::Mul || size == nullptr || size->getZExtValue() != kBanks + 1) continue;
    auto* row = llvm::dyn_cast<llvm::BinaryOperator>(product->getOperand(0));
    auto* plane = row == nullptr ? nullptr : llvm::dyn_cast<llvm::ConstantInt>(row->getOperand(1));
    if (plane == nullptr || row->getOpcode() != llvm::Instruction::Add || plane->getZExtValue() != kBanks) continue;
    row->setOperand(1, llvm::ConstantInt::get(row->getType(), 0));
    found = true;
  }
  return found;
}

// A slice is multiplied while its copies may be under way.
bool WrongWait(Function& f) {
  const auto waits = Calls(f, llvm::Intrinsic::nvvm_cp_async_wait_group);
  for (llvm::IntrinsicInst* wait : waits) {
    const auto* groups = llvm::cast<llvm::ConstantInt>(wait->getArgOperand(0));
    wait->setArgOperand(0, llvm::ConstantInt::get(groups->getType(), groups->getZExtValue() + 1));
  }
  return !waits.empty();
}

// The registers of A that hold its lower rows and its later terms are taken for each other.
bool WrongMmaLayout(Function& f) {
  bool found = false;
  for (const auto id : {llvm::Intrinsic::nvvm_mma_m16n8k16_row_col_f32_f32, llvm::Intrinsic::nvvm_mma_m16n8k16_row_col_bf16}) {
    for (llvm::IntrinsicInst* product : Calls(f, id)) {
      Value* lower = product->getArgOperand(1);
      product->setArgOperand(1, product->getArgOperand(2));
      product->setArgOperand(2, lower);
      found = true;
    }
  }
  return found;
}

// Sums of attention keep what they were when the largest score moves.
bool NoRescaling(Function& f) {
  bool found = false;
  for (llvm::BinaryOperator* product : All<llvm::BinaryOperator>(f)) {
    if (!product->getName().starts_with("rescaled")) continue;
    product->replaceAllUsesWith(product->getOperand(0));
    found = true;
  }
  return found;
}
// Keys behind the last are taken for keys, of zeros.
bool NoKeyMask(Function& f) {
  bool found = false;
  for (llvm::BinaryOperator* both : All<llvm::BinaryOperator>(f)) {
    if (!both->getName().starts_with("key.inside")) continue;
    both->replaceAllUsesWith(both->getOperand(0));
    found = true;
  }
  return found;
}

// Blocks of every launch of a device.
bool AddBlocks(Program& program, int64_t more) {
  bool found = false;
  for (Region& region : program.regions) {
    for (Step& step : region.steps) {
      auto* kernel = std::get_if<KernelStep>(&step.body);
      if (kernel == nullptr || !kernel->launch.has_value() || kernel->launch->grid[0] <= 0) continue;
      kernel->launch->grid[0] += more;
      found = true;
    }
  }
  return found;
}
bool GridTooSmall(Program& program) { return AddBlocks(program, -1); }
bool GridTooLarge(Program& program) { return AddBlocks(program, 1); }

// Of an operator in several launches the one before the last is left out.
bool MissingLaunch(Program& program) {
  for (Region& region : program.regions) {
    for (size_t i = 2; i < region.steps.size(); ++i) {
      if (region.steps[i].name != region.steps[i - 1].name || region.steps[i].name != region.steps[i - 2].name) continue;
      region.steps.erase(region.steps.begin() + static_cast<std::ptrdiff_t>(i) - 1);
      return true;
    }
  }
  return false;
}
// Two temporaries of one operator lie in one place.
bool OneTemporary(Program& program) {
  int32_t first = -1;
  for (const Region& region : program.regions) {
    for (const Step& step : region.steps) {
      const auto* kernel = std::get_if<KernelStep>(&step.body);
      if (kernel == nullptr || !kernel->launch.has_value() || kernel->operands.empty()) continue;
      const View& written = kernel->operands.back();
      if (written.dtype != PrimitiveType::kU8 || written.value == first) continue;
      if (first >= 0) {
        program.values[static_cast<size_t>(written.value)].offset = program.values[static_cast<size_t>(first)].offset;
        return true;
      }
      first = written.value;
    }
  }
  return false;
}
// The first step of a scan by shuffles looks at the wrong lane.
bool WrongShuffleUp(Function& f) {
  const auto shuffles = Calls(f, llvm::Intrinsic::nvvm_shfl_sync_up_i32);
  if (shuffles.empty()) return false;
  shuffles[0]->setArgOperand(2, llvm::ConstantInt::get(shuffles[0]->getArgOperand(2)->getType(), 2));
  return true;
}
// A merge looks at runs of half the length.
bool ShortRuns(Program& program) {
  for (Region& region : program.regions) {
    for (size_t i = 1; i < region.steps.size(); ++i) {
      auto* kernel = std::get_if<KernelStep>(&region.steps[i].body);
      if (region.steps[i].name != region.steps[i - 1].name || kernel == nullptr || kernel->literals.empty()) continue;
      kernel->literals.back() /= 2;
      return true;
    }
  }
  return false;
}

std::string Replaced(std::string_view text, std::string_view from, std::string_view to) {
  const std::string old(text), changed = absl::StrReplaceAll(old, {{std::string(from), std::string(to)}});
  return changed == old ? "" : changed;
}
// Vectors over the end of rows of columns.
std::string BrokenColumns(std::string_view text) {
  const std::string lanes = Replaced(text, " lanes=1 ", " lanes=4 ");
  return lanes.empty() ? "" : Replaced(lanes, " block=32 ", " block=128 ");
}
// Two teams of some warps each would wait at one barrier for each other.
std::string TwoTeamsAtOneBarrier(std::string_view text) { return Replaced(text, "team=512 row", "team=256 row"); }

constexpr GpuPlant kPlants[] = {
    {.name = "missing-barrier", .doc = "no barrier between an exchange's stores and loads", .kernel = MissingBarrier},
    {.name = "missing-first-barrier", .doc = "no barrier between an exchange and the next one's stores", .kernel = MissingFirstBarrier},
    {.name = "wrong-shuffle-width", .doc = "shuffles within half a warp", .kernel = WrongShuffleWidth},
    {.name = "shared-race", .doc = "all contributors to an exchange store at one place", .kernel = SharedRace},
    {.name = "misaligned-vector", .doc = "vectors are said to lie at whole vectors", .kernel = MisalignedVector},
    {.name = "grid-too-small", .doc = "one block too few", .program = GridTooSmall},
    {.name = "grid-too-large", .doc = "one block too many", .program = GridTooLarge},
    {.name = "no-guard", .doc = "threads behind the last unit compute it", .kernel = NoGuard},
    {.name = "index-overflow", .doc = "indices of 32 bits", .kernel = IndexOverflow},
    {.name = "wrong-tail-mask", .doc = "whole vectors as long as they begin inside of a row", .kernel = WrongTailMask},
    {.name = "uninitialised-shared", .doc = "an exchange's values are never stored", .kernel = UninitialisedShared},
    {.name = "divergent-barrier", .doc = "one thread does not come to a barrier", .kernel = DivergentBarrier},
    {.name = "no-bank-padding", .doc = "rows of a transpose's square are as long as there are banks", .kernel = NoBankPadding},
    {.name = "wrong-tile-offset", .doc = "vectors of a transpose's square lie in one place", .kernel = WrongTileOffset},
    {.name = "wrong-wait", .doc = "a group of asynchronous copies fewer is waited for", .kernel = WrongWait},
    {.name = "tree-by-grid", .doc = "the order in which a reduction merges depends on the block's number", .kernel = TreeByGrid},
    {.name = "missing-launch", .doc = "one launch of several is left out", .program = MissingLaunch},
    {.name = "one-temporary", .doc = "two temporaries of one operator lie in one place", .program = OneTemporary},
    {.name = "short-runs", .doc = "a merge of runs of half the length", .program = ShortRuns},
    {.name = "wrong-shuffle-up", .doc = "the first step of a scan's shuffles goes two lanes up", .kernel = WrongShuffleUp},
    {.name = "wrong-mma-layout", .doc = "two registers of a tensor core's operand exchanged", .kernel = WrongMmaLayout},
    {.name = "no-rescaling", .doc = "attention's sums are not rescaled when the largest score moves", .kernel = NoRescaling},
    {.name = "no-key-mask", .doc = "attention takes the last tile of keys for a whole one", .kernel = NoKeyMask},
    {.name = "broken-columns", .doc = "vectors of columns of which a row has no whole number", .plan = BrokenColumns},
    {.name = "two-teams-at-one-barrier", .doc = "a block of two teams that meet at barriers", .plan = TwoTeamsAtOneBarrier},
};

}  // namespace

absl::Span<const GpuPlant> AllGpuPlants() { return kPlants; }

const GpuPlant& FindGpuPlant(std::string_view name) {
  const auto at = std::find_if(std::begin(kPlants), std::end(kPlants), [&](const GpuPlant& p) { return p.name == name; });
  TENON_CHECK(at != std::end(kPlants), absl::StrCat("no GPU plant ", std::string(name)));
  return *at;
}

}  // namespace tenon::gpu
