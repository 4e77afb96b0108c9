#include "backends/codegen/kernel/reductions.h"

#include <utility>

namespace tenon {

using llvm::Value;

// In all lanes.
Value* Reductions::Wide(Value* scalar) { return plan_.lanes > 1 ? SplatValue(b(), static_cast<unsigned>(plan_.lanes), scalar) : scalar; }
Value* Reductions::Load(llvm::AllocaInst* slot) { return b().CreateLoad(slot->getAllocatedType(), slot); }

void Reductions::AddTo(llvm::AllocaInst* total, Value* partial) {
  Value* wide = b().CreateFPExt(partial, total->getAllocatedType());
  b().CreateStore(b().CreateFAdd(Load(total), wide), total);
}
Value* Reductions::SumOf(std::vector<Value*> copies) {
  for (size_t width = copies.size(); width > 1; width /= 2) {
    for (size_t i = 0; i < width / 2; ++i) copies[i] = b().CreateFAdd(copies[i], copies[i + width / 2]);
  }
  return copies[0];
}

// The copies among themselves as a tree, then onto the total. The partial results start again.
void Reductions::AddToTotals(Partials& p) {
  Value* start = e_.PartialStart(*p.reduce, 0);
  std::vector<Value*> copies;
  for (llvm::AllocaInst* slot : p.vectors[0]) {
    copies.push_back(Load(slot));
    b().CreateStore(Wide(start), slot);
  }
  AddTo(p.wide, SumOf(std::move(copies)));
  if (p.wide_scalar == nullptr) return;
  AddTo(p.wide_scalar, Load(p.scalars[0]));
  b().CreateStore(start, p.scalars[0]);
}

// This step's copies, as a tree, onto the total in f64.
void Reductions::AccumulateWide(Partials& p) {
  const Instruction* operand = p.reduce->operand(0);
  const Val v = e_.Eval(operand, iteration_.IndexOf(e_.space(), e_.fused(), operand->shape()));
  if (across_lanes_ && plan_.lanes > 1 && e_.mode().lanes == 1) return AddTo(p.wide_scalar, v.at(0));
  std::vector<Value*> copies;
  for (int c = 0; c < e_.mode().copies; ++c) {
    Value *x = e_.Splat(v.at(static_cast<size_t>(c)), v.level), *mask = e_.LaneMask(c);
    copies.push_back(mask == nullptr ? x : SelectValue(b(), mask, x, Wide(e_.PartialStart(*p.reduce, 0))));
  }
  AddTo(p.wide, SumOf(std::move(copies)));
}

// The total over copies, lanes and tail, in f64.
Value* Reductions::TotalOf(const Partials& p) {
  auto widened = [&](Value* v) { return b().CreateFPExt(v, WithLanes(b().getDoubleTy(), LanesOf(v->getType()))); };
  std::vector<Value*> copies;
  if (p.wide == nullptr) {
    for (llvm::AllocaInst* slot : p.vectors[0]) copies.push_back(Load(slot));
  }
  Value* total = p.wide != nullptr ? Load(p.wide) : widened(SumOf(std::move(copies)));
  for (int lanes = across_lanes_ ? plan_.lanes : 1; lanes > 1; lanes /= 2) {
    llvm::SmallVector<int, 32> low, high;
    for (int i = 0; i < lanes / 2; ++i) {
      low.push_back(i);
      high.push_back(lanes / 2 + i);
    }
    total = lanes == 2 ? b().CreateFAdd(ExtractLane(b(), total, 0), ExtractLane(b(), total, 1))
                       : b().CreateFAdd(ShuffleValues(b(), total, total, low), ShuffleValues(b(), total, total, high));
  }
  if (p.wide_scalar != nullptr)
    total = b().CreateFAdd(total, Load(p.wide_scalar));
  else if (p.wide == nullptr && !p.scalars.empty())
    total = b().CreateFAdd(total, widened(Load(p.scalars[0])));
  if (e_.team().size == 1) return total;
  auto add = [&](const std::vector<Value*>& x, const std::vector<Value*>& y) { return std::vector<Value*>{b().CreateFAdd(x[0], y[0])}; };
  return e_.team().all_merge({total}, add)[0];
}

Reductions::Partials Reductions::Start(const Instruction* reduce, bool in_stretches) {
  Partials p{reduce, WideUsesOf(*reduce)};
  for (int64_t k = 0; k < reduce->operand_count() / 2; ++k) {
    Value* start = e_.PartialStart(*reduce, static_cast<int>(k));
    Value* wide = Wide(start);
    auto slot = [&](Value* v) {
      llvm::AllocaInst* a = e_.Alloca(v->getType());
      b().CreateStore(v, a);
      return a;
    };
    const bool scalar_tail = across_lanes_ && plan_.lanes > 1 && !plan_.masked_tail;
    if (!AddsEachStep(*reduce, across_lanes_)) {
      p.vectors.emplace_back();
      for (int c = 0; c < plan_.unroll; ++c) p.vectors.back().push_back(slot(wide));
      if (scalar_tail) p.scalars.push_back(slot(start));
      if (!in_stretches || !HasWideTotal(*reduce)) continue;
    }
    Value* wide_start = b().CreateFPExt(start, b().getDoubleTy());
    p.wide = slot(Wide(wide_start));
    if (scalar_tail) p.wide_scalar = slot(wide_start);
  }
  return p;
}

void Reductions::Accumulate(Partials& p) {
  if (p.each_step()) return AccumulateWide(p);
  std::vector<Val> values;
  for (size_t k = 0; k < p.vectors.size(); ++k) {
    const Instruction* operand = p.reduce->operand(static_cast<int64_t>(k));
    values.push_back(e_.Eval(operand, iteration_.IndexOf(e_.space(), e_.fused(), operand->shape())));
  }
  const bool scalar_tail = across_lanes_ && plan_.lanes > 1 && e_.mode().lanes == 1;
  for (int c = 0; c < (scalar_tail ? 1 : e_.mode().copies); ++c) {
    std::vector<Value*> args;
    for (size_t k = 0; k < p.vectors.size(); ++k) {
      llvm::AllocaInst* slot = scalar_tail ? p.scalars[k] : p.vectors[k][static_cast<size_t>(c)];
      args.push_back(b().CreateLoad(slot->getAllocatedType(), slot));
    }
    const std::vector<Value*> old = args;
    for (const Val& v : values) args.push_back(e_.Splat(v.at(static_cast<size_t>(c)), v.level));
    std::vector<Value*> next = e_.Apply(b(), *p.reduce->to_apply(), args, /*merging=*/true);
    for (size_t k = 0; k < next.size(); ++k) {
      Value* mask = e_.LaneMask(c);
      Value* n = mask != nullptr ? SelectValue(b(), mask, next[k], old[k]) : next[k];
      b().CreateStore(n, scalar_tail ? p.scalars[k] : p.vectors[k][static_cast<size_t>(c)]);
    }
  }
}

std::vector<Value*> Reductions::Merge(const Instruction& reduce, const std::vector<Value*>& x, const std::vector<Value*>& y) {
  std::vector<Value*> args = x;
  args.insert(args.end(), y.begin(), y.end());
  return e_.Apply(b(), *reduce.to_apply(), args, /*merging=*/true);
}

// A fixed tree: copies pairwise, then halves of the vector, the tail, the threads of the team.
std::vector<Value*> Reductions::Merged(const Partials& p) {
  const Instruction& reduce = *p.reduce;
  const size_t n = p.vectors.size();
  std::vector<std::vector<Value*>> parts;  // [copy][component]
  for (int c = 0; c < plan_.unroll; ++c) {
    parts.emplace_back();
    for (size_t k = 0; k < n; ++k) parts.back().push_back(b().CreateLoad(p.vectors[k][c]->getAllocatedType(), p.vectors[k][c]));
  }
  auto merge = [&](const std::vector<Value*>& x, const std::vector<Value*>& y) { return Merge(reduce, x, y); };
  for (size_t width = parts.size(); width > 1; width /= 2) {
    for (size_t i = 0; i < width / 2; ++i) parts[i] = merge(parts[i], parts[i + width / 2]);
  }
  std::vector<Value*> total = parts[0];
  for (int lanes = across_lanes_ ? plan_.lanes : 1; lanes > 1; lanes /= 2) {
    auto half = [&](Value* v, int from) {
      llvm::SmallVector<int, 32> pick;
      for (int i = 0; i < lanes / 2; ++i) pick.push_back(from + i);
      return ShuffleValues(b(), v, v, pick);
    };
    std::vector<Value*> low, high;
    for (Value* v : total) {
      low.push_back(lanes == 2 ? ExtractLane(b(), v, 0) : half(v, 0));
      high.push_back(lanes == 2 ? ExtractLane(b(), v, 1) : half(v, lanes / 2));
    }
    total = merge(low, high);
  }
  if (!p.scalars.empty()) {
    std::vector<Value*> tail;
    for (llvm::AllocaInst* s : p.scalars) tail.push_back(b().CreateLoad(s->getAllocatedType(), s));
    total = merge(total, tail);
  }
  return e_.team().size == 1 ? total : e_.team().all_merge(total, merge);
}

// The init value onto the total, which is rounded once. Its wide uses are without that.
void Reductions::FinishWide(const Partials& p) {
  const Instruction& reduce = *p.reduce;
  const Val start = e_.Eval(reduce.operand(1), {});
  Value* init = across_lanes_ ? start.v[0] : e_.Splat(start.v[0], start.level);
  Value* total = b().CreateFAdd(b().CreateFPExt(init, WithLanes(b().getDoubleTy(), LanesOf(init->getType()))), TotalOf(p));
  const IndexTuple index = iteration_.IndexOf(e_.space(), e_.fused(), reduce.shape());
  e_.Define(&reduce, index, 0, Val{.v = {b().CreateFPTrunc(total, init->getType())}, .level = e_.innermost()});
  if (!e_.specs().types.excess_precision) return;
  for (const Instruction* use : p.wide_uses) e_.Define(use, index, 0, Val{.v = {total}, .level = e_.innermost()});
}

// Then the init value.
void Reductions::FinishReduce(Partials& p) {
  if (p.wide != nullptr || !p.wide_uses.empty()) return FinishWide(p);
  const Instruction& reduce = *p.reduce;
  const size_t n = p.vectors.size();
  std::vector<Value*> total = Merged(p);
  if (CombineOf(reduce) == Combine::kIdentity) {
    std::vector<Value*> init;
    for (size_t k = 0; k < n; ++k) init.push_back(e_.Eval(reduce.operand(static_cast<int64_t>(n + k)), {}).v[0]);
    total = Merge(reduce, init, total);
  }
  const Shape& shape = reduce.shape().is_tuple() ? reduce.shape().element(0) : reduce.shape();
  IndexTuple index = iteration_.IndexOf(e_.space(), e_.fused(), shape);
  for (size_t k = 0; k < n; ++k) e_.Define(&reduce, index, static_cast<int>(k), Val{.v = {total[k]}, .level = e_.innermost()});
}

}  // namespace tenon
