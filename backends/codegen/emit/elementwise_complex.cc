// Elementwise ops on complex operands: in double, as the evaluator computes, rounded once for c64.
#include <limits>

#include "backends/codegen/emit/emission.h"
#include "backends/codegen/math/complex.h"
#include "llvm/IR/Intrinsics.h"

namespace tenon {
namespace {

using llvm::Value;
using math::ComplexV;
using math::V;

constexpr double kInf = std::numeric_limits<double>::infinity();

ComplexV Operand(const Emission& e, size_t i) {
  V re{&e.b, Part(e.b, e.args[i], 0)}, im{&e.b, Part(e.b, e.args[i], 1)};
  if (e.type() == PrimitiveType::kC64) return {math::ToF64(re), math::ToF64(im)};
  return {re, im};
}

Value* Real(const Emission& e, V v) {
  return e.type() == PrimitiveType::kC64 ? math::ToF32(v).v : v.v;
}
Value* Complex(const Emission& e, ComplexV c) {
  return MakeComplex(e.b, Real(e, c.re), Real(e, c.im));
}

template <auto f>
Value* Emit1(const Emission& e) {
  return Complex(e, f(Operand(e, 0)));
}
template <auto f>
Value* Emit2(const Emission& e) {
  return Complex(e, f(Operand(e, 0), Operand(e, 1)));
}

// No wider type is needed where a rounding of each part is all there is.
template <auto f>
Value* EmitParts(const Emission& e) {
  return PerPart(e.b, e.args, [&](auto p) { return f(e.b, p); });
}

Value* Equal(const Emission& e) {
  auto part = [&](unsigned k) {
    return e.b.CreateFCmpOEQ(Part(e.b, e.x(), k), Part(e.b, e.y(), k));
  };
  Value* equal = e.b.CreateAnd(part(0), part(1));
  return e.op.comparison_direction() == "NE" ? e.b.CreateNot(equal) : equal;
}

}  // namespace

ElementwiseBody ComplexBody(Opcode opcode) {
  switch (opcode) {
    case Opcode::kAdd:
      return EmitParts<[](auto& b, auto p) { return b.CreateFAdd(p[0], p[1]); }>;
    case Opcode::kSubtract:
      return EmitParts<[](auto& b, auto p) { return b.CreateFSub(p[0], p[1]); }>;
    case Opcode::kNegate:
      return EmitParts<[](auto& b, auto p) { return b.CreateFNeg(p[0]); }>;
    case Opcode::kReal:
      return [](const Emission& e) { return Part(e.b, e.x(), 0); };
    case Opcode::kImag:
      return [](const Emission& e) { return Part(e.b, e.x(), 1); };
    case Opcode::kCompare:
      return Equal;
    case Opcode::kAbs:
      return [](const Emission& e) {
        const ComplexV x = Operand(e, 0);
        // Squares of floats neither overflow nor underflow in double; an infinite part makes an infinite value beside a NaN, too.
        if (e.type() != PrimitiveType::kC64) return Real(e, math::Abs(x));
        const V root = math::Sqrt(Fma(x.re, x.re, x.im * x.im));
        const V infinite = math::Or(math::Abs(x.re) == kInf, math::Abs(x.im) == kInf);
        return Real(e, math::Select(infinite, kInf, root));
      };
    case Opcode::kMultiply:
      return Emit2<[](ComplexV x, ComplexV y) { return x * y; }>;
    case Opcode::kDivide:
      return Emit2<[](ComplexV x, ComplexV y) { return x / y; }>;
    case Opcode::kPower:
      return Emit2<math::Power>;
    case Opcode::kAtan2:
      return Emit2<math::Atan2>;
    case Opcode::kSign:
      return Emit1<math::Sign>;
    case Opcode::kExponentialMinusOne:
      return Emit1<math::Expm1>;
    case Opcode::kLogPlusOne:
      return Emit1<math::Log1p>;
    case Opcode::kLogistic:
      return Emit1<math::Logistic>;
    case Opcode::kRsqrt:
      return Emit1<math::Rsqrt>;
    case Opcode::kCbrt:
      return Emit1<math::Cbrt>;
#define TENON_CALL(op, symbol) \
  case Opcode::op:             \
    return Emit1<[](ComplexV x) { return math::CallComplex(symbol, {x}); }>;
      TENON_CALL(kAcos, "cacos")
      TENON_CALL(kAcosh, "cacosh")
      TENON_CALL(kAsin, "casin")
      TENON_CALL(kAsinh, "casinh")
      TENON_CALL(kAtan, "catan")
      TENON_CALL(kAtanh, "catanh")
      TENON_CALL(kCosine, "ccos")
      TENON_CALL(kCosh, "ccosh")
      TENON_CALL(kExponential, "cexp")
      TENON_CALL(kLog, "clog")
      TENON_CALL(kSine, "csin")
      TENON_CALL(kSinh, "csinh")
      TENON_CALL(kSqrt, "csqrt")
      TENON_CALL(kTan, "ctan")
      TENON_CALL(kTanh, "ctanh")
#undef TENON_CALL
    default:
      return nullptr;
  }
}

}  // namespace tenon
