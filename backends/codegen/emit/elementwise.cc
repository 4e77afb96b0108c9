#include "backends/codegen/emit/elementwise.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "backends/codegen/emit/emission.h"
#include "hlo/cost_ops.h"
#include "hlo/own_calls.h"
#include "hlo/precision.h"
#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/Module.h"

namespace tenon {
namespace {

using llvm::Value;
namespace Intrinsic = llvm::Intrinsic;

using Body = ElementwiseBody;

// max (min) of an accumulator p and x by one machine instruction, which returns its second operand
// on a tie or a NaN; only x's NaN is put back, off the chain of accumulators.
Value* MergeExtremum(const Emission& e, bool max, Value* p, Value* x) {
  Value* r = e.b.CreateSelect(max ? e.b.CreateFCmpOGT(x, p) : e.b.CreateFCmpOLT(x, p), x, p);
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

// Vectors of s32 and s64 by an unknown divisor: machines divide such numbers one by one, doubles together.
bool DividesAsDoubles(const Emission& e) {
  const bool vector = e.x()->getType()->isVectorTy() && !llvm::isa<llvm::Constant>(e.y());
  return vector && e.is_signed() && e.options.divides_as_doubles && (e.bits() == 32 || e.bits() == 64);
}

// x / y, which is no overflow. Of s32 the quotient in f64 is right. Of s64 it is so to 2^-52 of it; what is left over is divided again, and
// then the quotient is right or the next one. (Of 32 bits |x| < 2^31: x / y is not within 2^-53 of an integer above it.)
Value* QuotientOfDoubles(const Emission& e, Value* divisor) {
  llvm::Type* wide = llvm::VectorType::get(e.b.getDoubleTy(), llvm::cast<llvm::VectorType>(e.x()->getType())->getElementCount());
  Value* y = e.b.CreateSIToFP(divisor, wide);
  auto quotient = [&](Value* x) { return e.b.CreateFDiv(e.b.CreateSIToFP(x, wide), y); };
  if (e.bits() == 32) return e.b.CreateFPToSI(quotient(e.x()), e.x()->getType());
  Value *most = llvm::ConstantFP::get(wide, 0x1.fffffffffffffp62), *first = quotient(e.x());  // the largest that an s64 takes
  first = e.b.CreateSelect(e.b.CreateFCmpOLT(first, most), first, most);
  Value* q = e.b.CreateFPToSI(first, e.x()->getType());
  Value* rest = e.b.CreateSub(e.x(), e.b.CreateMul(q, divisor));
  Value* second = e.b.CreateFPToSI(quotient(rest), e.x()->getType());
  q = e.b.CreateAdd(q, second);
  rest = e.b.CreateSub(rest, e.b.CreateMul(second, divisor));
  // Away from zero by one, which is 1 or -1: too far where the rest has not the sign of x, not far enough where it holds the divisor.
  Value* away = e.b.CreateOr(e.b.CreateAShr(e.b.CreateXor(e.x(), divisor), e.Int(63)), e.Int(1));
  Value* other_sign = e.b.CreateICmpSLT(e.b.CreateXor(rest, e.x()), e.Int(0));
  Value* far = e.b.CreateAnd(other_sign, e.b.CreateICmpNE(rest, e.Int(0)));
  auto size = [&](Value* v) { return e.b.CreateBinaryIntrinsic(Intrinsic::abs, v, e.b.getFalse()); };
  Value* near = e.b.CreateAnd(e.b.CreateNot(far), e.b.CreateICmpUGE(size(rest), size(divisor)));
  q = e.b.CreateSelect(far, e.b.CreateSub(q, away), q);
  return e.b.CreateSelect(near, e.b.CreateAdd(q, away), q);
}

// Division by zero gives all ones, remainder the dividend; INT_MIN / -1 wraps. The divisor is
// replaced where it would trap.
Value* IntegerDivide(const Emission& e, bool remainder) {
  Value* zero = e.b.CreateICmpEQ(e.y(), e.Int(0));
  if (e.bits() == 1) {  // the only other divisor is 1 or -1, and -x is x
    return e.b.CreateSelect(zero, remainder ? e.x() : e.Int(1), remainder ? e.Int(0) : e.x());
  }
  Value* bad = zero;
  if (e.is_signed()) {
    Value* overflow = e.b.CreateAnd(e.b.CreateICmpEQ(e.y(), e.Int(~uint64_t{0})),
                                    e.b.CreateICmpEQ(e.x(), e.Int(uint64_t{1} << (e.bits() - 1))));
    bad = e.b.CreateOr(zero, overflow);
  }
  Value* divisor = e.b.CreateSelect(bad, e.Int(1), e.y());
  if (DividesAsDoubles(e)) {
    Value* q = QuotientOfDoubles(e, divisor);
    if (!remainder) return e.b.CreateSelect(zero, e.Int(~uint64_t{0}), q);
    return e.b.CreateSelect(zero, e.x(), e.b.CreateSub(e.x(), e.b.CreateMul(q, divisor)));
  }
  if (remainder) {
    Value* r = e.is_signed() ? e.b.CreateSRem(e.x(), divisor) : e.b.CreateURem(e.x(), divisor);
    return e.b.CreateSelect(zero, e.x(), r);
  }
  Value* q = e.is_signed() ? e.b.CreateSDiv(e.x(), divisor) : e.b.CreateUDiv(e.x(), divisor);
  return e.b.CreateSelect(zero, e.Int(~uint64_t{0}), q);
}

Value* FloatPower(const Emission& e) {
  if (!IsPowerOfTwo(e.op)) return e.Math(math::Fn::kPow);
  return math::Emit(e.b, math::Fn::kExp2, e.args.subspan(1));
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
  if (e.bits() == 1) return e.Int(0);  // of 0, 1 or -1; and NVPTX has no selection for what LLVM would make of it
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
  const bool is_signed = e.is_signed();
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

Value* Erf(const Emission& e) {
  const auto wanted = ParseResultAccuracy(e.op.attrs().get_or<std::string>(Attr::kResultAccuracy, "{mode=default}"));
  const bool coarse = wanted.ok() && wanted->tolerance && wanted->atol >= math::kCoarseErfError;
  return coarse && e.x()->getType()->getScalarType()->isFloatTy() ? math::EmitCoarseErf(e.b, e.x()) : e.Math(math::Fn::kErf);
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
enum Takes : int { kBool = 1, kInt = 2, kReal = 4, kAll = 7, kCplx = 8 };

struct Row {
  int takes = 0;
  Body body = nullptr;
};

#define E const Emission& e
const Row& RowOf(Opcode opcode) {
  static const std::array<Row, kNumOpcodes> table = [] {
    std::array<Row, kNumOpcodes> t;
    auto row = [&t](Opcode o, int takes, Body body) {
      t[static_cast<int>(o)] = {takes, body};
    };
    row(Opcode::kAbs, kInt | kReal, Abs);
    row(Opcode::kAdd, kInt | kReal, [](E) {
      return e.is_float() ? e.b.CreateFAdd(e.x(), e.y()) : e.b.CreateAdd(e.x(), e.y());
    });
    row(Opcode::kSubtract, kInt | kReal, [](E) {
      return e.is_float() ? e.b.CreateFSub(e.x(), e.y()) : e.b.CreateSub(e.x(), e.y());
    });
    row(Opcode::kMultiply, kInt | kReal, [](E) {
      return e.is_float() ? e.b.CreateFMul(e.x(), e.y()) : e.b.CreateMul(e.x(), e.y());
    });
    row(Opcode::kDivide, kInt | kReal,
        [](E) { return e.is_float() ? e.b.CreateFDiv(e.x(), e.y()) : IntegerDivide(e, false); });
    row(Opcode::kRemainder, kInt | kReal,
        [](E) { return e.is_float() ? math::EmitRemainder(e.b, e.x(), e.y()) : IntegerDivide(e, true); });
    row(Opcode::kMaximum, kAll, [](E) { return Maximum(e, e.x(), e.y()); });
    row(Opcode::kMinimum, kAll, [](E) { return Minimum(e, e.x(), e.y()); });
    row(Opcode::kAnd, kBool | kInt, [](E) { return e.b.CreateAnd(e.x(), e.y()); });
    row(Opcode::kOr, kBool | kInt, [](E) { return e.b.CreateOr(e.x(), e.y()); });
    row(Opcode::kXor, kBool | kInt, [](E) { return e.b.CreateXor(e.x(), e.y()); });
    row(Opcode::kNot, kBool | kInt, [](E) { return e.b.CreateNot(e.x()); });
    row(Opcode::kNegate, kInt | kReal,
        [](E) { return e.is_float() ? e.b.CreateFNeg(e.x()) : e.b.CreateNeg(e.x()); });
    row(Opcode::kSign, kInt | kReal, Sign);
    row(Opcode::kFloor, kReal, [](E) { return e.Unary(Intrinsic::floor); });
    row(Opcode::kCeil, kReal, [](E) { return e.Unary(Intrinsic::ceil); });
    row(Opcode::kRoundNearestEven, kReal, [](E) { return e.Unary(Intrinsic::roundeven); });
    row(Opcode::kRoundNearestAfz, kReal, RoundAwayFromZero);
    row(Opcode::kSqrt, kReal, [](E) { return e.Unary(Intrinsic::sqrt); });
    row(Opcode::kRsqrt, kReal, Rsqrt);
    row(Opcode::kIsFinite, kReal, IsFinite);
    row(Opcode::kPopcnt, kInt, [](E) { return e.Unary(Intrinsic::ctpop); });
    row(Opcode::kCountLeadingZeros, kInt, LeadingZeros);
    row(Opcode::kMulhi, kInt, MulHi);
    row(Opcode::kShiftLeft, kInt, [](E) { return Shift(e, Opcode::kShiftLeft); });
    row(Opcode::kShiftRightLogical, kInt,
        [](E) { return Shift(e, Opcode::kShiftRightLogical); });
    row(Opcode::kShiftRightArithmetic, kInt,
        [](E) { return Shift(e, Opcode::kShiftRightArithmetic); });
    row(Opcode::kCompare, kAll, Compare);
    row(Opcode::kSelect, kAll | kCplx,
        [](E) { return SelectValue(e.b, e.args[0], e.args[1], e.args[2]); });
    row(Opcode::kClamp, kAll,
        [](E) { return Minimum(e, Maximum(e, e.args[0], e.args[1]), e.args[2]); });
    row(Opcode::kConvert, kAll | kCplx, EmitConvert);
    row(Opcode::kBitcastConvert, kInt | kReal | kCplx, EmitBitcastConvert);
    row(Opcode::kReducePrecision, kReal, EmitReducePrecision);
    row(Opcode::kStochasticConvert, kReal, EmitStochasticConvert);
    row(Opcode::kReal, kReal, [](E) { return e.x(); });
    row(Opcode::kImag, kReal, [](E) { return e.Float(0); });
    row(Opcode::kComplex, kReal, [](E) { return MakeComplex(e.b, e.x(), e.y()); });
    for (int o = 0; o < kNumOpcodes; ++o) {
      if (MathOf(static_cast<Opcode>(o)))
        t[o] = {kReal, [](E) { return e.Math(*MathOf(e.op.opcode())); }};
    }
    row(Opcode::kErf, kReal, Erf);
    t[static_cast<int>(Opcode::kPower)] = {
        kInt | kReal,
        [](E) { return e.is_float() ? FloatPower(e) : IntegerPower(e); }};
    return t;
  }();
  return table[static_cast<int>(opcode)];
}
#undef E

PrimitiveType DataType(const Instruction& op) {
  return op.operand(op.opcode() == Opcode::kSelect ? 1 : 0)->shape().element_type();
}

// custom-call "tenon.fma". Never a product and a sum: where the machine has no instruction for it, LLVM calls fma.
Value* Fma(const Emission& e) {
  return e.b.CreateIntrinsic(Intrinsic::fma, {e.x()->getType()}, {e.args[0], e.args[1], e.args[2]});
}

// Complex operands have bodies of their own, but for what treats all types alike.
Body BodyOf(const Instruction& op) {
  if (op.opcode() == Opcode::kCustomCall) return IsPointwiseCall(op) ? Fma : nullptr;
  if (IsComplex(DataType(op))) {
    if (Body body = ComplexBody(op.opcode())) return body;
  }
  const Row& row = RowOf(op.opcode());
  const PrimitiveType type = DataType(op);
  const int takes = type == PrimitiveType::kPred ? kBool
                    : IsFloat(type)              ? kReal
                    : IsComplex(type)            ? kCplx
                                                 : kInt;
  return (row.takes & takes) != 0 ? row.body : nullptr;
}

// The result is one of the operands, or has its magnitude: nothing to round. (Not so for f8: some
// have no negative zero, or no sign.)
bool IsExact(Opcode opcode) {
  switch (opcode) {
    case Opcode::kSelect:
    case Opcode::kMaximum:
    case Opcode::kMinimum:
    case Opcode::kClamp:
    case Opcode::kBitcastConvert:
    case Opcode::kReducePrecision:
    case Opcode::kNegate:
    case Opcode::kAbs:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool HasElementwiseBody(const Instruction& op) {
  if (op.operand_count() == 0 || op.operand_count() > 3) return false;
  for (const Instruction* operand : op.operands()) {
    if (!operand->shape().is_array()) return false;
  }
  const PrimitiveType type = DataType(op), result = op.shape().element_type();
  if (BodyOf(op) == nullptr) return false;
  switch (op.opcode()) {
    case Opcode::kBitcastConvert:
      return result != PrimitiveType::kPred && type != PrimitiveType::kPred &&
             BitWidth(type) == BitWidth(result);
    case Opcode::kReducePrecision:
      return HasReducePrecision(type);
    case Opcode::kStochasticConvert:
      return IsSigned(result);
    default:
      return true;
  }
}

bool IsPowerOfTwo(const Instruction& op) {
  if (op.opcode() != Opcode::kPower || !IsFloat(op.shape().element_type())) return false;
  const Instruction* base = op.operand(0);
  while (base->opcode() == Opcode::kBroadcast) base = base->operand(0);
  return base->opcode() == Opcode::kConstant && base->shape().is_scalar() && base->literal().GetAsDouble(0) == 2;
}

bool ChangesWidth(const Instruction& op) {
  if (op.opcode() != Opcode::kBitcastConvert) return false;
  const PrimitiveType from = op.operand(0)->shape().element_type(), to = op.shape().element_type();
  return from != PrimitiveType::kPred && to != PrimitiveType::kPred &&
         BitWidth(from) != BitWidth(to);
}

absl::StatusOr<Value*> EmitElementwise(llvm::IRBuilderBase& b, const Instruction& op,
                                       std::span<Value* const> args, const EmitOptions& options) {
  if (!HasElementwiseBody(op)) {
    return absl::UnimplementedError(absl::StrCat("code generation of ", op.ToString()));
  }
  Value* v = BodyOf(op)(Emission{b, op, args, options});
  const PrimitiveType result = op.shape().element_type();
  if (IsNarrowFloat(result)) {
    const bool picks = IsExact(op.opcode()) && op.opcode() != Opcode::kNegate &&
                       op.opcode() != Opcode::kAbs;
    return picks ? v : RoundToType(b, result, v, options);
  }
  const bool rounds = IsHalf(result) && !options.excess_precision && !IsExact(op.opcode());
  return rounds ? RoundToType(b, result, v, options) : v;
}

int ElementwiseCost(const Instruction& op) {
  // Rounding, and a call a lane.
  const PrimitiveType type = op.shape().element_type();
  const int cost = op.opcode() == Opcode::kCustomCall ? 1 : OpCostOf(op.opcode()).instructions;
  return IsNarrowFloat(type) ? cost + 20 : IsComplex(type) ? (cost + 1) * 5 : cost;
}

}  // namespace tenon
