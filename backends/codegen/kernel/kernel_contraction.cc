// Dots and convolutions of KernelEmitter: the sum of products of one element (or one vector, or
// several vectors) of the result, in registers. Around it are the plan's loops over the result.
//
// A convolution's taps in the padding add nothing, not 0 * weight: weights may be infinite. Where that is the same for all lanes and
// copies, the tap is skipped by a branch. Else the common case, all of them inside, has code of its own, and so has each range of copies
// that a border can cut off; where those are not known, the border selects per lane. Of symbolic sizes the ranges are those of typical
// sizes, beside the selects. The last loop of taps of one term (a depthwise convolution) is emitted side by side, with code of its own for
// each border.
#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "backends/codegen/emit/elementwise.h"
#include "backends/codegen/index/contraction_index.h"
#include "backends/codegen/kernel/kernel_emitter.h"
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
    if (space_.num_vars() + 3 > IndexSpace::kMaxVars) {
      Fail(absl::UnimplementedError(absl::StrCat("too many loops in one kernel at ", op->name())));
      return {};
    }
    vars.push_back(space_.Var(extent));
  }
  if (inside_ == nullptr) inside_ = space_.Var(2), border_ = space_.Var(2);
  Contraction c{.op = op, .guard = guard, .at = MapContraction(space_, *op, index, vars), .index = index};
  if (packed_.op == op) {
    std::vector<Dim> extents;
    for (Dim extent : SummedExtents(*op)) extents.push_back(extent);
    const Index place = space_.Linear(vars, DenseStrides(extents));
    const Index offset = space_.Combine(place, packed_.block, packed_.column, 1);
    DefineInMemory(op->operand(1), c.at.rhs, 0, {packed_.base, packed_.level, offset, op->operand(1)->shape().element_type()});
  }
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
  Val hold = BoundsHold(c.varying, c.guard);
  const bool ends = InOrder(c);
  Value* all = Here().getTrue();
  for (size_t i = 0; i < hold.v.size(); ++i) {
    Value* v = hold.v[i];
    if (v->getType()->isVectorTy()) v = Here().CreateAndReduce(v);
    if (!ends || i == 0 || i + 1 == hold.v.size()) all = Here().CreateAnd(all, v);
  }
  If(all, [&] {
    enter();
    EmitTerms(c, c.guard, nullptr);
  });
  If(Here().CreateNot(all), [&] {
    BindVar(border_, I64(0));
    std::vector<IndexBound> here = c.varying;  // found in this branch, so that tiles at no border have nothing of it
    for (IndexBound& b : here) b.index = space_.Add(b.index, border_);
    if (ends) hold = BoundsHold(here, c.guard);
    Value* others = Here().getFalse();
    for (Value* v : hold.v) others = Here().CreateOr(others, v->getType()->isVectorTy() ? Here().CreateOrReduce(v) : v);
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
        others = Here().CreateAnd(others, Here().CreateNot(wanted));
      }
      if (tile_starts_.typical < 0) return;
    }
    If(others, [&] {
      enter();
      EmitTerms(c, Under(c.guard, ends ? here : c.varying), &hold);
    });
  });
}

void KernelEmitter::SortBounds(Contraction& c) {
  for (const IndexBound& b : c.at.bounds) {
    if (Decide(b) == true) continue;
    const bool varies = IsVectorIndex(b.index) || IsUnrolledIndex(b.index);
    (varies ? c.varying : c.uniform).push_back(b);
  }
}

// Coefficients of the mode's unrolled variable and of one of `taps` in `e`; nullopt if it has others, or its size is not known where the
// tiles' places are. `size` is the typical one.
struct KernelEmitter::AlongTile {
  int64_t copy = 0, tap = 0, addend = 0, taps = 1, size = 0;
  // The copies (of `count` tile rows) that are inside for the tile that begins at `start`.
  CopyRange Inside(int64_t start, int64_t at_tap, int count, const LaneMode& mode) const {
    CopyRange inside{count, 0};
    for (int row = 0; row < count; ++row) {
      const int64_t at = (start + row * mode.unroll_step) * copy + at_tap * tap + addend;
      if (at >= 0 && at < size) inside = {std::min(inside.first, row), row + 1};
    }
    if (inside.first >= inside.end) return {0, 0};
    return {inside.first * mode.across, inside.end * mode.across};
  }
};

std::optional<KernelEmitter::AlongTile> KernelEmitter::AlongTheTile(const IndexBound& bound, absl::Span<const Index> taps) const {
  const Index e = bound.index;
  const bool affine = e->kind == IndexNode::Kind::kSum || e->kind == IndexNode::Kind::kVar;
  const bool known = bound.size.is_constant() || tile_starts_.typical >= 0;
  if (!affine || IsVectorIndex(e) || !known || !e->addend.is_constant()) return std::nullopt;
  AlongTile along{.addend = e->addend.constant(), .size = Typical(bound.size)};
  absl::InlinedVector<IndexNode::Term, 3> terms = e->terms;
  if (e->kind == IndexNode::Kind::kVar) terms.push_back({e, 1});
  for (const IndexNode::Term& t : terms) {
    if (t.node->kind != IndexNode::Kind::kVar || !t.coefficient.is_constant()) return std::nullopt;
    if (t.node->var == mode_.unroll_var) {
      along.copy = t.coefficient.constant();
    } else if (absl::c_linear_search(taps, t.node) && along.tap == 0 && t.node->high.is_constant()) {
      along.tap = t.coefficient.constant();
      along.taps = t.node->high.constant() + 1;
    } else {
      return std::nullopt;
    }
  }
  return along;
}

// Places along the tile are in order, so that all are inside if both ends are.
bool KernelEmitter::InOrder(const Contraction& c) const {
  return absl::c_all_of(c.varying, [&](const IndexBound& b) { return AlongTheTile(b, c.at.taps).has_value(); });
}

// Taps side by side that run along one dim of `size` in equal steps. Tiles that begin at `from` or later meet no border below; those with
// `room` elements or more from where they begin, none above.
struct KernelEmitter::StepsAlong {
  Dim size;
  int64_t copy = 0, from = 0, room = 0;
  std::vector<std::optional<AlongTile>> steps;  // none: always inside
};

std::optional<KernelEmitter::StepsAlong> KernelEmitter::AlongTheTile(absl::Span<const Contraction> steps) const {
  StepsAlong all;
  const int64_t last = (steps[0].copies.end / mode_.across - 1) * mode_.unroll_step;
  for (const Contraction& step : steps) {
    all.steps.emplace_back();
    if (step.varying.empty()) continue;
    const std::optional<AlongTile> along = AlongTheTile(step.varying[0], {});
    if (!along || along->copy < 1 || step.varying.size() != 1) return std::nullopt;
    if (all.copy != 0 && (along->copy != all.copy || step.varying[0].size != all.size)) return std::nullopt;
    all.copy = along->copy;
    all.size = step.varying[0].size;
    all.from = std::max(all.from, (std::max<int64_t>(-along->addend, 0) + along->copy - 1) / along->copy);
    all.room = std::max(all.room, last * along->copy + along->addend + 1);
    all.steps.back() = along;
  }
  if (all.copy == 0) return std::nullopt;
  return all;
}

bool KernelEmitter::KnowsTileStarts() const { return tile_starts_.var >= 0 && tile_starts_.var == mode_.unroll_var; }

// The ranges of copies, other than all and none, that are inside at some tap of some tile; of symbolic sizes at those of typical ones, and
// at the tile that ends where the loop does. nullopt: not known.
std::optional<std::vector<KernelEmitter::CopyRange>> KernelEmitter::InsideRanges(const Contraction& c) const {
  constexpr size_t kMaxRanges = 6;
  if (c.varying.size() != 1 || !KnowsTileStarts()) return std::nullopt;
  const std::optional<AlongTile> along = AlongTheTile(c.varying[0], c.at.taps);
  if (!along) return std::nullopt;
  const int count = c.copies.end / mode_.across;
  std::vector<CopyRange> ranges;
  auto add = [&](int64_t start) {
    for (int64_t tap = 0; tap < along->taps; ++tap) {
      const CopyRange inside = along->Inside(start, tap, count, mode_);
      if (inside.end == 0 || inside == c.copies || absl::c_linear_search(ranges, inside)) continue;
      ranges.push_back(inside);
      if (ranges.size() > kMaxRanges) return false;
    }
    return true;
  };
  for (int64_t start = tile_starts_.first; start <= tile_starts_.last; start += tile_starts_.step) {
    if (!add(start)) return std::nullopt;
  }
  if (tile_starts_.typical >= 0 && !add(tile_starts_.typical - count)) return std::nullopt;
  return ranges;
}

// What is inside at each of `steps`, for sets of tiles for which that is the same: the set of most tiles first. Empty: not known.
std::vector<KernelEmitter::TileSet> KernelEmitter::TileSets(const std::vector<Contraction>& steps) const {
  constexpr size_t kMaxSets = 4;
  std::vector<TileSet> sets;
  if (!KnowsTileStarts() || tile_starts_.typical >= 0) return sets;
  std::vector<std::vector<AlongTile>> bounds(steps.size());
  for (size_t k = 0; k < steps.size(); ++k) {
    for (const IndexBound& b : steps[k].varying) {
      const std::optional<AlongTile> along = AlongTheTile(b, {});
      if (!along) return sets;
      bounds[k].push_back(*along);
    }
  }
  for (int64_t start = tile_starts_.first; start <= tile_starts_.last; start += tile_starts_.step) {
    TileSet set{.starts = {start}};
    for (size_t k = 0; k < steps.size(); ++k) {
      CopyRange inside = steps[k].copies;
      for (const AlongTile& along : bounds[k]) {
        const CopyRange here = along.Inside(start, 0, inside.end / mode_.across, mode_);
        inside = {std::max(inside.first, here.first), std::min(inside.end, here.end)};
      }
      set.inside.push_back(inside);
    }
    const auto same = absl::c_find_if(sets, [&](const TileSet& other) { return other.inside == set.inside; });
    if (same != sets.end()) {
      same->starts.push_back(start);
    } else if (sets.size() == kMaxSets) {
      return {};
    } else {
      sets.push_back(std::move(set));
    }
  }
  absl::c_stable_sort(sets, [](const TileSet& a, const TileSet& b) { return a.starts.size() > b.starts.size(); });
  return sets;
}

// The same for symbolic sizes: the sets that there are for typical ones, those of most tiles first; then, as other sizes have them, tiles
// at no border, at either, and as far from the end as the last one is. Tiles of no set are for the caller. Empty: not known.
std::vector<KernelEmitter::TileSet> KernelEmitter::TypicalTileSets(const std::vector<Contraction>& steps) const {
  constexpr size_t kMaxSets = 4;
  if (!KnowsTileStarts() || tile_starts_.typical < 0) return {};
  const std::optional<StepsAlong> along = AlongTheTile(steps);
  if (!along) return {};
  const int count = steps[0].copies.end / mode_.across;
  const int64_t copy = along->copy;
  auto set_at = [&](int64_t start, int64_t room) {
    TileSet set;
    for (std::optional<AlongTile> step : along->steps) {
      if (step) step->size = start * copy + room;
      set.inside.push_back(step ? step->Inside(start, 0, count, mode_) : steps[0].copies);
    }
    if (start < along->from) set.start = start;
    if (room < along->room) set.room = room;
    return set;
  };
  std::vector<std::pair<TileSet, int64_t>> found;
  auto add = [&](TileSet set, int64_t tiles) {
    const auto same = absl::c_find_if(found, [&](const auto& other) { return other.first == set; });
    if (same != found.end()) same->second += tiles;
    else found.emplace_back(std::move(set), tiles);
  };
  const int64_t size = Typical(along->size);
  for (int64_t start = tile_starts_.first; start <= tile_starts_.last; start += tile_starts_.step) {
    add(set_at(start, size - start * copy), 1);
  }
  const int64_t last_room = size - (tile_starts_.typical - count) * copy;
  add(set_at(along->from, along->room), 0);
  add(set_at(0, along->room), 0);
  add(set_at(along->from, last_room), 0);
  absl::c_stable_sort(found, [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<TileSet> sets;
  for (auto& [set, tiles] : found) {
    if (sets.size() < kMaxSets) sets.push_back(std::move(set));
  }
  return sets;
}

// Whether the tile at hand is of `set`.
Value* KernelEmitter::IsOf(const TileSet& set, const std::vector<Contraction>& steps) {
  Value* start = vars_[static_cast<size_t>(mode_.unroll_var)].value;
  if (tile_starts_.typical < 0) {
    Value* here = Here().getFalse();
    for (int64_t first : set.starts) here = Here().CreateOr(here, Here().CreateICmpEQ(start, I64(first)));
    return here;
  }
  const std::optional<StepsAlong> along = AlongTheTile(steps);
  Value* room = Here().CreateSub(EmitDim(along->size), Here().CreateMul(start, I64(along->copy)));
  Value* low = set.start ? Here().CreateICmpEQ(start, I64(*set.start)) : Here().CreateICmpSGE(start, I64(along->from));
  Value* high = set.room ? Here().CreateICmpEQ(room, I64(*set.room)) : Here().CreateICmpSGE(room, I64(along->room));
  return Here().CreateAnd(low, high);
}

// The last loop of taps side by side, where there is one term: what neighbours read in common is loaded once. Where it is known at which
// places tiles begin: for each set of tiles with what is inside there; else where all is inside, beside a loop for the other cases.
bool KernelEmitter::EmitTapsAtOnce(const Contraction& c) {
  constexpr int64_t kMaxProducts = 640;
  const Index tap = c.at.taps.back();
  const int64_t taps = (tap->high + 1).constant_or(kMaxProducts + 1);
  if (!c.at.terms.empty() || taps * c.copies.end > kMaxProducts) return false;
  std::vector<Contraction> steps;
  std::vector<IndexBound> bounds;
  for (int64_t k = 0; k < taps; ++k) {
    std::vector<Index> vars = summed_[c.op];
    absl::c_replace(vars, tap, space_.Constant(k));
    Contraction step = c;
    step.at = MapContraction(space_, *c.op, c.index, vars);
    step.uniform.clear();
    step.varying.clear();
    SortBounds(step);
    for (const IndexBound& b : step.at.bounds) {
      if (Decide(b) != true && !absl::c_linear_search(bounds, b)) bounds.push_back(b);
    }
    steps.push_back(std::move(step));
  }
  auto add_up = [&] {
    BindVar(inside_, I64(0));
    for (Contraction& step : steps) {
      ContractionIndex at = step.at;
      for (Index& i : step.at.lhs) i = space_.Add(i, inside_);
      if (step.copies.first < step.copies.end) Accumulate(step, c.guard, nullptr);
      step.at = std::move(at);
    }
  };
  const bool even = absl::c_all_of(steps, [&](const Contraction& s) { return s.uniform == steps[0].uniform; });
  auto one_by_one = [&] { LoopOver(tap, I64(0), EmitDim(tap->high + 1), 1, [&] { EmitTaps(c, c.at.taps.size()); }); };
  const bool typical = tile_starts_.typical >= 0;
  std::vector<TileSet> sets;
  if (even) sets = typical ? TypicalTileSets(steps) : TileSets(steps);
  if (!sets.empty()) {
    If(BoundsHold(steps[0].uniform, c.guard).v[0], [&] {
      Value* others = Here().getTrue();
      std::vector<Value*> here(sets.size());
      for (size_t i = sets.size(); i-- > 0;) {  // the first has all the tiles that are in no other, where all are known
        const bool rest = i == 0 && !typical;
        here[i] = rest ? others : IsOf(sets[i], steps);
        if (!rest) others = Here().CreateAnd(others, Here().CreateNot(here[i]));
      }
      for (size_t i = 0; i < sets.size(); ++i) {
        If(here[i], [&] {
          for (size_t k = 0; k < steps.size(); ++k) steps[k].copies = sets[i].inside[k];
          add_up();
        });
      }
      if (!typical) return;
      const TileStarts starts = std::exchange(tile_starts_, {});  // what is left needs no code for each border
      If(others, one_by_one);
      tile_starts_ = starts;
    });
    return true;
  }
  Value* all = Here().getTrue();
  for (Value* v : BoundsHold(bounds, c.guard).v) {
    if (v->getType()->isVectorTy()) v = Here().CreateAndReduce(v);
    all = Here().CreateAnd(all, v);
  }
  If(all, add_up);
  if (bounds.empty()) return true;
  If(Here().CreateNot(all), one_by_one);
  return true;
}

void KernelEmitter::EmitTerms(const Contraction& c, const Guard* inside, const Val* wanted) {
  std::function<void(size_t)> nest = [&](size_t i) {
    if (i == c.at.terms.size()) return Accumulate(c, inside, wanted);
    Index var = c.at.terms[i];
    Value* end = EmitDim(var->high + 1);
    const bool in_parts = !c.parts.empty() && i + 1 == c.at.terms.size();
    if (!in_parts) return LoopOver(var, I64(0), end, 1, [&] { nest(i + 1); });
    // Of a number of terms that only calls know, the first part is its own sum: there may be no other.
    const bool first_apart = c.at.taps.empty() && c.at.terms.size() == 1 && !TermsOf(*c.op).is_constant();
    if (first_apart) {
      Value* to = Here().CreateBinaryIntrinsic(llvm::Intrinsic::smin, end, I64(kPartTerms));
      LoopOver(var, I64(0), to, 1, [&] { Accumulate(c, inside, wanted); });
    }
    Loop(I64(first_apart ? kPartTerms : 0), end, I64(kPartTerms), [&](Value* from) {
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
