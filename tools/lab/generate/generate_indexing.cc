// Indexing rows: slices, gathers and scatters at indices that are values, in range or not; sorts.
#include <algorithm>

#include "tools/lab/generate/generator.h"

namespace tenon::lab {
namespace {

bool IsIndex(PrimitiveType t) { return IsIntegral(t); }
bool IsOrdered(PrimitiveType t) { return !IsComplex(t); }

// One scalar per dimension, all of one integer type.
std::vector<Instruction*> Starts(Scope& s, int64_t count) {
  const PrimitiveType type = s.random().OneIn(3) ? s.Type(IsIndex) : PrimitiveType::kS32;
  std::vector<Instruction*> starts;
  for (int64_t d = 0; d < count; ++d) starts.push_back(s.Scalar(type).op);
  return starts;
}

bool DynamicSlice(Scope& s, Opcode opcode) {
  const Value x = s.Any();
  std::vector<Instruction*> operands = {x.op};
  const std::vector<Instruction*> starts = Starts(s, x.rank());
  operands.insert(operands.end(), starts.begin(), starts.end());
  std::vector<int64_t> sizes;
  for (Dim size : x.dims()) {
    const int64_t d = Scope::Least(size);
    sizes.push_back(s.random().OneIn(3) ? d : s.random().Between(std::min<int64_t>(1, d), d));
  }
  Instruction* y = s.Try(opcode, operands, With(Attr::kDynamicSliceSizes, sizes));
  return y != nullptr && (s.Moved(y, x), true);
}

// Sometimes a chain of writes into one array, whose older states stay in use.
bool DynamicUpdateSlice(Scope& s, Opcode opcode) {
  Value x = s.Exact();
  bool made = false;
  for (int64_t n = s.random().OneIn(3) ? 3 : 1; n > 0; --n) {
    std::vector<Dim> sizes;
    for (Dim size : x.dims()) {
      const int64_t d = Scope::Least(size);
      sizes.push_back(s.random().OneIn(3) ? size : Dim(s.random().Between(std::min<int64_t>(1, d), d)));
    }
    const Value update = s.Shaped(x.type(), sizes);
    std::vector<Instruction*> operands = {x.op, update.op};
    const std::vector<Instruction*> starts = Starts(s, x.rank());
    operands.insert(operands.end(), starts.begin(), starts.end());
    Instruction* y = s.Try(opcode, operands);
    if (y == nullptr) return made;
    x = s.Add(y, true, std::max(x.small, update.small), x.moved && update.moved);
    made = true;
  }
  return made;
}

// The numbers that gather and scatter share, for an operand.
struct Geometry {
  std::vector<int64_t> indexed, dropped, batching, indices_batching;
  std::vector<Dim> batch;    // sizes of the indices' batch dimensions
  std::vector<Dim> indices;  // dims of the indices
  std::vector<int64_t> kept;     // operand dims that windows have
  int64_t vector_dim = 0;
};

Geometry RandomGeometry(Scope& s, const Value& x) {
  Random& random = s.random();
  Geometry g;
  std::vector<int64_t> order = Shuffled(random, x.rank());
  bool batched = x.rank() > 1 && random.OneIn(5);
  // Of a batch that may be nothing no slice of one is known to lie inside.
  if (batched && !x.dim(order.back()).is_constant() && Scope::Least(x.dim(order.back())) == 0) batched = false;
  if (batched) {
    g.batching.push_back(order.back());
    order.pop_back();
  }
  g.indexed.assign(order.begin(), order.begin() + random.Between(1, static_cast<int64_t>(order.size())));
  for (int64_t d : order) {
    if (Scope::Least(x.dim(d)) > 0 && random.OneIn(2)) g.dropped.push_back(d);
  }
  std::sort(g.dropped.begin(), g.dropped.end());
  for (int64_t d = 0; d < x.rank(); ++d) {
    const auto in = [d](const std::vector<int64_t>& list) { return std::find(list.begin(), list.end(), d) != list.end(); };
    if (!in(g.dropped) && !in(g.batching)) g.kept.push_back(d);
  }
  for (int64_t n = random.Between(0, 2); n > 0; --n) g.batch.push_back(random.OneIn(2) ? s.Size() : Dim(random.Between(1, 5)));
  int64_t batch_at = -1;
  if (batched) {
    batch_at = random.Below(static_cast<int64_t>(g.batch.size()) + 1);
    g.batch.insert(g.batch.begin() + batch_at, x.dim(g.batching[0]));
  }
  const int64_t batch_rank = static_cast<int64_t>(g.batch.size());
  g.indices = g.batch;
  g.vector_dim = random.Below(batch_rank + 1);
  if (g.indexed.size() == 1 && random.OneIn(3)) {
    g.vector_dim = batch_rank;  // no dimension of its own
  } else {
    g.indices.insert(g.indices.begin() + g.vector_dim, static_cast<int64_t>(g.indexed.size()));
  }
  if (batched) g.indices_batching.push_back(batch_at + (batch_at >= g.vector_dim ? 1 : 0));
  return g;
}

bool Gather(Scope& s, Opcode opcode) {
  const Value x = s.OfRank(1, 4, [](PrimitiveType) { return true; });
  const Geometry g = RandomGeometry(s, x);
  if (!s.Fits(g.indices)) return false;
  const PrimitiveType index = s.Type(IsIndex);
  const Value indices = s.Shaped(index, g.indices);
  std::vector<Dim> sizes(x.rank(), 1);
  for (int64_t d : g.kept) {
    const int64_t least = Scope::Least(x.dim(d));
    sizes[d] = s.random().OneIn(2) ? x.dim(d) : Dim(s.random().Between(std::min<int64_t>(1, least), least));
  }
  Attributes attrs = With(Attr::kSliceSizes, sizes);
  const int64_t kept = static_cast<int64_t>(g.kept.size());
  attrs.set(Attr::kOffsetDims, Subset(s.random(), kept + static_cast<int64_t>(g.batch.size()), kept));
  attrs.set(Attr::kCollapsedSliceDims, g.dropped);
  attrs.set(Attr::kStartIndexMap, g.indexed);
  attrs.set(Attr::kIndexVectorDim, g.vector_dim);
  if (!g.batching.empty()) {
    attrs.set(Attr::kOperandBatchingDims, g.batching);
    attrs.set(Attr::kStartIndicesBatchingDims, g.indices_batching);
  }
  Instruction* y = s.Try(opcode, {x.op, indices.op}, attrs);
  return y != nullptr && (s.Moved(y, x), true);
}

// What an update does to the element: the last one wins, or a combiner.
struct Update {
  Computation* computation;
  Combiner combiner;  // its computation is null: order decides
  bool assigns = false;
};

Update RandomUpdate(Scope& s, PrimitiveType type) {
  if (HasOrderedCombiner(type) && s.random().OneIn(8)) return {OrderedCombiner(s, type), {}};
  if (!s.random().OneIn(3)) {
    const Combiner c = RandomCombiner(s, type);
    return {c.computation, c};
  }
  Computation* second = s.module()->AddComputation("assign");
  Builder b(second);
  b.Parameter(0, Shape::Scalar(type));
  second->set_root(b.Parameter(1, Shape::Scalar(type)));
  return {second, {second}, true};
}

bool Scatter(Scope& s, Opcode opcode) {
  Value x = s.OfRank(1, 4, [](PrimitiveType) { return true; });
  const Geometry g = RandomGeometry(s, x);
  if (!s.Fits(g.indices)) return false;
  const PrimitiveType index = s.Type(IsIndex);
  const Value indices = s.Shaped(index, g.indices);
  const Update how = RandomUpdate(s, x.type());
  const int64_t kept = static_cast<int64_t>(g.kept.size()), rank = kept + static_cast<int64_t>(g.batch.size());
  const std::vector<int64_t> window_dims = Subset(s.random(), rank, kept);
  std::vector<Dim> dims(rank);
  size_t next_window = 0, next_batch = 0;
  for (int64_t d = 0; d < rank; ++d) {
    const bool window = next_window < window_dims.size() && window_dims[next_window] == d;
    if (!window) {
      dims[d] = g.batch[next_batch++];
      continue;
    }
    const Dim size = x.dim(g.kept[next_window++]);
    const int64_t least = Scope::Least(size);
    dims[d] = s.random().OneIn(2) ? size : Dim(s.random().Between(std::min<int64_t>(1, least), least));
  }
  if (!s.Fits(dims)) return false;
  Value updates = s.Shaped(x.type(), dims);
  const bool sums = !how.assigns && how.combiner.sums;
  if (sums && !s.random().OneIn(4)) x = s.Small(x), updates = s.Small(updates);
  Attributes attrs = With(Attr::kUpdateWindowDims, window_dims);
  attrs.set(Attr::kInsertedWindowDims, g.dropped);
  attrs.set(Attr::kScatterDimsToOperandDims, g.indexed);
  attrs.set(Attr::kIndexVectorDim, g.vector_dim);
  attrs.set(Attr::kToApply, how.computation);
  if (!g.batching.empty()) {
    attrs.set(Attr::kInputBatchingDims, g.batching);
    attrs.set(Attr::kScatterIndicesBatchingDims, g.indices_batching);
  }
  Instruction* y = s.Try(opcode, {x.op, indices.op, updates.op}, attrs);
  if (y == nullptr) return false;
  const double terms = s.Most(updates.dims());  // at most all into one
  const double bound = sums ? x.small + updates.small * terms : std::max(x.small, updates.small);
  const bool exact = !sums || (how.combiner.opcode == Opcode::kAdd && bound <= ExactIntegers(x.type()));
  s.Add(y, exact, how.combiner.computation == nullptr || !exact ? kNotSmall : bound, how.assigns && x.moved && updates.moved);
  return true;
}

bool Sort(Scope& s, Opcode opcode) {
  const Value first = s.OfRank(1, 4, IsOrdered);
  std::vector<Value> keys = {first};
  std::vector<PrimitiveType> types = {first.type()};
  for (int64_t n = s.random().OneIn(2) ? 0 : s.random().Between(1, 2); n > 0; --n) {
    const PrimitiveType type = s.Type(IsOrdered);
    keys.push_back(s.Shaped(type, first.dims()));
    types.push_back(type);
  }
  const Comparator c = RandomComparator(s, types);
  if (c.total) keys[0] = s.WithDefinedNans(keys[0]);
  std::vector<Instruction*> operands;
  for (const Value& k : keys) operands.push_back(k.op);
  const int64_t dim = s.random().Below(first.rank());
  if (s.WouldBeRefused({first.dim(dim)})) return false;
  Attributes attrs = With(Attr::kDimensions, std::vector<int64_t>{dim});
  attrs.set(Attr::kToApply, c.computation);
  // Where elements that differ may tie, only a stable sort has one answer.
  if (!c.total || s.random().OneIn(2)) attrs.set(Attr::kIsStable, true);
  Instruction* y = s.Try(opcode, operands, attrs);
  if (y == nullptr) return false;
  if (!y->shape().is_tuple()) return s.Moved(y, keys[0]), true;
  for (size_t k = 0; k < keys.size(); ++k) s.Moved(Part(s, y, static_cast<int64_t>(k)), keys[k]);
  return true;
}

bool TopK(Scope& s, Opcode opcode) {
  const Value x = s.OfRank(1, 3, [](PrimitiveType t) { return IsOrdered(t) && t != PrimitiveType::kPred; });
  if (s.WouldBeRefused({x.dim(x.rank() - 1)})) return false;
  Attributes attrs = With(Attr::kK, s.random().Between(0, Scope::Least(x.dim(x.rank() - 1))));
  attrs.set(Attr::kLargest, s.random().OneIn(2));
  Instruction* y = s.Try(opcode, {x.op}, attrs);
  if (y == nullptr) return false;
  s.Moved(Part(s, y, 0), x);
  s.Add(Part(s, y, 1));
  return true;
}

constexpr Row kRows[] = {
    {Opcode::kDynamicSlice, DynamicSlice},
    {Opcode::kDynamicUpdateSlice, DynamicUpdateSlice},
    {Opcode::kGather, Gather},
    {Opcode::kScatter, Scatter},
    {Opcode::kSort, Sort},
    {Opcode::kTopk, TopK},
};

}  // namespace

absl::Span<const Row> IndexingRows() { return kRows; }

}  // namespace tenon::lab
