// Reductions. A sum of floats is exact where every partial sum is an integer that the type holds; otherwise its result is marked.
#include <algorithm>
#include <limits>

#include "tools/lab/generate/generator.h"

namespace tenon::lab {
namespace {

// Operand and initial value of one accumulator. `small`: bound of each.
struct Reduced {
  Value x, init;
};

// What programs start from: the value that changes nothing.
Value Neutral(Scope& s, Opcode opcode, PrimitiveType type) {
  const double infinity = std::numeric_limits<double>::infinity();
  const bool extremum = opcode == Opcode::kMaximum || opcode == Opcode::kMinimum;
  const double value = extremum ? (opcode == Opcode::kMaximum ? -infinity : infinity) : opcode == Opcode::kMultiply ? 1 : 0;
  return {.op = s.b().ScalarConstant(type, value), .small = extremum ? kNotSmall : value};
}

// For sums, mostly operands whose sums are exact.
Reduced Prepare(Scope& s, Value x, const Combiner& c) {
  const bool small = c.sums && x.exact && IsFloat(x.type()) && !s.random().OneIn(c.opcode == Opcode::kAdd ? 4 : 2);
  if (small) x = s.Small(x);
  if (IsFloat(x.type()) && BitWidth(x.type()) >= 16 && s.random().OneIn(2)) return {x, Neutral(s, c.opcode, x.type())};
  Value init = s.Scalar(x.type());
  if (small) init = s.Small(init);
  return {x, init};
}

void AddReduced(Scope& s, Instruction* result, const Reduced& r, const Combiner& c, double terms) {
  if (!c.sums) {
    s.Add(result, r.x.exact && r.init.exact, std::max(r.x.small, r.init.small));
    return;
  }
  const double sum = r.x.small * terms + r.init.small;
  const bool exact = r.x.exact && r.init.exact && c.opcode == Opcode::kAdd && sum <= ExactIntegers(r.x.type());
  s.Add(result, exact, exact ? sum : kNotSmall);
}

bool IsSortable(PrimitiveType t) { return !IsComplex(t) && t != PrimitiveType::kPred; }

// Order decides: the evaluator's.
bool ReduceInOrder(Scope& s, Opcode opcode, const Value& x, Attributes attrs) {
  attrs.set(Attr::kToApply, OrderedCombiner(s, x.type()));
  Instruction* init = s.Scalar(x.type()).op;
  Instruction* y = s.Try(opcode, {x.op, init}, attrs);
  return y != nullptr && (s.Add(y), true);
}

bool Reduce(Scope& s, Opcode opcode) {
  Value any = s.Exact();
  if (s.random().OneIn(2)) any = s.OfRank(1, 4, [](PrimitiveType t) { return IsFloat(t) && BitWidth(t) >= 16; });
  // What a row makes of a transcendental function, summed up.
  const bool carries_on = s.random().OneIn(4);
  if (carries_on) {
    const auto inexact = [](const Value& v) { return !v.exact && IsFloat(v.type()) && BitWidth(v.type()) >= 16 && v.rank() > 0; };
    if (auto v = s.Find(inexact)) any = *v;
  }
  const int64_t count = s.random().Between(s.random().OneIn(5) ? 0 : std::min<int64_t>(1, any.rank()), any.rank());
  std::vector<int64_t> dims = Subset(s.random(), any.rank(), count);
  double terms = 1;
  for (int64_t d : dims) terms *= s.Most(any.dim(d));
  Attributes attrs = With(Attr::kDimensions, dims);
  if (any.exact && HasOrderedCombiner(any.type()) && s.random().OneIn(4)) return ReduceInOrder(s, opcode, any, attrs);
  if (any.exact && IsSortable(any.type()) && any.rank() > 0 && s.random().OneIn(5)) {  // argmax
    const PrimitiveType index = s.random().OneIn(2) ? PrimitiveType::kS32 : PrimitiveType::kS64;
    const int64_t dim = s.random().Below(any.rank());
    Instruction* iota = s.b().Iota(Shape(index, any.dims()), dim);
    attrs.set(Attr::kToApply, ArgMax(s, any.type(), index));
    Instruction* init = s.Scalar(any.type()).op;
    // Only along one dimension are indices distinct.
    attrs.set(Attr::kDimensions, std::vector<int64_t>{dim});
    Instruction* y = s.Try(opcode, {any.op, iota, init, s.b().ScalarConstantInt(index, 0)}, attrs);
    if (y == nullptr) return false;
    s.Add(Part(s, y, 0));
    s.Add(Part(s, y, 1));
    return true;
  }
  const Combiner c = RandomCombiner(s, any.type());
  const Reduced r = Prepare(s, any, c);
  if (!s.random().OneIn(5)) {
    attrs.set(Attr::kToApply, c.computation);
    Instruction* y = s.Try(opcode, {r.x.op, r.init.op}, attrs);
    return y != nullptr && (AddReduced(s, y, r, c, terms), true);
  }
  // Two at once, of types of their own.
  const PrimitiveType other = s.Type();
  const Value second = s.Shaped(other, any.dims());
  const Combiner d = RandomCombiner(s, other);
  const Reduced q = Prepare(s, second, d);
  Computation* both = s.module()->AddComputation("both");
  Builder b(both);
  Instruction* p[4];
  for (int k = 0; k < 4; ++k) p[k] = b.Parameter(k, Shape::Scalar(k % 2 == 0 ? any.type() : other));
  both->set_root(b.Tuple({b.Binary(c.opcode, p[0], p[2]), b.Binary(d.opcode, p[1], p[3])}));
  attrs.set(Attr::kToApply, both);
  Instruction* y = s.Try(opcode, {r.x.op, q.x.op, r.init.op, q.init.op}, attrs);
  if (y == nullptr) return false;
  AddReduced(s, Part(s, y, 0), r, c, terms);
  AddReduced(s, Part(s, y, 1), q, d, terms);
  return true;
}

Window RandomWindow(Scope& s, const Value& x, bool dilation) {
  Random& random = s.random();
  Window window;
  for (int64_t d = 0; d < x.rank(); ++d) {
    WindowDim w;
    if (!random.OneIn(3)) {
      w.size = random.Between(1, std::max<int64_t>(1, std::min<int64_t>(Scope::Least(x.dim(d)), 4)));
      w.stride = random.Between(1, 3);
      w.padding_low = random.OneIn(2) ? random.Between(0, w.size - 1) : 0;
      w.padding_high = random.OneIn(2) ? random.Between(0, w.size) : 0;
      if (dilation && random.OneIn(4)) w.window_dilation = random.Between(1, 3);
      if (dilation && random.OneIn(6)) w.base_dilation = random.Between(1, 3);
      if (dilation && random.OneIn(8)) w.padding_low = -1;
    }
    window.dims.push_back(w);
  }
  return window;
}

bool ReduceWindow(Scope& s, Opcode opcode) {
  const Value any = s.OfRank(1, 4, [](PrimitiveType) { return true; });
  const Window window = RandomWindow(s, any, /*dilation=*/true);
  double terms = 1;
  for (const WindowDim& w : window.dims) terms *= static_cast<double>(w.size);
  Attributes attrs = With(Attr::kWindow, window);
  if (HasOrderedCombiner(any.type()) && s.random().OneIn(6)) return ReduceInOrder(s, opcode, any, attrs);
  const Combiner c = RandomCombiner(s, any.type());
  const Reduced r = Prepare(s, any, c);
  attrs.set(Attr::kToApply, c.computation);
  Instruction* y = s.Try(opcode, {r.x.op, r.init.op}, attrs);
  return y != nullptr && (AddReduced(s, y, r, c, terms), true);
}

bool SelectAndScatter(Scope& s, Opcode opcode) {
  const Value x = s.OfRank(1, 4, [](PrimitiveType t) { return IsSortable(t); });
  const Window window = RandomWindow(s, x, /*dilation=*/false);
  std::vector<Dim> dims;
  double most = 1;  // windows over one element
  for (int64_t d = 0; d < x.rank(); ++d) {
    const WindowDim& w = window.dims[d];
    dims.push_back(Max(0, FloorDiv(x.dim(d) + w.padding_low + w.padding_high - w.size, w.stride) + 1));
    most *= static_cast<double>(w.size);
  }
  if (!s.Fits(dims)) return false;
  const Combiner c = RandomCombiner(s, x.type());
  Reduced r = Prepare(s, s.Shaped(x.type(), dims), c);
  Computation* select = s.module()->AddComputation("select");
  Builder b(select);
  Instruction* p = b.Parameter(0, Shape::Scalar(x.type()));
  Instruction* q = b.Parameter(1, Shape::Scalar(x.type()));
  constexpr std::string_view kDirections[] = {"GE", "GT", "LE"};
  select->set_root(b.Compare(p, q, kDirections[s.random().Below(3)]));
  Attributes attrs = With(Attr::kWindow, window);
  attrs.set(Attr::kSelect, select);
  attrs.set(Attr::kScatter, c.computation);
  Instruction* y = s.Try(opcode, {x.op, r.x.op, r.init.op}, attrs);
  return y != nullptr && (AddReduced(s, y, r, c, most), true);
}

bool Scan(Scope& s, Opcode opcode) {
  const Value x = s.OfRank(1, 3, [](PrimitiveType) { return true; });
  const int64_t dim = s.random().Below(x.rank());
  const Repeated repeated(s, std::max<int64_t>(1, static_cast<int64_t>(s.Most(x.dim(dim)))));
  if (s.depth() >= s.g().options.max_depth || s.g().runs > kMaxRuns) return false;
  std::vector<Dim> slice = x.dims();
  slice.erase(slice.begin() + dim);
  if (s.WouldBeRefused(slice)) return false;
  Computation* body = s.module()->AddComputation("scan");
  Scope inner(s.g(), body, s.depth() + 1);
  std::vector<Instruction*> operands, results;
  const auto parameter = [&](const Value& operand, const std::vector<Dim>& dims) {
    const Shape shape(operand.type(), dims);
    operands.push_back(operand.op);
    return inner.Add(inner.b().Parameter(static_cast<int64_t>(operands.size()) - 1, shape));
  };
  parameter(x, slice);
  if (s.random().OneIn(3)) {
    const PrimitiveType type = s.Type();
    parameter(s.Shaped(type, x.dims()), slice);
  }
  std::vector<Value> carries;
  const int64_t carry_count = s.random().Between(0, 2);
  for (int64_t k = 0; k < carry_count; ++k) {
    const PrimitiveType type = s.Type();
    const bool whole = s.random().OneIn(2);
    const Value carry = s.Shaped(type, whole ? slice : std::vector<Dim>{});
    carries.push_back(parameter(carry, carry.dims()));
  }
  inner.Grow(s.random().Between(1, 3));
  const int64_t outputs = s.random().Between(carry_count == 0 ? 1 : 0, 2);
  for (int64_t k = 0; k < outputs; ++k) results.push_back(inner.Exact().op);
  for (const Value& carry : carries) results.push_back(inner.Shaped(carry.type(), carry.dims()).op);
  body->set_root(results.size() == 1 ? results[0] : inner.b().Tuple(results));
  Attributes attrs = With(Attr::kDimensions, std::vector<int64_t>{dim});
  attrs.set(Attr::kToApply, body);
  attrs.set(Attr::kNumCarries, carry_count);
  attrs.set(Attr::kReverse, s.random().OneIn(2));
  Instruction* y = s.Try(opcode, operands, attrs);
  if (y == nullptr) return false;
  if (!y->shape().is_tuple()) return s.Add(y), true;
  for (size_t k = 0; k < y->shape().elements().size(); ++k) s.Add(Part(s, y, k));
  return true;
}

bool BatchNorm(Scope& s, Opcode opcode) {
  // Sums of halves are off by all that they are after a few hundred terms, and a constant's variance is nothing but error.
  const int bits = s.is_large() ? 32 : 16;
  const Value any = s.OfRank(1, 4, [&](PrimitiveType t) { return IsFloat(t) && BitWidth(t) >= bits; });
  const bool spread = s.is_large() || s.random().OneIn(2);
  const Value x = spread ? s.Spread(any) : any;
  const int64_t feature = s.random().Below(x.rank());
  std::vector<Instruction*> operands = {x.op};
  const int vectors = opcode == Opcode::kBatchNormTraining ? 2 : 3;
  for (int k = 0; k < vectors; ++k) {
    const Value v = s.Shaped(x.type(), {x.dim(feature)});
    operands.push_back(spread ? s.Small(v).op : v.op);
  }
  if (opcode == Opcode::kBatchNormGrad) {
    operands[3] = s.Add(s.b().Unary(Opcode::kAbs, operands[3])).op;  // a variance
    const Value dy = s.Shaped(x.type(), x.dims());
    operands.push_back(spread ? s.Spread(dy).op : dy.op);
  }
  Attributes attrs = With(Attr::kEpsilon, s.random().OneIn(2) ? 1e-3 : 1.0);
  attrs.set(Attr::kFeatureIndex, feature);
  Instruction* y = s.Try(opcode, operands, attrs);
  if (y == nullptr) return false;
  for (int k = 0; k < 3; ++k) s.Add(Part(s, y, k), false);
  return true;
}

constexpr Row kRows[] = {
    {Opcode::kReduce, Reduce},
    {Opcode::kReduceWindow, ReduceWindow},
    {Opcode::kSelectAndScatter, SelectAndScatter},
    {Opcode::kScan, Scan},
    {Opcode::kBatchNormTraining, BatchNorm},
    {Opcode::kBatchNormGrad, BatchNorm},
};

}  // namespace

absl::Span<const Row> ReductionRows() { return kRows; }

}  // namespace tenon::lab
