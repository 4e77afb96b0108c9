#include "backends/gpu/emit/selection_repair.h"

#include <vector>

#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"

namespace tenon::gpu {
namespace {

using llvm::Value;

Value* ZerosByWords(llvm::IRBuilder<>& b, Value* x) {
  llvm::Type* word = x->getType()->getWithNewBitWidth(32);
  const auto zeros = [&](Value* w) { return b.CreateIntrinsic(llvm::Intrinsic::ctlz, {word}, {w, b.getFalse()}); };
  Value* high = b.CreateTrunc(b.CreateLShr(x, 32), word);
  Value* low = b.CreateTrunc(x, word);
  Value* beyond = b.CreateAdd(zeros(low), llvm::ConstantInt::get(word, 32));
  Value* none = b.CreateICmpEQ(high, llvm::Constant::getNullValue(word));
  return b.CreateZExt(b.CreateSelect(none, beyond, zeros(high)), x->getType());
}

}  // namespace

void RepairSelection(llvm::Function& f) {
  std::vector<llvm::IntrinsicInst*> wide;
  for (llvm::Instruction& i : llvm::instructions(f)) {
    auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(&i);
    const bool counts = call != nullptr && call->getIntrinsicID() == llvm::Intrinsic::ctlz;
    if (counts && call->getType()->getScalarSizeInBits() == 64) wide.push_back(call);
  }
  for (llvm::IntrinsicInst* call : wide) {
    llvm::IRBuilder<> b(call);
    call->replaceAllUsesWith(ZerosByWords(b, call->getArgOperand(0)));
    call->eraseFromParent();
  }
}

}  // namespace tenon::gpu
