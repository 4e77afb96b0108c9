// What programs do again and again, and single rows seldom come to: softmax, frozen weights, masks, missing values, ids in range,
// mixed precision. Each stands for code of its own in a compiler; applied to the entry, between its rows.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tools/lab/generate/generator.h"

namespace tenon::lab {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool IsWideFloat(PrimitiveType t) { return IsFloat(t) && BitWidth(t) >= 16; }
bool IsPlain(PrimitiveType t) { return IsWideFloat(t) || (IsIntegral(t) && BitWidth(t) >= 8); }
// Products and sums of which every backend rounds alike, with excess precision or without.
bool IsExactEverywhere(PrimitiveType t) { return t == PrimitiveType::kF32 || t == PrimitiveType::kF64 || t == PrimitiveType::kS32; }

// What models do to rows: softmax, log-sum-exp, layer norm, RMS norm; over any dims, in halves or with the arithmetic in f32, masked
// or not.
class RowNorm {
 public:
  RowNorm(Scope& s, const Value& x) : s_(s), b_(s.b()), x_(x) {}

  bool Make() {
    Random& random = s_.random();
    dims_ = random.OneIn(3) ? Subset(random, x_.rank(), random.Between(1, x_.rank())) : std::vector<int64_t>{x_.rank() - 1};
    Instruction* x = x_.op;
    const PrimitiveType from = x_.type();
    // A sum of more halves, rounded at each step, may be off by all that it is: no judge could say anything of it.
    constexpr double kHalves = 64;
    const bool converts = random.OneIn(2) || Count() > kHalves;
    if (BitWidth(from) == 16 && converts) x = b_.Convert(x, PrimitiveType::kF32);
    if (random.OneIn(4)) {  // the causal mask
      const Value seen = s_.Shaped(PrimitiveType::kPred, x_.dims());
      x = b_.Select(seen.op, x, b_.FullLike(x, -kInfinity));
    }
    const auto how = random.Below(4);
    Instruction* y = how == 0 ? Softmax(x) : how == 1 ? LogSumExp(x) : how == 2 ? LayerNorm(x) : RmsNorm(x);
    s_.Add(b_.Convert(y, from), false);
    return true;
  }

 private:
  // Elements of a row.
  double Count() const {
    double n = 1;
    for (int64_t d : dims_) n *= s_.Most(x_.dim(d));
    return n;
  }
  Instruction* Over(Instruction* x, Opcode by) {
    const double init = by == Opcode::kMaximum ? -kInfinity : 0;
    Instruction* r = b_.Reduce(x, b_.ScalarConstant(x->shape().element_type(), init), dims_, by);
    if (s_.random().OneIn(4)) s_.Add(r, false);  // a statistic that is a result, too
    return r;
  }
  Instruction* Back(Instruction* r) {
    std::vector<int64_t> kept;
    for (int64_t d = 0; d < x_.rank(); ++d) {
      if (std::find(dims_.begin(), dims_.end(), d) == dims_.end()) kept.push_back(d);
    }
    return b_.Broadcast(r, x_.dims(), kept);
  }
  Instruction* Mean(Instruction* x) {
    Instruction* sum = Over(x, Opcode::kAdd);
    return b_.Binary(Opcode::kMultiply, sum, b_.FullLike(sum, 1 / Count()));
  }
  Instruction* Exponentials(Instruction* x, Instruction* most) {
    return b_.Unary(Opcode::kExponential, b_.Binary(Opcode::kSubtract, x, Back(most)));
  }
  Instruction* Softmax(Instruction* x) {
    Instruction* e = Exponentials(x, Over(x, Opcode::kMaximum));
    return b_.Binary(Opcode::kDivide, e, Back(Over(e, Opcode::kAdd)));
  }
  Instruction* LogSumExp(Instruction* x) {
    Instruction* most = Over(x, Opcode::kMaximum);
    return b_.Binary(Opcode::kAdd, b_.Unary(Opcode::kLog, Over(Exponentials(x, most), Opcode::kAdd)), most);
  }
  Instruction* Scaled(Instruction* x, Instruction* square) {
    Instruction* r = b_.Unary(Opcode::kRsqrt, b_.Binary(Opcode::kAdd, square, b_.FullLike(square, 0.0625)));
    return b_.Binary(Opcode::kMultiply, x, Back(r));
  }
  Instruction* LayerNorm(Instruction* x) {
    Instruction* d = b_.Binary(Opcode::kSubtract, x, Back(Mean(x)));
    return Scaled(d, Mean(b_.Binary(Opcode::kMultiply, d, d)));
  }
  Instruction* RmsNorm(Instruction* x) { return Scaled(x, Mean(b_.Binary(Opcode::kMultiply, x, x))); }

  Scope& s_;
  Builder& b_;
  const Value x_;
  std::vector<int64_t> dims_;
};

bool NormalisedRows(Scope& s, Opcode) {
  Value x = s.OfRank(1, 3, IsWideFloat);
  // Rows of one number have no spread, and a bound on it says nothing: few such are enough, and no large ones.
  const bool large = s.Most(x.dims()) > 1024;
  if (large ? x.op->opcode() != Opcode::kParameter : x.op->opcode() == Opcode::kBroadcast && !s.random().OneIn(4)) x = s.Spread(x);
  return RowNorm(s, x).Make();
}

// Layers that differ in their literals only, apart from each other: kernels that may be one.
bool Layers(Scope& s, Opcode) {
  Value x =
      s.OfRank(1, 3, [](PrimitiveType t) { return t == PrimitiveType::kF32 || t == PrimitiveType::kF64 || t == PrimitiveType::kS32; });
  Instruction* h = x.op;
  for (int64_t n = s.random().Between(2, 3), k = 0; k < n; ++k) {
    const double scale = static_cast<double>(s.random().Between(3, 60)) / (IsFloat(x.type()) ? 4 : 1);
    Instruction* y = s.b().Binary(Opcode::kMultiply, h, s.b().FullLike(h, scale));
    y = s.b().Binary(Opcode::kMaximum, y, s.b().FullLike(y, static_cast<double>(-5 - 7 * k)));
    y = s.b().Make(Opcode::kOptBarrier, {y}, {});
    s.Add(y);
    h = y;
  }
  return true;
}

// The largest or smallest where all have one sign, as log-probabilities do, or where some are missing.
bool Extrema(Scope& s, Opcode) {
  const Value x = s.OfRank(1, 3, IsWideFloat);
  const Opcode by = s.random().OneIn(3) ? Opcode::kMinimum : Opcode::kMaximum;
  Builder& b = s.b();
  Instruction* y = x.op;
  if (s.random().OneIn(2)) {
    y = b.Unary(Opcode::kAbs, y);
    if (by == Opcode::kMaximum) y = b.Unary(Opcode::kNegate, y);
  } else {
    const Value there = s.Shaped(PrimitiveType::kPred, x.dims());
    y = b.Select(there.op, y, b.FullLike(y, std::numeric_limits<double>::quiet_NaN()));
  }
  const int64_t count = s.random().Between(1, x.rank());
  const std::vector<int64_t> dims = Subset(s.random(), x.rank(), count);
  s.Add(b.Reduce(y, b.ScalarConstant(x.type(), by == Opcode::kMaximum ? -kInfinity : kInfinity), dims, by));
  return true;
}

// Sums and products of rows: of halves, with a ragged end, of what is masked by an infinity, of factors that may be zero.
bool RowSums(Scope& s, Opcode) {
  const int64_t how = s.random().Below(4);
  const PrimitiveType type = how == 0 ? s.random().OneIn(2) ? PrimitiveType::kBF16 : PrimitiveType::kF16 : PrimitiveType::kF32;
  const int64_t rows = s.random().Between(1, 6), columns = s.random().Between(9, 33);
  const Value any = s.Shaped(type, {s.SizeOr(rows), s.SizeOr(how == 3 ? columns / 3 : columns)});
  const Value x = s.Small(any);
  Builder& b = s.b();
  Instruction* y = x.op;
  if (how == 2) {
    const Value seen = s.Shaped(PrimitiveType::kPred, x.dims());
    y = b.Select(seen.op, y, b.FullLike(y, s.random().OneIn(2) ? kInfinity : -kInfinity));
  }
  const Opcode by = how == 3 ? Opcode::kMultiply : Opcode::kAdd;
  const std::vector<int64_t> dims = {s.random().OneIn(4) ? 0 : 1};
  // A sum of infinities and small integers is exact, a product of factors up to 4 is not known to be.
  s.Add(b.Reduce(y, b.ScalarConstant(type, how == 3 ? 1 : 0), dims, by), how != 3);
  return true;
}

// A reducer that is not associative, over more than one element.
bool InOrder(Scope& s, Opcode opcode) {
  const Value x = s.OfRank(1, 3, [](PrimitiveType t) { return HasOrderedCombiner(t); });
  const std::vector<Dim> sizes = x.dims();
  const int64_t dim = std::max_element(sizes.begin(), sizes.end(), [&](Dim a, Dim b) { return s.Most(a) < s.Most(b); }) - sizes.begin();
  Attributes attrs = With(Attr::kDimensions, std::vector<int64_t>{dim});
  attrs.set(Attr::kToApply, OrderedCombiner(s, x.type()));
  Instruction* init = s.Scalar(x.type()).op;
  Instruction* y = s.Try(opcode, {x.op, init}, attrs);
  return y != nullptr && (s.Add(y), true);
}

// Mixed precision: through a narrower type and back.
bool RoundTrip(Scope& s, Opcode) {
  const auto wide = [](PrimitiveType t) { return t == PrimitiveType::kF32 || t == PrimitiveType::kF64; };
  const auto fits = [&](const Value& v) { return v.exact && wide(v.type()) && v.small == kNotSmall && v.op->shape().rank() > 0; };
  const std::optional<Value> found = s.Find(fits);
  const Value x = found.has_value() ? *found : s.OfRank(1, 3, wide);
  const int bits = BitWidth(x.type());
  const PrimitiveType via = s.Type([&](PrimitiveType t) { return IsWideFloat(t) && BitWidth(t) < bits; });
  s.Add(s.b().Convert(s.b().Convert(x.op, via), x.type()));
  return true;
}

// Weights that are constants, layer by layer: what a layer returns lives as long as the next one needs it.
bool FrozenLayers(Scope& s, Opcode) {
  const PrimitiveType type = s.Type(IsExactEverywhere);
  const int64_t rows = s.random().Between(3, 6), columns = s.random().Between(7, 17);
  Value x = s.Shaped(type, {rows, columns});
  Instruction* h = x.op;
  const int64_t layers = s.random().Between(2, 4);
  for (int64_t k = 0; k < layers; ++k) {
    const Style style = s.random().OneIn(2) ? Style::kSmallIntegers : Style::kUnit;
    Instruction* w = s.b().Constant(RandomArray(Shape::Array(type, {rows, columns}), style, s.random()));
    h = s.b().Binary(k % 2 == 0 ? Opcode::kAdd : Opcode::kMaximum, h, w);
    h = s.b().Make(Opcode::kOptBarrier, {h}, {});
  }
  s.Add(h);
  return true;
}

// Rows of a table by ids in range, the last row among them.
bool Embedding(Scope& s, Opcode opcode) {
  const Value table = s.OfRank(1, 3, [](PrimitiveType) { return true; });
  const int64_t rows = Scope::Least(table.dim(0)), ids_wanted = s.random().Between(2, 9);
  if (rows < 2) return false;
  const Dim count = s.SizeOr(ids_wanted);
  const Value any = s.Shaped(PrimitiveType::kS32, {count});
  Builder& b = s.b();
  Instruction* ids = b.Binary(Opcode::kRemainder, any.op, b.FullLike(any.op, static_cast<double>(rows)));
  Instruction* at = b.Iota(Shape(PrimitiveType::kS32, {count}), 0);
  ids = b.Select(b.Compare(at, b.FullLike(at, 1), "EQ"), b.FullLike(ids, static_cast<double>(rows - 1)), ids);
  std::vector<Dim> sizes(table.op->shape().dims().begin(), table.op->shape().dims().end());
  std::vector<int64_t> offset;
  sizes[0] = 1;
  for (int64_t d = 1; d < table.rank(); ++d) offset.push_back(d);
  Attributes attrs = With(Attr::kSliceSizes, sizes);
  attrs.set(Attr::kOffsetDims, offset);
  attrs.set(Attr::kCollapsedSliceDims, std::vector<int64_t>{0});
  attrs.set(Attr::kStartIndexMap, std::vector<int64_t>{0});
  attrs.set(Attr::kIndexVectorDim, int64_t{1});
  Instruction* y = s.Try(opcode, {table.op, ids}, attrs);
  return y != nullptr && (s.Moved(y, table), true);
}

// A cache that is written to, and what it was before.
bool CacheUpdate(Scope& s, Opcode opcode) {
  const Value x = s.OfRank(1, 3, [](PrimitiveType t) { return IsExactEverywhere(t); });
  std::vector<Dim> sizes = x.dims();
  sizes[0] = std::min<int64_t>(Scope::Least(sizes[0]), s.random().Between(1, 3));
  const Value update = s.Shaped(x.type(), sizes);
  std::vector<Instruction*> operands = {x.op, update.op};
  operands.push_back(s.Scalar(PrimitiveType::kS32).op);
  for (int64_t d = 1; d < x.rank(); ++d) operands.push_back(s.b().ScalarConstantInt(PrimitiveType::kS32, 0));
  Instruction* y = s.Try(opcode, operands);
  if (y == nullptr) return false;
  s.Add(y);
  Instruction* later = s.b().Make(Opcode::kOptBarrier, {y}, {});
  s.Add(s.b().Binary(Opcode::kSubtract, later, x.op));
  return true;
}

// A mask of random bits below a threshold.
bool Mask(Scope& s, Opcode) {
  const Value x = s.OfRank(1, 3, IsPlain);
  const PrimitiveType type = s.Type([](PrimitiveType t) { return IsUnsigned(t) && BitWidth(t) >= 8; });
  const Value any = s.Shaped(type, x.dims());
  Builder& b = s.b();
  Instruction* at = b.Iota(any.op->shape(), x.rank() - 1);
  Instruction* bits = b.Binary(Opcode::kMultiply, b.Binary(Opcode::kAdd, any.op, at), b.FullLike(at, 181));
  const double threshold = std::ldexp(static_cast<double>(s.random().Between(3, 6)), BitWidth(type) - 3);
  Instruction* keep = b.Compare(bits, b.FullLike(bits, threshold), "LT");
  s.Add(b.Select(keep, x.op, b.FullLike(x.op, 0)), true, x.small);
  return true;
}

// Two dropouts of one layer: draws that look alike.
bool Dropouts(Scope& s, Opcode opcode) {
  const PrimitiveType type = s.random().OneIn(2) ? PrimitiveType::kF32 : PrimitiveType::kS32;
  Instruction* low = s.b().ScalarConstant(type, 0);
  Instruction* high = s.b().ScalarConstant(type, 9);
  const Shape shape(type, s.Dims(1, 2));
  if (s.WouldBeRefused(shape.dims())) return false;
  for (int k = 0; k < 2; ++k) {
    Instruction* y = s.Try(opcode, {low, high}, With(Attr::kDistribution, std::string("rng_uniform")), shape);
    if (y == nullptr) return false;
    s.Add(y);
  }
  return true;
}

// The backward of a pooling over values that tie.
bool PoolBackward(Scope& s, Opcode opcode) {
  const PrimitiveType type = s.Type([](PrimitiveType t) { return t == PrimitiveType::kF32 || t == PrimitiveType::kF64; });
  const int64_t rows = s.random().Between(1, 4), columns = s.random().Between(4, 17), size = s.random().Between(2, 3);
  const int64_t stride = s.random().Between(1, size);
  const Dim all_rows = s.SizeOr(rows), all_columns = s.SizeOr(columns, size);
  const Value any = s.Shaped(type, {all_rows, all_columns});
  const Value x = s.Small(any);
  const Value given = s.Shaped(type, {all_rows, FloorDiv(all_columns - size, stride) + 1});
  const Value source = s.Small(given);
  Window window;
  window.dims.resize(2);
  window.dims[1].size = size;
  window.dims[1].stride = stride;
  Computation* select = s.module()->AddComputation("select");
  Builder b(select);
  Instruction* p = b.Parameter(0, Shape::Scalar(type));
  Instruction* q = b.Parameter(1, Shape::Scalar(type));
  select->set_root(b.Compare(p, q, "GE"));
  Attributes attrs = With(Attr::kWindow, window);
  attrs.set(Attr::kSelect, select);
  attrs.set(Attr::kScatter, s.module()->ScalarComputation(Opcode::kAdd, type));
  Instruction* y = s.Try(opcode, {x.op, source.op, s.b().ScalarConstant(type, 0)}, attrs);
  return y != nullptr && (s.Add(y, true, 4.0 * static_cast<double>(size)), true);
}

// A square matrix, stored by columns or by rows, with a vector along each of its dims.
bool Outer(Scope& s, Opcode) {
  const PrimitiveType type = s.Type(IsExactEverywhere);
  const int64_t rows = s.random().Between(2, 12), parameters = static_cast<int64_t>(s.b().computation()->parameters().size());
  const Dim one = s.SizeOr(rows), n = s.Fits({one, one}) ? one : Dim(rows);
  Value m;
  if (parameters < 8) {
    Shape shape(type, {n, n});
    if (s.g().options.layouts) shape.set_layout(Shuffled(s.random(), 2));
    m = s.Add(s.b().Parameter(parameters, shape), true, kNotSmall, true);
  } else {
    m = s.Shaped(type, {n, n});
  }
  const Value v = s.Shaped(type, {n});
  const std::vector<Dim> dims = m.dims();
  Instruction* y = s.b().Binary(Opcode::kAdd, m.op, s.b().Broadcast(v.op, dims, {1}));
  if (s.random().OneIn(2)) y = s.b().Binary(Opcode::kMaximum, y, s.b().Broadcast(v.op, dims, {0}));
  s.Add(y);
  return true;
}

// Lists put together, of lengths that no vector and no piece of work divides.
bool Parts(Scope& s, Opcode) {
  const PrimitiveType type = s.Type(IsPlain);
  const int64_t n = s.random().Between(2, 5), longest = s.is_large() ? s.g().options.max_elements / n : 40;
  std::vector<Instruction*> parts;
  bool exact = true, moved = true;
  for (int64_t k = 0; k < n; ++k) {
    const int64_t length = s.random().OneIn(3) ? s.random().Between(1, 9) : s.random().Between(1, longest);
    const Value part = s.Shaped(type, {s.SizeOr(length)});
    exact = exact && part.exact, moved = moved && part.moved;
    parts.push_back(part.op);
  }
  s.Add(s.b().Concatenate(parts, 0), exact, kNotSmall, moved);
  return true;
}

// Many numbers added into few places, some of which are none.
bool Histogram(Scope& s, Opcode opcode) {
  const PrimitiveType type = s.Type(IsPlain);
  const int64_t most = s.is_large() ? s.g().options.max_elements : 60, number = s.random().Between(most / 2, most);
  const int64_t places = s.is_large() ? number / s.random().Between(8, 4000) + 1 : s.random().Between(1, 20);
  const Dim count = s.SizeOr(number);
  Value x = s.Shaped(type, {places}), updates = s.Shaped(type, {count});
  if (!s.random().OneIn(4)) x = s.Small(x), updates = s.Small(updates);
  Builder& b = s.b();
  Instruction* any = s.Shaped(PrimitiveType::kS32, {count}).op;
  Instruction* at = b.Binary(Opcode::kRemainder, any, b.FullLike(any, static_cast<double>(places + 1)));
  Attributes attrs = With(Attr::kToApply, s.module()->ScalarComputation(Opcode::kAdd, type));
  attrs.set(Attr::kUpdateWindowDims, std::vector<int64_t>{});
  attrs.set(Attr::kInsertedWindowDims, std::vector<int64_t>{0});
  attrs.set(Attr::kScatterDimsToOperandDims, std::vector<int64_t>{0});
  attrs.set(Attr::kIndexVectorDim, int64_t{1});
  Instruction* y = s.Try(opcode, {x.op, at, updates.op}, attrs);
  if (y == nullptr) return false;
  const double bound = x.small + updates.small * s.Most(count);
  const bool exact = !IsFloat(type) || bound <= ExactIntegers(type);
  s.Add(y, exact, exact ? bound : kNotSmall);
  return true;
}

// Attention by hand: products of small numbers with the softmax between them, scaled and masked or not, its weights rounded or not.
bool HandAttention(Scope& s, Opcode opcode) {
  Random& random = s.random();
  Builder& b = s.b();
  const PrimitiveType type =
      s.Type([](PrimitiveType t) { return t == PrimitiveType::kF32 || t == PrimitiveType::kBF16 || t == PrimitiveType::kF16; });
  const Dim batch = s.SizeOr(random.Between(1, 2)), queries = s.SizeOr(random.Between(12, 40)), keys = s.SizeOr(random.Between(12, 40));
  const int64_t head = random.Between(1, 12), columns = random.Between(1, 12);
  const std::vector<Dim> scores = {batch, queries, keys};
  const std::vector<Dim> q_dims = {batch, queries, head}, k_dims = {batch, keys, head}, v_dims = {batch, keys, columns};
  if (!s.Fits(scores) || !s.Fits(q_dims) || !s.Fits(k_dims) || !s.Fits(v_dims)) return false;
  if (!Scope::Affordable(s.Most(scores) * static_cast<double>(head + columns))) return false;
  const auto operand = [&](const std::vector<Dim>& dims) { return b.Convert(s.Small(s.Shaped(type, dims)).op, PrimitiveType::kF32); };
  Instruction *q = operand(q_dims), *k = operand(k_dims), *v = operand(v_dims);
  const auto product = [&](Instruction* x, Instruction* y, int64_t of_y) {
    Attributes attrs = With(Attr::kLhsBatchDims, std::vector<int64_t>{0});
    attrs.set(Attr::kRhsBatchDims, std::vector<int64_t>{0});
    attrs.set(Attr::kLhsContractingDims, std::vector<int64_t>{2});
    attrs.set(Attr::kRhsContractingDims, std::vector<int64_t>{of_y});
    return s.Try(opcode, {x, y}, attrs);
  };
  Instruction* x = product(q, k, 2);
  if (x == nullptr) return false;
  if (random.OneIn(2)) x = b.Binary(Opcode::kMultiply, x, b.FullLike(x, 0.125));
  if (random.OneIn(2)) x = b.Select(s.Shaped(PrimitiveType::kPred, scores).op, x, b.FullLike(x, random.OneIn(3) ? -kInfinity : -1e9));
  const auto rows = [&](Instruction* r) { return b.Broadcast(r, scores, {0, 1}); };
  const auto over = [&](Instruction* r, Opcode by) {
    return b.Reduce(r, b.ScalarConstant(PrimitiveType::kF32, by == Opcode::kMaximum ? -kInfinity : 0), {2}, by);
  };
  Instruction* e = b.Unary(Opcode::kExponential, b.Binary(Opcode::kSubtract, x, rows(over(x, Opcode::kMaximum))));
  Instruction* weights = b.Binary(Opcode::kDivide, e, rows(over(e, Opcode::kAdd)));
  if (random.OneIn(2)) weights = b.Convert(b.Convert(weights, type), PrimitiveType::kF32);
  Instruction* y = product(weights, v, 1);
  if (y == nullptr) return false;
  s.Add(b.Convert(y, type), false);
  return true;
}

constexpr Row kRows[] = {
    {Opcode::kReduce, NormalisedRows},
    {Opcode::kDot, HandAttention},
    {Opcode::kMaximum, Layers},
    {Opcode::kReduce, Extrema},
    {Opcode::kReduce, RowSums},
    {Opcode::kReduce, InOrder},
    {Opcode::kConvert, RoundTrip},
    {Opcode::kMaximum, FrozenLayers},
    {Opcode::kGather, Embedding},
    {Opcode::kDynamicUpdateSlice, CacheUpdate},
    {Opcode::kCompare, Mask},
    {Opcode::kRng, Dropouts},
    {Opcode::kSelectAndScatter, PoolBackward},
    {Opcode::kBroadcast, Outer},
    {Opcode::kConcatenate, Parts},
    {Opcode::kScatter, Histogram},
};

}  // namespace

absl::Span<const Row> Idioms() { return kRows; }

}  // namespace tenon::lab
