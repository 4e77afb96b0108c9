// Reductions. A sum of floats is exact where every partial sum is an integer that the type holds; otherwise its result is marked.
#include <algorithm>
#include <limits>

#include "tools/lab/generator.h"

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

void AddReduced(Scope& s, Instruction* result, const Reduced& r, const Combiner& c, int64_t terms) {
  if (!c.sums) {
    s.Add(result, r.x.exact && r.init.exact, std::max(r.x.small, r.init.small));
    return;
  }
  const double sum = r.x.small * static_cast<double>(terms) + r.init.small;
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
  int64_t terms = 1;
  for (int64_t d : dims) terms *= any.dim(d);
  Attributes attrs = With(Attr::kDimensions, dims);
  if (any.exact && HasOrderedCombiner(any.type()) && s.random().OneIn(4)) return ReduceInOrder(s, opcode, any, attrs);
  if (any.exact && IsSortable(any.type()) && any.rank() > 0 && s.random().OneIn(5)) {  // argmax
    const PrimitiveType index = s.random().OneIn(2) ? PrimitiveType::kS32 : PrimitiveType::kS64;
    const int64_t dim = s.random().Below(any.rank());
    Instruction* iota = s.b().Iota(Shape::Array(index, any.dims()), dim);
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
      w.size = random.Between(1, std::max<int64_t>(1, std::min<int64_t>(x.dim(d), 4)));
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
  int64_t terms = 1;
  for (const WindowDim& w : window.dims) terms *= w.size;
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
  std::vector<int64_t> dims;
  int64_t most = 1;  // windows over one element
  for (int64_t d = 0; d < x.rank(); ++d) {
    const WindowDim& w = window.dims[d];
    dims.push_back(std::max<int64_t>(0, (x.dim(d) + w.padding_low + w.padding_high - w.size) / w.stride + 1));
    most *= w.size;
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
  const Repeated repeated(s, std::max<int64_t>(1, x.dim(dim)));
  if (s.depth() >= s.g().options.max_depth || s.g().runs > kMaxRuns) return false;
  std::vector<int64_t> slice = x.dims();
  slice.erase(slice.begin() + dim);
  Computation* body = s.module()->AddComputation("scan");
  Scope inner(s.g(), body, s.depth() + 1);
  std::vector<Instruction*> operands, results;
  const auto parameter = [&](const Value& operand, const std::vector<int64_t>& dims) {
    const Shape shape = Shape::Array(operand.type(), dims);
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
    const Value carry = s.Shaped(type, whole ? slice : std::vector<int64_t>{});
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
  const Value x = s.OfRank(1, 4, [](PrimitiveType t) { return IsFloat(t) && BitWidth(t) >= 16; });
  const int64_t feature = s.random().Below(x.rank());
  std::vector<Instruction*> operands = {x.op};
  const int vectors = opcode == Opcode::kBatchNormTraining ? 2 : 3;
  for (int k = 0; k < vectors; ++k) operands.push_back(s.Shaped(x.type(), {x.dim(feature)}).op);
  if (opcode == Opcode::kBatchNormGrad) {
    operands[3] = s.Add(s.b().Unary(Opcode::kAbs, operands[3])).op;  // a variance
    operands.push_back(s.Shaped(x.type(), x.dims()).op);
  }
  Attributes attrs = With(Attr::kEpsilon, s.random().OneIn(2) ? 1e-3 : 1.0);
  attrs.set(Attr::kFeatureIndex, feature);
  Instruction* y = s.Try(opcode, operands, attrs);
  if (y == nullptr) return false;
  for (int k = 0; k < 3; ++k) s.Add(Part(s, y, k), false);
  return true;
}

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
    if (BitWidth(from) == 16 && random.OneIn(2)) x = b_.Convert(x, PrimitiveType::kF32);
    if (random.OneIn(4)) {  // the causal mask
      const Value seen = s_.Shaped(PrimitiveType::kPred, x_.dims());
      x = b_.Select(seen.op, x, b_.FullLike(x, -std::numeric_limits<double>::infinity()));
    }
    const auto how = random.Below(4);
    Instruction* y = how == 0 ? Softmax(x) : how == 1 ? LogSumExp(x) : how == 2 ? LayerNorm(x) : RmsNorm(x);
    s_.Add(b_.Convert(y, from), false);
    return true;
  }

 private:
  Instruction* Over(Instruction* x, Opcode by) {
    const double init = by == Opcode::kMaximum ? -std::numeric_limits<double>::infinity() : 0;
    Instruction* r = b_.Reduce(x, b_.ScalarConstant(x->shape().element_type(), init), dims_, by);
    if (s_.random().OneIn(4)) s_.Add(r, false);  // a statistic that is a result, too
    return r;
  }
  Instruction* Back(Instruction* r) {
    std::vector<int64_t> kept;
    for (int64_t d = 0; d < x_.rank(); ++d) {
      if (std::find(dims_.begin(), dims_.end(), d) == dims_.end()) kept.push_back(d);
    }
    const std::vector<int64_t> dims = x_.dims();
    return b_.Broadcast(r, std::vector<Dim>(dims.begin(), dims.end()), kept);
  }
  Instruction* Mean(Instruction* x) {
    Instruction* sum = Over(x, Opcode::kAdd);
    double n = 1;
    for (int64_t d : dims_) n *= static_cast<double>(x_.dim(d));
    return b_.Binary(Opcode::kMultiply, sum, b_.FullLike(sum, 1 / n));
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
  const auto fits = [](PrimitiveType t) { return IsFloat(t) && BitWidth(t) >= 16; };
  return RowNorm(s, s.OfRank(1, 3, fits)).Make();
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

constexpr Row kRows[] = {
    {Opcode::kReduce, Reduce},
    {Opcode::kReduce, NormalisedRows},
    {Opcode::kReduce, Layers},
    {Opcode::kReduceWindow, ReduceWindow},
    {Opcode::kSelectAndScatter, SelectAndScatter},
    {Opcode::kScan, Scan},
    {Opcode::kBatchNormTraining, BatchNorm},
    {Opcode::kBatchNormGrad, BatchNorm},
};

}  // namespace

absl::Span<const Row> ReductionRows() { return kRows; }

}  // namespace tenon::lab
