// Trigonometric functions in f64. Arguments below 2^30 are reduced by three words of pi/2 (W. Cody, W. Waite 1980), others by the binary
// places of 2/pi that count (M. Payne, R. Hanek, SIGNUM Newsletter 18, 1983): what is left is a double-double. The kernels add the terms
// behind the first exactly where they would cost the last place, as fdlibm's do.
#include <limits>

#include "backends/codegen/math/coefficients_f64.h"
#include "backends/codegen/math/library_bodies.h"
#include "backends/codegen/math/out_of_line.h"
#include "llvm/IR/Module.h"

namespace tenon::math::library {
namespace {

using namespace coefficients;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kRound = 0x1.8p52;
constexpr double kLarge = 0x1p30;

struct Reduced {
  V n;  // i64: quarter turns, modulo 4
  DD r;  // the rest, |r| <= pi/4 and a little
};

Reduced ReduceModerate(V a) {
  V shifted = Fma(a, kTwoOverPi, kRound);
  V n = shifted - kRound;
  V head = Fma(-n, kHalfPiParts[0], a);  // exact: a multiple of 2^-53 below 1
  DD middle = TwoProduct(n, n.Constant(kHalfPiParts[1]));
  DD r = TwoSum(head, -middle.hi);
  return {Bits(shifted), FastTwoSum(r.hi, Fma(-n, kHalfPiParts[2], r.lo - middle.lo))};
}

llvm::Value* PlacesOfTwoOverPi(llvm::IRBuilderBase& b) {
  constexpr char kName[] = "tenon.two_over_pi";
  llvm::Module* module = b.GetInsertBlock()->getModule();
  if (llvm::GlobalVariable* g = module->getGlobalVariable(kName, true)) return g;
  llvm::Constant* words = llvm::ConstantDataArray::get(b.getContext(), llvm::ArrayRef<uint64_t>(kTwoOverPiWords));
  return new llvm::GlobalVariable(*module, words->getType(), /*isConstant=*/true, llvm::GlobalValue::PrivateLinkage, words, kName);
}

// a = M 2^e with a whole number M of 53 bits. Of M 2^e (2/pi), the places from 2^1 M on downwards are wanted: 192 of them make the product
// right to 2^-137 modulo 4, and it is M times a whole number of 192 bits, modulo 2^192, times 2^-190.
Reduced ReduceLarge(V a) {
  llvm::IRBuilderBase& b = *a.b;
  llvm::Type* i128 = b.getInt128Ty();
  V bits = Bits(a);
  V e = bits.With(b.CreateLShr(bits.v, 52));  // plus 1075
  V mantissa = OrInt(AndInt(bits, (uint64_t{1} << 52) - 1), bits.Int(uint64_t{1} << 52));
  // The table begins with 64 zeros, its place i has the weight 2^(63 - i).
  V start = SubInt(e, e.Int(1075 + 2 - 64));
  llvm::Value* shift = b.CreateAnd(start.v, 63);
  llvm::Value* at = b.CreateGEP(b.getInt64Ty(), PlacesOfTwoOverPi(b), b.CreateLShr(start.v, 6));
  llvm::Value* words[4];
  for (unsigned k = 0; k < 4; ++k) {
    words[k] = b.CreateAlignedLoad(b.getInt64Ty(), b.CreateConstGEP1_64(b.getInt64Ty(), at, k), llvm::Align(8));
  }
  auto product = [&](unsigned k) {  // M times the k-th word of the window, in 128 bits
    llvm::Value* above = b.CreateShl(words[k], shift);
    llvm::Value* below = b.CreateLShr(b.CreateLShr(words[k + 1], 1), b.CreateXor(shift, 63));
    return b.CreateMul(b.CreateZExt(b.CreateOr(above, below), i128), b.CreateZExt(mantissa.v, i128));
  };
  llvm::Value* low = product(2);
  llvm::Value* high = b.CreateAdd(product(1), b.CreateLShr(low, 64));
  high = b.CreateAdd(high, b.CreateShl(product(0), 64));  // the upper 128 of 192 bits; the lower 64 are low's
  V quadrant = bits.With(b.CreateTrunc(b.CreateLShr(high, 126), b.getInt64Ty()));
  // Without the quadrant's two places it is a signed fraction of a quarter turn: its sign is the place that rounds.
  llvm::Value* fraction = b.CreateOr(b.CreateShl(high, 2), b.CreateAnd(b.CreateLShr(low, 62), 3));
  V sign = bits.With(b.CreateTrunc(b.CreateLShr(fraction, 127), b.getInt64Ty()));
  auto piece = [&](llvm::Value* v, double unit) { return a.With(b.CreateSIToFP(b.CreateTrunc(v, b.getInt64Ty()), a.type())) * unit; };
  V top = piece(b.CreateAShr(fraction, 85), 0x1p-43);
  V middle = piece(b.CreateAnd(b.CreateLShr(fraction, 42), (uint64_t{1} << 43) - 1), 0x1p-86);
  V bottom = piece(b.CreateAnd(fraction, (uint64_t{1} << 42) - 1), 0x1p-128);
  DD f = TwoSum(top, middle);
  f = FastTwoSum(f.hi, f.lo + bottom);
  const DD half_pi{a.Constant(kHalfPiParts[0]), a.Constant(kHalfPiParts[1])};
  return {AddInt(quadrant, sign), f * half_pi};
}

Reduced Reduce(V a);

// Lane by lane.
Reduced ReduceLanes(V a) {
  llvm::IRBuilderBase& b = *a.b;
  auto* type = llvm::dyn_cast<llvm::FixedVectorType>(a.type());
  if (type == nullptr) return ReduceLarge(a);
  llvm::Value* n = llvm::PoisonValue::get(Bits(a).type());
  llvm::Value* hi = llvm::PoisonValue::get(type);
  llvm::Value* lo = hi;
  for (unsigned lane = 0; lane < type->getNumElements(); ++lane) {
    const Reduced r = Reduce(a.With(b.CreateExtractElement(a.v, lane)));
    n = b.CreateInsertElement(n, r.n.v, lane);
    hi = b.CreateInsertElement(hi, r.r.hi.v, lane);
    lo = b.CreateInsertElement(lo, r.r.lo.v, lane);
  }
  return {a.With(n), {a.With(hi), a.With(lo)}};
}

Reduced Reduce(V a) {
  llvm::IRBuilderBase& b = *a.b;
  llvm::Value* const args[] = {a.v};
  llvm::Type* const results[] = {Bits(a).type(), a.type(), a.type()};
  const auto r = CallOutOfLine(b, "quarter_turns", args, results, [](llvm::IRBuilderBase& in, std::span<llvm::Value* const> own) {
    V x{&in, own[0]};
    llvm::Function* f = in.GetInsertBlock()->getParent();
    llvm::BasicBlock* small = llvm::BasicBlock::Create(in.getContext(), "small", f);
    llvm::BasicBlock* large = llvm::BasicBlock::Create(in.getContext(), "large", f);
    llvm::BasicBlock* done = llvm::BasicBlock::Create(in.getContext(), "done", f);
    in.CreateCondBr(AnyLane(in, Not(x < kLarge).v), large, small);
    in.SetInsertPoint(small);
    const Reduced p = ReduceModerate(x);
    in.CreateBr(done);
    in.SetInsertPoint(large);
    const Reduced q = ReduceLanes(x);
    in.CreateBr(done);
    in.SetInsertPoint(done);
    auto either = [&](V y, V z) -> llvm::Value* {
      llvm::PHINode* phi = in.CreatePHI(y.type(), 2);
      phi->addIncoming(y.v, small);
      phi->addIncoming(z.v, large);
      return phi;
    };
    return std::vector<llvm::Value*>{either(p.n, q.n), either(p.r.hi, q.r.hi), either(p.r.lo, q.r.lo)};
  });
  return {a.With(r[0]), {a.With(r[1]), a.With(r[2])}};
}

// hi is r or 1 - r^2/2, and lo smaller by far.
DD SinOf(DD r) {
  V z = r.hi * r.hi;
  V rest = Fma(r.hi * z, PolynomialInHalves(z, kSinF64), r.lo * Fma(z, -0.5, 1));
  return FastTwoSum(r.hi, rest);
}
DD CosOf(DD r) {
  DD z = TwoProduct(r.hi, r.hi);
  DD w = FastTwoSum(r.hi.Constant(1), z.hi * -0.5);
  V rest = Fma(z.hi * z.hi, PolynomialInHalves(z.hi, kCosF64), Fma(z.lo, -0.5, -(r.hi * r.lo)));
  return FastTwoSum(w.hi, w.lo + rest);
}

// The sign bit of `sign` (of i64) flips y's.
V FlipBy(V y, V sign) { return FromBits(XorInt(Bits(y), ShlInt(sign, 63)), y.type()); }
V SignBit(V x) { return AndInt(Bits(x), uint64_t{1} << 63); }
V WithSignOf(V y, V x) { return FromBits(XorInt(Bits(y), SignBit(x)), y.type()); }
V HalfOf(V n) { return n.With(n.b->CreateLShr(n.v, n.Int(1).v)); }
V IsOdd(V n) { return NotZeroInt(AndInt(n, 1)); }
// NaN for what has no sine.
V Finite(V y, V x) { return Select(Abs(x) < kInf, y, std::numeric_limits<double>::quiet_NaN()); }

// atan(q) of 0 <= q <= 1.
DD AtanOf(DD q) {
  V z = q.hi * q.hi;
  V rest = Fma(q.hi * z, Polynomial(z, kAtanF64), q.lo / (1 + z));  // not in halves, which are far larger than their sum
  return FastTwoSum(q.hi, rest);
}

// asin(s) of 0 <= s <= sqrt(1/2).
DD AsinOf(DD s, V z) { return FastTwoSum(s.hi, Fma(s.hi * z, PolynomialInHalves(z, kAsinF64), s.lo)); }

struct AsinParts {
  V half_angle;  // i1: |x| > 1/2
  DD p;          // asin(|x|), or asin(sqrt((1 - |x|) / 2)) where half_angle
};

AsinParts ReduceAsin(V x) {
  V a = Abs(x);
  V half_angle = a > 0.5;
  V z = Select(half_angle, Fma(a, -0.5, 0.5), a * a);  // exact where half_angle
  V s = Select(half_angle, Sqrt(z), a);
  V low = Select(half_angle, Fma(-s, s, z) / (s + s), 0);
  return {half_angle, AsinOf({s, Select(s == 0.0, 0, low)}, z)};
}

}  // namespace

V Sin(V x) {
  V a = Abs(x);
  auto [n, r] = Reduce(a);
  V y = FlipBy(Select(IsOdd(n), CosOf(r).hi, SinOf(r).hi), HalfOf(n));
  return Finite(WithSignOf(Select(a < 0x1p-28, a, y), x), x);
}

V Cos(V x) {
  auto [n, r] = Reduce(Abs(x));
  V y = Select(IsOdd(n), SinOf(r).hi, CosOf(r).hi);
  return Finite(FlipBy(y, HalfOf(AddInt(n, n.Int(1)))), x);
}

V Tan(V x) {
  V a = Abs(x);
  auto [n, r] = Reduce(a);
  DD s = SinOf(r), c = CosOf(r);
  V odd = IsOdd(n);
  V y = FlipBy(Rounded(Select(odd, c, s) / Select(odd, s, c)), n);
  return Finite(WithSignOf(Select(a < 0x1p-28, a, y), x), x);
}

V Asin(V x) {
  auto [half_angle, p] = ReduceAsin(x);
  const DD half_pi{x.Constant(kHalfPiParts[0]), x.Constant(kHalfPiParts[1])};
  DD y = Select(half_angle, half_pi - Scaled(p, 2), p);
  V a = Abs(x);
  return CopySign(Select(a < 0x1p-28, a, Rounded(y)), x);
}

V Acos(V x) {
  auto [half_angle, p] = ReduceAsin(x);
  const DD half_pi{x.Constant(kHalfPiParts[0]), x.Constant(kHalfPiParts[1])};
  V negative = x < 0;
  DD twice = Scaled(p, 2);
  DD outer = Select(negative, Constant(x, kPiParts) - twice, twice);
  DD inner = half_pi - Select(negative, -p, p);
  return Rounded(Select(half_angle, outer, inner));
}

V Atan(V x) {
  V a = Abs(x);
  V above = a > 1;
  V bounded = ClampHigh(a, 0x1p100);
  DD q = Select(above, Exact(x.Constant(1)) / Exact(Select(above, bounded, 1)), Exact(a));
  DD p = AtanOf(q);
  const DD half_pi{x.Constant(kHalfPiParts[0]), x.Constant(kHalfPiParts[1])};
  V y = Rounded(Select(above, half_pi - p, p));
  return CopySign(Select(a < 0x1p-28, a, y), x);
}

// The smaller of |x| and |y| by the larger; infinities as 1 beside 0, so that two make 1; 0 / 0 is 0.
V Atan2(V y, V x) {
  V ay = Abs(y), ax = Abs(x);
  V steep = ax < ay;
  V small = Select(steep, ax, ay), large = Select(steep, ay, ax);
  V infinite = large == kInf;
  small = Select(infinite, Select(small == kInf, 1, small.Constant(0)), small);
  large = Select(Or(infinite, large == 0.0), 1, large);
  V tiny = large < 0x1p-900;  // what a quotient leaves would be below the least double
  small = Select(tiny, small * 0x1p150, small);
  large = Select(tiny, large * 0x1p150, large);
  DD q = Exact(small) / Exact(large);
  V q_low = Select(q.hi < 0x1p-900, 0, q.lo);
  DD p = AtanOf({q.hi, q_low});
  p = Select(q.hi < 0x1p-28, DD{q.hi, q_low}, p);
  const DD half_pi{x.Constant(kHalfPiParts[0]), x.Constant(kHalfPiParts[1])};
  p = Select(steep, half_pi - p, p);
  V left = x.With(x.b->CreateICmpSLT(Bits(x).v, Bits(x).Int(0).v));
  p = Select(left, Constant(x, kPiParts) - p, p);
  return Select(Or(IsNan(x), IsNan(y)), x + y, CopySign(Rounded(p), y));
}

}  // namespace tenon::math::library
