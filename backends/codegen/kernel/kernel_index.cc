// Sizes, index expressions and bounds of KernelEmitter as LLVM IR.
#include <algorithm>

#include "backends/codegen/kernel/kernel_emitter.h"
#include "hlo/check.h"
#include "llvm/IR/Intrinsics.h"

namespace tenon {

using llvm::Value;

namespace {

// floordiv or mod, rounding to -inf, by a positive divisor. A simplified index may be negative where
// the one it came from was not: floordiv(8 - d, 3) is 2 + floordiv(2 - d, 3). Machines divide
// unsigned numbers, so what may be negative is moved up by a multiple of the divisor.
Value* DivideIndex(llvm::IRBuilder<>& b, Index e, Value* x, Value* divisor, bool narrow) {
  const bool div = e->kind == IndexNode::Kind::kFloorDiv;
  const IndexNode& inner = *e->inner;
  auto constant = [&](int64_t c) { return llvm::ConstantInt::getSigned(x->getType(), c); };
  const bool known = inner.bounded && inner.low.is_constant();
  if (inner.bounded && (known ? inner.low.constant() : LowerBound(inner.low)) >= 0)
    return div ? b.CreateUDiv(x, divisor) : b.CreateURem(x, divisor);
  if (known && inner.high.is_constant() && e->divisor.is_constant()) {
    const int64_t n = e->divisor.constant(), up = (n - 1 - inner.low.constant()) / n;
    if (inner.high.constant() < (narrow ? INT32_MAX : INT64_MAX) - up * n) {
      x = b.CreateAdd(x, constant(up * n));
      return div ? b.CreateSub(b.CreateUDiv(x, divisor), constant(up)) : b.CreateURem(x, divisor);
    }
  }
  Value* rest = b.CreateSRem(x, divisor);
  Value* below = b.CreateICmpSLT(rest, constant(0));
  if (!div) return b.CreateSelect(below, b.CreateAdd(rest, divisor), rest);
  return b.CreateAdd(b.CreateSDiv(x, divisor), b.CreateSExt(below, x->getType()));
}

}  // namespace

Value* KernelEmitter::EmitDim(Dim d) {
  if (d.is_constant()) return I64(d.constant());
  if (auto it = dims_.find(d); it != dims_.end()) return it->second;
  const llvm::IRBuilder<>::InsertPointGuard place(builder_);  // callers have the builder where they want it
  const DimExpr& e = *d.expr();
  Value* v = nullptr;
  switch (e.kind) {
    case DimExpr::Kind::kSymbol: {
      auto it = std::find(fused_.size_args.begin(), fused_.size_args.end(), d);
      TENON_CHECK(it != fused_.size_args.end(),
                  "symbol that is no kernel argument: " + d.ToString());
      llvm::IRBuilder<>& b = At(0);
      v = b.CreateLoad(
          i64_, b.CreateConstInBoundsGEP1_64(i64_, entry_.args,
                                             static_cast<uint64_t>(it - fused_.size_args.begin())));
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
          case DimExpr::Kind::kProduct:
            v = b.CreateMul(v, o);
            break;
          case DimExpr::Kind::kMin:
            v = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, v, o);
            break;
          case DimExpr::Kind::kMax:
            v = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, v, o);
            break;
          default: {
            const bool div = e.kind == DimExpr::Kind::kFloorDiv;
            Value* rest = b.CreateSRem(v, o);
            if (LowerBound(e.operands[0]) >= 0 && LowerBound(e.operands[i]) > 0) {  // rounding down is truncation
              v = div ? b.CreateSDiv(v, o) : rest;
              break;
            }
            Value* other_sign = b.CreateICmpSLT(b.CreateXor(rest, o), I64(0));
            Value* off = b.CreateAnd(b.CreateICmpNE(rest, I64(0)), other_sign);
            v = div ? b.CreateSub(b.CreateSDiv(v, o), b.CreateZExt(off, i64_)) : b.CreateSelect(off, b.CreateAdd(rest, o), rest);
            break;
          }
        }
      }
    }
  }
  return dims_[d] = v;
}

Value* KernelEmitter::Splat(Value* value, int level) {
  if (mode_.lanes == 1 || IsVectorType(value->getType())) return value;
  Value*& slot = levels_[static_cast<size_t>(level)].splats[{value, mode_.lanes}];
  if (slot == nullptr)
    slot = SplatValue(At(level), static_cast<unsigned>(mode_.lanes), value);
  return slot;
}

Val KernelEmitter::Binary(const Val& a, const Val& b,
                          const std::function<Value*(llvm::IRBuilder<>&, Value*, Value*)>& f) {
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
    if (auto it = levels_[l].scalar_index.find(key); it != levels_[l].scalar_index.end())
      return it->second;
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
        for (int c = 1; c < mode_.copies; ++c)
          r.v.push_back(At(r.level).CreateAdd(binding.value, I64(mode_.Ahead(e->var, c))));
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
      std::stable_sort(terms.begin(), terms.end(),
                       [](const Val& a, const Val& b) { return a.level < b.level; });
      Val sum{.v = {EmitDim(e->addend)}};
      for (const Val& t : terms)
        sum = Binary(sum, t, [](auto& b, Value* x, Value* y) { return b.CreateAdd(x, y); });
      return sum;
    }
    case IndexNode::Kind::kFloorDiv:
    case IndexNode::Kind::kMod:
      return Binary(
          ScalarIndex(e->inner, guard), Val{.v = {EmitDim(e->divisor)}},
          [e](auto& b, Value* x, Value* y) { return DivideIndex(b, e, x, y, /*narrow=*/false); });
    case IndexNode::Kind::kRuntime:
      return RuntimeValue(e, guard, /*vector=*/false);
  }
  return {};
}

namespace {

// x within [0, high], in x's own type, which may have no number as large as `high`.
Value* Clamped(llvm::IRBuilder<>& b, Value* x, bool is_signed, int64_t high) {
  llvm::Type* type = x->getType();
  const unsigned bits = type->getScalarSizeInBits();
  if (is_signed) x = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, x, llvm::ConstantInt::get(type, 0));
  if (high >= (int64_t{1} << (is_signed ? bits - 1 : bits)) - 1) return x;
  return b.CreateBinaryIntrinsic(llvm::Intrinsic::umin, x, llvm::ConstantInt::get(type, static_cast<uint64_t>(high)));
}

}  // namespace

// The producer's integer, clamped: an index out of range reads the nearest element (gather,
// dynamic-slice).
Val KernelEmitter::RuntimeValue(Index e, const Guard* guard, bool vector) {
  Val v = Eval(e->producer, e->at, guard);
  const PrimitiveType type = e->producer->shape().element_type();
  Val r{.level = v.level};
  for (Value* x : v.v) {
    llvm::IRBuilder<>& b = At(v.level);
    llvm::Type* wide = WithLanesOf(x->getType(), i64_);
    if (e->bounded && e->high.is_constant() && BitWidth(type) <= 32) {  // clamped as it comes: half of the vectors
      r.v.push_back(b.CreateZExt(Clamped(b, x, IsSigned(type), e->high.constant()), wide));
      continue;
    }
    Value* w = IsSigned(type) ? b.CreateSExt(x, wide) : b.CreateZExt(x, wide);
    if (type == PrimitiveType::kU64) {  // beyond the signed range is far out of range, not negative
      llvm::IRBuilder<>& b1 = At(v.level);
      w = b1.CreateBinaryIntrinsic(llvm::Intrinsic::umin, w,
                                   llvm::ConstantInt::get(wide, INT64_MAX));
    }
    if (e->bounded) {
      Value* high = EmitDim(e->high);
      if (wide->isVectorTy()) high = Splat(high, 0);
      llvm::IRBuilder<>& b2 = At(v.level);
      w = b2.CreateBinaryIntrinsic(llvm::Intrinsic::smax, w, llvm::ConstantInt::get(wide, 0));
      w = b2.CreateBinaryIntrinsic(llvm::Intrinsic::smin, w, high);
    }
    r.v.push_back(w);
  }
  if (!vector && r.is_vector())
    Fail(absl::InternalError("a gather index varies by lane where a scalar is needed"));
  return r;
}

bool KernelEmitter::FitsI32(Index e) const {
  auto small = [](Dim d) {
    return d.is_constant() && d.constant() > -(int64_t{1} << 31) &&
           d.constant() < (int64_t{1} << 31);
  };
  if (!e->bounded || !small(e->low) || !small(e->high)) return false;
  for (const IndexNode::Term& t : e->terms) {
    if (!small(t.coefficient) || !FitsI32(t.node)) return false;
  }
  return e->inner == nullptr || (small(e->divisor) && FitsI32(e->inner));
}

Val KernelEmitter::VectorIndex(Index e, const Guard* guard) {
  const IndexKey key = KeyOf(e, guard);
  for (size_t l = levels_.size(); l-- > 0;) {
    if (auto it = levels_[l].vector_index.find(key); it != levels_[l].vector_index.end())
      return it->second;
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
  auto constant = [&](Dim d) {
    return Val{.v = {Splat(At(0).CreateTrunc(EmitDim(d), element), 0)}};
  };
  switch (e->kind) {
    case IndexNode::Kind::kVar: {
      const VarBinding& binding = vars_[static_cast<size_t>(e->var)];
      Val r{.level = binding.level};
      Value* base = Splat(At(r.level).CreateTrunc(binding.value, element), r.level);
      for (int c = 0; c < (IsUnrolledIndex(e) ? mode_.copies : 1); ++c) {
        llvm::SmallVector<llvm::Constant*, 64> iota;
        for (int i = 0; i < mode_.lanes; ++i)
          iota.push_back(
              llvm::ConstantInt::get(element, static_cast<uint64_t>(i + mode_.Ahead(e->var, c))));
        Value* lane = llvm::ConstantVector::get(iota);
        llvm::IRBuilder<>& b = At(r.level);
        if (mode_.remaining !=
            nullptr) {  // dead lanes take the last live element: they may be used for addresses
          Value* left = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, mode_.remaining,
                                                I64(mode_.lanes * mode_.vectors()));
          Value* last = b.CreateVectorSplat(static_cast<unsigned>(mode_.lanes),
                                            b.CreateTrunc(b.CreateSub(left, I64(1)), element));
          lane = b.CreateBinaryIntrinsic(llvm::Intrinsic::umin, lane, last);
        }
        r.v.push_back(b.CreateAdd(base, lane));
      }
      return r;
    }
    case IndexNode::Kind::kSum: {
      Index scalar_part = space_.Constant(e->addend);
      for (const IndexNode::Term& t : e->terms) {
        if (!IsVectorIndex(t.node))
          scalar_part = space_.Combine(scalar_part, 1, t.node, t.coefficient);
      }
      Val sum = from_scalar(ScalarIndex(scalar_part, guard));
      for (const IndexNode::Term& t : e->terms) {
        if (!IsVectorIndex(t.node)) continue;
        Val v = VectorIndexUncached(t.node, guard, narrow);
        if (!(t.coefficient == Dim(1)))
          v = Binary(v, constant(t.coefficient),
                     [](auto& b, Value* x, Value* y) { return b.CreateMul(x, y); });
        sum = Binary(sum, v, [](auto& b, Value* x, Value* y) { return b.CreateAdd(x, y); });
      }
      return sum;
    }
    case IndexNode::Kind::kFloorDiv:
    case IndexNode::Kind::kMod: {
      Val inner = VectorIndexUncached(e->inner, guard, narrow);
      return Binary(inner, constant(e->divisor), [e, narrow](auto& b, Value* x, Value* y) {
        return DivideIndex(b, e, x, y, narrow);
      });
    }
    case IndexNode::Kind::kRuntime: {
      Val v = RuntimeValue(e, guard, /*vector=*/true);
      for (Value*& x : v.v)
        x = Splat(At(v.level).CreateTrunc(x, WithLanesOf(x->getType(), element)), v.level);
      return v;
    }
  }
  return {};
}

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

const Guard* KernelEmitter::OfSizes(const Guard* guard) {
  std::vector<IndexBound> bounds;
  for (; guard != nullptr; guard = guard->parent) {
    for (const IndexBound& bound : guard->bounds) {
      if (bound.index->is_constant()) bounds.push_back(bound);
    }
  }
  return Under(nullptr, bounds);
}

// The lanes of an index that steps by `stride` from lane to lane, by how far from lane 0 the bounds are: 32 bits for any index.
Val KernelEmitter::LanesWithin(const IndexBound& bound, int64_t stride, const Guard* guard) {
  const Val first = ScalarIndex(bound.index, guard);
  llvm::Type* i32 = llvm::Type::getInt32Ty(context());
  llvm::SmallVector<llvm::Constant*, 64> steps;
  for (int64_t l = 0; l < mode_.lanes; ++l) steps.push_back(llvm::ConstantInt::get(i32, static_cast<uint64_t>(l * stride)));
  Value *lanes = llvm::ConstantVector::get(steps), *size = EmitDim(bound.size);
  const bool from_zero = bound.index->bounded && LowerBound(bound.index->low) >= 0;
  Val r{.level = std::max(first.level, mode_.level)};
  for (size_t c = 0; c < first.v.size(); ++c) {
    llvm::IRBuilder<>& b = At(r.level);
    auto near = [&](Value* v) {
      v = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, v, I64(stride * (mode_.lanes - 1) + 1));
      return b.CreateTrunc(b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, v, I64(0)), i32);
    };
    auto splat = [&](Value* v) { return b.CreateVectorSplat(static_cast<unsigned>(mode_.lanes), v); };
    Value *x = first.v[c], *end = near(b.CreateSub(size, x)), *in = nullptr;
    if (from_zero) {
      in = b.CreateICmpULT(lanes, splat(end));
    } else {
      Value* begin = near(b.CreateSub(I64(0), x));
      in = b.CreateICmpULT(b.CreateSub(lanes, splat(begin)), splat(b.CreateSub(end, begin)));
    }
    r.v.push_back(And(b, in, LaneMask(static_cast<int>(c))));  // dead lanes count as outside
  }
  return r;
}

Val KernelEmitter::EmitBound(const IndexBound& bound, const Guard* guard) {
  auto below = [](auto& b, Value* x, Value* y) { return b.CreateICmpULT(x, y); };
  if (!IsVectorIndex(bound.index))
    return Binary(ScalarIndex(bound.index, guard), Val{.v = {EmitDim(bound.size)}}, below);
  const Access along = AccessAlong(bound.index, mode_.vector_var);
  const int64_t stride = along.kind == Access::Kind::kGathered ? 0 : along.stride.constant_or(0);
  if (stride > 0 && stride < INT32_MAX / mode_.lanes && !FitsI32(bound.index)) return LanesWithin(bound, stride, guard);
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
    all = first ? one
                : Binary(all, one, [](auto& b2, Value* x, Value* y) { return b2.CreateAnd(x, y); });
    first = false;
  }
  return all;
}

std::pair<const Guard*, const Guard*> KernelEmitter::SplitByLanes(const Guard* guard) {
  std::vector<IndexBound> same, by_lane;
  for (const Guard* g = guard; g != nullptr; g = g->parent) {
    for (const IndexBound& bound : g->bounds) {
      if (ReadsMemory(bound.index)) return {nullptr, guard};  // under its guard alone
      (IsVectorIndex(bound.index) ? by_lane : same).push_back(bound);
    }
  }
  return {same.empty() ? nullptr : Under(nullptr, same), by_lane.empty() ? nullptr : Under(nullptr, by_lane)};
}

Val KernelEmitter::Condition(const Guard* guard) {
  for (size_t l = levels_.size(); l-- > 0;) {
    if (auto it = levels_[l].conditions.find(guard); it != levels_[l].conditions.end())
      return it->second;
  }
  Val v = BoundsHold(guard->bounds, guard->parent);
  if (guard->parent != nullptr)
    v = Binary(v, Condition(guard->parent),
               [](auto& b, Value* x, Value* y) { return b.CreateAnd(x, y); });
  levels_[static_cast<size_t>(v.level)].conditions[guard] = v;
  return v;
}

}  // namespace tenon
