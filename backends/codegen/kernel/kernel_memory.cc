// Loads and stores of KernelEmitter: contiguous, reversed, gathered; masked by the tail and by
// guards.
#include <algorithm>

#include "backends/codegen/kernel/kernel_emitter.h"
#include "backends/codegen/plan/kernel_plan.h"
#include "hlo/check.h"
#include "llvm/Analysis/VectorUtils.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/Module.h"

namespace tenon {

using llvm::Value;

bool KernelEmitter::HasMaskedMemory(llvm::Type* element) const {
  if (specs_.vector_bytes == 64) return true;
  return specs_.vector_bytes == 32 && PartBits(element) >= 32;
}

constexpr unsigned kDummyBytes = 64 * 16;  // the most lanes (CheckPlan) of the widest type

Value* KernelEmitter::Dummy() {
  llvm::Module* module = function_->getParent();
  const char* name = "tenon.dummy";
  if (llvm::GlobalVariable* g = module->getGlobalVariable(name, true)) return g;
  auto* widest = llvm::ArrayType::get(i64_, kDummyBytes / 8);
  auto* zeros = new llvm::GlobalVariable(*module, widest, /*isConstant=*/true, llvm::GlobalValue::PrivateLinkage,
                                         llvm::ConstantAggregateZero::get(widest), name);
  zeros->setAlignment(llvm::Align(16));
  return zeros;
}

Value* KernelEmitter::And(llvm::IRBuilder<>& b, Value* a, Value* c) {
  if (a == nullptr || c == nullptr) return a == nullptr ? c : a;
  return b.CreateAnd(a, c);
}

namespace {

llvm::Align AlignOf(llvm::Type* element) { return llvm::Align(std::max(1u, PartBits(element) / 8)); }

// Lanes of complex values lie as re, im, re, im. Lane l of a part is what `pick` names.
llvm::SmallVector<int, 32> EveryOther(int lanes, int part, bool reversed) {
  llvm::SmallVector<int, 32> pick;
  for (int l = 0; l < lanes; ++l) pick.push_back(2 * (reversed ? lanes - 1 - l : l) + part);
  return pick;
}
llvm::SmallVector<int, 32> Doubled(int lanes) {
  llvm::SmallVector<int, 32> pick;
  for (int l = 0; l < 2 * lanes; ++l) pick.push_back(l / 2);
  return pick;
}
llvm::SmallVector<int, 32> Interleaved(int lanes) {
  llvm::SmallVector<int, 32> pick;
  for (int l = 0; l < 2 * lanes; ++l) pick.push_back(l / 2 + (l % 2) * lanes);
  return pick;
}

// `v`, a masked load that is shuffled next, so that LLVM doesn't see through. Where the shuffle's lanes are selected under the same mask
// LLVM 22 makes one instruction of both, which reads dead elements and takes the mask for that of the shuffled lanes (X86InstrInfo's
// folding knows nothing of shuffles; AVX-512 alone has such instructions). No code.
Value* BeforeShuffle(llvm::IRBuilder<>& b, Value* v) {
  constexpr unsigned kRegister = 512;
  llvm::Type *type = v->getType(), *i64 = b.getInt64Ty();
  const unsigned bits = type->getPrimitiveSizeInBits().getFixedValue();
  auto hidden = [&](Value* x) {
    llvm::Type* t = x->getType();
    return b.CreateCall(llvm::InlineAsm::get(llvm::FunctionType::get(t, {t}, false), "", "=v,0", /*hasSideEffects=*/false), {x});
  };
  if (bits < 128) {
    Value* wide = b.CreateZExt(b.CreateBitCast(v, b.getIntNTy(bits)), b.getInt128Ty());
    wide = b.CreateBitCast(hidden(b.CreateBitCast(wide, WithLanes(i64, 2))), b.getInt128Ty());
    return b.CreateBitCast(b.CreateTrunc(wide, b.getIntNTy(bits)), type);
  }
  const unsigned words = bits / 64, each = std::min(words, kRegister / 64);
  v = b.CreateBitCast(v, WithLanes(i64, words));
  llvm::SmallVector<Value*, 4> parts;
  for (unsigned from = 0; from < words; from += each) parts.push_back(hidden(b.CreateExtractVector(WithLanes(i64, each), v, from)));
  return b.CreateBitCast(llvm::concatenateVectors(b, parts), type);
}

// `lanes` elements side by side from `pointer`, the dead ones of `mask` zero.
Value* LoadVector(llvm::IRBuilder<>& b, llvm::Type* element, int lanes, Value* pointer, llvm::Align align, Value* mask,
                  bool reversed, bool avx512) {
  const bool complex = IsComplexType(element);
  llvm::Type* part = complex ? element->getStructElementType(0) : element;
  llvm::Type* type = WithLanes(part, static_cast<unsigned>(complex ? 2 * lanes : lanes));
  if (complex && mask != nullptr) mask = b.CreateShuffleVector(mask, Doubled(lanes));
  Value* v = mask == nullptr ? static_cast<Value*>(b.CreateAlignedLoad(type, pointer, align))
                             : b.CreateMaskedLoad(type, pointer, align, mask,
                                                  llvm::Constant::getNullValue(type));
  if (avx512 && mask != nullptr && (complex || reversed)) v = BeforeShuffle(b, v);
  if (!complex) return reversed ? b.CreateVectorReverse(v) : v;
  return MakeComplex(b, b.CreateShuffleVector(v, EveryOther(lanes, 0, reversed)),
                     b.CreateShuffleVector(v, EveryOther(lanes, 1, reversed)));
}

constexpr int kWholeStride = 4;  // up to it, all that lies between the elements is loaded, too

// `lanes` elements from `pointer` on, `stride` apart, of the vectors that lie there; the last one ends with the last element. With a mask
// the elements of live lanes alone are touched (AVX-512's).
Value* LoadStrided(llvm::IRBuilder<>& b, llvm::Type* element, int lanes, int stride, Value* pointer, Value* mask) {
  llvm::Type* type = WithLanes(element, static_cast<unsigned>(lanes));
  Value* v = nullptr;
  for (int k = 0; k < stride; ++k) {
    const int start = k + 1 < stride ? k * lanes : stride * (lanes - 1) + 1 - lanes;
    Value* from = b.CreateConstGEP1_64(element, pointer, static_cast<uint64_t>(start));
    Value* part = nullptr;
    if (mask == nullptr) {
      part = b.CreateAlignedLoad(type, from, AlignOf(element));
    } else {
      llvm::SmallVector<int, 32> live;
      for (int l = 0; l < lanes; ++l) live.push_back((start + l) % stride == 0 ? (start + l) / stride : lanes);
      Value* wanted = b.CreateShuffleVector(mask, llvm::Constant::getNullValue(mask->getType()), live);
      part = BeforeShuffle(b, b.CreateMaskedLoad(type, from, AlignOf(element), wanted, llvm::Constant::getNullValue(type)));
    }
    llvm::SmallVector<int, 32> pick;  // what earlier parts have not given
    for (int l = 0; l < lanes; ++l) {
      const int at = l * stride;
      if (at < k * lanes) pick.push_back(k == 1 ? at : l);  // the first part lies as it was loaded
      else pick.push_back(at - start < lanes ? lanes + at - start : llvm::PoisonMaskElem);
    }
    v = v == nullptr ? part : b.CreateShuffleVector(v, part, pick);
  }
  return v;
}

void StoreVector(llvm::IRBuilder<>& b, llvm::Type* element, int lanes, Value* v, Value* pointer, llvm::Align align,
                 Value* mask) {
  if (IsComplexType(element)) {
    v = b.CreateShuffleVector(Part(b, v, 0), Part(b, v, 1), Interleaved(lanes));
    if (mask != nullptr) mask = b.CreateShuffleVector(mask, Doubled(lanes));
  }
  if (mask == nullptr) {
    b.CreateAlignedStore(v, pointer, align);
  } else {
    b.CreateMaskedStore(v, pointer, align, mask);
  }
}

// f on the pointers of each part: those of a complex element lie side by side.
Value* PerPartPointer(llvm::IRBuilder<>& b, llvm::Type* element, Value* pointers,
                      llvm::function_ref<Value*(unsigned part, llvm::Type*, Value*)> f) {
  if (!IsComplexType(element)) return f(0, element, pointers);
  llvm::Type* part = element->getStructElementType(0);
  Value* re = f(0, part, pointers);
  return MakeComplex(b, re, f(1, part, b.CreateConstGEP1_64(part, pointers, 1)));
}

}  // namespace

Value* KernelEmitter::ScratchPointer(int64_t byte_offset) {
  Value* pointer = At(0).CreateConstInBoundsGEP1_64(At(0).getInt8Ty(), entry_.scratch,
                                          static_cast<uint64_t>(byte_offset));
  if (!entry_.aligned.empty() && byte_offset % 16 == 0) aligned_.insert(pointer);
  return pointer;
}

Val KernelEmitter::ElementPointer(Value* base, int base_level, llvm::Type* element, Index offset,
                                  const Guard* guard) {
  const bool unrolled = IsUnrolledIndex(offset);
  auto along = [&](int var) { return unrolled && var >= 0 ? AccessAlong(offset, var) : Access{.kind = Access::Kind::kBroadcast}; };
  const Access steps = along(mode_.unroll_var), vectors = along(mode_.across > 1 ? mode_.vector_var : -1);
  if (steps.kind == Access::Kind::kGathered || vectors.kind == Access::Kind::kGathered) {
    Val index = ScalarIndex(offset, guard);
    Val r{.level = std::max(index.level, base_level)};
    for (Value* i : index.v) r.v.push_back(At(r.level).CreateGEP(element, base, i));
    return r;
  }
  // What is known outside becomes part of an outer pointer; the address that is left is pointer +
  // inner index.
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
      if (auto it = levels_[l].outer_pointers.find({base, outer});
          it != levels_[l].outer_pointers.end()) {
        std::tie(pointer, pointer_level) = it->second;
        found = true;
      }
    }
    if (!found) {
      Val index = ScalarIndex(outer, guard);
      pointer_level = std::max(index.level, base_level);
      pointer = At(pointer_level).CreateGEP(element, base, index.v[0]);
      if (guard == nullptr)
        levels_[static_cast<size_t>(pointer_level)].outer_pointers[{base, outer}] = {pointer,
                                                                                     pointer_level};
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
    Dim distance = addend;
    if (unrolled) {
      distance += steps.stride * Dim(c / mode_.across * mode_.unroll_step) + vectors.stride * Dim(c % mode_.across * mode_.lanes);
    }
    Value* d = EmitDim(distance);
    const bool zero = llvm::isa<llvm::ConstantInt>(d) && llvm::cast<llvm::ConstantInt>(d)->isZero();
    r.v.push_back(zero ? pointer : At(r.level).CreateGEP(element, pointer, d));
  }
  return r;
}

// Of vectors side by side from `offset` on: that of an element, unless bases are aligned and all copies begin at whole vectors.
llvm::Align KernelEmitter::AlignOfVectors(Value* base, llvm::Type* element, Index offset) const {
  constexpr int64_t kWidest = 16;  // bytes
  const llvm::Align one = AlignOf(element);
  if (mode_.lanes == 1 || !aligned_.contains(base)) return one;
  const int64_t lanes = mode_.lanes;
  auto whole = [&](Dim elements) { return elements.is_constant() && elements.constant() % lanes == 0; };
  auto moves_by_vectors = [&](Index node, int64_t coefficient) {
    const bool vector = node->kind == IndexNode::Kind::kVar && node->var == mode_.vector_var;  // itself a multiple of the lanes
    return vector || coefficient % lanes == 0;
  };
  if (offset->kind != IndexNode::Kind::kSum) {
    if (!moves_by_vectors(offset, 1)) return one;
  } else {
    if (!whole(offset->addend)) return one;
    for (const auto& t : offset->terms) {
      if (!moves_by_vectors(t.node, t.coefficient.is_constant() ? t.coefficient.constant() : 1)) return one;
    }
  }
  if (IsUnrolledIndex(offset) && mode_.unroll_var >= 0 && offset->DependsOn(mode_.unroll_var)) {
    const Access steps = AccessAlong(offset, mode_.unroll_var);
    const Dim stride = steps.kind == Access::Kind::kContiguous ? Dim(1) : steps.stride;
    if (steps.kind == Access::Kind::kGathered || !whole(stride * Dim(mode_.unroll_step))) return one;
  }
  const int64_t bytes = lanes * PartBits(element) / 8 * (IsComplexType(element) ? 2 : 1);
  return llvm::Align(static_cast<uint64_t>(std::min(kWidest, bytes)));
}

Val KernelEmitter::LoadElements(Value* base, int base_level, llvm::Type* element, Index offset,
                                const Guard* guard) {
  const llvm::Align align = AlignOf(element);
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
  // A condition that is one for all lanes chooses between the operand and the dummy: a vector of either is a plain load.
  const bool by_lane = condition.has_value() && condition->is_vector();
  const bool masked = by_lane || LaneMask() != nullptr;
  const bool contiguous =
      access.kind == Access::Kind::kContiguous && (!masked || HasMaskedMemory(element));
  const bool reversed =
      access.kind == Access::Kind::kStrided && access.stride == Dim(-1) && (!masked || HasMaskedMemory(element));
  if (contiguous || reversed) {
    Val p = ElementPointer(base, base_level, element, offset, guard);
    r.level = std::max(r.level, p.level);
    for (size_t c = 0; c < std::max(p.v.size(), condition ? condition->v.size() : 1); ++c) {
      Value* dummy = condition && !by_lane ? Dummy() : nullptr;
      llvm::IRBuilder<>& b = At(r.level);
      Value* mask = And(b, by_lane ? condition->at(c) : nullptr, LaneMask(static_cast<int>(c)));
      if (by_lane && specs_.vector_bytes < 64) mask = b.CreateXor(mask, b.CreateVectorSplat(static_cast<unsigned>(mode_.lanes), Never()));
      Value* first = p.at(c);
      if (reversed) {
        first = b.CreateConstGEP1_64(element, first, static_cast<uint64_t>(1 - mode_.lanes));
        if (mask != nullptr) mask = b.CreateVectorReverse(mask);
      }
      if (dummy != nullptr) first = b.CreateSelect(condition->at(c), first, dummy);
      r.v.push_back(LoadVector(b, element, mode_.lanes, first, reversed ? align : AlignOfVectors(base, element, offset), mask, reversed,
                               specs_.vector_bytes == 64));
    }
    return r;
  }
  if (specs_.reads_between && (!masked || specs_.vector_bytes == 64) && access.kind == Access::Kind::kStrided &&
      access.stride.is_constant() && !IsComplexType(element) && access.stride.constant() >= 2 &&
      access.stride.constant() <= std::min(kWholeStride, mode_.lanes)) {
    // What is the same for all lanes chooses the address, so that neighbours of other rows share their lanes' masks.
    const auto [same, lanes] = guard != nullptr ? SplitByLanes(guard) : std::pair<const Guard*, const Guard*>();
    std::optional<Val> chosen = same != nullptr ? std::optional(Condition(same)) : std::nullopt;
    std::optional<Val> live = lanes != nullptr ? std::optional(Condition(lanes)) : std::nullopt;
    if (live && !live->is_vector()) std::swap(chosen, live);
    Val p = ElementPointer(base, base_level, element, offset, guard);
    size_t copies = p.v.size();
    for (const std::optional<Val>& v : {chosen, live}) {
      if (!v) continue;
      p.level = std::max(p.level, v->level);
      copies = std::max(copies, v->v.size());
    }
    r.level = std::max(r.level, p.level);
    for (size_t c = 0; c < copies; ++c) {
      Value* dummy = chosen ? Dummy() : nullptr;
      llvm::IRBuilder<>& b = At(r.level);
      Value* mask = And(b, live ? live->at(c) : nullptr, LaneMask(static_cast<int>(c)));
      Value* first = p.at(c);
      if (dummy != nullptr) first = b.CreateSelect(chosen->at(c), first, dummy);
      r.v.push_back(LoadStrided(b, element, mode_.lanes, static_cast<int>(access.stride.constant()), first, mask));
    }
    return r;
  }
  Val index = VectorIndex(offset, guard);
  r.level = std::max({r.level, index.level, base_level});
  const bool native = specs_.vector_bytes == 64 && PartBits(element) >= 32;
  for (size_t c = 0; c < std::max(index.v.size(), condition ? condition->v.size() : 1); ++c) {
    Value* mask = condition ? Splat(condition->at(c), condition->level) : nullptr;
    Value* dummy = mask != nullptr ? Dummy() : nullptr;
    llvm::IRBuilder<>& b = At(r.level);
    Value* pointers = b.CreateGEP(element, base, index.at(c));
    if (mask != nullptr && !native) {  // a gather that is taken apart must not branch per lane
      pointers = b.CreateSelect(mask, pointers,
                                b.CreateVectorSplat(static_cast<unsigned>(mode_.lanes), dummy));
      mask = nullptr;
    }
    r.v.push_back(PerPartPointer(b, element, pointers, [&](unsigned, llvm::Type* part, Value* at) {
      llvm::Type* type = VectorOf(part);
      return b.CreateMaskedGather(type, at, align, mask, llvm::Constant::getNullValue(type));
    }));
  }
  return r;
}

Value* KernelEmitter::VectorPointer(Value* base, llvm::Type* element, Index offset) {
  if (!IsVectorIndex(offset) || AccessAlong(offset, mode_.vector_var).kind != Access::Kind::kContiguous) return nullptr;
  const auto bytes = static_cast<uint64_t>(mode_.lanes) * PartBits(element) / 8;
  if (IsComplexType(element) || AlignOfVectors(base, element, offset).value() < bytes) return nullptr;
  return ElementPointer(base, 0, element, offset, nullptr).v[0];
}

void KernelEmitter::PrefetchAhead(Index var, int64_t steps) {
  if (!specs_.prefetches) return;
  load_hook = [this, var, steps](const Instruction* p, Index offset) -> std::optional<Val> {
    if (mode_.vector_var < 0) return std::nullopt;
    const Access along = AccessAlong(offset, mode_.vector_var), ahead = AccessAlong(offset, var->var);
    const bool further = ahead.kind == Access::Kind::kStrided || (var->var == mode_.vector_var && mode_.unroll_var != var->var);
    if (along.kind != Access::Kind::kContiguous || !further || Typical(p->shape().byte_size()) < kCachedBytes) return std::nullopt;
    Prefetch(*p, space_.AddConstant(offset, ahead.stride * Dim(steps)));
    return std::nullopt;
  };
}

void KernelEmitter::Prefetch(const Instruction& parameter, Index offset) {
  constexpr int64_t kLine = 64;  // bytes
  const PrimitiveType type = parameter.shape().element_type();
  Value* base = pointers_[static_cast<size_t>(parameter.parameter_number())];
  const Val place = ElementPointer(base, 0, MemoryType(context(), type), offset, nullptr);
  const int64_t bytes = mode_.lanes * StorageBytes(type);
  const int64_t line = mode_.unroll_var == mode_.vector_var ? std::max<int64_t>(1, kLine / bytes) : 1;  // copies in a cache line
  for (size_t c = 0; c < place.v.size(); c += static_cast<size_t>(line)) {
    AskForLine(At(place.level), place.v[c]);
  }
}

// False, which LLVM does not know. AVX2 has no masked loads of its own: where a loop of one iteration makes lanes of a mask constants, LLVM
// 22 puts a whole load in the place of a half of which no lane is wanted.
Value* KernelEmitter::Never() {
  if (never_ != nullptr) return never_;
  llvm::AllocaInst* slot = Alloca(llvm::Type::getInt8Ty(context()));
  llvm::IRBuilder<> entry(slot->getParent(), std::next(slot->getIterator()));
  entry.CreateStore(entry.getInt8(0), slot, /*isVolatile=*/true);
  return never_ = entry.CreateTrunc(entry.CreateLoad(entry.getInt8Ty(), slot, /*isVolatile=*/true), entry.getInt1Ty());
}

void KernelEmitter::StoreElements(Value* base, int base_level, llvm::Type* element, Index offset,
                                  const Val& value) {
  const llvm::Align align = AlignOf(element);
  const bool vector = IsVectorIndex(offset);
  const bool contiguous =
      vector && AccessAlong(offset, mode_.vector_var).kind == Access::Kind::kContiguous;
  Val where = !vector || contiguous ? ElementPointer(base, base_level, element, offset, nullptr)
                                    : VectorIndex(offset);
  for (size_t c = 0; c < where.v.size(); ++c) {
    Value* v = value.at(std::min(c, value.v.size() - 1));
    if (vector) v = Splat(v, value.level);
    llvm::IRBuilder<>& b = Here();
    Value* mask = vector ? LaneMask(static_cast<int>(c)) : nullptr;
    if (!vector) {
      TENON_CHECK(!IsVectorType(v->getType()), "a vector stored to one element");
      b.CreateAlignedStore(v, where.at(c), align);
    } else if (contiguous) {
      StoreVector(b, element, mode_.lanes, v, where.at(c), AlignOfVectors(base, element, offset), mask);
    } else {
      Value* pointers = b.CreateGEP(element, base, where.at(c));
      PerPartPointer(b, element, pointers, [&](unsigned k, llvm::Type*, Value* at) {
        Value* part = IsComplexType(element) ? Part(b, v, k) : v;
        b.CreateMaskedScatter(part, at, align, mask);
        return part;
      });
    }
  }
}

bool KernelEmitter::StoreInterleaved(int result, absl::Span<const Index> offsets, absl::Span<const Val> parts) {
  const int count = static_cast<int>(parts.size()), lanes = mode_.lanes;
  const PrimitiveType type = ResultType(result);
  llvm::Type* element = MemoryType(context(), type);
  if (count < 2 || lanes == 1 || IsComplexType(element) || !IsVectorIndex(offsets[0])) return false;
  const Access along = AccessAlong(offsets[0], mode_.vector_var);
  if (along.kind != Access::Kind::kStrided || !(along.stride == Dim(count))) return false;
  for (int c = 1; c < count; ++c) {
    if (space_.Combine(offsets[static_cast<size_t>(c)], 1, offsets[0], -1) != space_.Constant(c)) return false;
  }
  const Val where = ElementPointer(ResultPointer(result), 0, element, offsets[0], nullptr);
  llvm::SmallVector<int, 64> order, repeated;
  for (int i = 0; i < count * lanes; ++i) {
    order.push_back(i % count * lanes + i / count);
    repeated.push_back(i / count);
  }
  for (size_t copy = 0; copy < where.v.size(); ++copy) {
    llvm::SmallVector<Value*, 4> vectors;
    for (const Val& part : parts) {
      Value* v = ToMemory(Here(), type, part.at(std::min(copy, part.v.size() - 1)), specs_.types);
      vectors.push_back(Splat(v, innermost()));
    }
    llvm::IRBuilder<>& b = Here();
    // Side by side, then lane by lane.
    Value* wide = vectors[0];
    for (int c = 1; c < count; ++c) {  // the next one, as wide as what is there
      llvm::SmallVector<int, 64> widen, join;
      for (int i = 0; i < c * lanes; ++i) widen.push_back(i < lanes ? i : llvm::PoisonMaskElem);
      for (int i = 0; i < (c + 1) * lanes; ++i) join.push_back(i);
      wide = b.CreateShuffleVector(wide, b.CreateShuffleVector(vectors[static_cast<size_t>(c)], widen), join);
    }
    Value* mask = LaneMask(static_cast<int>(copy));
    if (mask != nullptr) mask = b.CreateShuffleVector(mask, repeated);
    wide = b.CreateShuffleVector(wide, order);
    if (mask == nullptr) b.CreateAlignedStore(wide, where.v[copy], AlignOf(element));
    else b.CreateMaskedStore(wide, where.v[copy], AlignOf(element), mask);
  }
  return true;
}

PrimitiveType KernelEmitter::ResultType(int result) const {
  const Shape& shape = fused_.roots[static_cast<size_t>(result)]->shape();
  return shape.is_tuple() ? shape.element(result).element_type() : shape.element_type();
}

Val KernelEmitter::LoadResult(int result, Index offset) {
  const PrimitiveType type = ResultType(result);
  // Not hoisted: what is read may have been stored a moment ago, or lie outside where a bound isn't
  // yet checked.
  Val v = LoadElements(ResultPointer(result), innermost(), MemoryType(context(), type), offset,
                       nullptr);
  for (Value*& x : v.v) x = FromMemory(At(v.level), type, x, specs_.types);
  return v;
}

void KernelEmitter::StoreResult(int result, Index offset, const Val& value) {
  const PrimitiveType type = ResultType(result);
  Val narrow{.level = innermost()};
  for (Value* v : value.v) narrow.v.push_back(ToMemory(Here(), type, v, specs_.types));
  StoreElements(ResultPointer(result), 0, MemoryType(context(), type), offset, narrow);
}

void KernelEmitter::StoreRaw(Value* base, int level, Index offset, PrimitiveType type,
                             const Val& value) {
  llvm::Type* element = StorageType(context(), type);
  if (!IsStoredAsInMemory(type)) return StoreElements(base, level, element, offset, value);
  Val bytes{.level = innermost()};
  for (Value* v : value.v) bytes.v.push_back(ToMemory(Here(), type, v, specs_.types));
  StoreElements(base, level, element, offset, bytes);
}

Val KernelEmitter::LoadRaw(const InMemory& where) {
  Val v = LoadElements(where.base, where.level, StorageType(context(), where.type), where.offset,
                       nullptr);
  if (!IsStoredAsInMemory(where.type)) return v;
  for (Value*& x : v.v) x = FromMemory(At(v.level), where.type, x, specs_.types);
  return v;
}

}  // namespace tenon
