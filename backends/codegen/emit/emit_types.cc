#include "backends/codegen/emit/emit_types.h"

#include "backends/codegen/emit/narrow_float.h"
#include "backends/codegen/emit/packed_half.h"
#include "backends/codegen/emit/register_bits.h"
#include "hlo/check.h"
#include "llvm/IR/Intrinsics.h"

namespace tenon {
namespace {

using llvm::Value;

Value* Narrow(llvm::IRBuilderBase& b, Value* i) {
  return b.CreateTrunc(i, WithLanesOf(i->getType(), b.getInt16Ty()));
}
Value* Widen(llvm::IRBuilderBase& b, Value* i) {
  return b.CreateZExt(i, WithLanesOf(i->getType(), b.getInt32Ty()));
}

// The bits of bf16(f) in the upper half of an i32, lower half garbage-free; nearest even, NaN
// quietened.
Value* RoundedBf16Bits(llvm::IRBuilderBase& b, Value* f) {
  Value* bits = AsI32(b, f);
  Value* odd = b.CreateAnd(b.CreateLShr(bits, IntLike(bits, 16)), IntLike(bits, 1));
  Value* rounded = b.CreateAdd(bits, b.CreateAdd(odd, IntLike(bits, 0x7fff)));
  return b.CreateSelect(b.CreateFCmpUNO(f, f), b.CreateOr(bits, IntLike(bits, 0x400000)), rounded);
}

// f16 by integer code. Widening multiplies by 2^112 after moving the fields in place (exact,
// subnormals too).
Value* F16ToF32(llvm::IRBuilderBase& b, Value* half) {
  Value* h = Widen(b, half);
  Value* magnitude = b.CreateShl(b.CreateAnd(h, IntLike(h, 0x7fff)), IntLike(h, 13));
  Value* scaled =
      b.CreateFMul(AsF32(b, magnitude),
                   llvm::ConstantFP::get(WithLanesOf(h->getType(), b.getFloatTy()), 0x1p112));
  Value* special = b.CreateICmpUGE(
      magnitude, IntLike(h, 0x7c00 << 13));  // infinity, NaN: the exponent is all ones here too
  Value* bits =
      b.CreateSelect(special, b.CreateOr(magnitude, IntLike(h, 0x7f800000)), AsI32(b, scaled));
  return AsF32(b, b.CreateOr(bits, b.CreateShl(b.CreateAnd(h, IntLike(h, 0x8000)), IntLike(h, 16))));
}

Value* F32ToF16(llvm::IRBuilderBase& b, Value* f) {
  Value* bits = AsI32(b, f);
  Value* sign = b.CreateAnd(b.CreateLShr(bits, IntLike(bits, 16)), IntLike(bits, 0x8000));
  Value* mag = b.CreateAnd(bits, IntLike(bits, 0x7fffffff));
  // Normal: rebias and round in place. A carry walks into the exponent, up to infinity.
  Value* odd = b.CreateAnd(b.CreateLShr(mag, IntLike(mag, 13)), IntLike(mag, 1));
  Value* normal = b.CreateLShr(
      b.CreateAdd(b.CreateAdd(mag, odd), IntLike(mag, (static_cast<uint32_t>(15 - 127) << 23) + 0xfff)),
      IntLike(mag, 13));
  // Subnormal: adding 0.5 leaves the wanted bits at the bottom, rounded by the addition itself.
  Value* half = llvm::ConstantFP::get(f->getType(), 0.5);
  Value* sub = b.CreateSub(AsI32(b, b.CreateFAdd(AsF32(b, mag), half)), IntLike(mag, 0x3f000000));
  Value* r = b.CreateSelect(b.CreateICmpULT(mag, IntLike(mag, 0x38800000)), sub, normal);
  r = b.CreateSelect(b.CreateICmpUGE(mag, IntLike(mag, 0x47800000)), IntLike(mag, 0x7c00), r);
  Value* nan =
      b.CreateOr(b.CreateAnd(b.CreateLShr(mag, IntLike(mag, 13)), IntLike(mag, 0x3ff)), IntLike(mag, 0x7e00));
  r = b.CreateSelect(b.CreateICmpUGT(mag, IntLike(mag, 0x7f800000)), nan, r);
  return Narrow(b, b.CreateOr(r, sign));
}

}  // namespace

bool IsHalf(PrimitiveType t) { return t == PrimitiveType::kF16 || t == PrimitiveType::kBF16; }
bool IsNarrowFloat(PrimitiveType t) { return IsFloat(t) && BitWidth(t) <= 8; }
bool IsNarrowInt(PrimitiveType t) { return IsIntegral(t) && BitWidth(t) < 8; }
bool IsGeneratedType(PrimitiveType t) { return IsArrayType(t); }

llvm::Type* RegisterType(llvm::LLVMContext& c, PrimitiveType t) {
  if (IsComplex(t)) {
    llvm::Type* part = RegisterType(c, ComplexComponent(t));
    return llvm::StructType::get(part, part);
  }
  // A product of two powers of f8e8m0fnu leaves float's range.
  if (t == PrimitiveType::kF64 || t == PrimitiveType::kF8E8M0FNU) return llvm::Type::getDoubleTy(c);
  if (IsFloat(t)) return llvm::Type::getFloatTy(c);
  return llvm::Type::getIntNTy(c, static_cast<unsigned>(BitWidth(t)));
}

llvm::Type* MemoryType(llvm::LLVMContext& c, PrimitiveType t) {
  if (t == PrimitiveType::kF64 || t == PrimitiveType::kF32 || IsComplex(t))
    return RegisterType(c, t);
  return llvm::Type::getIntNTy(c, static_cast<unsigned>(8 * ByteWidth(t)));
}

bool IsStoredAsInMemory(PrimitiveType t) { return t == PrimitiveType::kPred || IsNarrowInt(t); }

llvm::Type* StorageType(llvm::LLVMContext& c, PrimitiveType t) {
  return IsStoredAsInMemory(t) ? MemoryType(c, t) : RegisterType(c, t);
}

int64_t StorageBytes(PrimitiveType t) {
  if (t == PrimitiveType::kF8E8M0FNU) return 8;
  return IsHalf(t) || IsNarrowFloat(t) ? 4 : ByteWidth(t);
}

namespace {

// Where the f16 of `bits` is a NaN, its sign and payload; else `wide`.
Value* WithNanOf(llvm::IRBuilderBase& b, Value* wide, Value* bits) {
  Value* x = Widen(b, b.CreateBitCast(bits, WithLanesOf(bits->getType(), b.getInt16Ty())));
  Value* sign = b.CreateShl(b.CreateAnd(x, IntLike(x, 0x8000)), IntLike(x, 16));
  Value* payload = b.CreateShl(b.CreateAnd(x, IntLike(x, 0x3ff)), IntLike(x, 13));
  Value* nan = b.CreateOr(b.CreateOr(sign, payload), IntLike(x, 0x7f800000));
  return b.CreateSelect(b.CreateICmpUGT(b.CreateAnd(x, IntLike(x, 0x7fff)), IntLike(x, 0x7c00)), AsF32(b, nan), wide, "f16.nan");
}

// The other way: `bits`, what the f32 `wide` is as f16, with its sign and the upper bits of its payload where it is a NaN.
Value* WithNanOfF32(llvm::IRBuilderBase& b, Value* bits, Value* wide) {
  Value* x = b.CreateBitCast(wide, WithLanesOf(wide->getType(), b.getInt32Ty()));
  Value* sign = b.CreateAnd(b.CreateLShr(x, IntLike(x, 16)), IntLike(x, 0x8000));
  Value* payload = b.CreateAnd(b.CreateLShr(x, IntLike(x, 13)), IntLike(x, 0x3ff));
  payload = b.CreateSelect(b.CreateICmpEQ(payload, IntLike(x, 0)), IntLike(x, 0x200), payload);
  Value* nan = b.CreateTrunc(b.CreateOr(b.CreateOr(sign, payload), IntLike(x, 0x7c00)), bits->getType());
  return b.CreateSelect(b.CreateFCmpUNO(wide, wide), nan, bits);
}

}  // namespace

Value* FromMemory(llvm::IRBuilderBase& b, PrimitiveType type, Value* v,
                  const EmitOptions& options) {
  if (type == PrimitiveType::kPred) return b.CreateICmpNE(v, IntLike(v, 0));
  if (IsNarrowInt(type))
    return b.CreateTrunc(v, WithLanesOf(v->getType(), RegisterType(b.getContext(), type)));
  if (IsNarrowFloat(type)) return NarrowFloatFromBits(b, type, v);
  if (type == PrimitiveType::kBF16) {
    Value* wide = Widen(b, v);
    return AsF32(b, b.CreateShl(wide, IntLike(wide, 16)));
  }
  if (type == PrimitiveType::kF16) {
    if (!options.has_f16c) return F16ToF32(b, v);
    Value* wide = b.CreateFPExt(b.CreateBitCast(v, WithLanesOf(v->getType(), b.getHalfTy())),
                                WithLanesOf(v->getType(), b.getFloatTy()));
    return options.keeps_f16_nans ? WithNanOf(b, wide, v) : wide;
  }
  return v;
}

Value* UnchangedBf16(Value* v) {
  auto* cast = llvm::dyn_cast<llvm::BitCastInst>(v);
  auto* shifted = cast ? llvm::dyn_cast<llvm::BinaryOperator>(cast->getOperand(0)) : nullptr;
  if (shifted == nullptr || shifted->getOpcode() != llvm::Instruction::Shl) return nullptr;
  auto* wide = llvm::dyn_cast<llvm::ZExtInst>(shifted->getOperand(0));
  if (wide == nullptr || !wide->getOperand(0)->getType()->getScalarType()->isIntegerTy(16)) return nullptr;
  auto* by = llvm::dyn_cast<llvm::Constant>(shifted->getOperand(1));
  return by != nullptr && by == IntLike(wide, 16) ? wide->getOperand(0) : nullptr;
}

// The same of an f16 whose NaNs were kept.
static Value* UnchangedF16(Value* v) {
  auto* select = llvm::dyn_cast<llvm::SelectInst>(v);
  auto* wide = select == nullptr ? nullptr : llvm::dyn_cast<llvm::FPExtInst>(select->getFalseValue());
  auto* half = wide == nullptr ? nullptr : llvm::dyn_cast<llvm::BitCastInst>(wide->getOperand(0));
  const bool kept = half != nullptr && select->getName().starts_with("f16.nan");
  return kept && half->getOperand(0)->getType()->isIntOrIntVectorTy(16) ? half->getOperand(0) : nullptr;
}

Value* ToMemory(llvm::IRBuilderBase& b, PrimitiveType type, Value* v, const EmitOptions& options) {
  if (IsStoredAsInMemory(type)) {
    llvm::Type* byte = WithLanesOf(v->getType(), b.getInt8Ty());
    return IsSigned(type) ? b.CreateSExt(v, byte) : b.CreateZExt(v, byte);
  }
  if (IsNarrowFloat(type)) return NarrowFloatToBits(b, type, v, /*quiet=*/false);
  if (type == PrimitiveType::kBF16) {
    if (Value* same = UnchangedBf16(v)) return same;
    if (PacksHalves(type, options)) return b.CreateBitCast(RoundedHalf(b, type, v, options), WithLanesOf(v->getType(), b.getInt16Ty()));
    Value* bits = RoundedBf16Bits(b, v);
    return Narrow(b, b.CreateLShr(bits, IntLike(bits, 16)));
  }
  if (type == PrimitiveType::kF16) {
    if (Value* same = UnchangedF16(v)) return same;
    if (PacksHalves(type, options)) {
      Value* bits = b.CreateBitCast(RoundedHalf(b, type, v, options), WithLanesOf(v->getType(), b.getInt16Ty()));
      return options.keeps_f16_nans ? WithNanOfF32(b, bits, v) : bits;
    }
    if (!options.has_f16c) return F32ToF16(b, v);
    // LLVM folds a rounding of f64 to f32 and one to f16 into one from f64, which is a call of the compiler's run-time library.
    v = b.CreateArithmeticFence(v, v->getType());
    return b.CreateBitCast(b.CreateFPTrunc(v, WithLanesOf(v->getType(), b.getHalfTy())),
                           WithLanesOf(v->getType(), b.getInt16Ty()));
  }
  return v;
}

Value* RoundToType(llvm::IRBuilderBase& b, PrimitiveType type, Value* v,
                   const EmitOptions& options) {
  if (IsNarrowFloat(type))
    return NarrowFloatFromBits(b, type, NarrowFloatToBits(b, type, v, /*quiet=*/true));
  if (PacksHalves(type, options)) return b.CreateFPExt(RoundedHalf(b, type, v, options), v->getType());
  if (type == PrimitiveType::kBF16) {
    Value* bits = RoundedBf16Bits(b, v);
    return AsF32(b, b.CreateAnd(bits, IntLike(bits, 0xffff0000)));
  }
  if (type == PrimitiveType::kF16)
    return FromMemory(b, type, ToMemory(b, type, v, options), options);
  return v;
}

// ---- values of any type ----

llvm::Type* WithLanes(llvm::Type* element, unsigned lanes) {
  if (lanes == 1) return element;
  if (!IsComplexType(element)) return llvm::FixedVectorType::get(element, lanes);
  llvm::Type* part = WithLanes(element->getStructElementType(0), lanes);
  return llvm::StructType::get(part, part);
}

llvm::Type* WithLanesOf(llvm::Type* like, llvm::Type* element) {
  return IsVectorType(like) ? WithLanes(element, LanesOf(like)) : element;
}

bool IsVectorType(llvm::Type* type) {
  return (IsComplexType(type) ? type->getStructElementType(0) : type)->isVectorTy();
}

unsigned LanesOf(llvm::Type* type) {
  if (IsComplexType(type)) type = type->getStructElementType(0);
  auto* v = llvm::dyn_cast<llvm::FixedVectorType>(type);
  return v ? v->getNumElements() : 1;
}

unsigned PartBits(llvm::Type* type) {
  return (IsComplexType(type) ? type->getStructElementType(0) : type)->getScalarSizeInBits();
}

unsigned ElementBits(llvm::Type* type) { return (IsComplexType(type) ? 2 : 1) * PartBits(type); }

Value* Part(llvm::IRBuilderBase& b, Value* complex, unsigned part) {
  for (auto* i = llvm::dyn_cast<llvm::InsertValueInst>(complex); i != nullptr;
       i = llvm::dyn_cast<llvm::InsertValueInst>(i->getAggregateOperand())) {
    if (i->getIndices()[0] == part) return i->getInsertedValueOperand();
  }
  return b.CreateExtractValue(complex, part);
}

Value* MakeComplex(llvm::IRBuilderBase& b, Value* re, Value* im) {
  Value* r = llvm::PoisonValue::get(llvm::StructType::get(re->getType(), im->getType()));
  return b.CreateInsertValue(b.CreateInsertValue(r, re, 0), im, 1);
}

Value* PerPart(llvm::IRBuilderBase& b, std::span<Value* const> values,
               llvm::function_ref<Value*(std::span<Value* const>)> f) {
  if (!IsComplexType(values[0]->getType())) return f(values);
  Value* parts[2];
  for (unsigned k = 0; k < 2; ++k) {
    llvm::SmallVector<Value*, 4> of;
    for (Value* v : values) of.push_back(Part(b, v, k));
    parts[k] = f(of);
  }
  return MakeComplex(b, parts[0], parts[1]);
}

Value* SplatValue(llvm::IRBuilderBase& b, unsigned lanes, Value* v) {
  return PerPart(b, {&v, 1}, [&](auto p) { return b.CreateVectorSplat(lanes, p[0]); });
}

Value* SelectValue(llvm::IRBuilderBase& b, Value* condition, Value* x, Value* y) {
  Value* both[] = {x, y};
  return PerPart(b, both, [&](auto p) { return b.CreateSelect(condition, p[0], p[1]); });
}

Value* ExtractLane(llvm::IRBuilderBase& b, Value* v, unsigned lane) {
  return PerPart(b, {&v, 1}, [&](auto p) { return b.CreateExtractElement(p[0], uint64_t{lane}); });
}

Value* ShuffleValues(llvm::IRBuilderBase& b, Value* x, Value* y, llvm::ArrayRef<int> mask) {
  Value* both[] = {x, y};
  return PerPart(b, both, [&](auto p) { return b.CreateShuffleVector(p[0], p[1], mask); });
}

void AskForLine(llvm::IRBuilderBase& b, Value* pointer) {
  constexpr uint32_t kRead = 0, kFirstCache = 3, kData = 1;
  b.CreateIntrinsic(llvm::Intrinsic::prefetch, {pointer->getType()},
                    {pointer, b.getInt32(kRead), b.getInt32(kFirstCache), b.getInt32(kData)});
}

}  // namespace tenon
