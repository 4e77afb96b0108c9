// Dots and convolutions of KernelEmitter: the sum of products of one element (or one vector, or
// several vectors) of the result, in registers. Around it are the plan's loops over the result.
//
// A convolution's taps in the padding add nothing, not 0 * weight: weights may be infinite. Where that is the same for all lanes and
// copies, the tap is skipped by a branch. Else the common case, all of them inside, has code of its own, and so has each range of copies
// that a border can cut off; where those are not known, the border selects per lane. Few taps of few terms (a depthwise convolution, three
// features) are emitted side by side, so that what neighbours share is loaded once.
#include <algorithm>

#include "absl/algorithm/container.h"
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
  std::vector<llvm::AllocaInst*> parts;      // of long sums: what is added to them in one go
  IndexTuple index;
  CopyRange copies;  // that are added to
  bool vector = false;
};

namespace {

// Rounding errors of a sum grow with its length: more f32 terms than this are added up in parts, as libraries do.
constexpr int64_t kPartTerms = 512;

bool SumsInParts(const Instruction& op) {
  return op.shape().element_type() == PrimitiveType::kF32 && TermsOf(op).value_or(kPartTerms + 1) > kPartTerms;
}

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
  Contraction c{.op = op, .guard = guard, .at = MapContraction(space_, *op, index, vars), .index = index};
  SortBounds(c);
  c.vector = std::any_of(index.begin(), index.end(), [this](Index e) { return IsVectorIndex(e); });
  const bool unrolled =
      std::any_of(index.begin(), index.end(), [this](Index e) { return IsUnrolledIndex(e); });
  llvm::Type* type = RegisterType(context(), op->shape().element_type());
  if (c.vector) type = VectorOf(type);
  for (int copy = 0; copy < (unrolled ? mode_.copies : 1); ++copy) {
    c.sums.push_back(Alloca(type));
    Here().CreateStore(llvm::Constant::getNullValue(type), c.sums.back());
  }
  c.copies = {0, static_cast<int>(c.sums.size())};
  if (SumsInParts(*op)) {
    for (size_t i = 0; i < c.sums.size(); ++i) c.parts.push_back(Alloca(type));
  }
  EmitTaps(c, 0);
  Val r{.level = innermost()};
  for (llvm::AllocaInst* sum : c.sums) r.v.push_back(Here().CreateLoad(type, sum));
  return r;
}

void KernelEmitter::EmitTaps(const Contraction& c, size_t tap) {
  if (tap + 1 == c.at.taps.size() && EmitTapsAtOnce(c)) return;
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
  if (const std::optional<std::vector<CopyRange>> ranges = InsideRanges(c)) {
    for (const CopyRange& r : *ranges) {
      auto holds = [&](int copy) { return hold.at(static_cast<size_t>(copy)); };
      Value* wanted = Here().CreateAnd(holds(r.first), holds(r.end - 1));
      if (r.first > 0) wanted = Here().CreateAnd(wanted, Here().CreateNot(holds(r.first - 1)));
      if (r.end < c.copies.end) wanted = Here().CreateAnd(wanted, Here().CreateNot(holds(r.end)));
      If(wanted, [&] {
        enter();
        Contraction part = c;
        part.copies = r;
        EmitTerms(part, c.guard, nullptr);
      });
    }
    return;
  }
  If(Here().CreateAnd(any, Here().CreateNot(all)), [&] {
    enter();
    EmitTerms(c, Under(c.guard, c.varying), &hold);
  });
}

void KernelEmitter::SortBounds(Contraction& c) {
  for (const IndexBound& b : c.at.bounds) {
    if (Decide(b) == true) continue;
    const bool varies = IsVectorIndex(b.index) || IsUnrolledIndex(b.index);
    (varies ? c.varying : c.uniform).push_back(b);
  }
}

// The ranges of copies, other than all and none, that are inside at some tap of some tile. nullopt: not known.
std::optional<std::vector<KernelEmitter::CopyRange>> KernelEmitter::InsideRanges(const Contraction& c) {
  constexpr size_t kMaxRanges = 6;
  if (c.varying.size() != 1 || tile_starts_.var < 0 || tile_starts_.var != mode_.unroll_var) return std::nullopt;
  const Index e = c.varying[0].index;
  const Dim size = c.varying[0].size;
  const bool affine = e->kind == IndexNode::Kind::kSum || e->kind == IndexNode::Kind::kVar;
  if (!affine || IsVectorIndex(e) || !size.is_constant() || !e->addend.is_constant()) return std::nullopt;
  int64_t along = 0, tap_step = 0, taps = 1;
  absl::InlinedVector<IndexNode::Term, 3> terms = e->terms;
  if (e->kind == IndexNode::Kind::kVar) terms.push_back({e, 1});
  for (const IndexNode::Term& t : terms) {
    if (t.node->kind != IndexNode::Kind::kVar || !t.coefficient.is_constant()) return std::nullopt;
    if (t.node->var == mode_.unroll_var) {
      along = t.coefficient.constant();
    } else if (absl::c_linear_search(c.at.taps, t.node) && tap_step == 0 && t.node->high.is_constant()) {
      tap_step = t.coefficient.constant();
      taps = t.node->high.constant() + 1;
    } else {
      return std::nullopt;
    }
  }
  std::vector<CopyRange> ranges;
  const int rows = c.copies.end / mode_.across;
  for (int64_t start = tile_starts_.first; start <= tile_starts_.last; start += tile_starts_.step) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      CopyRange inside{rows, 0};
      for (int row = 0; row < rows; ++row) {
        const int64_t at = (start + row * mode_.unroll_step) * along + tap * tap_step + e->addend.constant();
        if (at >= 0 && at < size.constant()) inside = {std::min(inside.first, row), row + 1};
      }
      if (inside.first >= inside.end || (inside.first == 0 && inside.end == rows)) continue;
      const CopyRange copies{inside.first * mode_.across, inside.end * mode_.across};
      if (!absl::c_linear_search(ranges, copies)) ranges.push_back(copies);
      if (ranges.size() > kMaxRanges) return std::nullopt;
    }
  }
  return ranges;
}

// The last loop of taps, and the terms, side by side where all of them are inside for all copies; else as a loop.
bool KernelEmitter::EmitTapsAtOnce(const Contraction& c) {
  constexpr int64_t kMaxProducts = 640, kMaxTerms = 4;
  const Index tap = c.at.taps.back();
  int64_t terms = 1;
  for (Index t : c.at.terms) terms *= (t->high + 1).constant_or(kMaxTerms + 1);
  const int64_t taps = (tap->high + 1).constant_or(kMaxProducts + 1);
  if (terms > kMaxTerms || taps * terms * c.copies.end > kMaxProducts) return false;
  std::vector<Contraction> steps;
  std::vector<IndexBound> bounds;
  for (int64_t k = 0; k < taps * terms; ++k) {
    std::vector<Index> vars = summed_[c.op];
    int64_t rest = k;
    for (auto v = vars.rbegin(); v != vars.rend(); ++v) {  // terms come last
      if (*v != tap && !absl::c_linear_search(c.at.terms, *v)) continue;
      const int64_t extent = ((*v)->high + 1).constant();
      *v = space_.Constant(rest % extent);
      rest /= extent;
    }
    Contraction step = c;
    step.at = MapContraction(space_, *c.op, c.index, vars);
    step.at.terms.clear();
    for (const IndexBound& b : step.at.bounds) {
      if (Decide(b) != true && !absl::c_linear_search(bounds, b)) bounds.push_back(b);
    }
    steps.push_back(std::move(step));
  }
  Value* all = Here().getTrue();
  for (Value* v : BoundsHold(bounds, c.guard).v) {
    if (v->getType()->isVectorTy()) v = Here().CreateAndReduce(v);
    all = Here().CreateAnd(all, v);
  }
  If(all, [&] {
    BindVar(inside_, I64(0));
    for (Contraction& step : steps) {
      for (Index& i : step.at.lhs) i = space_.Add(i, inside_);
      Accumulate(step, c.guard, nullptr);
    }
  });
  if (bounds.empty()) return true;
  If(Here().CreateNot(all), [&] {
    LoopOver(tap, I64(0), EmitDim(tap->high + 1), 1, [&] { EmitTaps(c, c.at.taps.size()); });
  });
  return true;
}

void KernelEmitter::EmitTerms(const Contraction& c, const Guard* inside, const Val* wanted) {
  std::function<void(size_t)> nest = [&](size_t i) {
    if (i == c.at.terms.size()) return Accumulate(c, inside, wanted);
    Index var = c.at.terms[i];
    Value* end = EmitDim(var->high + 1);
    const bool in_parts = !c.parts.empty() && i + 1 == c.at.terms.size();
    if (!in_parts) return LoopOver(var, I64(0), end, 1, [&] { nest(i + 1); });
    Loop(I64(0), end, I64(kPartTerms), [&](Value* from) {
      Contraction part = c;
      part.sums = c.parts;
      for (llvm::AllocaInst* sum : part.sums) Here().CreateStore(llvm::Constant::getNullValue(sum->getAllocatedType()), sum);
      Value* to = Here().CreateBinaryIntrinsic(llvm::Intrinsic::smin, end, Here().CreateAdd(from, I64(kPartTerms)));
      LoopOver(var, from, to, 1, [&] { Accumulate(part, inside, wanted); });
      for (size_t k = static_cast<size_t>(c.copies.first); k < static_cast<size_t>(c.copies.end); ++k) {
        llvm::Type* type = c.sums[k]->getAllocatedType();
        llvm::IRBuilder<>& b = Here();
        b.CreateStore(b.CreateFAdd(b.CreateLoad(type, c.sums[k]), b.CreateLoad(type, c.parts[k])), c.sums[k]);
      }
    });
  };
  nest(0);
}

void KernelEmitter::Accumulate(const Contraction& c, const Guard* inside, const Val* wanted) {
  const Val x = Eval(c.op->operand(0), c.at.lhs, inside);
  const Val y = Eval(c.op->operand(1), c.at.rhs, c.guard);
  const PrimitiveType type = c.op->shape().element_type();
  // Copies that are not added to are left unused: their loads, which may lie outside, go with the first pass over dead code.
  for (size_t i = static_cast<size_t>(c.copies.first); i < static_cast<size_t>(c.copies.end); ++i) {
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
