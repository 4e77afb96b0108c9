#include "backends/codegen/llvm/sink_numbers.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/Metadata.h"

namespace tenon {
namespace {

constexpr size_t kHeld = 12;          // of 32 registers
constexpr unsigned kSpreadBits = 512;  // what AVX-512's instructions spread as they go
constexpr unsigned kNumbers = 1, kArguments = 5;  // of a kernel (runtime/kernel_abi.h): behind which the numbers lie

// load, insertelement, shufflevector
struct Spread {
  llvm::LoadInst* number = nullptr;
  llvm::InsertElementInst* lane = nullptr;
  llvm::ShuffleVectorInst* all = nullptr;
};

bool IsNumber(const llvm::Value* pointer, const llvm::Function& f) {
  while (const auto* gep = llvm::dyn_cast<llvm::GetElementPtrInst>(pointer)) {
    if (!gep->hasAllConstantIndices()) return false;
    pointer = gep->getPointerOperand();
  }
  return f.arg_size() == kArguments && pointer == f.getArg(kNumbers);
}

Spread SpreadOf(llvm::Instruction& i) {
  Spread s;
  s.all = llvm::dyn_cast<llvm::ShuffleVectorInst>(&i);
  if (s.all == nullptr || !s.all->isZeroEltSplat() || s.all->getType()->getPrimitiveSizeInBits() != kSpreadBits) return {};
  s.lane = llvm::dyn_cast<llvm::InsertElementInst>(s.all->getOperand(0));
  s.number = s.lane == nullptr ? nullptr : llvm::dyn_cast<llvm::LoadInst>(s.lane->getOperand(1));
  if (s.number == nullptr || !IsNumber(s.number->getPointerOperand(), *i.getFunction())) return {};
  return s;
}

// A copy in front of the user.
void Sink(const Spread& s, llvm::Use& use) {
  auto* user = llvm::cast<llvm::Instruction>(use.getUser());
  llvm::Instruction *number = s.number->clone(), *lane = s.lane->clone(), *all = s.all->clone();
  lane->setOperand(1, number);
  all->setOperand(0, lane);
  number->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(user->getContext(), {}));
  for (llvm::Instruction* copy : {number, lane, all}) copy->insertBefore(user->getIterator());
  use.set(all);
}

}  // namespace

void SinkNumbers(llvm::Function& f, llvm::LoopInfo& loops) {
  llvm::MapVector<llvm::Loop*, llvm::SmallVector<Spread, 32>> read;  // by loop: what comes from outside
  for (llvm::Instruction& i : llvm::instructions(f)) {
    const Spread s = SpreadOf(i);
    if (s.all == nullptr) continue;
    llvm::SmallPtrSet<llvm::Loop*, 4> seen;
    for (llvm::User* user : s.all->users()) {
      llvm::Loop* loop = loops.getLoopFor(llvm::cast<llvm::Instruction>(user)->getParent());
      if (loop != nullptr && !loop->contains(&i) && seen.insert(loop).second) read[loop].push_back(s);
    }
  }
  for (const auto& [loop, spreads] : read) {
    if (spreads.size() <= kHeld) continue;
    for (const Spread& s : spreads) {
      for (llvm::Use& use : llvm::make_early_inc_range(s.all->uses())) {
        auto* user = llvm::cast<llvm::Instruction>(use.getUser());
        if (!llvm::isa<llvm::PHINode>(user) && loops.getLoopFor(user->getParent()) == loop) Sink(s, use);
      }
    }
  }
}

}  // namespace tenon
