#include "backends/codegen/math/complex.h"

#include <limits>
#include <vector>

#include "backends/codegen/math/out_of_line.h"
#include "llvm/IR/Module.h"

namespace tenon::math {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

V IsInf(V x) { return Abs(x) == kInf; }
ComplexV Select(V c, ComplexV x, ComplexV y) {
  return {Select(c, x.re, y.re), Select(c, x.im, y.im)};
}
ComplexV Constant(V like, double re, double im) { return {like.Constant(re), like.Constant(im)}; }
V IsZero(ComplexV x) { return And(x.re == 0.0, x.im == 0.0); }

unsigned Lanes(V x) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x.type());
  return vector ? vector->getNumElements() : 0;
}

// Calls `symbol` on each lane of `args`; its result is a double or a struct of doubles, in `parts`.
std::vector<V> CallPerLane(const char* symbol, std::span<const V> args, size_t parts) {
  llvm::IRBuilderBase& b = *args[0].b;
  llvm::Type* f64 = b.getDoubleTy();
  std::vector<llvm::Type*> params(args.size(), f64), elements(parts, f64);
  llvm::Type* result = parts == 1 ? f64 : llvm::StructType::get(b.getContext(), elements);
  llvm::FunctionCallee callee = b.GetInsertBlock()->getModule()->getOrInsertFunction(
      symbol, llvm::FunctionType::get(result, params, false));
  const unsigned lanes = Lanes(args[0]);
  std::vector<V> r(parts, args[0].With(llvm::PoisonValue::get(args[0].type())));
  for (unsigned lane = 0; lane < std::max(lanes, 1u); ++lane) {
    std::vector<llvm::Value*> scalars;
    for (const V& x : args)
      scalars.push_back(lanes == 0 ? x.v : b.CreateExtractElement(x.v, uint64_t{lane}));
    llvm::Value* call = b.CreateCall(callee, scalars);
    for (size_t k = 0; k < parts; ++k) {
      llvm::Value* part =
          parts == 1 ? call : b.CreateExtractValue(call, static_cast<unsigned>(k));
      r[k].v = lanes == 0 ? part : b.CreateInsertElement(r[k].v, part, uint64_t{lane});
    }
  }
  return r;
}

}  // namespace

ComplexV CallComplex(const char* symbol, std::initializer_list<ComplexV> args) {
  std::vector<V> parts;
  for (const ComplexV& a : args) {
    parts.push_back(a.re);
    parts.push_back(a.im);
  }
  std::vector<V> r = CallPerLane(symbol, parts, 2);
  return {r[0], r[1]};
}

V CallReal(const char* symbol, std::initializer_list<V> args) {
  return CallPerLane(symbol, {args.begin(), args.size()}, 1)[0];
}

// C99 Annex G.5.1: a product that came out as NaN + i NaN is an infinity if a factor is one, or if
// a partial product overflowed.
namespace {
ComplexV Recovered(ComplexV x, ComplexV y, ComplexV r, V lost) {
  V a = x.re, b = x.im, c = y.re, d = y.im;
  V ac = a * c, bd = b * d, ad = a * d, bc = b * c;
  auto boxed = [](V v) { return CopySign(Select(IsInf(v), 1.0, v.Constant(0)), v); };
  auto no_nan = [](V v) { return Select(IsNan(v), CopySign(v.Constant(0), v), v); };
  V x_inf = Or(IsInf(a), IsInf(b)), y_inf = Or(IsInf(c), IsInf(d));
  auto fixed = [&](V v, V own_inf, V other_inf) {
    V boxed_or = Select(own_inf, boxed(v), v);
    return Select(other_inf, no_nan(boxed_or), boxed_or);
  };
  V any_inf = Or(x_inf, y_inf);
  V overflow = And(Not(any_inf), Or(Or(IsInf(ac), IsInf(bd)), Or(IsInf(ad), IsInf(bc))));
  auto final_value = [&](V v, V own_inf, V other_inf) {
    return Select(overflow, no_nan(v), fixed(v, own_inf, other_inf));
  };
  V a2 = final_value(a, x_inf, y_inf), b2 = final_value(b, x_inf, y_inf);
  V c2 = final_value(c, y_inf, x_inf), d2 = final_value(d, y_inf, x_inf);
  V again = And(lost, Or(any_inf, overflow));
  return Select(again, {(a2 * c2 - b2 * d2) * kInf, (a2 * d2 + b2 * c2) * kInf}, r);
}
}  // namespace

ComplexV operator*(ComplexV x, ComplexV y) {
  llvm::Value* const args[] = {x.re.v, x.im.v, y.re.v, y.im.v};
  llvm::Type* const types[] = {x.re.type(), x.re.type()};
  const std::vector<llvm::Value*> product =
      CallOutOfLine(*x.re.b, "complex_multiply", args, types, [](llvm::IRBuilderBase& b, std::span<llvm::Value* const> in) {
        const ComplexV p{{&b, in[0]}, {&b, in[1]}}, q{{&b, in[2]}, {&b, in[3]}};
        const ComplexV r{p.re * q.re - p.im * q.im, p.re * q.im + p.im * q.re};
        const V lost = And(IsNan(r.re), IsNan(r.im));
        llvm::BasicBlock* plain = b.GetInsertBlock();
        llvm::BasicBlock* rare = llvm::BasicBlock::Create(b.getContext(), "rare", plain->getParent());
        llvm::BasicBlock* done = llvm::BasicBlock::Create(b.getContext(), "done", plain->getParent());
        b.CreateCondBr(AnyLane(b, lost.v), rare, done);
        b.SetInsertPoint(rare);
        const ComplexV recovered = Recovered(p, q, r, lost);
        b.CreateBr(done);
        b.SetInsertPoint(done);
        auto either = [&](V a, V c) -> llvm::Value* {
          llvm::PHINode* phi = b.CreatePHI(a.type(), 2);
          phi->addIncoming(a.v, plain);
          phi->addIncoming(c.v, rare);
          return phi;
        };
        return std::vector<llvm::Value*>{either(r.re, recovered.re), either(r.im, recovered.im)};
      });
  return {x.re.With(product[0]), x.re.With(product[1])};
}

ComplexV operator/(ComplexV x, ComplexV y) { return CallComplex("__divdc3", {x, y}); }
ComplexV operator/(double x, ComplexV y) { return Constant(y.re, x, 0) / y; }

V Abs(ComplexV x) { return CallReal("hypot", {x.re, x.im}); }

ComplexV Sign(ComplexV x) {
  V r = Abs(x);
  ComplexV scaled{x.re / r, x.im / r};
  return Select(r == 0.0, Constant(r, 0, 0), Select(IsNan(r), {r, r}, scaled));
}

// Re = expm1(a) cos(b) - 2 sin^2(b/2), without cancellation near 0.
ComplexV Expm1(ComplexV x) {
  V a = x.re, b = x.im;
  V half = CallReal("sin", {b / b.Constant(2)});
  V real = CallReal("expm1", {a}) * CallReal("cos", {b}) - (half * 2) * half;
  V imag = CallReal("exp", {a}) * CallReal("sin", {b});
  return {real, Select(b == 0.0, b, imag)};
}

// |1+x|^2 - 1 = a (2 + a) + b^2 near 0.
ComplexV Log1p(ComplexV x) {
  V a = x.re, b = x.im;
  V near = And(Abs(a) < 0.5, Abs(b) < 0.5);
  V small = CallReal("log1p", {a * (2 + a) + b * b}) * 0.5;
  V large = CallReal("log", {CallReal("hypot", {1 + a, b})});
  return {Select(near, small, large), CallReal("atan2", {b, 1 + a})};
}

ComplexV Logistic(ComplexV x) { return 1.0 / (1.0 + CallComplex("cexp", {-x})); }
ComplexV Rsqrt(ComplexV x) { return 1.0 / CallComplex("csqrt", {x}); }

ComplexV Power(ComplexV x, ComplexV y) {
  ComplexV of_zero = Select(IsZero(y), Constant(x.re, 1, 0), Constant(x.re, 0, 0));
  V known = And(IsZero(x), Or(IsZero(y), y.re > 0));
  return Select(known, of_zero, CallComplex("cpow", {x, y}));
}

ComplexV Cbrt(ComplexV x) { return Power(x, Constant(x.re, 1.0 / 3, 0)); }

// -i log((x + i y) / sqrt(y^2 + x^2))
ComplexV Atan2(ComplexV y, ComplexV x) {
  ComplexV i = Constant(x.re, 0, 1), minus_i = Constant(x.re, 0, -1);
  return minus_i * CallComplex("clog", {(x + i * y) / CallComplex("csqrt", {y * y + x * x})});
}

}  // namespace tenon::math
