// Loops of KernelEmitter. Indices are in kernel_index.cc, memory in kernel_memory.cc, values in
// kernel_values.cc.
#include "backends/codegen/kernel/kernel_emitter.h"

#include <algorithm>

#include "backends/codegen/llvm/asked_once.h"
#include "hlo/check.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/Module.h"
#include "llvm/Transforms/Utils/PromoteMemToReg.h"

namespace tenon {

using llvm::Value;

KernelEmitter::KernelEmitter(const FusedKernel& fused, const KernelSpecs& specs,
                             llvm::Function* function, const std::function<KernelEntry(llvm::IRBuilder<>&)>& enter)
    : fused_(fused),
      specs_(specs),
      function_(function),
      builder_(function->getContext()),
      i64_(llvm::Type::getInt64Ty(function->getContext())) {
  levels_.push_back({llvm::BasicBlock::Create(context(), "entry", function)});
  llvm::IRBuilder<>& b = Here();
  entry_ = enter(b);
  const size_t count =
      fused.operands.size() + fused.results.size() + (fused.checks.empty() ? 0 : 1);
  for (size_t i = 0; i < count; ++i) {
    const int64_t word = entry_.words.empty() ? static_cast<int64_t>(i) : entry_.words[i];
    if (word < 0) {
      pointers_.push_back(llvm::PoisonValue::get(b.getPtrTy()));
      continue;
    }
    Value* slot = b.CreateConstInBoundsGEP1_64(b.getPtrTy(), entry_.pointers, static_cast<uint64_t>(word));
    Value* pointer = b.CreateLoad(b.getPtrTy(entry_.address_space), slot);
    if (entry_.address_space != 0) pointer = b.CreateAddrSpaceCast(pointer, b.getPtrTy());
    pointers_.push_back(pointer);
    if (i < entry_.aligned.size() && entry_.aligned[i]) aligned_.insert(pointer);
  }
}

absl::Status KernelEmitter::Finish() {
  TENON_CHECK(levels_.size() == 1, "open loops");
  for (const Instruction* check : fused_.checks) {
    auto it = check_flags_.find(check);
    if (it == check_flags_.end()) continue;
    int64_t id = 0;
    const std::string config = check->backend_config();
    if (size_t p = config.find("\"check\""); p != std::string::npos)
      id = std::atoll(config.c_str() + config.find(':', p) + 1);
    Value* flag = Here().CreateLoad(Here().getInt1Ty(), it->second);
    If(flag, [&] {
      llvm::StoreInst* store =
          Here().CreateAlignedStore(I64(id + 1), pointers_.back(), llvm::Align(8));
      store->setAtomic(llvm::AtomicOrdering::Monotonic);
    });
  }
  Here().CreateRetVoid();
  if (!status_.ok()) return status_;
  llvm::DominatorTree tree(*function_);
  std::vector<llvm::AllocaInst*> promotable;
  for (llvm::AllocaInst* a : allocas_) {
    if (llvm::isAllocaPromotable(a)) promotable.push_back(a);
  }
  llvm::PromoteMemToReg(promotable, tree);
  return absl::OkStatus();
}

// ---- loops
// -------------------------------------------------------------------------------------------------------

llvm::IRBuilder<>& KernelEmitter::At(int level) {
  Level& l = levels_[static_cast<size_t>(level)];
  if (l.before != nullptr) {
    builder_.SetInsertPoint(l.before);
  } else {
    builder_.SetInsertPoint(l.block);
  }
  return builder_;
}

llvm::AllocaInst* KernelEmitter::Alloca(llvm::Type* type) {
  llvm::BasicBlock& entry = function_->getEntryBlock();
  llvm::IRBuilder<> b(&entry, entry.begin());
  allocas_.push_back(b.CreateAlloca(type));
  return allocas_.back();
}

void KernelEmitter::Loop(Value* lo, Value* hi, Value* step,
                         const std::function<void(Value*)>& body) {
  llvm::IRBuilder<>& b = Here();
  llvm::BasicBlock* loop = llvm::BasicBlock::Create(context(), "loop", function_);
  llvm::BasicBlock* exit = llvm::BasicBlock::Create(context(), "exit");
  llvm::Instruction* enter = b.CreateCondBr(b.CreateICmpSLT(lo, hi), loop, exit);
  levels_.back().before = enter;
  levels_.push_back({loop});
  llvm::PHINode* iv = Here().CreatePHI(i64_, 2);
  body(iv);
  llvm::IRBuilder<>& e = Here();
  Value* next = e.CreateAdd(iv, step, "", false, true);
  e.CreateCondBr(e.CreateICmpSLT(next, hi), loop, exit);
  iv->addIncoming(lo, enter->getParent());
  iv->addIncoming(next, levels_.back().block);
  levels_.pop_back();
  exit->insertInto(function_);
  levels_.back().block = exit;
  levels_.back().before = nullptr;
}

void KernelEmitter::ForUnits(const std::function<void(Value*)>& body) {
  if (entry_.one_unit) return body(entry_.begin);
  Loop(entry_.begin, entry_.end, I64(1), body);
}

void KernelEmitter::LeaveUnless(Value* condition) {
  TENON_CHECK(levels_.size() == 1, "leaving from inside of a loop");
  llvm::BasicBlock* stay = llvm::BasicBlock::Create(context(), "stay", function_);
  llvm::BasicBlock* leave = llvm::BasicBlock::Create(context(), "leave", function_);
  Here().CreateCondBr(condition, stay, leave);
  llvm::IRBuilder<>(leave).CreateRetVoid();
  levels_.back().block = stay;
}

void KernelEmitter::ByOne(const std::function<void()>& body) {
  if (team_.size == 1) return body();
  If(Here().CreateICmpEQ(team_.rank, I64(0)), body);
}

void KernelEmitter::ByFirst(const std::function<void()>& body) {
  Value* first = Here().CreateICmpEQ(entry_.begin, I64(0));
  if (team_.size > 1) first = Here().CreateAnd(first, Here().CreateICmpEQ(team_.rank, I64(0)));
  If(first, body);
}

void KernelEmitter::LoopOver(Index var, Value* lo, Value* hi, int64_t step,
                             const std::function<void()>& body) {
  Loop(lo, hi, I64(step), [&](Value* iv) {
    BindVar(var, iv);
    body();
  });
}

Value* KernelEmitter::Floor(Value* lo, Value* hi, int64_t step) {
  llvm::IRBuilder<>& b = Here();
  return b.CreateAdd(lo, b.CreateAnd(b.CreateSub(hi, lo), I64(-step)));
}

Value* KernelEmitter::Rounds(Index var, Value* lo, Value* hi, int64_t step, int64_t times, const std::function<void(int64_t)>& body) {
  Value* end = Floor(lo, hi, step * times);
  Loop(lo, end, I64(step * times), [&](Value* first) {
    for (int64_t k = 0; k < times; ++k) {
      Value* place = Here().CreateAdd(first, I64(k * step));
      InLevel([&] {
        BindVar(var, place);
        body(k);
      });
    }
  });
  return end;
}

void KernelEmitter::If(Value* condition, const std::function<void()>& then) {
  llvm::BasicBlock* block = llvm::BasicBlock::Create(context(), "then", function_);
  llvm::BasicBlock* exit = llvm::BasicBlock::Create(context(), "exit");
  levels_.back().before = Here().CreateCondBr(condition, block, exit);
  levels_.push_back({block});
  then();
  Here().CreateBr(exit);
  levels_.pop_back();
  exit->insertInto(function_);
  levels_.back().block = exit;
  levels_.back().before = nullptr;
}

void KernelEmitter::While(const std::function<Value*()>& condition,
                          const std::function<void()>& body) {
  llvm::BasicBlock* header = llvm::BasicBlock::Create(context(), "while", function_);
  llvm::BasicBlock* inner = llvm::BasicBlock::Create(context(), "do", function_);
  llvm::BasicBlock* exit = llvm::BasicBlock::Create(context(), "exit");
  levels_.back().before = Here().CreateBr(header);
  levels_.push_back({header});
  Value* go_on = condition();
  Here().CreateCondBr(go_on, inner, exit);
  levels_.back().block = inner;
  body();
  Here().CreateBr(header);
  levels_.pop_back();
  exit->insertInto(function_);
  levels_.back().block = exit;
  levels_.back().before = nullptr;
}

void KernelEmitter::MakeMasks(bool mostly_whole) {
  llvm::IRBuilder<>& b = Here();
  const unsigned lanes = static_cast<unsigned>(mode_.lanes);
  const int64_t all = mode_.lanes * mode_.vectors();
  llvm::IntegerType* type = lanes < 32 ? b.getInt32Ty() : all < 256 ? b.getInt8Ty() : b.getInt16Ty();  // that holds `all`
  Value* left = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, mode_.remaining, I64(all));
  auto* limited = llvm::dyn_cast<llvm::Instruction>(left);  // not where the range is a number
  if (mostly_whole && limited != nullptr) limited->setMetadata(kWholeVectors, llvm::MDNode::get(context(), {}));
  Value* limit = b.CreateVectorSplat(lanes, b.CreateTrunc(left, type));
  mode_.masks.clear();
  for (int c = 0; c < mode_.vectors(); ++c) {
    llvm::SmallVector<llvm::Constant*, 64> iota;
    for (unsigned i = 0; i < lanes; ++i)
      iota.push_back(llvm::ConstantInt::get(type, i + static_cast<unsigned>(c) * lanes));
    mode_.masks.push_back(b.CreateICmpULT(llvm::ConstantVector::get(iota), limit));
  }
}

void KernelEmitter::OneVector(Index var, int64_t at, int lanes, Value* limit, const std::function<void()>& body) {
  const LaneMode outer = mode_;
  mode_.lanes = lanes;
  mode_.level = innermost() + 1;
  mode_.vector_var = lanes > 1 ? var->var : -1;
  InLevel([&] {
    BindVar(var, I64(at));
    if (limit != nullptr) {
      mode_.remaining = Here().CreateSub(limit, I64(at));
      MakeMasks(false);
    }
    body();
  });
  mode_ = outer;
}

void KernelEmitter::VectorLoop(Index var, Value* lo, Value* hi, const VectorLoopOptions& options,
                               const std::function<void()>& body) {
  const auto [lanes, unroll, masked_tail, heavy, multiple, shared] = options;
  const LaneMode outer = mode_;
  const int64_t threads = shared ? team_.size : 1;
  auto in_mode = [&, unroll = unroll](int width, int copies, bool masked, Value* from, Value* to) {
    mode_ = outer;
    mode_.lanes = width;
    mode_.level = innermost() + 1;
    mode_.vector_var = width > 1 ? var->var : -1;
    if (unroll > 1 || copies > 1) {
      mode_.copies = copies;
      mode_.unroll_var = var->var;
      mode_.unroll_step = width * threads;
    }
    if (threads > 1) from = Here().CreateAdd(from, Here().CreateMul(team_.rank, I64(width)));
    LoopOver(var, from, to, width * threads * (unroll > 1 ? copies : 1), [&] {
      if (masked) {
        mode_.remaining = Here().CreateSub(to, vars_[static_cast<size_t>(var->var)].value);
        MakeMasks(heavy);
      }
      body();
    });
    mode_ = outer;
  };
  if (lanes == 1 && (threads == 1 || unroll == 1)) return in_mode(1, 1, false, lo, hi);
  const int64_t step = lanes * unroll * threads;
  auto *clo = llvm::dyn_cast<llvm::ConstantInt>(lo), *chi = llvm::dyn_cast<llvm::ConstantInt>(hi);
  const int64_t n = clo && chi ? chi->getSExtValue() - clo->getSExtValue() : -1;  // -1: not known
  if (n == 0) return;
  const bool whole = multiple % step == 0 || (n >= 0 && n % step == 0);
  if (masked_tail && heavy && !whole) return in_mode(lanes, unroll, true, lo, hi);
  Value* done = lo;
  if (n < 0 || n >= step) {
    done = whole ? hi : Floor(lo, hi, step);
    in_mode(lanes, unroll, false, lo, done);
  }
  if (whole) return;
  const int64_t left = n < 0 ? -1 : n % step;
  if ((unroll > 1 || threads > 1) && (threads > 1 || !heavy) && !masked_tail && (left < 0 || left >= lanes)) {
    Value* single = left >= 0 && left % lanes == 0 ? hi : Floor(done, hi, lanes);
    in_mode(lanes, 1, false, done, single);
    done = single;
  }
  if (lanes == 1) return;
  if (left >= 0 && left % lanes == 0 && !masked_tail && unroll * threads > 1 && (threads > 1 || !heavy)) return;
  in_mode(masked_tail ? lanes : 1, 1, masked_tail, done, hi);
}

}  // namespace tenon
