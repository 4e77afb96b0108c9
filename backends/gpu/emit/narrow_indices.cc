#include "backends/gpu/emit/narrow_indices.h"

#include <algorithm>
#include <vector>

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/PostOrderIterator.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/IR/ConstantRange.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/IntrinsicsNVPTX.h"

namespace tenon::gpu {
namespace {

using llvm::Instruction;
using llvm::Value;

// What the registers of threads and blocks may hold.
void TellRanges(llvm::Function& f, int64_t threads, int64_t blocks) {
  for (Instruction& i : llvm::instructions(f)) {
    auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(&i);
    if (call == nullptr) continue;
    const bool thread = call->getIntrinsicID() == llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x;
    const bool block = call->getIntrinsicID() == llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x;
    const int64_t end = thread ? threads : block ? blocks : 0;
    if (end <= 0 || end > INT32_MAX) continue;
    call->addRangeRetAttr(llvm::ConstantRange(llvm::APInt(32, 0), llvm::APInt(32, static_cast<uint64_t>(end))));
  }
}

class Narrowing {
 public:
  explicit Narrowing(llvm::Function& f)
      : f_(f),
        i32_(llvm::Type::getInt32Ty(f.getContext())),
        library_(f.getParent()->getTargetTriple()),
        functions_(library_),
        assumptions_(f),
        tree_(f),
        loops_(tree_),
        evolution_(f, functions_, assumptions_, tree_, loops_) {}

  void Run() {
    // All ranges first: they are of the function as it is.
    std::vector<llvm::ICmpInst*> compares;
    llvm::ReversePostOrderTraversal<llvm::Function*> order(&f_);
    for (llvm::BasicBlock* block : order) {
      for (Instruction& i : *block) {
        auto* compare = llvm::dyn_cast<llvm::ICmpInst>(&i);
        if (compare != nullptr && IsWide(compare->getOperand(0)) && OperandsFit(i)) compares.push_back(compare);
        if (IsWide(&i) && Fits(&i) && CanNarrow(i)) narrow_.insert(&i);
      }
    }
    for (Instruction* i : narrow_) {
      auto* phi = llvm::dyn_cast<llvm::PHINode>(i);
      if (phi != nullptr) twins_[i] = llvm::PHINode::Create(i32_, phi->getNumIncomingValues(), "", phi->getIterator());
    }
    for (Instruction* i : narrow_) {
      if (!llvm::isa<llvm::PHINode>(i)) twins_[i] = Twin(*i);
    }
    for (Instruction* i : narrow_) {
      auto* phi = llvm::dyn_cast<llvm::PHINode>(i);
      if (phi == nullptr) continue;
      auto* twin = llvm::cast<llvm::PHINode>(twins_[i]);
      for (llvm::BasicBlock* from : phi->blocks()) twin->addIncoming(Narrow(phi->getIncomingValueForBlock(from)), from);
    }
    for (llvm::ICmpInst* compare : compares) {
      llvm::IRBuilder<> b(compare);
      compare->replaceAllUsesWith(b.CreateICmp(compare->getPredicate(), Narrow(compare->getOperand(0)), Narrow(compare->getOperand(1))));
      compare->eraseFromParent();
    }
    for (Instruction* i : narrow_) Widen(i);
    for (Instruction* i : narrow_) i->replaceAllUsesWith(llvm::PoisonValue::get(i->getType()));
    for (Instruction* i : narrow_) i->eraseFromParent();
  }

 private:
  static bool IsWide(Value* v) { return v->getType()->isIntegerTy(64); }

  bool Fits(Value* v) {
    if (auto* c = llvm::dyn_cast<llvm::ConstantInt>(v)) return c->getValue().isSignedIntN(32);
    const llvm::ConstantRange range = evolution_.getSignedRange(evolution_.getSCEV(v));
    return range.getSignedMin().isSignedIntN(32) && range.getSignedMax().isSignedIntN(32);
  }
  bool OperandsFit(Instruction& i) {
    for (unsigned k = 0; k < 2; ++k) {
      if (!Fits(i.getOperand(k))) return false;
    }
    return true;
  }
  bool MayBeNegative(Value* v) { return !evolution_.isKnownNonNegative(evolution_.getSCEV(v)); }

  // Of one whose value fits: whether 32 bits of its operands give it.
  bool CanNarrow(Instruction& i) {
    switch (i.getOpcode()) {
      case Instruction::Add:
      case Instruction::Sub:
      case Instruction::Mul:
      case Instruction::And:
      case Instruction::Or:
      case Instruction::Xor:
      case Instruction::PHI:
      case Instruction::Select:
        return true;
      case Instruction::Shl:
      case Instruction::LShr: {
        auto* by = llvm::dyn_cast<llvm::ConstantInt>(i.getOperand(1));
        const bool left = i.getOpcode() == Instruction::Shl;
        return by != nullptr && by->getValue().ult(32) && (left || (Fits(i.getOperand(0)) && !MayBeNegative(i.getOperand(0))));
      }
      case Instruction::ZExt:
      case Instruction::SExt:
        return i.getOperand(0)->getType()->getIntegerBitWidth() <= 32;
      case Instruction::SDiv:
      case Instruction::SRem:
        return OperandsFit(i);
      case Instruction::UDiv:
      case Instruction::URem:
        return OperandsFit(i) && !MayBeNegative(i.getOperand(0)) && !MayBeNegative(i.getOperand(1));
      case Instruction::Call:
        switch (llvm::cast<llvm::CallInst>(i).getIntrinsicID()) {
          case llvm::Intrinsic::smin:
          case llvm::Intrinsic::smax:
          case llvm::Intrinsic::umin:
          case llvm::Intrinsic::umax:  // widening by the sign keeps the order of unsigned numbers, too
            return OperandsFit(i);
          default:
            return false;
        }
      default:
        return false;
    }
  }

  // The low 32 bits of `v`.
  Value* Narrow(Value* v) {
    if (auto* c = llvm::dyn_cast<llvm::ConstantInt>(v)) return llvm::ConstantInt::get(i32_, c->getValue().trunc(32));
    Value*& twin = twins_[v];
    if (twin == nullptr) {
      auto* made = llvm::dyn_cast<Instruction>(v);
      llvm::IRBuilder<> b(f_.getContext());
      if (made == nullptr) {
        b.SetInsertPoint(&*f_.getEntryBlock().getFirstInsertionPt());
      } else {
        b.SetInsertPoint(*made->getInsertionPointAfterDef());
      }
      twin = b.CreateTrunc(v, i32_);
    }
    return twin;
  }

  Value* Twin(Instruction& i) {
    llvm::IRBuilder<> b(&i);
    auto operand = [&](unsigned k) { return Narrow(i.getOperand(k)); };
    if (auto* binary = llvm::dyn_cast<llvm::BinaryOperator>(&i)) return b.CreateBinOp(binary->getOpcode(), operand(0), operand(1));
    if (llvm::isa<llvm::SelectInst>(i)) return b.CreateSelect(i.getOperand(0), operand(1), operand(2));
    if (llvm::isa<llvm::SExtInst>(i)) return b.CreateSExt(i.getOperand(0), i32_);
    if (llvm::isa<llvm::ZExtInst>(i)) return b.CreateZExt(i.getOperand(0), i32_);
    return b.CreateBinaryIntrinsic(llvm::cast<llvm::IntrinsicInst>(i).getIntrinsicID(), operand(0), operand(1));
  }

  // What stays wide gets it widened.
  void Widen(Instruction* i) {
    auto stays = [&](llvm::Use& use) { return !narrow_.contains(llvm::cast<Instruction>(use.getUser())); };
    if (std::none_of(i->use_begin(), i->use_end(), stays)) return;
    llvm::IRBuilder<> b(i->getContext());
    b.SetInsertPoint(llvm::isa<llvm::PHINode>(i) ? i->getParent()->getFirstInsertionPt() : i->getIterator());
    Value* wide = b.CreateSExt(twins_[i], i->getType());
    i->replaceUsesWithIf(wide, stays);
  }

  llvm::Function& f_;
  llvm::Type* i32_;
  llvm::TargetLibraryInfoImpl library_;
  llvm::TargetLibraryInfo functions_;
  llvm::AssumptionCache assumptions_;
  llvm::DominatorTree tree_;
  llvm::LoopInfo loops_;
  llvm::ScalarEvolution evolution_;
  llvm::SetVector<Instruction*> narrow_;     // in an order in which operands precede their users, but for phis
  llvm::DenseMap<Value*, Value*> twins_;     // of 32 bits
};

}  // namespace

void NarrowIndices(llvm::Function& f, int64_t threads, int64_t blocks) {
  TellRanges(f, threads, blocks);
  Narrowing(f).Run();
}

}  // namespace tenon::gpu
