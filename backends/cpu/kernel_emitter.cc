// Loops, index arithmetic and memory of KernelEmitter. Values are in kernel_values.cc.
#include "backends/cpu/kernel_emitter.h"

#include <algorithm>

#include "hlo/check.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/Module.h"
#include "llvm/Transforms/Utils/PromoteMemToReg.h"

namespace tenon {

using llvm::Value;

KernelEmitter::KernelEmitter(const FusedKernel& fused, const KernelSpecs& specs, llvm::Function* function)
    : fused_(fused), specs_(specs), function_(function), builder_(function->getContext()),
      i64_(llvm::Type::getInt64Ty(function->getContext())) {
  levels_.push_back({llvm::BasicBlock::Create(context(), "entry", function)});
  llvm::IRBuilder<>& b = Here();
  const size_t count = fused.operands.size() + fused.results.size() + (fused.checks.empty() ? 0 : 1);
  for (size_t i = 0; i < count; ++i) {
    Value* slot = b.CreateConstInBoundsGEP1_64(b.getPtrTy(), function->getArg(0), i);
    pointers_.push_back(b.CreateLoad(b.getPtrTy(), slot));
  }
}

absl::Status KernelEmitter::Finish() {
  TENON_CHECK(levels_.size() == 1, "open loops");
  for (const Instruction* check : fused_.checks) {
    auto it = check_flags_.find(check);
    if (it == check_flags_.end()) continue;
    int64_t id = 0;
    const std::string config = check->backend_config();
    if (size_t p = config.find("\"check\""); p != std::string::npos) id = std::atoll(config.c_str() + config.find(':', p) + 1);
    Value* flag = Here().CreateLoad(Here().getInt1Ty(), it->second);
    If(flag, [&] {
      llvm::StoreInst* store = Here().CreateAlignedStore(I64(id + 1), pointers_.back(), llvm::Align(8));
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

// ---- loops -------------------------------------------------------------------------------------------------------

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

void KernelEmitter::Loop(Value* lo, Value* hi, Value* step, const std::function<void(Value*)>& body) {
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

void KernelEmitter::LoopOver(Index var, Value* lo, Value* hi, int64_t step, const std::function<void()>& body) {
  Loop(lo, hi, I64(step), [&](Value* iv) {
    BindVar(var, iv);
    body();
  });
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

void KernelEmitter::MakeMasks() {
  llvm::IRBuilder<>& b = Here();
  const unsigned lanes = static_cast<unsigned>(mode_.lanes);
  llvm::IntegerType* type = lanes >= 32 ? b.getInt8Ty() : b.getInt32Ty();
  Value* left = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, mode_.remaining, I64(mode_.lanes * mode_.copies));
  Value* limit = b.CreateVectorSplat(lanes, b.CreateTrunc(left, type));
  mode_.masks.clear();
  for (int c = 0; c < (mode_.unroll_var == mode_.vector_var ? mode_.copies : 1); ++c) {
    llvm::SmallVector<llvm::Constant*, 64> iota;
    for (unsigned i = 0; i < lanes; ++i) iota.push_back(llvm::ConstantInt::get(type, i + static_cast<unsigned>(c) * lanes));
    mode_.masks.push_back(b.CreateICmpULT(llvm::ConstantVector::get(iota), limit));
  }
}

void KernelEmitter::VectorLoop(Index var, Value* lo, Value* hi, const VectorLoopOptions& options, const std::function<void()>& body) {
  const auto [lanes, unroll, masked_tail, heavy, multiple] = options;
  const LaneMode outer = mode_;
  auto in_mode = [&, unroll = unroll](int width, int copies, bool masked, Value* from, Value* to) {
    mode_ = outer;
    mode_.lanes = width;
    mode_.vector_var = width > 1 ? var->var : -1;
    if (unroll > 1 || copies > 1) {
      mode_.copies = copies;
      mode_.unroll_var = var->var;
      mode_.unroll_step = width;
    }
    LoopOver(var, from, to, int64_t{width} * (unroll > 1 ? copies : 1), [&] {
      if (masked) {
        mode_.remaining = Here().CreateSub(to, vars_[static_cast<size_t>(var->var)].value);
        MakeMasks();
      }
      body();
    });
    mode_ = outer;
  };
  if (lanes == 1) return in_mode(1, 1, false, lo, hi);
  const int64_t step = int64_t{lanes} * unroll;
  auto *clo = llvm::dyn_cast<llvm::ConstantInt>(lo), *chi = llvm::dyn_cast<llvm::ConstantInt>(hi);
  const int64_t n = clo && chi ? chi->getSExtValue() - clo->getSExtValue() : -1;  // -1: not known
  if (n == 0) return;
  auto floor_to = [&](Value* from, int64_t multiple) -> Value* {
    llvm::IRBuilder<>& b = Here();
    return b.CreateAdd(from, b.CreateAnd(b.CreateSub(hi, from), I64(-multiple)));
  };
  const bool whole = multiple % step == 0 || (n >= 0 && n % step == 0);
  if (masked_tail && heavy && !whole) return in_mode(lanes, unroll, true, lo, hi);
  Value* done = lo;
  if (n < 0 || n >= step) {
    done = whole ? hi : floor_to(lo, step);
    in_mode(lanes, unroll, false, lo, done);
  }
  if (whole) return;
  const int64_t left = n < 0 ? -1 : n % step;
  if (unroll > 1 && !heavy && !masked_tail && (left < 0 || left >= lanes)) {
    Value* single = left >= 0 && left % lanes == 0 ? hi : floor_to(done, lanes);
    in_mode(lanes, 1, false, done, single);
    done = single;
  }
  if (left >= 0 && left % lanes == 0 && !masked_tail && unroll > 1 && !heavy) return;
  in_mode(masked_tail ? lanes : 1, 1, masked_tail, done, hi);
}

// ---- sizes and indices -------------------------------------------------------------------------------------------

Value* KernelEmitter::EmitDim(Dim d) {
  if (d.is_constant()) return I64(d.constant());
  if (auto it = dims_.find(d); it != dims_.end()) return it->second;
  const DimExpr& e = *d.expr();
  Value* v = nullptr;
  switch (e.kind) {
    case DimExpr::Kind::kSymbol: {
      auto it = std::find(fused_.size_args.begin(), fused_.size_args.end(), d);
      TENON_CHECK(it != fused_.size_args.end(), "symbol that is no kernel argument: " + d.ToString());
      llvm::IRBuilder<>& b = At(0);
      v = b.CreateLoad(i64_, b.CreateConstInBoundsGEP1_64(i64_, function_->getArg(1), static_cast<uint64_t>(it - fused_.size_args.begin())));
      break;
    }
    case DimExpr::Kind::kSum:
      v = I64(e.addend);
      for (size_t i = 0; i < e.operands.size(); ++i) {
        Value* o = EmitDim(e.operands[i]);
        v = At(0).CreateAdd(v, At(0).CreateMul(o, I64(e.coefficients[i])));
      }
      break;
    default: {
      v = EmitDim(e.operands[0]);
      for (size_t i = 1; i < e.operands.size(); ++i) {
        Value* o = EmitDim(e.operands[i]);
        llvm::IRBuilder<>& b = At(0);
        switch (e.kind) {
          case DimExpr::Kind::kProduct: v = b.CreateMul(v, o); break;
          case DimExpr::Kind::kMin: v = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, v, o); break;
          case DimExpr::Kind::kMax: v = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, v, o); break;
          // Sizes are not negative, so rounding down is truncation.
          case DimExpr::Kind::kFloorDiv: v = b.CreateSDiv(v, o); break;
          default: v = b.CreateSRem(v, o); break;
        }
      }
    }
  }
  return dims_[d] = v;
}

Value* KernelEmitter::Splat(Value* value, int level) {
  if (mode_.lanes == 1 || value->getType()->isVectorTy()) return value;
  Value*& slot = levels_[static_cast<size_t>(level)].splats[{value, mode_.lanes}];
  if (slot == nullptr) slot = At(level).CreateVectorSplat(static_cast<unsigned>(mode_.lanes), value);
  return slot;
}

Val KernelEmitter::Binary(const Val& a, const Val& b, const std::function<Value*(llvm::IRBuilder<>&, Value*, Value*)>& f) {
  Val r{.level = std::max(a.level, b.level)};
  const bool vector = a.is_vector() || b.is_vector();
  for (size_t c = 0; c < std::max(a.v.size(), b.v.size()); ++c) {
    Value *x = a.at(c), *y = b.at(c);
    if (vector) {
      x = Splat(x, a.level);
      y = Splat(y, b.level);
    }
    r.v.push_back(f(At(r.level), x, y));
  }
  return r;
}

Val KernelEmitter::ScalarIndex(Index e, const Guard* guard) {
  const IndexKey key = KeyOf(e, e->kind == IndexNode::Kind::kVar ? nullptr : guard);
  for (size_t l = levels_.size(); l-- > 0;) {
    if (auto it = levels_[l].scalar_index.find(key); it != levels_[l].scalar_index.end()) return it->second;
  }
  Val v = ScalarIndexUncached(e, guard);
  levels_[static_cast<size_t>(v.level)].scalar_index[key] = v;
  return v;
}

Val KernelEmitter::ScalarIndexUncached(Index e, const Guard* guard) {
  switch (e->kind) {
    case IndexNode::Kind::kVar: {
      const VarBinding& binding = vars_[static_cast<size_t>(e->var)];
      TENON_CHECK(binding.value != nullptr, "unbound loop variable");
      Val r{.v = {binding.value}, .level = binding.level};
      if (IsUnrolledIndex(e)) {
        for (int c = 1; c < mode_.copies; ++c) r.v.push_back(At(r.level).CreateAdd(binding.value, I64(c * mode_.unroll_step)));
      }
      return r;
    }
    case IndexNode::Kind::kSum: {
      // Outer terms first, so that partial sums stay outside.
      std::vector<Val> terms;
      for (const IndexNode::Term& t : e->terms) {
        Val v = ScalarIndex(t.node, guard);
        if (!(t.coefficient == Dim(1))) {
          Val c{.v = {EmitDim(t.coefficient)}};
          v = Binary(v, c, [](auto& b, Value* x, Value* y) { return b.CreateMul(x, y); });
        }
        terms.push_back(std::move(v));
      }
      std::stable_sort(terms.begin(), terms.end(), [](const Val& a, const Val& b) { return a.level < b.level; });
      Val sum{.v = {EmitDim(e->addend)}};
      for (const Val& t : terms) sum = Binary(sum, t, [](auto& b, Value* x, Value* y) { return b.CreateAdd(x, y); });
      return sum;
    }
    case IndexNode::Kind::kFloorDiv:
    case IndexNode::Kind::kMod: {
      // Negative values occur only where a guard is false, and are not used then: unsigned is right.
      const bool div = e->kind == IndexNode::Kind::kFloorDiv;
      return Binary(ScalarIndex(e->inner, guard), Val{.v = {EmitDim(e->divisor)}}, [div](auto& b, Value* x, Value* y) {
        return div ? b.CreateUDiv(x, y) : b.CreateURem(x, y);
      });
    }
    case IndexNode::Kind::kRuntime:
      return RuntimeValue(e, guard, /*vector=*/false);
  }
  return {};
}

// The producer's integer, clamped: an index out of range reads the nearest element (gather, dynamic-slice).
Val KernelEmitter::RuntimeValue(Index e, const Guard* guard, bool vector) {
  Val v = Eval(e->producer, e->at, guard);
  const PrimitiveType type = e->producer->shape().element_type();
  Val r{.level = v.level};
  for (Value* x : v.v) {
    llvm::IRBuilder<>& b = At(v.level);
    llvm::Type* wide = WithLanesOf(x->getType(), i64_);
    Value* w = IsSigned(type) ? b.CreateSExt(x, wide) : b.CreateZExt(x, wide);
    if (e->bounded) {
      Value* high = EmitDim(e->high);
      if (wide->isVectorTy()) high = Splat(high, 0);
      llvm::IRBuilder<>& b2 = At(v.level);
      w = b2.CreateBinaryIntrinsic(llvm::Intrinsic::smax, w, llvm::ConstantInt::get(wide, 0));
      w = b2.CreateBinaryIntrinsic(llvm::Intrinsic::smin, w, high);
    }
    r.v.push_back(w);
  }
  if (!vector && r.is_vector()) Fail(absl::InternalError("a gather index varies by lane where a scalar is needed"));
  return r;
}

bool KernelEmitter::FitsI32(Index e) const {
  auto small = [](Dim d) { return d.is_constant() && d.constant() > -(int64_t{1} << 31) && d.constant() < (int64_t{1} << 31); };
  if (!e->bounded || !small(e->low) || !small(e->high)) return false;
  for (const IndexNode::Term& t : e->terms) {
    if (!small(t.coefficient) || !FitsI32(t.node)) return false;
  }
  return e->inner == nullptr || (small(e->divisor) && FitsI32(e->inner));
}

Val KernelEmitter::VectorIndex(Index e, const Guard* guard) {
  const IndexKey key = KeyOf(e, guard);
  for (size_t l = levels_.size(); l-- > 0;) {
    if (auto it = levels_[l].vector_index.find(key); it != levels_[l].vector_index.end()) return it->second;
  }
  Val v = VectorIndexUncached(e, guard, FitsI32(e));
  levels_[static_cast<size_t>(v.level)].vector_index[key] = v;
  return v;
}

Val KernelEmitter::VectorIndexUncached(Index e, const Guard* guard, bool narrow) {
  llvm::Type* element = narrow ? llvm::Type::getInt32Ty(context()) : i64_;
  auto from_scalar = [&](const Val& s) {
    Val r{.level = s.level};
    for (Value* x : s.v) r.v.push_back(Splat(At(s.level).CreateTrunc(x, element), s.level));
    return r;
  };
  if (!IsVectorIndex(e)) return from_scalar(ScalarIndex(e, guard));
  auto constant = [&](Dim d) { return Val{.v = {Splat(At(0).CreateTrunc(EmitDim(d), element), 0)}}; };
  switch (e->kind) {
    case IndexNode::Kind::kVar: {
      const VarBinding& binding = vars_[static_cast<size_t>(e->var)];
      Val r{.level = binding.level};
      Value* base = Splat(At(r.level).CreateTrunc(binding.value, element), r.level);
      for (int c = 0; c < (IsUnrolledIndex(e) ? mode_.copies : 1); ++c) {
        llvm::SmallVector<llvm::Constant*, 64> iota;
        for (int i = 0; i < mode_.lanes; ++i) iota.push_back(llvm::ConstantInt::get(element, static_cast<uint64_t>(i + c * mode_.lanes)));
        Value* lane = llvm::ConstantVector::get(iota);
        llvm::IRBuilder<>& b = At(r.level);
        if (mode_.remaining != nullptr) {  // dead lanes take the last live element: they may be used for addresses
          Value* left = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, mode_.remaining, I64(mode_.lanes * mode_.copies));
          Value* last = b.CreateVectorSplat(static_cast<unsigned>(mode_.lanes), b.CreateTrunc(b.CreateSub(left, I64(1)), element));
          lane = b.CreateBinaryIntrinsic(llvm::Intrinsic::umin, lane, last);
        }
        r.v.push_back(b.CreateAdd(base, lane));
      }
      return r;
    }
    case IndexNode::Kind::kSum: {
      Index scalar_part = space_.Constant(e->addend);
      for (const IndexNode::Term& t : e->terms) {
        if (!IsVectorIndex(t.node)) scalar_part = space_.Combine(scalar_part, 1, t.node, t.coefficient);
      }
      Val sum = from_scalar(ScalarIndex(scalar_part, guard));
      for (const IndexNode::Term& t : e->terms) {
        if (!IsVectorIndex(t.node)) continue;
        Val v = VectorIndexUncached(t.node, guard, narrow);
        if (!(t.coefficient == Dim(1))) v = Binary(v, constant(t.coefficient), [](auto& b, Value* x, Value* y) { return b.CreateMul(x, y); });
        sum = Binary(sum, v, [](auto& b, Value* x, Value* y) { return b.CreateAdd(x, y); });
      }
      return sum;
    }
    case IndexNode::Kind::kFloorDiv:
    case IndexNode::Kind::kMod: {
      const bool div = e->kind == IndexNode::Kind::kFloorDiv;
      Val inner = VectorIndexUncached(e->inner, guard, narrow);
      return Binary(inner, constant(e->divisor), [div](auto& b, Value* x, Value* y) { return div ? b.CreateUDiv(x, y) : b.CreateURem(x, y); });
    }
    case IndexNode::Kind::kRuntime: {
      Val v = RuntimeValue(e, guard, /*vector=*/true);
      for (Value*& x : v.v) x = Splat(At(v.level).CreateTrunc(x, WithLanesOf(x->getType(), element)), v.level);
      return v;
    }
  }
  return {};
}

// ---- bounds ------------------------------------------------------------------------------------------------------

const Guard* KernelEmitter::Under(const Guard* guard, absl::Span<const IndexBound> bounds) {
  std::vector<IndexBound> open;
  for (const IndexBound& b : bounds) {
    if (Decide(b) != true) open.push_back(b);
  }
  if (open.empty()) return guard;
  for (const Guard& g : guards_) {
    if (g.parent == guard && g.bounds == open) return &g;
  }
  guards_.push_back({guard, std::move(open)});
  return &guards_.back();
}

Val KernelEmitter::EmitBound(const IndexBound& bound, const Guard* guard) {
  auto below = [](auto& b, Value* x, Value* y) { return b.CreateICmpULT(x, y); };
  if (!IsVectorIndex(bound.index)) return Binary(ScalarIndex(bound.index, guard), Val{.v = {EmitDim(bound.size)}}, below);
  Val e = VectorIndex(bound.index, guard);
  llvm::Type* element = e.v[0]->getType()->getScalarType();
  if (element->isIntegerTy(32) && bound.size.constant_or(INT64_MAX) >= (int64_t{1} << 31)) {
    for (Value*& x : e.v) x = At(e.level).CreateSExt(x, WithLanesOf(x->getType(), i64_));
    element = i64_;
  }
  return Binary(e, Val{.v = {At(0).CreateTrunc(EmitDim(bound.size), element)}}, below);
}

Val KernelEmitter::BoundsHold(absl::Span<const IndexBound> bounds, const Guard* guard) {
  Val all{.v = {llvm::ConstantInt::getTrue(context())}};
  bool first = true;
  for (const IndexBound& b : bounds) {
    if (Decide(b) == true) continue;
    Val one = EmitBound(b, guard);
    all = first ? one : Binary(all, one, [](auto& b2, Value* x, Value* y) { return b2.CreateAnd(x, y); });
    first = false;
  }
  return all;
}

Val KernelEmitter::Condition(const Guard* guard) {
  for (size_t l = levels_.size(); l-- > 0;) {
    if (auto it = levels_[l].conditions.find(guard); it != levels_[l].conditions.end()) return it->second;
  }
  Val v = BoundsHold(guard->bounds, guard->parent);
  if (guard->parent != nullptr) v = Binary(v, Condition(guard->parent), [](auto& b, Value* x, Value* y) { return b.CreateAnd(x, y); });
  levels_[static_cast<size_t>(v.level)].conditions[guard] = v;
  return v;
}

// ---- memory ------------------------------------------------------------------------------------------------------

bool KernelEmitter::HasMaskedMemory(llvm::Type* element) const {
  if (specs_.vector_bytes == 64) return true;
  return specs_.vector_bytes == 32 && element->getScalarSizeInBits() >= 32;
}

Value* KernelEmitter::Dummy() {
  llvm::Module* module = function_->getParent();
  const char* name = "tenon.dummy";
  if (llvm::GlobalVariable* g = module->getGlobalVariable(name, true)) return g;
  return new llvm::GlobalVariable(*module, i64_, /*isConstant=*/true, llvm::GlobalValue::PrivateLinkage, llvm::ConstantInt::get(i64_, 0), name);
}

Value* KernelEmitter::And(llvm::IRBuilder<>& b, Value* a, Value* c) {
  if (a == nullptr || c == nullptr) return a == nullptr ? c : a;
  return b.CreateAnd(a, c);
}

Value* KernelEmitter::ScratchPointer(int64_t byte_offset) {
  return At(0).CreateConstInBoundsGEP1_64(At(0).getInt8Ty(), function_->getArg(4), static_cast<uint64_t>(byte_offset));
}

Val KernelEmitter::ElementPointer(Value* base, int base_level, llvm::Type* element, Index offset, const Guard* guard) {
  const bool unrolled = IsUnrolledIndex(offset);
  const Access along = unrolled ? AccessAlong(offset, mode_.unroll_var) : Access{};
  if (unrolled && along.kind == Access::Kind::kGathered) {
    Val index = ScalarIndex(offset, guard);
    Val r{.level = std::max(index.level, base_level)};
    for (Value* i : index.v) r.v.push_back(At(r.level).CreateGEP(element, base, i));
    return r;
  }
  // What is known outside becomes part of an outer pointer; the address that is left is pointer + inner index.
  Index inner = space_.Constant(0), outer = space_.Constant(0);
  Dim addend = offset->kind == IndexNode::Kind::kSum ? offset->addend : Dim(0);
  absl::InlinedVector<IndexNode::Term, 3> terms;
  if (offset->kind == IndexNode::Kind::kSum) {
    terms = offset->terms;
  } else {
    terms.push_back({offset, 1});
  }
  int level = base_level;
  std::vector<int> term_levels;
  for (const auto& t : terms) {
    term_levels.push_back(ScalarIndex(t.node, guard).level);
    level = std::max(level, term_levels.back());
  }
  for (size_t i = 0; i < terms.size(); ++i) {
    Index& part = term_levels[i] == level ? inner : outer;
    part = space_.Combine(part, 1, terms[i].node, terms[i].coefficient);
  }
  if (!addend.is_constant()) {
    outer = space_.AddConstant(outer, addend);
    addend = 0;
  }
  Value* pointer = base;
  int pointer_level = base_level;
  if (!(outer->is_constant() && outer->addend == Dim(0))) {
    bool found = false;
    for (size_t l = levels_.size(); l-- > 0 && !found;) {
      if (auto it = levels_[l].outer_pointers.find({base, outer}); it != levels_[l].outer_pointers.end()) {
        std::tie(pointer, pointer_level) = it->second;
        found = true;
      }
    }
    if (!found) {
      Val index = ScalarIndex(outer, guard);
      pointer_level = std::max(index.level, base_level);
      pointer = At(pointer_level).CreateGEP(element, base, index.v[0]);
      if (guard == nullptr) levels_[static_cast<size_t>(pointer_level)].outer_pointers[{base, outer}] = {pointer, pointer_level};
    }
  }
  // Lane 0 of copy 0; the other copies lie at a fixed distance.
  if (!inner->is_constant()) {
    Val index = ScalarIndex(inner, guard);
    pointer_level = std::max(index.level, pointer_level);
    pointer = At(pointer_level).CreateGEP(element, pointer, index.v[0]);
  }
  Val r{.level = pointer_level};
  for (int c = 0; c < (unrolled ? mode_.copies : 1); ++c) {
    Dim distance = addend + along.stride * Dim(c * mode_.unroll_step);
    if (along.kind == Access::Kind::kContiguous) distance = addend + Dim(c * mode_.unroll_step);
    Value* d = EmitDim(unrolled ? distance : addend);
    const bool zero = llvm::isa<llvm::ConstantInt>(d) && llvm::cast<llvm::ConstantInt>(d)->isZero();
    r.v.push_back(zero ? pointer : At(r.level).CreateGEP(element, pointer, d));
  }
  return r;
}

Val KernelEmitter::LoadElements(Value* base, int base_level, llvm::Type* element, Index offset, const Guard* guard) {
  const llvm::Align align(std::max(1u, element->getScalarSizeInBits() / 8));
  std::optional<Val> condition;
  if (guard != nullptr) condition = Condition(guard);
  Val r{.level = condition ? condition->level : 0};
  if (!IsVectorIndex(offset)) {
    Val p = ElementPointer(base, base_level, element, offset, guard);
    r.level = std::max(r.level, p.level);
    for (size_t c = 0; c < std::max(p.v.size(), condition ? condition->v.size() : 1); ++c) {
      Value* pointer = p.at(c);
      Value* dummy = condition ? Dummy() : nullptr;
      llvm::IRBuilder<>& b = At(r.level);
      if (condition) {
        Value* any = condition->at(c);
        if (any->getType()->isVectorTy()) any = b.CreateOrReduce(any);
        pointer = b.CreateSelect(any, pointer, dummy);
      }
      r.v.push_back(b.CreateAlignedLoad(element, pointer, align));
    }
    return r;
  }
  const Access access = AccessAlong(offset, mode_.vector_var);
  llvm::Type* type = VectorOf(element);
  const bool masked = condition.has_value() || LaneMask() != nullptr;
  const bool contiguous = access.kind == Access::Kind::kContiguous && (!masked || HasMaskedMemory(element));
  const bool reversed = access.kind == Access::Kind::kStrided && access.stride == Dim(-1) && !masked;
  if (contiguous || reversed) {
    Val p = ElementPointer(base, base_level, element, offset, guard);
    r.level = std::max(r.level, p.level);
    for (size_t c = 0; c < std::max(p.v.size(), condition ? condition->v.size() : 1); ++c) {
      Value* mask = condition ? Splat(condition->at(c), condition->level) : nullptr;
      llvm::IRBuilder<>& b = At(r.level);
      mask = And(b, mask, LaneMask(static_cast<int>(c)));
      if (reversed) {
        Value* first = b.CreateConstGEP1_64(element, p.at(c), static_cast<uint64_t>(1 - mode_.lanes));
        r.v.push_back(b.CreateVectorReverse(b.CreateAlignedLoad(type, first, align)));
      } else if (mask != nullptr) {
        r.v.push_back(b.CreateMaskedLoad(type, p.at(c), align, mask, llvm::Constant::getNullValue(type)));
      } else {
        r.v.push_back(b.CreateAlignedLoad(type, p.at(c), align));
      }
    }
    return r;
  }
  Val index = VectorIndex(offset, guard);
  r.level = std::max({r.level, index.level, base_level});
  const bool native = specs_.vector_bytes == 64 && element->getScalarSizeInBits() >= 32;
  for (size_t c = 0; c < std::max(index.v.size(), condition ? condition->v.size() : 1); ++c) {
    Value* mask = condition ? Splat(condition->at(c), condition->level) : nullptr;
    Value* dummy = mask != nullptr ? Dummy() : nullptr;
    llvm::IRBuilder<>& b = At(r.level);
    Value* pointers = b.CreateGEP(element, base, index.at(c));
    if (mask != nullptr && !native) {  // a gather that is taken apart must not branch per lane
      pointers = b.CreateSelect(mask, pointers, b.CreateVectorSplat(static_cast<unsigned>(mode_.lanes), dummy));
      mask = nullptr;
    }
    r.v.push_back(b.CreateMaskedGather(type, pointers, align, mask, llvm::Constant::getNullValue(type)));
  }
  return r;
}

void KernelEmitter::StoreElements(Value* base, int base_level, llvm::Type* element, Index offset, const Val& value) {
  const llvm::Align align(std::max(1u, element->getScalarSizeInBits() / 8));
  const bool vector = IsVectorIndex(offset);
  const bool contiguous = vector && AccessAlong(offset, mode_.vector_var).kind == Access::Kind::kContiguous;
  Val where = !vector || contiguous ? ElementPointer(base, base_level, element, offset, nullptr) : VectorIndex(offset);
  for (size_t c = 0; c < where.v.size(); ++c) {
    Value* v = value.at(std::min(c, value.v.size() - 1));
    if (vector) v = Splat(v, value.level);
    llvm::IRBuilder<>& b = Here();
    Value* mask = vector ? LaneMask(static_cast<int>(c)) : nullptr;
    if (!vector) {
      TENON_CHECK(!v->getType()->isVectorTy(), "a vector stored to one element");
      b.CreateAlignedStore(v, where.at(c), align);
    } else if (!contiguous) {
      b.CreateMaskedScatter(v, b.CreateGEP(element, base, where.at(c)), align, mask);
    } else if (mask != nullptr) {
      b.CreateMaskedStore(v, where.at(c), align, mask);
    } else {
      b.CreateAlignedStore(v, where.at(c), align);
    }
  }
}

Val KernelEmitter::LoadResult(int result, Index offset) {
  const PrimitiveType type = fused_.roots[static_cast<size_t>(result)]->shape().element_type();
  // Not hoisted: what is read may have been stored a moment ago, or lie outside where a bound isn't yet checked.
  Val v = LoadElements(ResultPointer(result), innermost(), MemoryType(context(), type), offset, nullptr);
  for (Value*& x : v.v) x = FromMemory(At(v.level), type, x, specs_.types);
  return v;
}

void KernelEmitter::StoreResult(int result, Index offset, const Val& value) {
  const Instruction* root = fused_.roots[static_cast<size_t>(result)];
  const PrimitiveType type = root->shape().is_tuple() ? root->shape().element(result).element_type() : root->shape().element_type();
  Val narrow{.level = innermost()};
  for (Value* v : value.v) narrow.v.push_back(ToMemory(Here(), type, v, specs_.types));
  StoreElements(ResultPointer(result), 0, MemoryType(context(), type), offset, narrow);
}

void KernelEmitter::StoreRaw(Value* base, int level, Index offset, PrimitiveType type, const Val& value) {
  if (type != PrimitiveType::kPred) return StoreElements(base, level, RegisterType(context(), type), offset, value);
  Val bytes{.level = innermost()};
  for (Value* v : value.v) bytes.v.push_back(ToMemory(Here(), type, v, specs_.types));
  StoreElements(base, level, llvm::Type::getInt8Ty(context()), offset, bytes);
}

Val KernelEmitter::LoadRaw(const InMemory& where) {
  if (where.type != PrimitiveType::kPred) return LoadElements(where.base, where.level, RegisterType(context(), where.type), where.offset, nullptr);
  Val v = LoadElements(where.base, where.level, llvm::Type::getInt8Ty(context()), where.offset, nullptr);
  for (Value*& x : v.v) x = FromMemory(At(v.level), where.type, x, specs_.types);
  return v;
}

}  // namespace tenon
