// Reductions. Sums of half types accumulate in f32, variances and long means in f64 totals (as ATen's); sums and products of integers
// in the result's dtype. What keeps long sums in f32 exact is the kernels' business (backends/codegen/plan/wide_sums.h).
#include <algorithm>
#include <cmath>
#include <limits>

#include "torch_plugin/aten/lower/indexing.h"
#include "torch_plugin/aten/lower/reduce.h"
#include "torch_plugin/aten/lower/values.h"

namespace tenon::aten {

using enum Opcode;
using PT = PrimitiveType;


// The identity of maximum (lowest) or minimum (highest).
Instruction* LimitConstant(OpContext& op, PT type, bool lowest) {
  if (IsFloat(type)) return op.Scalar(type, lowest ? -INFINITY : INFINITY);
  if (type == PT::kPred) return op.b.ScalarConstantInt(type, lowest ? 0 : 1);
  const int bits = BitWidth(type);
  if (IsUnsigned(type)) {
    return op.b.ScalarConstantInt(type, lowest ? 0 : static_cast<int64_t>(bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1));
  }
  const int64_t highest = static_cast<int64_t>((uint64_t{1} << (bits - 1)) - 1);
  return op.b.ScalarConstantInt(type, lowest ? -highest - 1 : highest);
}

Instruction* ReduceSum(OpContext& op, Instruction* x, absl::Span<const int64_t> axes) {
  return op.b.Reduce(x, op.Scalar(x->shape().element_type(), 0), axes, kAdd);
}
Instruction* ReduceMax(OpContext& op, Instruction* x, absl::Span<const int64_t> axes) {
  const PT type = x->shape().element_type();
  if (type == PT::kPred) return op.b.Reduce(x, LimitConstant(op, type, true), axes, kOr);
  return op.b.Reduce(x, LimitConstant(op, type, true), axes, kMaximum);
}
Instruction* ReduceMin(OpContext& op, Instruction* x, absl::Span<const int64_t> axes) {
  const PT type = x->shape().element_type();
  if (type == PT::kPred) return op.b.Reduce(x, LimitConstant(op, type, false), axes, kAnd);
  return op.b.Reduce(x, LimitConstant(op, type, false), axes, kMinimum);
}

Instruction* SpreadBack(OpContext& op, Instruction* reduced, const Instruction* like, absl::Span<const int64_t> axes) {
  std::vector<int64_t> kept;
  for (int64_t d = 0; d < like->shape().rank(); ++d) {
    if (std::find(axes.begin(), axes.end(), d) == axes.end()) kept.push_back(d);
  }
  return op.b.Broadcast(reduced, like->shape().dims(), kept);
}

Dim CountOf(const Instruction* x, absl::Span<const int64_t> axes) {
  Dim count = 1;
  for (int64_t d : axes) count *= x->shape().dim(d);
  return count;
}

Instruction* CountLike(OpContext& op, Instruction* like, Dim count, double less) {
  if (count.is_constant()) return op.Full(like, std::max(0.0, static_cast<double>(count.constant()) - less));
  const PT type = like->shape().element_type();
  Instruction* n = op.SizeValue(count, type);
  if (less != 0) n = op.b.Binary(kMaximum, op.b.Binary(kSubtract, n, op.Scalar(type, less)), op.Scalar(type, 0));
  return op.b.BroadcastTo(n, like->shape().dims());
}
Instruction* InverseCountLike(OpContext& op, Instruction* like, Dim count) {
  if (count.is_constant()) return op.Full(like, 1 / static_cast<double>(count.constant()));
  const PT type = like->shape().element_type();
  Instruction* inverse = op.b.Binary(kDivide, op.Scalar(type, 1), op.SizeValue(count, type));
  return op.b.BroadcastTo(inverse, like->shape().dims());
}

// In f64, where a quotient's last bit is of no account. One instruction in kernels that do it for every vector.
static Instruction* MeanOfSum(OpContext& op, Instruction* sum, Dim n) {
  return op.b.Binary(kMultiply, sum, InverseCountLike(op, sum, n));
}

Moments MeanAndVariance(OpContext& op, Instruction* x, absl::Span<const int64_t> axes, double correction) {
  Builder& b = op.b;
  const Dim n = CountOf(x, axes);
  Moments m;
  Instruction* sum = ReduceSum(op, x, axes);
  m.mean = b.Binary(kDivide, sum, CountLike(op, sum, n));
  m.centered = b.Binary(kSubtract, x, SpreadBack(op, m.mean, x, axes));
  Instruction* squares = ReduceSum(op, b.Binary(kMultiply, m.centered, m.centered), axes);
  m.variance = b.Binary(kDivide, squares, CountLike(op, squares, n, correction));
  return m;
}

bool IsFew(Dim count) { return count.is_constant() && count.constant() < 128; }

Instruction* WideSum(OpContext& op, Instruction* x, absl::Span<const int64_t> axes) {
  if (IsFew(CountOf(x, axes))) x = op.b.Convert(x, PT::kF64);
  return op.b.Convert(ReduceSum(op, x, axes), PT::kF64);
}

Moments WideMeanAndVariance(OpContext& op, Instruction* x, absl::Span<const int64_t> axes, double correction) {
  Builder& b = op.b;
  if (x->shape().element_type() == PT::kF64 || IsFew(CountOf(x, axes))) {
    return MeanAndVariance(op, b.Convert(x, PT::kF64), axes, correction);
  }
  const Dim n = CountOf(x, axes);
  Moments m;
  m.mean = MeanOfSum(op, WideSum(op, x, axes), n);
  // Around the mean in f32, so that the squares are f32: their sum is too large by n times the square of its error (Chan, Golub and
  // LeVeque, "Algorithms for computing the sample variance", 1983).
  Instruction* near = b.Convert(m.mean, PT::kF32);
  m.centered = b.Binary(kSubtract, x, SpreadBack(op, near, x, axes));
  Instruction* squares = WideSum(op, b.Binary(kMultiply, m.centered, m.centered), axes);
  Instruction* off = b.Binary(kSubtract, m.mean, b.Convert(near, PT::kF64));
  Instruction* excess = b.Binary(kMultiply, b.Binary(kMultiply, off, off), CountLike(op, off, n));
  squares = b.Binary(kMaximum, b.Binary(kSubtract, squares, excess), op.Full(squares, 0));
  m.variance = b.Binary(kDivide, squares, CountLike(op, squares, n, correction));
  return m;
}

namespace {

Instruction* MathInput(OpContext& op, int64_t i, PT to) { return op.Cast(op.tensor(i), OpMath(to)); }
Instruction* ToPred(OpContext& op, Instruction* x) {
  return x->shape().element_type() == PT::kPred ? x : op.b.Compare(x, op.Full(x, 0), "NE");
}
Lowering SumOver(OpContext& op, std::vector<int64_t> axes) {
  return Values{Shaped(op, ReduceSum(op, MathInput(op, 0, op.result_type()), axes))};
}
// A long mean of f32 is the one that variances take: in one graph both come from one sum.
Lowering MeanOver(OpContext& op, std::vector<int64_t> axes) {
  Instruction* x = MathInput(op, 0, op.result_type());
  const Dim count = CountOf(op.tensor(0), axes);
  if (x->shape().element_type() == PT::kF32 && !IsFew(count)) {
    Instruction* mean = MeanOfSum(op, WideSum(op, x, axes), count);
    return Values{Shaped(op, op.b.Convert(mean, PT::kF32))};
  }
  Instruction* sum = ReduceSum(op, x, axes);
  return Values{Shaped(op, op.b.Binary(kDivide, sum, CountLike(op, sum, count)))};
}
Lowering LogicalOver(OpContext& op, std::vector<int64_t> axes, bool any) {
  Instruction* x = ToPred(op, op.tensor(0));
  return Values{Shaped(op, op.b.Reduce(x, op.b.ScalarConstantInt(PT::kPred, any ? 0 : 1), axes, any ? kOr : kAnd))};
}
Lowering ProdOver(OpContext& op, std::vector<int64_t> axes) {
  if (op.result_type() == PT::kPred) return LogicalOver(op, std::move(axes), false);  // all of them
  Instruction* x = MathInput(op, 0, op.result_type());
  return Values{Shaped(op, op.b.Reduce(x, op.Scalar(x->shape().element_type(), 1), axes, kMultiply))};
}
std::vector<int64_t> AllAxes(OpContext& op) {
  std::vector<int64_t> axes;
  for (int64_t d = 0; d < Rank(op.tensor(0)); ++d) axes.push_back(d);
  return axes;
}
std::vector<int64_t> OneAxis(OpContext& op, int64_t at) {
  if (Rank(op.tensor(0)) == 0) return {};
  return {op.axis(at, Rank(op.tensor(0)))};
}

// The first position of the extremum along `axis` (of the first NaN, if there is one), as s64.
Instruction* PositionOf(OpContext& op, Instruction* x, Instruction* extremum, int64_t axis) {
  Builder& b = op.b;
  Instruction* hit = b.Compare(x, SpreadBack(op, extremum, x, {axis}), "EQ");
  if (IsFloat(x->shape().element_type())) hit = b.Binary(kOr, hit, b.Compare(x, x, "NE"));
  Instruction* position = b.Iota(Shape(PT::kS64, x->shape().dims()), axis);
  Instruction* beyond = CountLike(op, position, x->shape().dim(axis));
  return ReduceMin(op, b.Select(hit, position, beyond), {axis});
}

Instruction* Extremum(OpContext& op, Instruction* x, absl::Span<const int64_t> axes, bool max) {
  return max ? ReduceMax(op, x, axes) : ReduceMin(op, x, axes);
}

constexpr char kExtremumOfNone[] = "an extremum of no elements";  // eager raises

Lowering ExtremumWithIndex(OpContext& op, bool max) {
  Instruction* x = op.tensor(0);
  if (Rank(x) == 0) return Values{x, op.b.Full(PT::kS64, {}, 0)};
  const int64_t axis = op.axis(1, Rank(x));
  if (IsEmpty(x, axis)) return NotLowered(kExtremumOfNone);
  Instruction* best = Extremum(op, x, {axis}, max);
  Values results = {Shaped(op, best, 0), nullptr};
  if (op.result_used(1)) {
    results[1] = Shaped(op, PositionOf(op, x, best, axis), 1);
  }
  return results;
}

Lowering ArgExtremum(OpContext& op, bool max) {
  Instruction* x = op.tensor(0);
  int64_t axis = 0;
  if (op.is_none(1) || Rank(x) == 0) {
    x = op.b.Reshape(x, {x->shape().num_elements()});
  } else {
    axis = op.axis(1, Rank(x));
  }
  return Values{Shaped(op, PositionOf(op, x, Extremum(op, x, {axis}, max), axis))};
}

Lowering ExtremumOver(OpContext& op, std::vector<int64_t> axes, bool max) {
  Instruction* x = op.tensor(0);
  if (std::any_of(axes.begin(), axes.end(), [&](int64_t axis) { return IsEmpty(x, axis); })) return NotLowered(kExtremumOfNone);
  return Values{Shaped(op, Extremum(op, x, axes, max))};
}

// var, std and their mean: dims at 1, correction at 2.
Lowering VarianceOver(OpContext& op, bool root, bool with_mean) {
  const double correction = op.is_none(2) ? 1 : op.number(2);
  Instruction* x = op.b.Convert(op.tensor(0), OpMath(op.tensor(0)->shape().element_type()));
  if (IsEmpty(x)) {  // NaN of no elements; other dims that are empty leave no result
    Values undefined = {op.b.Full(op.result_type(), op.result_dims(), NAN)};
    if (with_mean && IsComplex(op.result_type(1))) {
      Instruction* part = op.b.Full(ComplexComponent(op.result_type(1)), op.result_dims(1), NAN);
      undefined.push_back(op.b.Binary(kComplex, part, part));
    } else if (with_mean) {
      undefined.push_back(op.b.Full(op.result_type(1), op.result_dims(1), NAN));
    }
    return undefined;
  }
  auto moments = [&](Instruction* of) {  // ATen's: WelfordOps<scalar_t, double, ...>
    return WideMeanAndVariance(op, of, op.axes(1, Rank(x)), correction);
  };
  Moments m;
  if (IsComplex(x->shape().element_type())) {  // of both parts: E|x - E x|^2
    const Moments real = moments(op.b.Unary(kReal, x)), imag = moments(op.b.Unary(kImag, x));
    m.variance = op.b.Binary(kAdd, real.variance, imag.variance);
    if (with_mean) m.mean = op.b.Binary(kComplex, real.mean, imag.mean);
  } else {
    m = moments(x);
  }
  Instruction* v = root ? op.b.Unary(kSqrt, m.variance) : m.variance;
  Values results = {Shaped(op, v)};
  if (with_mean) results.push_back(Shaped(op, m.mean, 1));
  return results;
}

// log(sum(exp(x))) with the maximum (of complex numbers: of the real parts) taken out; an infinite maximum is left in.
Lowering LogSumExp(OpContext& op) {
  Builder& b = op.b;
  Instruction* x = MathInput(op, 0, op.result_type());
  const std::vector<int64_t> axes = op.axes(1, Rank(x));
  const bool complex = IsComplex(x->shape().element_type());
  Instruction* max = ReduceMax(op, complex ? b.Unary(kReal, x) : x, axes);
  Instruction* infinite = b.Compare(b.Unary(kAbs, max), op.Full(max, INFINITY), "EQ");
  max = b.Select(infinite, op.Full(max, 0), max);
  if (complex) max = b.Convert(max, x->shape().element_type());
  Instruction* sum = ReduceSum(op, b.Unary(kExponential, b.Binary(kSubtract, x, SpreadBack(op, max, x, axes))), axes);
  return Values{Shaped(op, b.Binary(kAdd, b.Unary(kLog, sum), max))};
}

Instruction* NonZeros(OpContext& op, Instruction* x) {
  return op.b.Convert(op.b.Compare(x, op.Full(x, 0), "NE"), x->shape().element_type());
}
// |x| to the power `ord`.
Instruction* PowersOf(OpContext& op, Instruction* x, double ord) {
  if (ord == 2) return op.b.Binary(kMultiply, x, x);
  Instruction* size = op.b.Unary(kAbs, x);
  return ord == 1 ? size : op.b.Binary(kPower, size, op.Full(size, ord));
}

Lowering VectorNorm(OpContext& op) {
  Builder& b = op.b;
  const double ord = op.is_none(1) ? 2 : op.number(1);
  const bool complex = IsComplex(op.tensor(0)->shape().element_type());  // its norm is that of the absolute values
  Instruction* x = complex ? b.Convert(b.Unary(kAbs, op.tensor(0)), op.result_type()) : MathInput(op, 0, op.result_type());
  const std::vector<int64_t> axes = op.axes(2, Rank(x));
  Instruction* size = b.Unary(kAbs, x);
  if (IsEmpty(op.result_dims())) return op.One(b.Full(op.result_type(), op.result_dims(), 0));
  if (IsEmpty(x) && (std::isinf(ord) || ord < 0)) return NotLowered("norm of an empty tensor: eager refuses it");
  if (ord == INFINITY) return Values{Shaped(op, ReduceMax(op, size, axes))};
  if (ord == -INFINITY) return Values{Shaped(op, ReduceMin(op, size, axes))};
  Instruction* sum = ReduceSum(op, ord == 0 ? NonZeros(op, x) : PowersOf(op, x, ord), axes);
  if (ord == 0 || ord == 1) return Values{Shaped(op, sum)};
  if (ord == 2) return Values{Shaped(op, b.Unary(kSqrt, sum))};
  return Values{Shaped(op, b.Binary(kPower, sum, op.Full(sum, 1 / ord)))};
}


// ATen's reduction argument of a loss: 0 none, 1 mean, 2 sum.
Lowering ReducedLoss(OpContext& op, Instruction* loss, int64_t reduction) {
  if (reduction == 0) return op.One(loss);
  std::vector<int64_t> all(loss->shape().rank());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  Instruction* sum = ReduceSum(op, loss, all);
  if (reduction == 2) return op.One(sum);
  const Dim count = CountOf(loss, all);
  return op.One(op.b.Binary(Opcode::kDivide, sum, CountLike(op, sum, count)));
}

}  // namespace

Lowering LowerSum(OpContext& op) { return SumOver(op, AllAxes(op)); }
Lowering LowerSumDims(OpContext& op) { return SumOver(op, op.axes(1, Rank(op.tensor(0)))); }
Lowering LowerMean(OpContext& op) { return MeanOver(op, AllAxes(op)); }
Lowering LowerMeanDims(OpContext& op) { return MeanOver(op, op.axes(1, Rank(op.tensor(0)))); }
Lowering LowerProd(OpContext& op) { return ProdOver(op, AllAxes(op)); }
Lowering LowerProdDim(OpContext& op) { return ProdOver(op, OneAxis(op, 1)); }
Lowering LowerAny(OpContext& op) { return LogicalOver(op, AllAxes(op), true); }
Lowering LowerAnyDim(OpContext& op) { return LogicalOver(op, OneAxis(op, 1), true); }
Lowering LowerAnyDims(OpContext& op) { return LogicalOver(op, op.axes(1, Rank(op.tensor(0))), true); }
Lowering LowerAll(OpContext& op) { return LogicalOver(op, AllAxes(op), false); }
Lowering LowerAllDim(OpContext& op) { return LogicalOver(op, OneAxis(op, 1), false); }
Lowering LowerAllDims(OpContext& op) { return LogicalOver(op, op.axes(1, Rank(op.tensor(0))), false); }
Lowering LowerAmax(OpContext& op) { return ExtremumOver(op, op.axes(1, Rank(op.tensor(0))), true); }
Lowering LowerAmin(OpContext& op) { return ExtremumOver(op, op.axes(1, Rank(op.tensor(0))), false); }
Lowering LowerMax(OpContext& op) { return ExtremumOver(op, AllAxes(op), true); }
Lowering LowerMin(OpContext& op) { return ExtremumOver(op, AllAxes(op), false); }
Lowering LowerMaxDim(OpContext& op) { return ExtremumWithIndex(op, true); }
Lowering LowerMinDim(OpContext& op) { return ExtremumWithIndex(op, false); }
Lowering LowerArgmax(OpContext& op) { return ArgExtremum(op, true); }
Lowering LowerArgmin(OpContext& op) { return ArgExtremum(op, false); }
Lowering LowerAminmax(OpContext& op) {
  Instruction* x = op.tensor(0);
  std::vector<int64_t> axes = op.is_none(1) ? AllAxes(op) : OneAxis(op, 1);
  return Values{Shaped(op, ReduceMin(op, x, axes), 0), Shaped(op, ReduceMax(op, x, axes), 1)};
}
Lowering LowerVar(OpContext& op) { return VarianceOver(op, false, false); }
Lowering LowerStd(OpContext& op) { return VarianceOver(op, true, false); }
Lowering LowerVarMean(OpContext& op) { return VarianceOver(op, false, true); }
Lowering LowerStdMean(OpContext& op) { return VarianceOver(op, true, true); }
Lowering LowerLogsumexp(OpContext& op) { return LogSumExp(op); }
Lowering LowerVectorNorm(OpContext& op) { return VectorNorm(op); }
Lowering PowerSum(OpContext& op) {
  const double ord = op.is_none(1) ? 2 : op.number(1);
  if (std::isinf(ord)) return NotLowered("a sum of infinite powers");
  Instruction* x = MathInput(op, 0, op.result_type());
  return Values{Shaped(op, ReduceSum(op, PowersOf(op, x, ord), op.axes(2, Rank(x))))};
}

namespace {

// self - target in the dtype of the computation, both broadcast together.
Instruction* LossDifference(OpContext& op) {
  const PrimitiveType math = OpMath(op.Common({0, 1}));
  std::vector<Dim> dims = op.meta(0).sizes, other = op.meta(1).sizes;
  if (dims.size() < other.size()) dims.swap(other);
  for (size_t k = 1; k <= other.size(); ++k) {
    Dim& into = dims[dims.size() - k];
    if (KnownOne(into)) into = other[other.size() - k];
  }
  return op.b.Binary(Opcode::kSubtract, op.Operand(0, math, dims), op.Operand(1, math, dims));
}
Instruction* LossDistance(OpContext& op) { return op.b.Unary(Opcode::kAbs, LossDifference(op)); }

}  // namespace

// mse_loss(self, target, reduction): none, mean or sum of squared differences.
Lowering LowerMseLoss(OpContext& op) {
  Instruction* d = LossDifference(op);
  return ReducedLoss(op, op.b.Binary(Opcode::kMultiply, d, d), op.integer(2));
}

// binary_cross_entropy(self, target, weight?, reduction): -weight (target log(self) + (1 - target) log(1 - self)), logs at least -100.
Lowering LowerBinaryCrossEntropy(OpContext& op) {
  const PrimitiveType math = OpMath(op.Common({0, 1}));
  V x = {&op, op.b.Convert(op.tensor(0), math)}, target = {&op, op.b.Convert(op.tensor(1), math)};
  if (!Shape::SameDims(x.x->shape(), target.x->shape())) return NotLowered("binary_cross_entropy: self and target of other sizes");
  for (const auto& [v, name] : {std::pair(x, "input"), std::pair(target, "target")}) {
    if (IsEmpty(v.x)) continue;
    Instruction* inside = op.b.Binary(Opcode::kAnd, Is(v, "GE", 0), Is(v, "LE", 1));
    op.Check(op.b.Unary(Opcode::kNot, inside), "RuntimeError", absl::StrCat("all elements of ", name, " should be between 0 and 1"));
  }
  const V least = x.Number(-100);
  V loss = (target - 1) * Max(Log1p(-x), least) - target * Max(Log(x), least);
  if (!op.is_none(2)) loss = loss * V{&op, op.b.BroadcastTo(op.b.Convert(op.tensor(2), math), loss.x->shape().dims())};
  return ReducedLoss(op, loss.x, op.integer(3));
}

// soft_margin_loss(self, target, reduction): log(1 + exp(-self target)). ATen rounds each step, and powers of f16 overflow soon.
Lowering LowerSoftMarginLoss(OpContext& op) {
  if (op.result_type() == PrimitiveType::kF16) return NotLowered("soft_margin_loss of f16");
  const PrimitiveType math = OpMath(op.Common({0, 1}));
  V x = {&op, op.b.Convert(op.tensor(0), math)}, target = {&op, op.b.Convert(op.tensor(1), math)};
  if (!Shape::SameDims(x.x->shape(), target.x->shape())) return NotLowered("soft_margin_loss: self and target of other sizes");
  return ReducedLoss(op, Log1p(Exp(-x * target)).x, op.integer(2));
}

// smooth_l1_loss(self, target, reduction, beta): z*z/2/beta below beta, z - beta/2 above, z = |self - target|.
Lowering LowerSmoothL1Loss(OpContext& op) {
  Instruction* z = LossDistance(op);
  Builder& b = op.b;
  const double beta = op.number(3);
  Instruction* square = b.Binary(Opcode::kMultiply, op.Full(z, 0.5), b.Binary(Opcode::kMultiply, z, z));
  Instruction* below = b.Binary(Opcode::kDivide, square, op.Full(z, beta));
  Instruction* above = b.Binary(Opcode::kSubtract, z, op.Full(z, 0.5 * beta));
  return ReducedLoss(op, b.Select(b.Compare(z, op.Full(z, beta), "LT"), below, above), op.integer(2));
}

// huber_loss(self, target, reduction, delta): z*z/2 up to delta, delta*(z - delta/2) above, z = |self - target|.
Lowering LowerHuberLoss(OpContext& op) {
  Instruction* z = LossDistance(op);
  Builder& b = op.b;
  const double delta = op.number(3);
  Instruction* below = b.Binary(Opcode::kMultiply, op.Full(z, 0.5), b.Binary(Opcode::kMultiply, z, z));
  Instruction* above = b.Binary(Opcode::kMultiply, op.Full(z, delta), b.Binary(Opcode::kSubtract, z, op.Full(z, 0.5 * delta)));
  return ReducedLoss(op, b.Select(b.Compare(z, op.Full(z, delta), "LE"), below, above), op.integer(2));
}

}  // namespace tenon::aten
