#include "backends/common/elementwise.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "backends/common/math/math.h"
#include "hlo/plant.h"
#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/Module.h"

namespace tenon {
namespace {

using llvm::Value;
namespace Intrinsic = llvm::Intrinsic;

// What a row of the table gets: the op, its register operands, the operands' and the result's
// element types.
struct Emission {
  llvm::IRBuilderBase& b;
  const Instruction& op;
  std::span<Value* const> args;
  const EmitOptions& options;

  Value* x() const { return args[0]; }
  Value* y() const { return args[1]; }
  PrimitiveType type() const {
    return op.operand(op.opcode() == Opcode::kSelect ? 1 : 0)->shape().element_type();
  }
  PrimitiveType result() const { return op.shape().element_type(); }
  bool is_float() const { return IsFloat(type()); }
  bool is_signed() const { return IsSigned(type()); }
  int bits() const { return BitWidth(type()); }
  Value* Int(uint64_t c) const {
    return llvm::ConstantInt::get(x()->getType(), c, /*IsSigned=*/false, /*ImplicitTrunc=*/true);
  }
  Value* Float(double c) const { return llvm::ConstantFP::get(x()->getType(), c); }
  Value* Unary(Intrinsic::ID id) const { return b.CreateUnaryIntrinsic(id, x()); }
  Value* Binary(Intrinsic::ID id, Value* p, Value* q) const {
    return b.CreateBinaryIntrinsic(id, p, q);
  }
  Value* Math(math::Fn fn) const { return math::Emit(b, fn, args); }
};

using Body = Value* (*)(const Emission&);

// max (min) of an accumulator p and x by one machine instruction, which returns its second operand
// on a tie or a NaN; only x's NaN is put back, off the chain of accumulators.
Value* MergeExtremum(const Emission& e, bool max, Value* p, Value* x) {
  Value* r = e.b.CreateSelect(max ? e.b.CreateFCmpOGT(x, p) : e.b.CreateFCmpOLT(x, p), x, p);
  if (Planted(Plant::kNanMax) && max) return r;
  return e.b.CreateSelect(e.b.CreateFCmpUNO(x, x), x, r);
}

Value* Maximum(const Emission& e, Value* p, Value* q) {
  if (e.is_float() && e.options.merging) return MergeExtremum(e, true, p, q);
  return e.Binary(e.is_float()    ? Intrinsic::maximum
                  : e.is_signed() ? Intrinsic::smax
                                  : Intrinsic::umax,
                  p, q);
}
Value* Minimum(const Emission& e, Value* p, Value* q) {
  if (e.is_float() && e.options.merging) return MergeExtremum(e, false, p, q);
  return e.Binary(e.is_float()    ? Intrinsic::minimum
                  : e.is_signed() ? Intrinsic::smin
                                  : Intrinsic::umin,
                  p, q);
}

// Division by zero gives all ones, remainder the dividend; INT_MIN / -1 wraps. The divisor is
// replaced where it would trap.
Value* IntegerDivide(const Emission& e, bool remainder) {
  Value* zero = e.b.CreateICmpEQ(e.y(), e.Int(0));
  Value* bad = zero;
  if (e.is_signed()) {
    Value* overflow = e.b.CreateAnd(e.b.CreateICmpEQ(e.y(), e.Int(~uint64_t{0})),
                                    e.b.CreateICmpEQ(e.x(), e.Int(uint64_t{1} << (e.bits() - 1))));
    bad = e.b.CreateOr(zero, overflow);
  }
  Value* divisor = e.b.CreateSelect(bad, e.Int(1), e.y());
  if (remainder) {
    Value* r = e.is_signed() ? e.b.CreateSRem(e.x(), divisor) : e.b.CreateURem(e.x(), divisor);
    return e.b.CreateSelect(zero, e.x(), r);
  }
  Value* q = e.is_signed() ? e.b.CreateSDiv(e.x(), divisor) : e.b.CreateUDiv(e.x(), divisor);
  return e.b.CreateSelect(zero, e.Int(~uint64_t{0}), q);
}

// One fmod per lane.
Value* FloatRemainder(const Emission& e) {
  llvm::Type* scalar = e.x()->getType()->getScalarType();
  llvm::Module* module = e.b.GetInsertBlock()->getModule();
  llvm::FunctionCallee fmod =
      module->getOrInsertFunction(scalar->isFloatTy() ? "fmodf" : "fmod", scalar, scalar, scalar);
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(e.x()->getType());
  if (vector == nullptr) return e.b.CreateCall(fmod, {e.x(), e.y()});
  Value* r = llvm::PoisonValue::get(vector);
  for (unsigned i = 0; i < vector->getNumElements(); ++i) {
    Value* lane = e.b.CreateCall(
        fmod, {e.b.CreateExtractElement(e.x(), i), e.b.CreateExtractElement(e.y(), i)});
    r = e.b.CreateInsertElement(r, lane, i);
  }
  return r;
}

// Square and multiply over every bit of the exponent. base^-n is 0 but for a base of 1 or -1.
Value* IntegerPower(const Emission& e) {
  Value *result = e.Int(1), *square = e.x();
  for (int i = 0; i < e.bits(); ++i) {
    Value* bit = e.b.CreateICmpNE(e.b.CreateAnd(e.y(), e.Int(uint64_t{1} << i)), e.Int(0));
    result = e.b.CreateSelect(bit, e.b.CreateMul(result, square), result);
    square = e.b.CreateMul(square, square);
  }
  if (!e.is_signed()) return result;
  Value* odd = e.b.CreateICmpNE(e.b.CreateAnd(e.y(), e.Int(1)), e.Int(0));
  Value* minus_one = e.b.CreateSelect(odd, e.Int(~uint64_t{0}), e.Int(1));
  Value* negative =
      e.b.CreateSelect(e.b.CreateICmpEQ(e.x(), e.Int(~uint64_t{0})), minus_one, e.Int(0));
  negative = e.b.CreateSelect(e.b.CreateICmpEQ(e.x(), e.Int(1)), e.Int(1), negative);
  return e.b.CreateSelect(e.b.CreateICmpSLT(e.y(), e.Int(0)), negative, result);
}

Value* Shift(const Emission& e, Opcode opcode) {
  Value* width = e.Int(static_cast<uint64_t>(e.bits()));
  if (opcode == Opcode::kShiftRightArithmetic) {
    Value* amount = e.Binary(Intrinsic::umin, e.y(), e.Int(static_cast<uint64_t>(e.bits() - 1)));
    return e.b.CreateAShr(e.x(), amount);
  }
  Value* in_range = e.b.CreateICmpULT(e.y(), width);
  Value* amount = e.b.CreateAnd(e.y(), e.Int(static_cast<uint64_t>(e.bits() - 1)));
  Value* shifted =
      opcode == Opcode::kShiftLeft ? e.b.CreateShl(e.x(), amount) : e.b.CreateLShr(e.x(), amount);
  return e.b.CreateSelect(in_range, shifted, e.Int(0));
}

Value* MulHi(const Emission& e) {
  llvm::Type* wide =
      WithLanesOf(e.x()->getType(), e.b.getIntNTy(static_cast<unsigned>(2 * e.bits())));
  auto widen = [&](Value* v) {
    return e.is_signed() ? e.b.CreateSExt(v, wide) : e.b.CreateZExt(v, wide);
  };
  Value* product = e.b.CreateMul(widen(e.x()), widen(e.y()));
  return e.b.CreateTrunc(
      e.b.CreateLShr(product, llvm::ConstantInt::get(wide, static_cast<uint64_t>(e.bits()))),
      e.x()->getType());
}

// trunc(|x| + the number just below 1/2), with x's sign.
Value* RoundAwayFromZero(const Emission& e) {
  Value* below_half =
      e.Float(e.x()->getType()->getScalarType()->isDoubleTy() ? std::nextafter(0.5, 0.0)
                                                              : std::nextafterf(0.5f, 0.0f));
  Value* t = e.b.CreateFAdd(e.Unary(Intrinsic::fabs), below_half);
  return e.Binary(Intrinsic::copysign, e.b.CreateUnaryIntrinsic(Intrinsic::trunc, t), e.x());
}

Value* Sign(const Emission& e) {
  if (e.is_float()) {
    Value* one = e.Binary(Intrinsic::copysign, e.Float(1), e.x());
    return e.b.CreateSelect(e.b.CreateFCmpONE(e.x(), e.Float(0)), one, e.x());
  }
  Value* positive = e.b.CreateZExt(e.b.CreateICmpSGT(e.x(), e.Int(0)), e.x()->getType());
  return e.is_signed()
             ? e.b.CreateOr(positive,
                            e.b.CreateAShr(e.x(), e.Int(static_cast<uint64_t>(e.bits() - 1))))
             : positive;
}

llvm::CmpInst::Predicate FloatPredicate(std::string_view direction) {
  if (direction == "EQ") return llvm::CmpInst::FCMP_OEQ;
  if (direction == "NE") return llvm::CmpInst::FCMP_UNE;
  if (direction == "LT") return llvm::CmpInst::FCMP_OLT;
  if (direction == "LE") return llvm::CmpInst::FCMP_OLE;
  return direction == "GT" ? llvm::CmpInst::FCMP_OGT : llvm::CmpInst::FCMP_OGE;
}

llvm::CmpInst::Predicate IntPredicate(std::string_view direction, bool is_signed) {
  using P = llvm::CmpInst;
  if (direction == "EQ") return P::ICMP_EQ;
  if (direction == "NE") return P::ICMP_NE;
  if (direction == "LT") return is_signed ? P::ICMP_SLT : P::ICMP_ULT;
  if (direction == "LE") return is_signed ? P::ICMP_SLE : P::ICMP_ULE;
  if (direction == "GT") return is_signed ? P::ICMP_SGT : P::ICMP_UGT;
  return is_signed ? P::ICMP_SGE : P::ICMP_UGE;
}

Value* Compare(const Emission& e) {
  const std::string& direction = e.op.comparison_direction();
  const bool is_signed = e.is_signed() || Planted(Plant::kUnsignedCompare);
  if (!e.is_float()) return e.b.CreateICmp(IntPredicate(direction, is_signed), e.x(), e.y());
  if (e.op.attrs().get_or<std::string>(Attr::kComparisonType, "") != "TOTALORDER") {
    return e.b.CreateFCmp(FloatPredicate(direction), e.x(), e.y());
  }
  // -NaN < -inf < ... < -0 < +0 < ... < NaN: two's complement order once the negative half is
  // mirrored.
  const unsigned width = e.x()->getType()->getScalarSizeInBits();
  llvm::Type* type = WithLanesOf(e.x()->getType(), e.b.getIntNTy(width));
  auto key = [&](Value* v) {
    Value* bits = e.b.CreateBitCast(v, type);
    Value* negative = e.b.CreateAShr(bits, llvm::ConstantInt::get(type, width - 1));
    return e.b.CreateXor(bits, e.b.CreateLShr(negative, llvm::ConstantInt::get(type, 1)));
  };
  return e.b.CreateICmp(IntPredicate(direction, true), key(e.x()), key(e.y()));
}

// A double as a float, inexact ones to the odd neighbour: a later rounding to a half type is then
// the right one.
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

Value* Convert(const Emission& e) {
  llvm::IRBuilderBase& b = e.b;
  const PrimitiveType from = e.type(), to = e.result();
  llvm::Type* type = WithLanesOf(e.x()->getType(), RegisterType(b.getContext(), to));
  if (to == PrimitiveType::kPred) {
    if (IsFloat(from)) return b.CreateFCmpUNE(e.x(), e.Float(0));
    return from == to ? e.x() : b.CreateICmpNE(e.x(), e.Int(0));
  }
  if (IsFloat(from)) {
    if (!IsFloat(to))
      return b.CreateIntrinsic(IsSigned(to) ? Intrinsic::fptosi_sat : Intrinsic::fptoui_sat,
                               {type, e.x()->getType()}, {e.x()});
    if (from == PrimitiveType::kF64 && IsHalf(to)) return TruncateToOdd(b, e.x());
    return b.CreateFPCast(e.x(), type);
  }
  if (IsFloat(to)) {
    const bool exact_path = IsHalf(to) && BitWidth(from) > 16 && !e.options.excess_precision;
    llvm::Type* via = exact_path ? WithLanesOf(type, b.getDoubleTy()) : type;
    Value* f = IsSigned(from) ? b.CreateSIToFP(e.x(), via) : b.CreateUIToFP(e.x(), via);
    return exact_path ? TruncateToOdd(b, f) : f;
  }
  return IsSigned(from) ? b.CreateSExtOrTrunc(e.x(), type) : b.CreateZExtOrTrunc(e.x(), type);
}

Value* BitcastConvert(const Emission& e) {
  Value* bits = ToMemory(e.b, e.type(), e.x(), e.options);
  Value* moved = e.b.CreateBitCast(
      bits, WithLanesOf(bits->getType(), MemoryType(e.b.getContext(), e.result())));
  return FromMemory(e.b, e.result(), moved, e.options);
}

// XLA's reduce-precision: round the mantissa to nearest even, then overflow to infinity and
// underflow to a signed zero.
Value* ReducePrecision(const Emission& e) {
  llvm::IRBuilderBase& b = e.b;
  const bool f64 = e.type() == PrimitiveType::kF64;
  const int mantissa = f64 ? 52 : 23, exponent = f64 ? 11 : 8;
  const int64_t want_m = e.op.attrs().get<int64_t>(Attr::kMantissaBits),
                want_e = e.op.attrs().get<int64_t>(Attr::kExponentBits);
  llvm::Type* type = WithLanesOf(e.x()->getType(), b.getIntNTy(f64 ? 64 : 32));
  auto c = [&](uint64_t v) {
    return llvm::ConstantInt::get(type, v, false, /*ImplicitTrunc=*/true);
  };
  Value* bits = b.CreateBitCast(e.x(), type);
  Value* original = bits;
  const uint64_t sign_mask = uint64_t{1} << (f64 ? 63 : 31),
                 exponent_mask = ((uint64_t{1} << exponent) - 1) << mantissa;
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
    Value* sign = b.CreateAnd(bits, c(sign_mask));
    Value* over = b.CreateICmpUGT(exp, c((bias + reduced) << mantissa));
    Value* under = b.CreateICmpULE(exp, c((bias - reduced) << mantissa));
    bits = b.CreateSelect(over, b.CreateOr(sign, c(exponent_mask)), bits);
    bits = b.CreateSelect(under, sign, bits);
  }
  Value* nan = want_m > 0 ? original : c(exponent_mask);
  bits = b.CreateSelect(b.CreateFCmpUNO(e.x(), e.x()), nan, bits);
  return b.CreateBitCast(bits, e.x()->getType());
}

Value* Rsqrt(const Emission& e) {
  if (math::HasBody(math::Fn::kRsqrt, e.x()->getType())) return e.Math(math::Fn::kRsqrt);
  return e.b.CreateFDiv(e.Float(1), e.Unary(Intrinsic::sqrt));
}
Value* Abs(const Emission& e) {
  if (e.is_float()) return e.Unary(Intrinsic::fabs);
  return e.is_signed()
             ? e.b.CreateIntrinsic(Intrinsic::abs, {e.x()->getType()}, {e.x(), e.b.getFalse()})
             : e.x();
}
Value* IsFinite(const Emission& e) {
  return e.b.CreateFCmpOLT(e.Unary(Intrinsic::fabs),
                           e.Float(std::numeric_limits<double>::infinity()));
}
Value* LeadingZeros(const Emission& e) {
  return e.b.CreateIntrinsic(Intrinsic::ctlz, {e.x()->getType()}, {e.x(), e.b.getFalse()});
}

std::optional<math::Fn> MathOf(Opcode opcode) {
  switch (opcode) {
#define TENON_MATH(op, fn) \
  case Opcode::op:         \
    return math::Fn::fn;
    TENON_MATH(kAcos, kAcos)
    TENON_MATH(kAcosh, kAcosh) TENON_MATH(kAsin, kAsin) TENON_MATH(kAsinh, kAsinh)
        TENON_MATH(kAtan, kAtan) TENON_MATH(kAtanh, kAtanh) TENON_MATH(kCbrt, kCbrt)
            TENON_MATH(kCosine, kCos) TENON_MATH(kCosh, kCosh) TENON_MATH(kErf, kErf)
                TENON_MATH(kExponential, kExp) TENON_MATH(kExponentialMinusOne, kExpm1)
                    TENON_MATH(kLog, kLog) TENON_MATH(kLogPlusOne, kLog1p)
                        TENON_MATH(kLogistic, kLogistic) TENON_MATH(kSine, kSin)
                            TENON_MATH(kSinh, kSinh) TENON_MATH(kTan, kTan) TENON_MATH(kTanh, kTanh)
                                TENON_MATH(kAtan2, kAtan2) TENON_MATH(kPower, kPow)
#undef TENON_MATH
                                    default : return std::nullopt;
  }
}

// Which element types a row takes (of the first data operand).
enum Takes : int { kBool = 1, kInt = 2, kReal = 4, kAll = 7 };

struct Row {
  int takes = 0;
  int cost = 1;
  Body body = nullptr;
};

#define E const Emission& e
const Row& RowOf(Opcode opcode) {
  static const std::array<Row, kNumOpcodes> table = [] {
    std::array<Row, kNumOpcodes> t;
    auto row = [&t](Opcode o, int takes, int cost, Body body) {
      t[static_cast<int>(o)] = {takes, cost, body};
    };
    row(Opcode::kAbs, kInt | kReal, 1, Abs);
    row(Opcode::kAdd, kInt | kReal, 1, [](E) {
      return e.is_float() ? e.b.CreateFAdd(e.x(), e.y()) : e.b.CreateAdd(e.x(), e.y());
    });
    row(Opcode::kSubtract, kInt | kReal, 1, [](E) {
      return e.is_float() ? e.b.CreateFSub(e.x(), e.y()) : e.b.CreateSub(e.x(), e.y());
    });
    row(Opcode::kMultiply, kInt | kReal, 1, [](E) {
      return e.is_float() ? e.b.CreateFMul(e.x(), e.y()) : e.b.CreateMul(e.x(), e.y());
    });
    row(Opcode::kDivide, kInt | kReal, 5,
        [](E) { return e.is_float() ? e.b.CreateFDiv(e.x(), e.y()) : IntegerDivide(e, false); });
    row(Opcode::kRemainder, kInt | kReal, 60,
        [](E) { return e.is_float() ? FloatRemainder(e) : IntegerDivide(e, true); });
    row(Opcode::kMaximum, kAll, 3, [](E) { return Maximum(e, e.x(), e.y()); });
    row(Opcode::kMinimum, kAll, 3, [](E) { return Minimum(e, e.x(), e.y()); });
    row(Opcode::kAnd, kBool | kInt, 1, [](E) { return e.b.CreateAnd(e.x(), e.y()); });
    row(Opcode::kOr, kBool | kInt, 1, [](E) { return e.b.CreateOr(e.x(), e.y()); });
    row(Opcode::kXor, kBool | kInt, 1, [](E) { return e.b.CreateXor(e.x(), e.y()); });
    row(Opcode::kNot, kBool | kInt, 1, [](E) { return e.b.CreateNot(e.x()); });
    row(Opcode::kNegate, kInt | kReal, 1,
        [](E) { return e.is_float() ? e.b.CreateFNeg(e.x()) : e.b.CreateNeg(e.x()); });
    row(Opcode::kSign, kInt | kReal, 3, Sign);
    row(Opcode::kFloor, kReal, 1, [](E) { return e.Unary(Intrinsic::floor); });
    row(Opcode::kCeil, kReal, 1, [](E) { return e.Unary(Intrinsic::ceil); });
    row(Opcode::kRoundNearestEven, kReal, 1, [](E) { return e.Unary(Intrinsic::roundeven); });
    row(Opcode::kRoundNearestAfz, kReal, 4, RoundAwayFromZero);
    row(Opcode::kSqrt, kReal, 6, [](E) { return e.Unary(Intrinsic::sqrt); });
    row(Opcode::kRsqrt, kReal, 12, Rsqrt);
    row(Opcode::kIsFinite, kReal, 2, IsFinite);
    row(Opcode::kPopcnt, kInt, 4, [](E) { return e.Unary(Intrinsic::ctpop); });
    row(Opcode::kCountLeadingZeros, kInt, 4, LeadingZeros);
    row(Opcode::kMulhi, kInt, 8, MulHi);
    row(Opcode::kShiftLeft, kInt, 3, [](E) { return Shift(e, Opcode::kShiftLeft); });
    row(Opcode::kShiftRightLogical, kInt, 3,
        [](E) { return Shift(e, Opcode::kShiftRightLogical); });
    row(Opcode::kShiftRightArithmetic, kInt, 2,
        [](E) { return Shift(e, Opcode::kShiftRightArithmetic); });
    row(Opcode::kCompare, kAll, 1, Compare);
    row(Opcode::kSelect, kAll, 1,
        [](E) { return e.b.CreateSelect(e.args[0], e.args[1], e.args[2]); });
    row(Opcode::kClamp, kInt | kReal, 6,
        [](E) { return Minimum(e, Maximum(e, e.args[0], e.args[1]), e.args[2]); });
    row(Opcode::kConvert, kAll, 2, Convert);
    row(Opcode::kBitcastConvert, kInt | kReal, 1, BitcastConvert);
    row(Opcode::kReducePrecision, kReal, 8, ReducePrecision);
    row(Opcode::kReal, kReal, 0, [](E) { return e.x(); });
    for (int o = 0; o < kNumOpcodes; ++o) {
      if (MathOf(static_cast<Opcode>(o)))
        t[o] = {kReal, 25, [](E) { return e.Math(*MathOf(e.op.opcode())); }};
    }
    t[static_cast<int>(Opcode::kPower)] = {
        kInt | kReal, 50,
        [](E) { return e.is_float() ? e.Math(math::Fn::kPow) : IntegerPower(e); }};
    return t;
  }();
  return table[static_cast<int>(opcode)];
}
#undef E

PrimitiveType DataType(const Instruction& op) {
  return op.operand(op.opcode() == Opcode::kSelect ? 1 : 0)->shape().element_type();
}

}  // namespace

bool HasElementwiseBody(const Instruction& op) {
  const Row& row = RowOf(op.opcode());
  if (row.body == nullptr || op.operand_count() == 0) return false;
  for (const Instruction* operand : op.operands()) {
    if (!IsGeneratedType(operand->shape().element_type())) return false;
  }
  const PrimitiveType type = DataType(op), result = op.shape().element_type();
  if (!IsGeneratedType(result)) return false;
  if (op.opcode() == Opcode::kBitcastConvert) {
    return result != PrimitiveType::kPred && type != PrimitiveType::kPred &&
           BitWidth(type) == BitWidth(result);
  }
  if (type == PrimitiveType::kPred) return (row.takes & kBool) != 0;
  return (row.takes & (IsFloat(type) ? kReal : kInt)) != 0;
}

absl::StatusOr<Value*> EmitElementwise(llvm::IRBuilderBase& b, const Instruction& op,
                                       std::span<Value* const> args, const EmitOptions& options) {
  if (!HasElementwiseBody(op)) {
    return absl::UnimplementedError(absl::StrCat("code generation of ", op.ToString()));
  }
  Value* v = RowOf(op.opcode()).body(Emission{b, op, args, options});
  const PrimitiveType result = op.shape().element_type();
  const bool rounds = IsHalf(result) && op.opcode() != Opcode::kSelect &&
                      op.opcode() != Opcode::kMaximum && op.opcode() != Opcode::kMinimum &&
                      op.opcode() != Opcode::kClamp && op.opcode() != Opcode::kBitcastConvert &&
                      op.opcode() != Opcode::kNegate && op.opcode() != Opcode::kAbs;
  return rounds && !options.excess_precision ? RoundToType(b, result, v, options) : v;
}

int ElementwiseCost(const Instruction& op) { return RowOf(op.opcode()).cost; }

}  // namespace tenon
