#include "backends/codegen/emit/convert.h"

#include <algorithm>
#include <cmath>

#include "hlo/check.h"
#include "llvm/IR/Intrinsics.h"

namespace tenon {
namespace {

using llvm::Value;
namespace Intrinsic = llvm::Intrinsic;

// A double as a float, inexact ones to the odd neighbour: a later rounding to a narrower type is
// then the right one.
Value* TruncateToOdd(llvm::IRBuilderBase& b, Value* d) {
  llvm::Type* f32 = WithLanesOf(d->getType(), b.getFloatTy());
  llvm::Type* i32 = WithLanesOf(d->getType(), b.getInt32Ty());
  Value* f = b.CreateFPTrunc(d, f32);
  Value* back = b.CreateFPExt(f, d->getType());
  Value* bits = b.CreateBitCast(f, i32);
  Value* even = b.CreateICmpEQ(b.CreateAnd(bits, llvm::ConstantInt::get(i32, 1)),
                               llvm::ConstantInt::get(i32, 0));
  Value* away = b.CreateFCmpOGT(b.CreateUnaryIntrinsic(Intrinsic::fabs, back),
                                b.CreateUnaryIntrinsic(Intrinsic::fabs, d));
  Value* step =
      b.CreateSelect(away, llvm::ConstantInt::getSigned(i32, -1), llvm::ConstantInt::get(i32, 1));
  Value* fix = b.CreateAnd(b.CreateFCmpONE(back, d), even);
  return b.CreateBitCast(b.CreateSelect(fix, b.CreateAdd(bits, step), bits), f32);
}

// A 64-bit integer whose conversion to double is exact and leads a later rounding to a narrower type
// to the right result: what 53 bits cannot hold goes into the last bit that they do.
Value* StickyLowBits(llvm::IRBuilderBase& b, PrimitiveType from, Value* v) {
  auto c = [&](uint64_t x) { return llvm::ConstantInt::get(v->getType(), x); };
  Value* sticky = b.CreateSelect(b.CreateICmpNE(b.CreateAnd(v, c(0x7ff)), c(0)), c(0x800), c(0));
  Value* rounded = b.CreateOr(b.CreateAnd(v, c(~uint64_t{0x7ff})), sticky);
  Value* magnitude =
      IsSigned(from) ? b.CreateIntrinsic(Intrinsic::abs, {v->getType()}, {v, b.getFalse()}) : v;
  return b.CreateSelect(b.CreateICmpULT(magnitude, c(uint64_t{1} << 53)), v, rounded);
}

Value* IntToFloat(llvm::IRBuilderBase& b, PrimitiveType from, PrimitiveType to, Value* v,
                  const EmitOptions& options) {
  llvm::Type* type = WithLanesOf(v->getType(), RegisterType(b.getContext(), to));
  // More bits than the register holds, and a second rounding to come.
  const bool rounds_again = IsNarrowFloat(to) || (IsHalf(to) && !options.excess_precision);
  const bool exact_path = rounds_again && BitWidth(from) > 16;
  llvm::Type* via = exact_path ? WithLanesOf(type, b.getDoubleTy()) : type;
  if (exact_path && BitWidth(from) == 64) v = StickyLowBits(b, from, v);
  Value* f = IsSigned(from) ? b.CreateSIToFP(v, via) : b.CreateUIToFP(v, via);
  return f->getType() == type ? f : TruncateToOdd(b, f);
}

// Saturated, NaN to 0. LLVM takes fptosi.sat and fptoui.sat of vectors apart, lane by lane; here a vector is clamped between limits that
// the float
// type holds, then converted. Above them the highest integer is selected where it is none of the type's floats.
Value* FloatToInt(llvm::IRBuilderBase& b, PrimitiveType to, Value* v, llvm::Type* type) {
  const int bits = static_cast<int>(type->getScalarSizeInBits());
  const bool is_signed = IsSigned(to), wide = v->getType()->getScalarType()->isDoubleTy();
  if (bits >= 32 && !is_signed) return b.CreateIntrinsic(Intrinsic::fptoui_sat, {type, v->getType()}, {v});
  const int digits = is_signed ? bits - 1 : bits, mantissa = wide ? 53 : 24;
  const double lowest = is_signed ? -std::ldexp(1.0, digits) : 0, above = std::ldexp(1.0, digits);
  const bool held = digits <= mantissa;  // the highest integer is a float
  const double highest = above - std::ldexp(1.0, std::max(digits - mantissa, 0));
  auto f = [&](double x) { return llvm::ConstantFP::get(v->getType(), x); };
  Value* x = b.CreateSelect(b.CreateFCmpOGT(v, f(lowest)), v, f(lowest));  // NaN is below, too
  x = b.CreateSelect(b.CreateFCmpOLT(x, f(highest)), x, f(highest));
  Value* i = b.CreateFPToSI(x, WithLanesOf(v->getType(), b.getIntNTy(bits > 32 ? 64 : 32)));
  auto c = [&](int64_t k) { return llvm::ConstantInt::getSigned(i->getType(), k); };
  if (!held) i = b.CreateSelect(b.CreateFCmpOGE(v, f(above)), c(bits > 32 ? INT64_MAX : INT32_MAX), i);
  if (lowest != 0) i = b.CreateSelect(b.CreateFCmpUNO(v, v), c(0), i);
  return b.CreateTrunc(i, type);
}

}  // namespace

Value* ConvertValue(llvm::IRBuilderBase& b, PrimitiveType from, PrimitiveType to, Value* v,
                    const EmitOptions& options) {
  if (from == to) return v;
  if (IsComplex(from)) {
    const PrimitiveType part = ComplexComponent(from);
    if (to == PrimitiveType::kPred)
      return b.CreateOr(ConvertValue(b, part, to, Part(b, v, 0), options),
                        ConvertValue(b, part, to, Part(b, v, 1), options));
    if (!IsComplex(to)) return ConvertValue(b, part, to, Part(b, v, 0), options);
    return PerPart(b, {&v, 1}, [&](auto p) {
      return ConvertValue(b, part, ComplexComponent(to), p[0], options);
    });
  }
  if (IsComplex(to)) {
    Value* re = ConvertValue(b, from, ComplexComponent(to), v, options);
    return MakeComplex(b, re, llvm::ConstantFP::get(re->getType(), 0));
  }
  llvm::Type* type = WithLanesOf(v->getType(), RegisterType(b.getContext(), to));
  if (to == PrimitiveType::kPred) {
    if (IsFloat(from)) return b.CreateFCmpUNE(v, llvm::ConstantFP::get(v->getType(), 0));
    return b.CreateICmpNE(v, llvm::ConstantInt::get(v->getType(), 0));
  }
  if (IsFloat(from)) {
    if (!IsFloat(to)) return FloatToInt(b, to, v, type);
    const bool wide = v->getType()->getScalarType()->isDoubleTy();
    if (wide && (IsHalf(to) || IsNarrowFloat(to)) && !type->getScalarType()->isDoubleTy())
      return TruncateToOdd(b, v);
    return b.CreateFPCast(v, type);
  }
  if (IsFloat(to)) return IntToFloat(b, from, to, v, options);
  return IsSigned(from) ? b.CreateSExtOrTrunc(v, type) : b.CreateZExtOrTrunc(v, type);
}

Value* ConvertFromIndex(llvm::IRBuilderBase& b, PrimitiveType type, Value* v,
                        const EmitOptions& options) {
  const PrimitiveType index =
      v->getType()->getScalarSizeInBits() == 64 ? PrimitiveType::kS64 : PrimitiveType::kS32;
  v = ConvertValue(b, index, type, v, options);
  const bool rounds = IsNarrowFloat(type) || (IsHalf(type) && !options.excess_precision);
  return rounds ? RoundToType(b, type, v, options) : v;
}

std::vector<Value*> ToWords(llvm::IRBuilderBase& b, PrimitiveType type, Value* v,
                            const EmitOptions& options) {
  auto integer = [&](Value* x, int bits) {
    return b.CreateBitCast(
        x, WithLanesOf(x->getType(), b.getIntNTy(static_cast<unsigned>(bits))));
  };
  if (type == PrimitiveType::kC128)
    return {integer(Part(b, v, 0), 64), integer(Part(b, v, 1), 64)};
  if (type == PrimitiveType::kC64) {
    auto wide = [&](unsigned part) {
      Value* x = integer(Part(b, v, part), 32);
      return b.CreateZExt(x, WithLanesOf(x->getType(), b.getInt64Ty()));
    };
    Value* im = wide(1);
    return {b.CreateOr(wide(0), b.CreateShl(im, llvm::ConstantInt::get(im->getType(), 32)))};
  }
  if (!IsFloat(type)) return {v};
  v = integer(ToMemory(b, type, v, options), static_cast<int>(8 * ByteWidth(type)));
  return {b.CreateTrunc(
      v, WithLanesOf(v->getType(), b.getIntNTy(static_cast<unsigned>(BitWidth(type)))))};
}

Value* FromWords(llvm::IRBuilderBase& b, PrimitiveType type, std::span<Value* const> words,
                 const EmitOptions& options) {
  auto real = [&](Value* x, llvm::Type* to) {
    return b.CreateBitCast(x, WithLanesOf(x->getType(), to));
  };
  if (type == PrimitiveType::kC128)
    return MakeComplex(b, real(words[0], b.getDoubleTy()), real(words[1], b.getDoubleTy()));
  if (type == PrimitiveType::kC64) {
    Value* w = words[0];
    llvm::Type* i32 = WithLanesOf(w->getType(), b.getInt32Ty());
    Value* high = b.CreateLShr(w, llvm::ConstantInt::get(w->getType(), 32));
    return MakeComplex(b, real(b.CreateTrunc(w, i32), b.getFloatTy()),
                       real(b.CreateTrunc(high, i32), b.getFloatTy()));
  }
  if (!IsFloat(type)) return words[0];
  const unsigned bits = static_cast<unsigned>(8 * ByteWidth(type));
  Value* bytes = b.CreateZExt(words[0], WithLanesOf(words[0]->getType(), b.getIntNTy(bits)));
  return FromMemory(b, type, real(bytes, MemoryType(b.getContext(), type)), options);
}

}  // namespace tenon
