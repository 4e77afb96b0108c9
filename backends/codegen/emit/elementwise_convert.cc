// The elementwise ops whose operand and result differ in type, or that look at the bits of a float.
#include "backends/codegen/emit/convert.h"
#include "backends/codegen/emit/emission.h"
#include "llvm/IR/Intrinsics.h"

namespace tenon {
namespace {

using llvm::Value;
namespace Intrinsic = llvm::Intrinsic;

// Exponent and mantissa bits of the types that have IEEE's infinities and NaNs.
struct Fields {
  int exponent = 0, mantissa = 0;
};
Fields FieldsOf(PrimitiveType type) {
  switch (type) {
    case PrimitiveType::kF64:
      return {11, 52};
    case PrimitiveType::kF32:
      return {8, 23};
    case PrimitiveType::kBF16:
      return {8, 7};
    case PrimitiveType::kF16:
      return {5, 10};
    case PrimitiveType::kF8E5M2:
      return {5, 2};
    case PrimitiveType::kF8E4M3:
      return {4, 3};
    case PrimitiveType::kF8E3M4:
      return {3, 4};
    default:
      return {};
  }
}

}  // namespace

Value* EmitConvert(const Emission& e) {
  return ConvertValue(e.b, e.type(), e.result(), e.x(), e.options);
}

Value* EmitBitcastConvert(const Emission& e) {
  return FromWords(e.b, e.result(), ToWords(e.b, e.type(), e.x(), e.options), e.options);
}

bool HasReducePrecision(PrimitiveType type) { return FieldsOf(type).exponent > 0; }

// XLA's reduce-precision, on the type's own bits: round the mantissa to nearest even, then overflow
// to infinity and underflow to a signed zero.
Value* EmitReducePrecision(const Emission& e) {
  llvm::IRBuilderBase& b = e.b;
  const auto [exponent, mantissa] = FieldsOf(e.type());
  const int64_t want_m = e.op.attrs().get<int64_t>(Attr::kMantissaBits),
                want_e = e.op.attrs().get<int64_t>(Attr::kExponentBits);
  Value* original = ToWords(b, e.type(), e.x(), e.options)[0];
  llvm::Type* type = original->getType();
  auto c = [&](uint64_t v) {
    return llvm::ConstantInt::get(type, v, false, /*ImplicitTrunc=*/true);
  };
  Value* bits = original;
  const uint64_t sign_mask = uint64_t{1} << (exponent + mantissa),
                 exponent_mask = ((uint64_t{1} << exponent) - 1) << mantissa;
  Value* sign = b.CreateAnd(original, c(sign_mask));
  if (want_m < mantissa) {
    const uint64_t last = uint64_t{1} << (mantissa - want_m);
    Value* odd =
        b.CreateLShr(b.CreateAnd(bits, c(last)), c(static_cast<uint64_t>(mantissa - want_m)));
    bits = b.CreateAnd(b.CreateAdd(bits, b.CreateAdd(odd, c((last >> 1) - 1))), c(~(last - 1)));
  }
  if (want_e < exponent) {
    const uint64_t bias = (uint64_t{1} << (exponent - 1)) - 1,
                   reduced = (uint64_t{1} << (want_e - 1)) - 1;
    Value* exp = b.CreateAnd(bits, c(exponent_mask));
    Value* over = b.CreateICmpUGT(exp, c((bias + reduced) << mantissa));
    Value* under = b.CreateICmpULE(exp, c((bias - reduced) << mantissa));
    bits = b.CreateSelect(over, b.CreateOr(sign, c(exponent_mask)), bits);
    bits = b.CreateSelect(under, sign, bits);
  }
  Value* nan = want_m > 0 ? b.CreateOr(original, c(uint64_t{1} << (mantissa - 1)))
                          : b.CreateOr(sign, c(exponent_mask));
  bits = b.CreateSelect(b.CreateFCmpUNO(e.x(), e.x()), nan, bits);
  return FromWords(b, e.type(), {&bits, 1}, e.options);
}

// Away from zero by one where the random number, of the operand's width, is below the fraction.
Value* EmitStochasticConvert(const Emission& e) {
  llvm::IRBuilderBase& b = e.b;
  Value* x = ConvertValue(b, e.type(), PrimitiveType::kF64, e.x(), e.options);
  llvm::Type* f64 = x->getType();
  auto unary = [&](Intrinsic::ID id, Value* v) { return b.CreateUnaryIntrinsic(id, v); };
  Value* magnitude = unary(Intrinsic::fabs, x);
  Value* whole = unary(Intrinsic::trunc, magnitude);
  Value* scaled = b.CreateFMul(b.CreateFSub(magnitude, whole),
                               llvm::ConstantFP::get(f64, std::ldexp(1.0, BitWidth(e.type()))));
  Value* up = b.CreateFCmpOLT(b.CreateUIToFP(e.y(), f64), unary(Intrinsic::floor, scaled));
  Value* rounded =
      b.CreateSelect(up, b.CreateFAdd(whole, llvm::ConstantFP::get(f64, 1)), whole);
  rounded = b.CreateBinaryIntrinsic(Intrinsic::copysign, rounded, x);
  Value* finite = b.CreateFCmpOLT(
      magnitude, llvm::ConstantFP::get(f64, std::numeric_limits<double>::infinity()));
  rounded = b.CreateSelect(finite, rounded, x);
  return ConvertValue(b, PrimitiveType::kF64, e.result(), rounded, e.options);
}

}  // namespace tenon
