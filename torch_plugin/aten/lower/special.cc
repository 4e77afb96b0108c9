// Special functions of one operand, composed of elementwise ops. Every formula is one for f64, which f32 shares but for erfc, erfinv and
// lgamma (half types compute in f32). Sources: Cephes (coefficients in special_coefficients.h); lgamma by Lanczos' sum as Boost's and
// XLA's chlo do; the rest names its own.
#include <cmath>
#include <limits>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "hlo/own_calls.h"
#include "torch_plugin/aten/lower/special_coefficients.h"
#include "torch_plugin/aten/lower/values.h"

namespace tenon::aten {
namespace {

using enum Opcode;

constexpr double kPi = std::numbers::pi;
constexpr int64_t kMaxPolygamma = 30;  // 34! is no f32
constexpr double kRootPi = 1.77245385090551602729816748334;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Operand `i`, integers in f32.
V Math1(OpContext& op, int64_t i = 0) {
  return {&op, op.Operand(i, OpMath(op.result_type()), op.result_dims())};
}
Instruction* Both(V like, Instruction* a, Instruction* b) { return like.op->b.Binary(kAnd, a, b); }

V Polynomial(V x, absl::Span<const double> coefficients) {
  V sum = x.Number(coefficients[0]);
  for (size_t k = 1; k < coefficients.size(); ++k) sum = sum * x + coefficients[k];
  return sum;
}

V Fma(V a, V b, V c) { return {a.op, a.op->b.CustomCall(kFmaTarget, a.x->shape(), {a.x, b.x, c.x})}; }
V PolynomialByFma(V x, absl::Span<const double> coefficients) {
  V sum = x.Number(coefficients[0]);
  for (size_t k = 1; k < coefficients.size(); ++k) sum = Fma(sum, x, x.Number(coefficients[k]));
  return sum;
}

// Clenshaw's recurrence as Cephes' chbevl writes it.
V Chebyshev(V x, absl::Span<const double> coefficients) {
  V b0 = x.Number(coefficients[0]), b1 = x.Number(0), b2 = x.Number(0);
  for (size_t k = 1; k < coefficients.size(); ++k) {
    b2 = b1;
    b1 = b0;
    b0 = x * b1 - b2 + coefficients[k];
  }
  return (b0 - b2) * 0.5;
}

// e^(-x^2) without the rounding of x^2: x = high + low with few bits in high.
V ExpMinusSquare(V x) {
  V high = Floor(x * 16) / 16, low = x - high;
  return Exp(-(high * high)) * Exp(-(low * (x + high)));
}

// erfc(x) e^(x^2) for x >= 1.
V ScaledErfcTail(V x) {
  V middle = Polynomial(x, kErfcxMiddleNum) / Polynomial(x, kErfcxMiddleDen);
  // The powers of large x would overflow: there, two terms of the asymptotic series.
  V bounded = Min(x, x.Number(1e4));
  V far = Polynomial(bounded, kErfcxFarNum) / Polynomial(bounded, kErfcxFarDen);
  V inverse = 1 / x;
  V series = inverse / kRootPi * (1 - inverse * inverse * 0.5);
  return Select(Is(x, "LT", 8), middle, Select(Is(x, "LT", 1e4), far, series));
}

// The same for x >= 0 in f32, the form of M. Shepherd and J. Laframboise (1981).
V NarrowScaledErfc(V x) {
  V bounded = Min(x, x.Number(1e30));
  return PolynomialByFma((bounded - 2) / (bounded + 2), kErfcxNarrow) * 0.5 / (x + 0.5);
}

bool IsF32(V x) { return x.x->shape().element_type() == PrimitiveType::kF32; }

// erfc(11) and what is smaller rounds to 0.
V NarrowErfc(V x) {
  V size = Min(Abs(x), x.Number(11)), square = size * size, rest = Fma(size, size, -square);
  V tail = Exp(-square) * NarrowScaledErfc(size);
  tail = Fma(-tail, rest, tail);
  return Select(Is(x, "LT", 0), 2 - tail, tail);
}

V Erfc(V x) {
  if (IsF32(x)) return NarrowErfc(x);
  V size = Abs(x), tail = ExpMinusSquare(Min(Max(size, x.Number(1)), x.Number(40))) * ScaledErfcTail(Max(size, x.Number(1)));
  V near = 1 - x.Unary(kErf);
  return Select(Is(size, "LT", 1), near, Select(Is(x, "LT", 0), 2 - tail, tail));
}

// erfc(x) e^(x^2)
V ScaledErfc(V x) {
  V size = Abs(x), growth = Exp(x * x);
  if (IsF32(x)) {
    V tail = NarrowScaledErfc(size);
    return Select(Is(x, "LT", 0), growth * 2 - tail, tail);
  }
  V tail = ScaledErfcTail(Max(size, x.Number(1)));
  V near = growth * (1 - x.Unary(kErf));
  return Select(Is(size, "LT", 1), near, Select(Is(x, "LT", 0), growth * 2 - tail, tail));
}

// The rational approximations with which ATen's calc_erfinv begins, |y| <= 0.7 and, in sqrt(-log((1 - |y|) / 2)), above.
V ErfInvCentral(V y) {
  constexpr double kNum[] = {-0.140543331, 0.914624893, -1.645349621, 0.886226899};
  constexpr double kDen[] = {0.012229801, -0.329097515, 1.442710462, -2.118377725, 1.0};
  V z = y * y;
  return y * Polynomial(z, kNum) / Polynomial(z, kDen);
}
V ErfInvTail(V half) {  // half = (1 - |y|) / 2
  constexpr double kNum[] = {1.641345311, 3.429567803, -1.624906493, -1.970840454};
  constexpr double kDen[] = {1.637067800, 3.543889200, 1.0};
  V z = Sqrt(-Log(half));
  return Polynomial(z, kNum) / Polynomial(z, kDen);
}

// f64: Newton's steps from there, as ATen's.
V WideErfInv(V y) {
  V size = Abs(y);
  V tail = ErfInvTail((1 - size) * 0.5);
  V x = Select(Is(size, "LE", 0.7), ErfInvCentral(y), Select(Is(y, "LT", 0), -tail, tail));
  for (int step = 0; step < 2; ++step) x = x - (x.Unary(kErf) - y) / (Exp(-(x * x)) * (2 / kRootPi));  // Newton
  return Select(Is(size, "GT", 1), y.Number(kNaN), x);
}

// f32: y times polynomials in w = -log(1 - y^2) and, for 5 <= w, in its root (M. Giles, GPU Computing Gems, 2011; coefficients of our own).
// Newton's steps divide erf's rounding by a derivative that is next to none at the ends.
V NarrowErfInv(V y) {
  V w = -Log((1 - y) * (y + 1));
  V rest = Fma(w, PolynomialByFma(w, kErfInvNear), w.Number(kErfInvAtZeroLow));
  V near = Fma(y, y.Number(kErfInvAtZero), y * rest), far = y * PolynomialByFma(Sqrt(w) - 3, kErfInvFar);
  return Select(Is(w, "LT", 5), near, far);
}

V ErfInv(V y) {
  V x = IsF32(y) ? NarrowErfInv(y) : WideErfInv(y);
  V edge = Select(Is(y, "LT", 0), y.Number(-INFINITY), y.Number(INFINITY));
  return Select(Is(Abs(y), "EQ", 1), edge, x);
}

// The inverse of the normal distribution: -sqrt(2) times the inverse of erfc at 2p, p <= 1/2; Newton on log(erfc) in the tail,
// where erfc underflows and 1 - 2p rounds.
V NormalQuantile(V p) {
  V low = Min(p, 1 - p);
  V y = 1 - low * 2, central = ErfInvCentral(Min(y, y.Number(0.7)));
  for (int step = 0; step < 2; ++step) central = central - (central.Unary(kErf) - y) / (Exp(-(central * central)) * (2 / kRootPi));
  V tail = Max(ErfInvTail(low), y.Number(0.5)), target = Log(low);
  for (int step = 0; step < 2; ++step) {
    V scaled = ScaledErfc(tail);
    tail = tail + (Log(scaled * 0.5) - tail * tail - target) * scaled * (kRootPi / 2);
  }
  V x = Select(Is(y, "LE", 0.7), central, tail) * std::numbers::sqrt2;
  x = Select(Is(low, "EQ", 0), x.Number(INFINITY), x);
  x = Select(Is(low, "LT", 0), x.Number(kNaN), x);
  return Select(Is(p, "LT", 0.5), -x, x);
}

// ATen's calc_log_ndtr.
V LogNormal(V x) {
  V t = x * (1 / std::numbers::sqrt2);
  V tail = Log(ScaledErfc(-Min(t, t.Number(0))) * 0.5) - t * t;
  return Select(Is(x, "LT", -1), tail, Log1p(-(Erfc(t) * 0.5)));
}

// Lanczos' sum with g = 7 and nine terms (XLA's chlo.lgamma): coefficients[k] / (z + k).
constexpr double kLanczosG = 7;
constexpr double kLanczos[] = {0.99999999999980993227684700473478, 676.520368121885098567009190444019, -1259.13921672240287047156078755283,
                               771.3234287776530788486528258894,   -176.61502916214059906584551354,     12.507343278686904814458936853,
                               -0.13857109526572011689554707,      9.984369578019570859563e-6,          1.50563273514931155834e-7};

V PositiveLogGamma(V x) {  // x >= 1/2
  V z = x - 1, sum = x.Number(kLanczos[0]);
  for (int k = 1; k < 9; ++k) sum = sum + kLanczos[k] / (z + k);
  V t = z + (kLanczosG + 0.5);
  // (z + 1/2) log(t) - t + log(sqrt(2 pi) sum): log(t) = log(g + 1/2) + log1p(z / (g + 1/2))
  V log_t = Log1p(z / (kLanczosG + 0.5)) + std::log(kLanczosG + 0.5);
  return (z + 0.5 - t / log_t) * log_t + Log(sum) + 0.5 * std::log(2 * kPi);
}

// x less the nearest integer, which is exact: sin(pi x) and tan(pi x) keep their accuracy near their zeros.
V FromInteger(V x) { return x - x.Unary(kRoundNearestEven); }
V SinPi(V x) { return (Abs(FromInteger(x)) * kPi).Unary(kSine); }  // |sin(pi x)|

// In f64: near the roots the sum cancels.
V WideLogGamma(V x) {
  Instruction* reflected = Is(x, "LT", 0.5);
  V value = PositiveLogGamma(Select(reflected, 1 - x, x));
  V mirrored = std::log(kPi) - Log(SinPi(Abs(x))) - value;
  V result = Select(reflected, mirrored, value);
  result = Select(Is(Abs(x), "EQ", INFINITY), x.Number(INFINITY), result);
  result = Select(Is(Abs(x - 1.5), "EQ", 0.5), x.Number(0), result);  // the roots themselves
  return Select(Both(x, Is(x, "LE", 0), Is(x, "EQ", Floor(x))), x.Number(INFINITY), result);
}

// For f32, computed in f64: left of 0 a logarithm and lgamma(1 - x) cancel, and sums round in f32. x > 0: lgamma(2 + t) = t P(t),
// |t + 1/4| <= 5/4, and the recurrence there; Stirling's series from 4.
V NarrowPositiveLogGamma(V x) {
  V one = x.Number(1);
  Instruction *first = Is(x, "LT", 0.5), *second = Is(x, "LT", 1.5), *third = Is(x, "LT", 3), *near = Is(x, "LT", 4);
  V t = Select(first, x, Select(second, x - 1, Select(third, x - 2, x - 3)));
  V factor = Select(first, x * (x + 1), Select(second, x, Select(third, one, Select(near, x - 1, x))));
  V log = Log(factor), polynomial = t * Polynomial(t, kLogGamma);
  V inverse = 1 / x;
  V series = inverse * Polynomial(inverse * inverse, kStirling);
  V far = (x - 0.5) * (log - 1) + (series + (0.5 * std::log(2 * kPi) - 0.5));
  return Select(near, Select(second, polynomial - log, polynomial + log), far);
}

V NarrowLogGamma(V narrow) {
  V x = narrow.As(PrimitiveType::kF64);
  Instruction* reflected = Is(x, "LT", 0);
  V positive = NarrowPositiveLogGamma(Select(reflected, 1 - x, x));
  V part = Abs(FromInteger(x)), sine = part * Polynomial(part * part, kSineOfPiOverPi);
  V result = Select(reflected, -Log(sine) - positive, positive);
  return Select(Is(Abs(x), "EQ", INFINITY), x.Number(INFINITY), result).As(PrimitiveType::kF32);
}

V LogGamma(V x) {
  return x.x->shape().element_type() == PrimitiveType::kF32 ? NarrowLogGamma(x) : WideLogGamma(x);
}

// Cephes' psi as ATen has it: the recurrence up to 10, then the asymptotic series; reflection below 0.
V Digamma(V x) {
  Instruction* reflected = Is(x, "LT", 0);
  V at = Select(reflected, 1 - x, x), result = x.Number(0);
  for (int step = 0; step < 10; ++step) {
    Instruction* small = Is(at, "LT", 10);
    result = Select(small, result - 1 / at, result);
    at = Select(small, at + 1, at);
  }
  V z = 1 / (at * at);
  result = result + Log(at) - 0.5 / at - z * Polynomial(z, kDigamma);
  V mirrored = result - kPi / (FromInteger(x) * kPi).Unary(kTan);
  V pole = Select(Is(1 / x, "LT", 0), x.Number(INFINITY), x.Number(-INFINITY));
  result = Select(reflected, mirrored, result);
  result = Select(Both(x, reflected, Is(x, "EQ", Floor(x))), x.Number(kNaN), result);
  return Select(Is(x, "EQ", 0), pole, result);
}

// ATen's trigamma: reflection below 1/2, six steps of the recurrence, the asymptotic series.
V Trigamma(V x) {
  Instruction* reflected = Is(x, "LT", 0.5);
  V at = Select(reflected, 1 - x, x), sum = x.Number(0);
  V sine = SinPi(x);
  V result = Select(reflected, -(kPi * kPi / (sine * sine)), x.Number(0));
  for (int step = 0; step < 6; ++step) {
    sum = sum + 1 / (at * at);
    at = at + 1;
  }
  V ixx = 1 / (at * at);
  sum = sum + (0.5 / at + 1 + ixx * (1. / 6 - ixx * (1. / 30 - ixx / 42))) / at;
  result = result + sum;
  return Select(reflected, -result, result);
}

V PowerOf(V x, int64_t n) {
  V product = x.Number(1);
  for (; n > 0; n /= 2, x = x * x) {
    if (n % 2 == 1) product = product * x;
  }
  return product;
}

// zeta(s, x) = the sum over k of (x + k)^-s, x >= 1/2: ten terms, then Euler and Maclaurin's formula (Abramowitz and Stegun, 23.2.9).
V HurwitzZeta(int64_t s, V x) {
  constexpr int kTerms = 10;
  constexpr double kBernoulli[] = {1. / 6, -1. / 30, 1. / 42, -1. / 30, 5. / 66, -691. / 2730, 7. / 6, -3617. / 510, 43867. / 798};
  V sum = x.Number(0);
  for (int k = 0; k < kTerms; ++k) sum = sum + PowerOf(1 / (x + k), s);
  V at = x + kTerms, inverse = 1 / at, power = PowerOf(inverse, s);  // at^-s
  sum = sum + power * at / static_cast<double>(s - 1) + power * 0.5;
  double factor = 1;  // s (s + 1) .. (s + 2j - 2) / (2j)!
  power = power * inverse;
  for (size_t j = 1; j <= std::size(kBernoulli); ++j) {
    const double two_j = static_cast<double>(2 * j), at_s = static_cast<double>(s);
    factor *= j == 1 ? at_s / 2 : (at_s + two_j - 3) * (at_s + two_j - 2) / ((two_j - 1) * two_j);
    sum = sum + power * (factor * kBernoulli[j - 1]);
    power = power * inverse * inverse;
  }
  return sum;
}

// psi_n = (-1)^(n+1) n! zeta(n + 1, x), n >= 2, by ATen's formula; below 1/2 by reflection, psi_n(x) = (-1)^n psi_n(1 - x) less the
// n-th derivative of pi cot(pi x), which is pi^(n+1) P_n(cot(pi x)): P_0(c) = c, P_k+1 = -(1 + c^2) P_k'.
V PolyGamma(int64_t n, V x) {
  const double sign = n % 2 == 1 ? 1 : -1, factorial = std::tgamma(static_cast<double>(n) + 1);
  Instruction* reflected = Is(x, "LT", 0.5);
  V result = HurwitzZeta(n + 1, Select(reflected, 1 - x, x)) * (sign * factorial);
  std::vector<double> p = {1, 0};  // from the highest power
  for (int64_t k = 0; k < n; ++k) {
    const size_t degree = p.size() - 1;
    std::vector<double> next(p.size() + 1);
    for (size_t i = 0; i < degree; ++i) {
      const double d = p[i] * static_cast<double>(degree - i);  // of c^(degree - i - 1)
      next[i] -= d, next[i + 2] -= d;
    }
    p = std::move(next);
  }
  for (double& c : p) c *= std::pow(kPi, static_cast<double>(n) + 1);
  V below = result * -sign - Polynomial(1 / (FromInteger(x) * kPi).Unary(kTan), p);
  V pole = x.Number(sign * std::numeric_limits<double>::infinity());
  return Select(reflected, Select(Is(Floor(x), "EQ", x), pole, below), result);
}

struct Bessel {
  absl::Span<const double> near, far;
  bool odd, scaled;
};
V ModifiedBessel(V x, const Bessel& f) {
  V size = Abs(x), near = Chebyshev(Min(size, x.Number(8)) * 0.5 - 2, f.near);
  if (f.odd) near = near * size;
  V far = Chebyshev(32 / Max(size, x.Number(8)) - 2, f.far) / Sqrt(size);
  V result = Select(Is(size, "LE", 8), near, far);
  if (!f.scaled) result = result * Exp(size);
  return f.odd ? Select(Is(x, "LT", 0), -result, result) : result;
}

}  // namespace

Lowering LowerErfc(OpContext& op) { return Done(Erfc(Math1(op))); }
Lowering LowerErfcx(OpContext& op) { return Done(ScaledErfc(Math1(op))); }
Lowering LowerErfInv(OpContext& op) { return Done(ErfInv(Math1(op))); }
Lowering LowerNdtri(OpContext& op) { return Done(NormalQuantile(Math1(op))); }
Lowering LowerLogNdtr(OpContext& op) { return Done(LogNormal(Math1(op))); }
Lowering LowerLgamma(OpContext& op) { return Done(LogGamma(Math1(op))); }
Lowering LowerDigamma(OpContext& op) { return Done(Digamma(Math1(op))); }
Lowering LowerI0(OpContext& op) { return Done(ModifiedBessel(Math1(op), {kI0eNear, kI0eFar, false, false})); }
Lowering LowerI0e(OpContext& op) { return Done(ModifiedBessel(Math1(op), {kI0eNear, kI0eFar, false, true})); }
Lowering LowerI1(OpContext& op) { return Done(ModifiedBessel(Math1(op), {kI1eNear, kI1eFar, true, false})); }
Lowering LowerI1e(OpContext& op) { return Done(ModifiedBessel(Math1(op), {kI1eNear, kI1eFar, true, true})); }

// mvlgamma(self, p): p (p - 1) / 4 log(pi) + the sum of lgamma(self - j / 2), j < p.
Lowering LowerMvlgamma(OpContext& op) {
  const int64_t p = op.integer(1);
  V x = Math1(op), sum = LogGamma(x);
  for (int64_t j = 1; j < p; ++j) sum = sum + LogGamma(x - static_cast<double>(j) / 2);
  return Done(sum + static_cast<double>(p * (p - 1)) / 4 * std::log(kPi));
}

// polygamma(n, self)
Lowering LowerPolygamma(OpContext& op) {
  const int64_t n = op.integer(0);
  if (n > kMaxPolygamma) return NotLowered(absl::StrCat("polygamma above order ", kMaxPolygamma));
  V x = Math1(op, 1);
  return Done(n == 0 ? Digamma(x) : n == 1 ? Trigamma(x) : PolyGamma(n, x));
}

// -x log(x); 0 at 0, -inf below.
Lowering LowerEntr(OpContext& op) {
  V x = Math1(op);
  V value = Select(Is(x, "GT", 0), -x * Log(x), Select(Is(x, "EQ", 0), x.Number(0), x.Number(-INFINITY)));
  return Done(Select(Is(x, "NE", x), x, value));
}

}  // namespace tenon::aten
