// Loads and stores of KernelEmitter: contiguous, reversed, gathered; masked by the tail and by
// guards.
#include <algorithm>

#include "backends/cpu/kernel_emitter.h"
#include "hlo/check.h"
#include "llvm/IR/Module.h"

namespace tenon {

using llvm::Value;

bool KernelEmitter::HasMaskedMemory(llvm::Type* element) const {
  if (specs_.vector_bytes == 64) return true;
  return specs_.vector_bytes == 32 && element->getScalarSizeInBits() >= 32;
}

Value* KernelEmitter::Dummy() {
  llvm::Module* module = function_->getParent();
  const char* name = "tenon.dummy";
  if (llvm::GlobalVariable* g = module->getGlobalVariable(name, true)) return g;
  return new llvm::GlobalVariable(*module, i64_, /*isConstant=*/true,
                                  llvm::GlobalValue::PrivateLinkage,
                                  llvm::ConstantInt::get(i64_, 0), name);
}

Value* KernelEmitter::And(llvm::IRBuilder<>& b, Value* a, Value* c) {
  if (a == nullptr || c == nullptr) return a == nullptr ? c : a;
  return b.CreateAnd(a, c);
}

Value* KernelEmitter::ScratchPointer(int64_t byte_offset) {
  return At(0).CreateConstInBoundsGEP1_64(At(0).getInt8Ty(), function_->getArg(4),
                                          static_cast<uint64_t>(byte_offset));
}

Val KernelEmitter::ElementPointer(Value* base, int base_level, llvm::Type* element, Index offset,
                                  const Guard* guard) {
  const bool unrolled = IsUnrolledIndex(offset);
  const Access along = unrolled ? AccessAlong(offset, mode_.unroll_var) : Access{};
  if (unrolled && along.kind == Access::Kind::kGathered) {
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
    Dim distance = addend + along.stride * Dim(c * mode_.unroll_step);
    if (along.kind == Access::Kind::kContiguous) distance = addend + Dim(c * mode_.unroll_step);
    Value* d = EmitDim(unrolled ? distance : addend);
    const bool zero = llvm::isa<llvm::ConstantInt>(d) && llvm::cast<llvm::ConstantInt>(d)->isZero();
    r.v.push_back(zero ? pointer : At(r.level).CreateGEP(element, pointer, d));
  }
  return r;
}

Val KernelEmitter::LoadElements(Value* base, int base_level, llvm::Type* element, Index offset,
                                const Guard* guard) {
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
  const bool contiguous =
      access.kind == Access::Kind::kContiguous && (!masked || HasMaskedMemory(element));
  const bool reversed =
      access.kind == Access::Kind::kStrided && access.stride == Dim(-1) && !masked;
  if (contiguous || reversed) {
    Val p = ElementPointer(base, base_level, element, offset, guard);
    r.level = std::max(r.level, p.level);
    for (size_t c = 0; c < std::max(p.v.size(), condition ? condition->v.size() : 1); ++c) {
      Value* mask = condition ? Splat(condition->at(c), condition->level) : nullptr;
      llvm::IRBuilder<>& b = At(r.level);
      mask = And(b, mask, LaneMask(static_cast<int>(c)));
      if (reversed) {
        Value* first =
            b.CreateConstGEP1_64(element, p.at(c), static_cast<uint64_t>(1 - mode_.lanes));
        r.v.push_back(b.CreateVectorReverse(b.CreateAlignedLoad(type, first, align)));
      } else if (mask != nullptr) {
        r.v.push_back(
            b.CreateMaskedLoad(type, p.at(c), align, mask, llvm::Constant::getNullValue(type)));
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
      pointers = b.CreateSelect(mask, pointers,
                                b.CreateVectorSplat(static_cast<unsigned>(mode_.lanes), dummy));
      mask = nullptr;
    }
    r.v.push_back(
        b.CreateMaskedGather(type, pointers, align, mask, llvm::Constant::getNullValue(type)));
  }
  return r;
}

void KernelEmitter::StoreElements(Value* base, int base_level, llvm::Type* element, Index offset,
                                  const Val& value) {
  const llvm::Align align(std::max(1u, element->getScalarSizeInBits() / 8));
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
  if (type != PrimitiveType::kPred)
    return StoreElements(base, level, RegisterType(context(), type), offset, value);
  Val bytes{.level = innermost()};
  for (Value* v : value.v) bytes.v.push_back(ToMemory(Here(), type, v, specs_.types));
  StoreElements(base, level, llvm::Type::getInt8Ty(context()), offset, bytes);
}

Val KernelEmitter::LoadRaw(const InMemory& where) {
  if (where.type != PrimitiveType::kPred)
    return LoadElements(where.base, where.level, RegisterType(context(), where.type), where.offset,
                        nullptr);
  Val v = LoadElements(where.base, where.level, llvm::Type::getInt8Ty(context()), where.offset,
                       nullptr);
  for (Value*& x : v.v) x = FromMemory(At(v.level), where.type, x, specs_.types);
  return v;
}

}  // namespace tenon
