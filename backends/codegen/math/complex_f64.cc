// Complex functions in f64 over the real ones, by the formulas that are named; special values are C99's (Annex G).
#include <limits>

#include "backends/codegen/math/coefficients_f64.h"
#include "backends/codegen/math/library_bodies.h"

namespace tenon::math::library {
namespace {

using namespace coefficients;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kLn2 = kLn2Parts[0];
constexpr double kPi = kPiParts[0];
// Between these, squares and their sums neither overflow nor lose places.
constexpr double kLeastSafe = 0x1p-500, kMostSafe = 0x1p500;

V IsInf(V x) { return Abs(x) == kInf; }
V IsFinite(V x) { return Abs(x) < kInf; }
V Call(const char* f, V x) { return CallReal(f, {x}); }
ComplexV Choose(V c, ComplexV x, ComplexV y) { return {Select(c, x.re, y.re), Select(c, x.im, y.im)}; }

// f(i z) / i and f(i z), of an f that is known.
ComplexV TimesI(ComplexV z) { return {-z.im, z.re}; }
ComplexV OverI(ComplexV z) { return {z.im, -z.re}; }

V Sign1(V x) { return CopySign(x.Constant(1), x); }

// e^a scale (re, im), where e^a alone may overflow.
ComplexV TimesExp(V a, V re, V im, double scale = 1) {
  const double step = 0x1.d422d2be5dc9bp+1022;  // e^709
  for (int k = 0; k < 2; ++k) {
    V large = a > 709;
    V factor = Select(large, step, a.Constant(1));
    re = re * factor;
    im = im * factor;
    a = Select(large, a - 709, a);
  }
  V e = Call("exp", a) * scale;
  return {re * e, im * e};
}

// (x - 1)(x + 1) + y^2 for x >= y >= 0 of moderate size, exact in the sum's leading part.
V SquaresLessOne(V x, V y) {
  DD p = TwoProduct(x, x), q = TwoProduct(y, y);
  DD a = TwoSum(p.hi, x.Constant(-1));
  DD s = TwoSum(a.hi, q.hi);
  DD t = TwoSum(s.hi, p.lo);
  return t.hi + (((a.lo + s.lo) + t.lo) + q.lo);
}

}  // namespace

// R. Smith's quotient (CACM 5, 1962) with the scaling of M. Baudin and R. Smith (arXiv:1210.4539) by libgcc's limits, so that its bits are
// libgcc's; then Annex G.5.1.
ComplexV Divide(ComplexV x, ComplexV y) {
  constexpr double kBig = std::numeric_limits<double>::max() / 2, kLeast = std::numeric_limits<double>::min();
  constexpr double kStep = std::numeric_limits<double>::epsilon(), kMuch = kBig * kStep;
  V a = x.re, b = x.im, c = y.re, d = y.im;
  // The larger part of the divisor is c, so to speak: (a + ib) / (c + id) = (b - ia) / (d - ic).
  V swap = Abs(c) < Abs(d);
  V p = Select(swap, b, a), q = Select(swap, a, b), large = Select(swap, d, c), small = Select(swap, c, d);
  auto tiny_beside = [&](V v, V w) { return And(And(Abs(v) < kLeast, Abs(w) < kMuch), Abs(large) < kMuch); };
  V halve = Abs(large) >= kBig;
  V shrunk = Select(halve, 0.5, a.Constant(1));
  V grow = Or(Abs(large) * shrunk < kLeast, Or(tiny_beside(p * shrunk, q * shrunk), tiny_beside(q * shrunk, p * shrunk)));
  V scale = shrunk * Select(grow, 1 / kStep, a.Constant(1));
  p = p * scale;
  q = q * scale;
  large = large * scale;
  small = small * scale;
  V ratio = small / large;
  V denominator = small * ratio + large;
  V usual = Abs(ratio) > kLeast;
  V with_q = Select(usual, q * ratio, small * (q / large)), with_p = Select(usual, p * ratio, small * (p / large));
  V re = (with_q + p) / denominator;
  V im = Select(swap, with_p - q, q - with_p) / denominator;

  V lost = And(IsNan(re), IsNan(im));
  V pole = And(And(c == 0.0, d == 0.0), Not(And(IsNan(a), IsNan(b))));
  V infinity = CopySign(c.Constant(kInf), c);
  V top = And(Or(IsInf(a), IsInf(b)), And(IsFinite(c), IsFinite(d)));
  V bottom = And(Or(IsInf(c), IsInf(d)), And(IsFinite(a), IsFinite(b)));
  auto boxed = [](V v) { return CopySign(Select(IsInf(v), 1, v.Constant(0)), v); };
  V a2 = boxed(a), b2 = boxed(b), c2 = boxed(c), d2 = boxed(d);
  const ComplexV of_pole{infinity * a, infinity * b};
  const ComplexV of_top{(a2 * c + b2 * d) * kInf, (b2 * c - a2 * d) * kInf};
  const ComplexV of_bottom{(a * c2 + b * d2) * 0.0, (b * c2 - a * d2) * 0.0};
  const ComplexV rare = Choose(pole, of_pole, Choose(top, of_top, Choose(bottom, of_bottom, {re, im})));
  return Choose(lost, rare, {re, im});
}

ComplexV Cexp(ComplexV z) {
  V a = z.re, b = z.im;
  ComplexV r = TimesExp(a, Call("cos", b), Call("sin", b));
  r.im = Select(b == 0.0, b, r.im);
  r.re = Select(b == 0.0, Call("exp", a), r.re);
  V unknown = Not(IsFinite(b));
  r = Choose(And(unknown, a == kInf), {a, a.Constant(kNan)}, r);
  return Choose(And(unknown, a == -kInf), {a.Constant(0), CopySign(a.Constant(0), b)}, r);
}

// log|z| near |z| = 1 from |z|^2 - 1.
ComplexV Clog(ComplexV z) {
  V a = Abs(z.re), b = Abs(z.im);
  V swap = a < b;
  V x = Select(swap, b, a), y = Select(swap, a, b);
  V huge = x > kMostSafe, tiny = x < kLeastSafe;
  V scale = Select(huge, 0x1p-600, Select(tiny, 0x1p600, x.Constant(1)));
  V shift = Select(huge, 600 * kLn2, Select(tiny, -600 * kLn2, x.Constant(0)));
  V far = Call("log", CallReal("hypot", {x * scale, y * scale})) + shift;
  V near = Call("log1p", SquaresLessOne(x, y)) * 0.5;
  V is_near = And(And(x > 0.5, x < 2), y < 2);
  return {Select(is_near, near, far), CallReal("atan2", {z.im, z.re})};
}

ComplexV Cpow(ComplexV z, ComplexV w) { return CallComplex("cexp", {w * CallComplex("clog", {z})}); }

ComplexV Csqrt(ComplexV z) {
  V huge = Or(Abs(z.re) > kMostSafe, Abs(z.im) > kMostSafe), tiny = And(Abs(z.re) < kLeastSafe, Abs(z.im) < kLeastSafe);
  V scale = Select(huge, 0x1p-600, Select(tiny, 0x1p600, z.re.Constant(1)));
  V back = Select(huge, 0x1p300, Select(tiny, 0x1p-300, z.re.Constant(1)));
  V a = z.re * scale, b = z.im * scale;
  V t = Sqrt((Abs(a) + CallReal("hypot", {a, b})) * 0.5);
  t = t * back;
  V other = Select(t == 0.0, Abs(z.im), Abs(z.im) / (t + t));
  V right = a >= 0;
  ComplexV r{Select(right, t, other), CopySign(Select(right, other, t), z.im)};
  const V zero = a.Constant(0), infinite = a.Constant(kInf), nan = a.Constant(kNan);
  ComplexV of_infinite = Choose(z.re > 0, {infinite, Select(IsNan(z.im), z.im, CopySign(zero, z.im))},
                                {Select(IsNan(z.im), z.im, zero), CopySign(infinite, z.im)});
  r = Choose(IsInf(z.re), of_infinite, Choose(Or(IsNan(z.re), IsNan(z.im)), {nan, nan}, r));
  return Choose(IsInf(z.im), {infinite, z.im}, r);
}

ComplexV Csinh(ComplexV z) {
  V a = z.re, b = z.im;
  V s = Call("sin", b), c = Call("cos", b);
  V large = Abs(a) > 40;
  V bounded = ClampHigh(ClampLow(a, -40), 40);
  ComplexV big = TimesExp(Abs(a), Sign1(a) * c, s, 0.5);
  ComplexV r = Choose(large, big, {Call("sinh", bounded) * c, Call("cosh", bounded) * s});
  r.re = Select(b == 0.0, Call("sinh", a), Select(And(a == 0.0, Not(IsFinite(b))), a, r.re));
  r.im = Select(b == 0.0, b, r.im);
  return Choose(And(IsInf(a), Not(IsFinite(b))), {a.Constant(kInf), a.Constant(kNan)}, r);
}

ComplexV Ccosh(ComplexV z) {
  V a = z.re, b = z.im;
  V s = Call("sin", b), c = Call("cos", b);
  V large = Abs(a) > 40;
  V bounded = ClampHigh(ClampLow(a, -40), 40);
  ComplexV big = TimesExp(Abs(a), c, Sign1(a) * s, 0.5);
  ComplexV r = Choose(large, big, {Call("cosh", bounded) * c, Call("sinh", bounded) * s});
  V zero = Select(IsNan(a), b, CopySign(a.Constant(0), a) * Sign1(b));
  r.re = Select(b == 0.0, Call("cosh", a), r.re);
  r.im = Select(b == 0.0, zero, Select(And(a == 0.0, Not(IsFinite(b))), 0, r.im));
  return Choose(And(IsInf(a), Not(IsFinite(b))), {a.Constant(kInf), a.Constant(kNan)}, r);
}

// sinh a cosh a / (sinh^2 a + cos^2 b) + i sin b cos b / (...)
ComplexV Ctanh(ComplexV z) {
  V a = z.re, b = z.im;
  V s = Call("sin", b), c = Call("cos", b);
  V bounded = ClampHigh(ClampLow(a, -40), 40);
  V sh = Call("sinh", bounded), ch = Call("cosh", bounded);
  V square = Fma(sh, sh, c * c);
  ComplexV r{sh * ch / square, s * c / square};
  ComplexV big{Sign1(a), s * c * Call("exp", Abs(a) * -2) * 4};
  r = Choose(Abs(a) > 40, big, r);
  r = Choose(b == 0.0, {Call("tanh", a), b}, r);
  V unknown = Not(IsFinite(b));
  r = Choose(unknown, {Select(a == 0.0, a, kNan), a.Constant(kNan)}, r);
  V turn = Select(And(Not(unknown), Abs(b) > 1), s * c, b);
  return Choose(IsInf(a), {Sign1(a), CopySign(a.Constant(0), turn)}, r);
}

ComplexV Csin(ComplexV z) {
  ComplexV r = OverI(CallComplex("csinh", {TimesI(z)}));
  return {r.re, Select(And(IsInf(z.im), Not(IsFinite(z.re))), kInf, r.im)};
}
ComplexV Ccos(ComplexV z) { return CallComplex("ccosh", {TimesI(z)}); }
ComplexV Ctan(ComplexV z) { return OverI(CallComplex("ctanh", {TimesI(z)})); }

namespace {

struct Arcs {
  V sine, cosine, imaginary;  // real parts of asin and acos, and the imaginary part of asin, of x, y >= 0
};

// T. Hull, T. Fairgrieve, P. Tang, Implementing the complex arcsine and arccosine functions using exception handling, ACM TOMS 23, 1997.
Arcs ArcsOf(V x, V y) {
  V far = Or(Or(x > kMostSafe, y > kMostSafe), Or(IsInf(x), IsInf(y)));
  V u = Select(far, 2, x), v = Select(far, 1, y);
  V r = CallReal("hypot", {u + 1, v}), s = CallReal("hypot", {u - 1, v});
  V a = (r + s) * 0.5;
  V b = u / a;
  V apx = a + u;
  V inside = u <= 1;
  // y^2 / (r + x + 1) and what stands for the sign of x - 1.
  V right = v * v / (r + (u + 1));
  V near = s + Select(inside, 1 - u, u - 1);
  V quotient = Select(near == 0.0, 0, v * v / near);
  V root_in = Sqrt(apx * (right + near) * 0.5);
  V root_out = v * Sqrt((apx / (r + (u + 1)) + apx / near) * 0.5);
  root_out = Select(v == 0.0, 0, root_out);
  V root = Select(inside, root_in, root_out);
  V central = b <= 0.6417;
  V clipped = Select(central, b, 0);
  V sine = Select(central, Call("asin", clipped), CallReal("atan2", {u, root}));
  V cosine = Select(central, Call("acos", clipped), CallReal("atan2", {root, u}));
  V less = u < 1;
  V am1 = (right + Select(less, quotient, near)) * 0.5;
  V imaginary = Select(a <= 1.5, Call("log1p", am1 + Sqrt(am1 * (a + 1))), Call("log", a + Sqrt((a - 1) * (a + 1))));
  // So near the real axis that y^2 is lost.
  V gap = Abs(u - 1);
  V flat = v < gap * 0x1p-53;
  V width = Sqrt(gap * (u + 1));
  imaginary = Select(And(flat, less), v / width, imaginary);
  cosine = Select(And(flat, Not(less)), v / width, cosine);
  // And so near 1.
  V at_one = And(v < kLeastSafe, gap == 0.0);
  imaginary = Select(at_one, Sqrt(v), imaginary);
  cosine = Select(at_one, Sqrt(v), cosine);
  V log = Call("log", CallReal("hypot", {x * 0x1p-10, y * 0x1p-10})) + 11 * kLn2;
  return {Select(far, CallReal("atan2", {x, y}), sine), Select(far, CallReal("atan2", {y, x}), cosine), Select(far, log, imaginary)};
}

}  // namespace

ComplexV Casin(ComplexV z) {
  Arcs arcs = ArcsOf(Abs(z.re), Abs(z.im));
  ComplexV r{CopySign(Select(z.re == 0.0, 0, arcs.sine), z.re), CopySign(arcs.imaginary, z.im)};
  return r;
}

ComplexV Cacos(ComplexV z) {
  Arcs arcs = ArcsOf(Abs(z.re), Abs(z.im));
  V right = Select(z.re == 0.0, kPi / 2, arcs.cosine);
  V re = Select(z.re < 0, kPi - right, right);
  return {re, CopySign(arcs.imaginary, -z.im)};
}

ComplexV Casinh(ComplexV z) { return TimesI(CallComplex("casin", {OverI(z)})); }

ComplexV Cacosh(ComplexV z) {
  ComplexV c = CallComplex("cacos", {z});
  return {Abs(c.im), Select(IsNan(z.im), c.re, CopySign(c.re, z.im))};  // of 0 + i NaN +pi/2, as the C library's
}

// log1p(4x / ((1 - x)^2 + y^2)) / 4, and half the angle of (1 - x)(1 + x) - y^2 + 2iy.
ComplexV Catanh(ComplexV z) {
  V x = Abs(z.re), y = Abs(z.im);
  V far = Or(x > 0x1p60, y > 0x1p60);
  V u = Select(far, 0, x), v = Select(far, 1, y);
  V gap = 1 - u;
  V square = Fma(gap, gap, v * v);
  V re = Call("log1p", u * 4 / square) * 0.25;
  // At x = 1 the square may be lost: (log 2 - log y) / 2.
  V at_one = And(gap == 0.0, v < 0x1p-100);
  re = Select(at_one, (kLn2 - Call("log", v)) * 0.5, re);
  V swap = u < v;
  V large = Select(swap, v, u), small = Select(swap, u, v);
  V moderate = Or(large >= 0.75, small >= 0.5);
  V lost = -SquaresLessOne(Select(moderate, large, 1), Select(moderate, small, 0));
  V plain = (1 - u) * (1 + u) - v * v;
  V angle = Select(And(moderate, large < 2), Select(lost == 0.0, 0, lost), plain);
  V im = CallReal("atan2", {v + v, angle}) * 0.5;
  // Far out: x / (x^2 + y^2), and a right angle.
  V h = CallReal("hypot", {x * 0.5, y * 0.5});
  V out = Select(x == 0.0, 0, x / h / h * 0.25);
  out = Select(Or(IsInf(x), IsInf(y)), 0, out);
  re = Select(far, out, re);
  im = Select(far, kPi / 2, im);
  im = Select(And(IsInf(x), IsNan(y)), y, im);
  V unknown = Or(IsNan(x), IsNan(y));
  V kept = Or(Or(x == 0.0, IsInf(x)), IsInf(y));  // the real part is 0 whatever the other is
  re = Select(unknown, Select(kept, x.Constant(0), kNan), re);
  im = Select(unknown, Select(IsInf(y), kPi / 2, x.Constant(kNan)), im);
  return {CopySign(re, z.re), CopySign(im, z.im)};
}

ComplexV Catan(ComplexV z) { return OverI(CallComplex("catanh", {TimesI(z)})); }

}  // namespace tenon::math::library
