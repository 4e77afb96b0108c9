#include "backends/codegen/emit/narrow_float.h"

#include <cmath>

#include "backends/codegen/emit/emit_types.h"
#include "backends/codegen/emit/register_bits.h"
#include "hlo/check.h"
#include "hlo/numeric_types.h"
#include "llvm/IR/Intrinsics.h"

namespace tenon {
namespace {

using llvm::Value;

Value* F32(llvm::IRBuilderBase& b, Value* like, double c) {
  return llvm::ConstantFP::get(WithLanesOf(like->getType(), b.getFloatTy()), c);
}

// The fields of a format, read off its class in numeric_types.h.
struct Format {
  int exponent_bits = 0, mantissa_bits = 0, bias = 0;
  FloatSpecials specials = FloatSpecials::kIeee;

  uint32_t sign() const { return 1u << (exponent_bits + mantissa_bits); }
  uint32_t magnitude() const { return sign() - 1; }
  uint32_t mantissa() const { return (1u << mantissa_bits) - 1; }
  uint32_t exponent() const { return magnitude() & ~mantissa(); }
  uint32_t max_finite() const {
    switch (specials) {
      case FloatSpecials::kIeee:
        return exponent() - 1;
      case FloatSpecials::kFn:
        return magnitude() - 1;
      default:
        return magnitude();
    }
  }
};

template <typename T>
Format MakeFormat() {
  Format f{T::exponent_bits, T::mantissa_bits};
  auto value = [](uint32_t bits) {
    return static_cast<double>(T::FromBits(static_cast<typename T::Rep>(bits)));
  };
  f.bias = 1 - std::ilogb(value(1u << f.mantissa_bits));
  f.specials = std::isinf(value(f.exponent()))    ? FloatSpecials::kIeee
               : std::isnan(value(f.magnitude())) ? FloatSpecials::kFn
               : std::isnan(value(f.sign()))      ? FloatSpecials::kFnuz
                                                  : FloatSpecials::kFinite;
  return f;
}

Format FormatOf(PrimitiveType type) {
  return DispatchType(type, []<typename T>(TypeTag<T>) -> Format {
    if constexpr (requires { T::exponent_bits; }) {
      return MakeFormat<T>();
    } else {
      CheckFailed("a narrow float", __FILE__, __LINE__, "");
    }
  });
}

// ---- f8e8m0fnu: 2^(code - 127), 255 is NaN ----

Value* PowerFromBits(llvm::IRBuilderBase& b, Value* bits) {
  Value* code = b.CreateZExt(bits, WithLanesOf(bits->getType(), b.getInt64Ty()));
  Value* value = b.CreateShl(b.CreateAdd(code, IntLike(code, 1023 - 127)), IntLike(code, 52));
  value = b.CreateSelect(b.CreateICmpEQ(code, IntLike(code, 0xff)), IntLike(code, 0x7ff8ull << 48), value);
  return b.CreateBitCast(value, WithLanesOf(bits->getType(), b.getDoubleTy()));
}

Value* PowerToBits(llvm::IRBuilderBase& b, Value* d) {
  Value* bits = b.CreateBitCast(d, WithLanesOf(d->getType(), b.getInt64Ty()));
  // A mantissa of 1.5 or more carries into the exponent.
  Value* exponent = b.CreateLShr(b.CreateAdd(bits, IntLike(bits, 1ull << 51)), IntLike(bits, 52));
  Value* code = b.CreateSub(exponent, IntLike(bits, 1023 - 127));
  Value* bad = b.CreateOr(b.CreateFCmpULE(d, llvm::ConstantFP::get(d->getType(), 0)),
                          b.CreateICmpSGT(code, IntLike(bits, 254)));
  code = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, code, IntLike(bits, 0));
  return b.CreateTrunc(b.CreateSelect(bad, IntLike(bits, 0xff), code),
                       WithLanesOf(d->getType(), b.getInt8Ty()));
}

}  // namespace

Value* NarrowFloatFromBits(llvm::IRBuilderBase& b, PrimitiveType type, Value* v) {
  if (type == PrimitiveType::kF8E8M0FNU) return PowerFromBits(b, v);
  const Format f = FormatOf(type);
  const int up = 23 - f.mantissa_bits;
  Value* bits = b.CreateZExt(v, WithLanesOf(v->getType(), b.getInt32Ty()));
  Value* code = b.CreateAnd(bits, IntLike(bits, f.magnitude()));
  Value* magnitude = b.CreateShl(code, IntLike(bits, static_cast<uint64_t>(up)));
  // The fields in place, then the exponent's other bias: exact, subnormals too.
  Value* r = AsI32(
      b, b.CreateFMul(AsF32(b, magnitude), F32(b, bits, std::ldexp(1.0, 127 - f.bias))));
  if (f.specials == FloatSpecials::kIeee) {
    Value* special = b.CreateICmpUGE(code, IntLike(bits, f.exponent()));
    r = b.CreateSelect(special, b.CreateOr(magnitude, IntLike(bits, 0x7f800000)), r);
  } else if (f.specials == FloatSpecials::kFn) {
    r = b.CreateSelect(b.CreateICmpEQ(code, IntLike(bits, f.magnitude())), IntLike(bits, 0x7fc00000), r);
  } else if (f.specials == FloatSpecials::kFnuz) {
    r = b.CreateSelect(b.CreateICmpEQ(bits, IntLike(bits, f.sign())), IntLike(bits, 0x7fc00000), r);
  }
  Value* sign = b.CreateShl(b.CreateAnd(bits, IntLike(bits, f.sign())),
                            IntLike(bits, static_cast<uint64_t>(31 - f.exponent_bits - f.mantissa_bits)));
  return AsF32(b, b.CreateOr(r, sign));
}

Value* NarrowFloatToBits(llvm::IRBuilderBase& b, PrimitiveType type, Value* v, bool quiet) {
  if (type == PrimitiveType::kF8E8M0FNU) return PowerToBits(b, v);
  const Format f = FormatOf(type);
  const int down = 23 - f.mantissa_bits;
  Value* bits = AsI32(b, v);
  auto c = [bits](uint64_t x) { return IntLike(bits, x); };
  Value* sign = b.CreateAnd(
      b.CreateLShr(bits, c(static_cast<uint64_t>(31 - f.exponent_bits - f.mantissa_bits))),
      c(f.sign()));
  Value* mag = b.CreateAnd(bits, c(0x7fffffff));
  // Normal: rebias and round in place. A carry walks into the exponent.
  Value* odd = b.CreateAnd(b.CreateLShr(mag, c(static_cast<uint64_t>(down))), c(1));
  const uint32_t rebias = static_cast<uint32_t>(f.bias - 127) << 23;
  Value* r = b.CreateLShr(
      b.CreateAdd(b.CreateAdd(mag, odd), c(uint32_t{rebias + ((1u << (down - 1)) - 1)})),
      c(static_cast<uint64_t>(down)));
  // Subnormal: a number is added whose last place is the format's smallest step; the addition rounds.
  const float step = std::ldexp(1.0f, 1 - f.bias + down);
  Value* sub = b.CreateSub(AsI32(b, b.CreateFAdd(AsF32(b, mag), F32(b, bits, step))),
                           c(std::bit_cast<uint32_t>(step)));
  r = b.CreateSelect(b.CreateICmpULT(mag, c(static_cast<uint64_t>(128 - f.bias) << 23)), sub, r);
  Value* over = b.CreateICmpUGT(r, c(f.max_finite()));  // infinity too
  Value* nan = b.CreateICmpUGT(mag, c(0x7f800000));
  switch (f.specials) {
    case FloatSpecials::kIeee: {
      Value* payload = b.CreateAnd(b.CreateLShr(mag, c(static_cast<uint64_t>(down))),
                                   c(f.mantissa()));
      const uint64_t quiet_bit = uint64_t{1} << (f.mantissa_bits - 1);
      payload = quiet ? b.CreateOr(payload, c(quiet_bit))
                      : b.CreateSelect(b.CreateICmpEQ(payload, c(0)), c(quiet_bit), payload);
      r = b.CreateSelect(over, c(f.exponent()), r);
      r = b.CreateSelect(nan, b.CreateOr(payload, c(f.exponent())), r);
      r = b.CreateOr(r, sign);
      break;
    }
    case FloatSpecials::kFn:
      r = b.CreateOr(b.CreateSelect(b.CreateOr(over, nan), c(f.magnitude()), r), sign);
      break;
    case FloatSpecials::kFnuz: {  // -0 is the only NaN
      Value* special = b.CreateOr(b.CreateOr(over, nan), b.CreateICmpEQ(r, c(0)));
      Value* code = b.CreateSelect(b.CreateOr(over, nan), c(f.sign()), c(0));
      r = b.CreateSelect(special, code, b.CreateOr(r, sign));
      break;
    }
    case FloatSpecials::kFinite: {
      r = b.CreateOr(b.CreateSelect(over, c(f.max_finite()), r), sign);
      r = b.CreateSelect(nan, c(f.sign()), r);
      break;
    }
  }
  return b.CreateTrunc(r, WithLanesOf(v->getType(), b.getInt8Ty()));
}

}  // namespace tenon
