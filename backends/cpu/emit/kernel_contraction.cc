// Dots and convolutions of KernelEmitter: the sum of products of one element (or one vector, or
// several vectors) of the result, in registers. Around it are the plan's loops over the result.
//
// A convolution's taps in the padding add nothing, not 0 * weight: weights may be infinite. Where
// that is the same for all lanes and copies, the tap is skipped by a branch; else the common case,
// all of them inside, has code of its own, and the border selects per lane.
#include <algorithm>

#include "backends/codegen/emit/elementwise.h"
#include "backends/codegen/index/contraction_index.h"
#include "backends/cpu/emit/kernel_emitter.h"
#include "hlo/builder.h"
#include "llvm/IR/Intrinsics.h"

namespace tenon {

using llvm::Value;

struct KernelEmitter::Contraction {
  const Instruction* op;
  const Guard* guard;
  ContractionIndex at;
  std::vector<IndexBound> uniform, varying;  // the same for all lanes and copies, or not
  std::vector<llvm::AllocaInst*> sums;       // per copy
  bool vector = false;
};

namespace {

// acc, x, y -> acc + x * y, for types whose arithmetic is more than one LLVM instruction.
const Computation* MultiplyAddBody(Module& module, PrimitiveType type) {
  Computation* c = module.AddComputation("multiply_add");
  Builder b(c);
  const Shape scalar = Shape::Array(type, absl::Span<const int64_t>());
  Instruction* sum = b.Parameter(0, scalar);
  Instruction* x = b.Parameter(1, scalar);
  Instruction* product = b.Binary(Opcode::kMultiply, x, b.Parameter(2, scalar));
  c->set_root(b.Binary(Opcode::kAdd, sum, product));
  return c;
}

}  // namespace

Value* KernelEmitter::MultiplyAdd(PrimitiveType type, Value* x, Value* y, Value* sum) {
  const bool native = type == PrimitiveType::kF32 || type == PrimitiveType::kF64;
  if (native && specs_.has_fma)
    return Here().CreateIntrinsic(llvm::Intrinsic::fma, {sum->getType()}, {x, y, sum});
  if (bodies_ == nullptr) bodies_ = std::make_unique<Module>("bodies");
  const Computation*& body = body_of_[type];
  if (body == nullptr) body = MultiplyAddBody(*bodies_, type);
  Value* args[] = {sum, x, y};
  return Apply(Here(), *body, args, /*merging=*/false)[0];
}

Val KernelEmitter::EvalContraction(const Instruction* op, const IndexTuple& index,
                                   const Guard* guard) {
  std::vector<Index>& vars = summed_[op];
  for (Dim extent : SummedExtents(*op)) {
    if (vars.size() == SummedExtents(*op).size()) break;
    if (space_.num_vars() + 2 > IndexSpace::kMaxVars) {
      Fail(absl::UnimplementedError(absl::StrCat("too many loops in one kernel at ", op->name())));
      return {};
    }
    vars.push_back(space_.Var(extent));
  }
  if (inside_ == nullptr) inside_ = space_.Var(2);
  Contraction c{op, guard, MapContraction(space_, *op, index, vars)};
  for (const IndexBound& b : c.at.bounds) {
    if (Decide(b) == true) continue;
    const bool varies = IsVectorIndex(b.index) || IsUnrolledIndex(b.index);
    (varies ? c.varying : c.uniform).push_back(b);
  }
  c.vector = std::any_of(index.begin(), index.end(), [this](Index e) { return IsVectorIndex(e); });
  const bool unrolled =
      std::any_of(index.begin(), index.end(), [this](Index e) { return IsUnrolledIndex(e); });
  llvm::Type* type = RegisterType(context(), op->shape().element_type());
  if (c.vector) type = VectorOf(type);
  for (int copy = 0; copy < (unrolled ? mode_.copies : 1); ++copy) {
    c.sums.push_back(Alloca(type));
    Here().CreateStore(llvm::Constant::getNullValue(type), c.sums.back());
  }
  EmitTaps(c, 0);
  Val r{.level = innermost()};
  for (llvm::AllocaInst* sum : c.sums) r.v.push_back(Here().CreateLoad(type, sum));
  return r;
}

void KernelEmitter::EmitTaps(const Contraction& c, size_t tap) {
  if (tap < c.at.taps.size()) {
    Index var = c.at.taps[tap];
    return LoopOver(var, I64(0), EmitDim(var->high + 1), 1, [&] { EmitTaps(c, tap + 1); });
  }
  if (c.uniform.empty()) return EmitTap(c);
  If(BoundsHold(c.uniform, c.guard).v[0], [&] { EmitTap(c); });
}

// Loads are placed where their index is known: one that depends on `inside_` stays in its branch. So does each that depends on a dim
// with bounds, whichever dims the operand drops on its way.
void KernelEmitter::EmitTap(const Contraction& outer) {
  Contraction c = outer;
  auto enter = [&] {
    BindVar(inside_, I64(0));
    const Shape& input = c.op->operand(0)->shape();
    for (size_t d = 0; d < c.at.lhs.size(); ++d) {
      if (Decide({outer.at.lhs[d], input.dim(static_cast<int64_t>(d))}) != true) c.at.lhs[d] = space_.Add(outer.at.lhs[d], inside_);
    }
  };
  if (c.varying.empty()) {
    if (!c.uniform.empty()) enter();
    return EmitTerms(c, c.guard, nullptr);
  }
  const Val hold = BoundsHold(c.varying, c.guard);
  Value *all = nullptr, *any = nullptr;
  for (Value* v : hold.v) {
    llvm::IRBuilder<>& b = Here();
    Value* every = v->getType()->isVectorTy() ? b.CreateAndReduce(v) : v;
    Value* some = v->getType()->isVectorTy() ? b.CreateOrReduce(v) : v;
    all = all == nullptr ? every : b.CreateAnd(all, every);
    any = any == nullptr ? some : b.CreateOr(any, some);
  }
  If(all, [&] {
    enter();
    EmitTerms(c, c.guard, nullptr);
  });
  If(Here().CreateAnd(any, Here().CreateNot(all)), [&] {
    enter();
    EmitTerms(c, Under(c.guard, c.varying), &hold);
  });
}

void KernelEmitter::EmitTerms(const Contraction& c, const Guard* inside, const Val* wanted) {
  std::function<void(size_t)> nest = [&](size_t i) {
    if (i == c.at.terms.size()) return Accumulate(c, inside, wanted);
    Index var = c.at.terms[i];
    LoopOver(var, I64(0), EmitDim(var->high + 1), 1, [&] { nest(i + 1); });
  };
  nest(0);
}

void KernelEmitter::Accumulate(const Contraction& c, const Guard* inside, const Val* wanted) {
  const Val x = Eval(c.op->operand(0), c.at.lhs, inside);
  const Val y = Eval(c.op->operand(1), c.at.rhs, c.guard);
  const PrimitiveType type = c.op->shape().element_type();
  for (size_t i = 0; i < c.sums.size(); ++i) {
    Value *a = x.at(i), *b = y.at(i);
    if (c.vector) {
      a = Splat(a, x.level);
      b = Splat(b, y.level);
    }
    Value* old = Here().CreateLoad(c.sums[i]->getAllocatedType(), c.sums[i]);
    Value* sum = MultiplyAdd(type, a, b, old);
    if (wanted != nullptr) {
      Value* p = wanted->at(i);
      if (c.vector) p = Splat(p, wanted->level);
      sum = SelectValue(Here(), p, sum, old);
    }
    Here().CreateStore(sum, c.sums[i]);
  }
}

}  // namespace tenon
