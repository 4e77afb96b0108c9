#include "backends/codegen/llvm/asked_once.h"

#include "absl/algorithm/container.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/VectorUtils.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/PatternMatch.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"
#include "llvm/Transforms/Utils/Cloning.h"
#include "llvm/Transforms/Utils/Local.h"

namespace tenon {
namespace {

using llvm::BasicBlock;
using llvm::Instruction;
using llvm::Value;
namespace match = llvm::PatternMatch;

constexpr unsigned kFewestConditions = 2;
constexpr size_t kMostInstructions = 600;  // of a loop that is copied

bool IsDummy(const Value* v) {
  const auto* global = llvm::dyn_cast<llvm::GlobalVariable>(v->stripPointerCasts());
  return global != nullptr && global->getName() == "tenon.dummy";
}

// The condition that `v` has in all lanes; null: it is no such mask.
Value* SplatOf(Value* v) {
  Value* lane = v->getType()->isVectorTy() ? llvm::getSplatValue(v) : nullptr;
  return lane != nullptr && lane->getType()->isIntegerTy(1) ? lane : nullptr;
}

struct Candidate {
  BasicBlock *before, *body, *after;
  llvm::SetVector<Value*> conditions;  // of what is read, known in `before`
};

// Masks of one condition, each made again in front of the innermost loop that wants it: its tail, which may not run, has one of its own.
void SinkMasks(llvm::Function& f, llvm::LoopInfo& loops) {
  llvm::SmallVector<Instruction*, 16> masks;
  for (Instruction& i : llvm::instructions(f)) {
    const Value* lane = SplatOf(&i);
    if (lane != nullptr && !llvm::isa<llvm::Constant>(lane)) masks.push_back(&i);
  }
  for (Instruction* mask : masks) {
    llvm::SmallDenseMap<BasicBlock*, Value*> made;
    for (llvm::Use& use : llvm::make_early_inc_range(mask->uses())) {
      auto* user = llvm::cast<Instruction>(use.getUser());
      llvm::Loop* loop = loops.getLoopFor(user->getParent());
      if (loop == nullptr || loop->contains(mask) || llvm::isa<llvm::PHINode>(user)) continue;
      BasicBlock* before = loop->getLoopPreheader();
      if (before == nullptr || before == mask->getParent()) continue;
      Value*& own = made[before];
      if (own == nullptr) {
        llvm::IRBuilder<> b(before->getTerminator());
        own = b.CreateVectorSplat(llvm::cast<llvm::FixedVectorType>(mask->getType())->getNumElements(), SplatOf(mask));
      }
      use.set(own);
    }
    if (mask->use_empty()) llvm::RecursivelyDeleteTriviallyDeadInstructions(mask);
  }
}

bool Examine(llvm::Loop& loop, Candidate& c) {
  if (!loop.isInnermost() || loop.getNumBlocks() != 1) return false;
  c.body = loop.getHeader();
  c.before = loop.getLoopPreheader();
  c.after = loop.getUniqueExitBlock();
  if (c.before == nullptr || c.after == nullptr || c.after->getSinglePredecessor() != c.body) return false;
  if (c.before->getSingleSuccessor() != c.body || c.body->size() > kMostInstructions) return false;
  for (Instruction& i : *c.body) {
    if (const auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(&i)) {
      const llvm::Intrinsic::ID id = call->getIntrinsicID();
      if (id == llvm::Intrinsic::masked_load || id == llvm::Intrinsic::masked_store) return false;
    }
    for (const llvm::User* user : i.users()) {
      const auto* u = llvm::cast<Instruction>(user);
      if (u->getParent() != c.body && !(u->getParent() == c.after && llvm::isa<llvm::PHINode>(u))) return false;
    }
    auto* select = llvm::dyn_cast<llvm::SelectInst>(&i);
    if (select == nullptr || !IsDummy(select->getFalseValue())) continue;
    Value* condition = select->getCondition();
    if (condition->getType()->isIntegerTy(1) && loop.isLoopInvariant(condition)) c.conditions.insert(condition);
  }
  auto excludes = [](const Value* a, const Value* b) {
    const auto *x = llvm::dyn_cast<llvm::ICmpInst>(a), *y = llvm::dyn_cast<llvm::ICmpInst>(b);
    return match::match(a, match::m_Not(match::m_Specific(b))) ||
           (x != nullptr && y != nullptr && x->getOperand(0) == y->getOperand(0) && x->getOperand(1) == y->getOperand(1) &&
            x->getPredicate() == y->getInversePredicate());
  };
  for (const Value* a : c.conditions) {
    if (absl::c_any_of(c.conditions, [&](const Value* b) { return excludes(a, b); })) return false;
  }
  return c.conditions.size() >= kFewestConditions;
}

void Copy(const Candidate& c) {
  llvm::LLVMContext& context = c.body->getContext();
  llvm::ValueToValueMapTy map;
  BasicBlock* inside = llvm::CloneBasicBlock(c.body, map, ".inside", c.body->getParent());
  inside->moveAfter(c.before);
  map[c.body] = inside;
  for (Instruction& i : *inside) llvm::RemapInstruction(&i, map, llvm::RF_NoModuleLevelChanges | llvm::RF_IgnoreMissingLocals);
  for (llvm::PHINode& phi : c.after->phis()) {
    Value* value = phi.getIncomingValueForBlock(c.body);
    const auto own = map.find(value);
    phi.addIncoming(own == map.end() ? value : static_cast<Value*>(own->second), inside);
  }
  for (Instruction& i : *inside) {
    for (llvm::Use& use : i.operands()) {
      Value* mask = SplatOf(use.get());
      if (c.conditions.contains(use.get())) use.set(llvm::ConstantInt::getTrue(context));
      else if (mask != nullptr && c.conditions.contains(mask)) use.set(llvm::Constant::getAllOnesValue(use->getType()));
    }
  }
  for (Instruction& i : llvm::make_early_inc_range(*inside)) {
    auto* select = llvm::dyn_cast<llvm::SelectInst>(&i);
    if (select == nullptr || !match::match(select->getCondition(), match::m_AllOnes())) continue;
    select->replaceAllUsesWith(select->getTrueValue());
    select->eraseFromParent();
  }
  // Masks that only the other loop wants are made on the way to it.
  BasicBlock* borders = BasicBlock::Create(context, c.body->getName() + ".borders", c.body->getParent(), c.body);
  llvm::IRBuilder<> to_borders(borders);
  Instruction* jump = to_borders.CreateBr(c.body);
  c.body->replacePhiUsesWith(c.before, borders);
  for (Instruction& i : llvm::make_early_inc_range(llvm::reverse(*c.before))) {
    const bool makes_mask = llvm::isa<llvm::ShuffleVectorInst, llvm::InsertElementInst>(i);
    if (!makes_mask || !absl::c_all_of(i.users(), [&](const llvm::User* u) {
          const BasicBlock* where = llvm::cast<Instruction>(u)->getParent();
          return where == borders || (where == c.body && !llvm::isa<llvm::PHINode>(u));
        })) {
      continue;
    }
    i.moveBefore(jump->getIterator());
    jump = &i;
  }
  Instruction* end = c.before->getTerminator();
  llvm::IRBuilder<> b(end);
  Value* all = b.CreateFreeze(b.CreateAnd(llvm::SmallVector<Value*, 8>(c.conditions.begin(), c.conditions.end())));
  b.CreateCondBr(all, inside, borders);
  end->eraseFromParent();
}

// The number that `mask` lets lanes below live of, marked by the emitter; null: it is another mask.
llvm::IntrinsicInst* LimitOf(Value* mask) {
  const auto* compare = llvm::dyn_cast<llvm::ICmpInst>(mask);
  if (compare == nullptr || compare->getPredicate() != llvm::ICmpInst::ICMP_ULT) return nullptr;
  Value *lane = llvm::getSplatValue(compare->getOperand(1)), *limit = nullptr;
  if (lane == nullptr || !match::match(lane, match::m_Trunc(match::m_Value(limit)))) return nullptr;
  auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(limit);
  const bool marked = call != nullptr && call->getIntrinsicID() == llvm::Intrinsic::smin && call->getMetadata(kWholeVectors) != nullptr;
  return marked ? call : nullptr;
}

bool IsMaskedLoad(const llvm::IntrinsicInst& call) { return call.getIntrinsicID() == llvm::Intrinsic::masked_load; }

// Loads, or stores, by the same limit, close to each other: one branch is for all of them. (LLVM would compute each vector of several
// behind the branch for the one before, and no longer side by side.)
struct Masked {
  llvm::SmallVector<llvm::IntrinsicInst*, 4> calls;
  llvm::IntrinsicInst* limit;
};

void AddMasked(BasicBlock& block, std::vector<Masked>* found) {
  bool open = false;  // the last one found may grow
  for (Instruction& i : block) {
    auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(&i);
    const bool load = call != nullptr && IsMaskedLoad(*call);
    const bool store = call != nullptr && call->getIntrinsicID() == llvm::Intrinsic::masked_store;
    llvm::IntrinsicInst* limit = load || store ? LimitOf(call->getArgOperand(load ? 1 : 2)) : nullptr;
    if (limit == nullptr) {
      auto taken = [&](const Value* v) { return absl::c_linear_search(found->back().calls, v); };
      open = open && !i.mayReadOrWriteMemory() && !absl::c_any_of(i.operand_values(), taken);
    } else if (open && found->back().limit == limit && IsMaskedLoad(*found->back().calls[0]) == load) {
      found->back().calls.push_back(call);
    } else {
      found->push_back({{call}, limit});
      open = true;
    }
  }
}

}  // namespace

void LoadWholeVectors(llvm::Function& f) {
  std::vector<Masked> found;
  for (BasicBlock& block : f) AddMasked(block, &found);
  llvm::SmallDenseMap<Value*, Value*> whole;  // by limit
  for (const Masked& m : found) {
    Value*& all = whole[m.limit];
    if (all == nullptr) {
      llvm::IRBuilder<> b(m.limit);
      all = b.CreateICmpSGE(m.limit->getArgOperand(0), m.limit->getArgOperand(1));
    }
    const auto here = m.calls.back()->getIterator();
    Instruction *then = nullptr, *otherwise = nullptr;
    llvm::SplitBlockAndInsertIfThenElse(all, here, &then, &otherwise);
    llvm::IRBuilder<> b(then);
    for (llvm::IntrinsicInst* call : m.calls) {
      if (IsMaskedLoad(*call)) {
        llvm::PHINode* loaded = llvm::PHINode::Create(call->getType(), 2, "", here->getParent()->begin());
        call->replaceAllUsesWith(loaded);
        loaded->addIncoming(b.CreateAlignedLoad(call->getType(), call->getArgOperand(0), call->getParamAlign(0).valueOrOne()),
                            then->getParent());
        loaded->addIncoming(call, otherwise->getParent());
      } else {
        b.CreateAlignedStore(call->getArgOperand(0), call->getArgOperand(1), call->getParamAlign(1).valueOrOne());
      }
      call->moveBefore(otherwise->getIterator());
    }
  }
}

void CopyLoopsForInside(llvm::Function& f, llvm::LoopInfo& loops) {
  SinkMasks(f, loops);
  std::vector<Candidate> found;
  for (llvm::Loop* loop : loops.getLoopsInPreorder()) {
    Candidate c;
    if (Examine(*loop, c)) found.push_back(std::move(c));
  }
  for (const Candidate& c : found) Copy(c);  // the loops' nests are as they were: copies are not looked at
}

}  // namespace tenon
