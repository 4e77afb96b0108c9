#include "backends/codegen/emit/packed_half.h"

#include "llvm/Analysis/VectorUtils.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Intrinsics.h"

namespace tenon {
namespace {

using llvm::Value;

constexpr int kMaxDepth = 4;  // of what is looked at behind a value

// The half of which `v`, in f32, is the same number. Null: it may be none.
class Halves {
 public:
  Halves(llvm::IRBuilderBase& b, PrimitiveType type, const EmitOptions& options)
      : b_(b), type_(type), element_(type == PrimitiveType::kBF16 ? b.getBFloatTy() : b.getHalfTy()),
        has_extrema_(options.packs_bf16) {}  // the GPUs that have bf16 have extrema that propagate NaN

  Value* Of(Value* v, int depth = kMaxDepth) {
    llvm::Type* half = WithLanesOf(v->getType(), element_);
    if (auto* wide = llvm::dyn_cast<llvm::FPExtInst>(v)) return wide->getOperand(0)->getType() == half ? wide->getOperand(0) : nullptr;
    if (Value* bits = type_ == PrimitiveType::kBF16 ? UnchangedBf16(v) : nullptr) return b_.CreateBitCast(bits, half);
    if (auto* constant = llvm::dyn_cast<llvm::Constant>(v)) return Of(*constant, half);
    if (Value* scalar = llvm::getSplatValue(v); scalar != nullptr && scalar->getType() != v->getType()) {
      Value* one = Of(scalar, depth);
      return one == nullptr ? nullptr : b_.CreateVectorSplat(LanesOf(v->getType()), one);
    }
    if (depth == 0) return nullptr;
    if (auto* negated = llvm::dyn_cast<llvm::UnaryOperator>(v); negated != nullptr && negated->getOpcode() == llvm::Instruction::FNeg) {
      Value* x = Of(negated->getOperand(0), depth - 1);
      return x == nullptr ? nullptr : b_.CreateFNeg(x);
    }
    auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(v);
    return call == nullptr ? nullptr : Of(*call, depth - 1);
  }

 private:
  static Value* Of(llvm::Constant& constant, llvm::Type* half) {
    llvm::Constant* element = constant.getType()->isVectorTy() ? constant.getSplatValue() : &constant;
    auto* number = llvm::dyn_cast_or_null<llvm::ConstantFP>(element);
    if (number == nullptr) return nullptr;
    llvm::APFloat value = number->getValueAPF();
    bool inexact = false;
    value.convert(half->getScalarType()->getFltSemantics(), llvm::APFloat::rmNearestTiesToEven, &inexact);
    return inexact || value.isNaN() ? nullptr : llvm::ConstantFP::get(half, value);
  }
  Value* Of(llvm::IntrinsicInst& call, int depth) {
    const llvm::Intrinsic::ID id = call.getIntrinsicID();
    const bool extremum = id == llvm::Intrinsic::maximum || id == llvm::Intrinsic::minimum;
    if (id != llvm::Intrinsic::fabs && !(extremum && has_extrema_)) return nullptr;
    Value* x = Of(call.getArgOperand(0), depth);
    if (x == nullptr) return nullptr;
    if (!extremum) return b_.CreateUnaryIntrinsic(id, x);
    Value* y = Of(call.getArgOperand(1), depth);
    return y == nullptr ? nullptr : b_.CreateBinaryIntrinsic(id, x, y);
  }

  llvm::IRBuilderBase& b_;
  const PrimitiveType type_;
  llvm::Type* element_;
  const bool has_extrema_;
};

bool RoundsOnce(const Value& v) {
  auto* op = llvm::dyn_cast<llvm::BinaryOperator>(&v);
  if (op == nullptr || LanesOf(v.getType()) < 2) return false;
  const auto opcode = op->getOpcode();
  return opcode == llvm::Instruction::FAdd || opcode == llvm::Instruction::FSub || opcode == llvm::Instruction::FMul;
}

}  // namespace

bool PacksHalves(PrimitiveType type, const EmitOptions& options) {
  return (type == PrimitiveType::kBF16 && options.packs_bf16) || (type == PrimitiveType::kF16 && options.packs_f16);
}

Value* RoundedHalf(llvm::IRBuilderBase& b, PrimitiveType type, Value* v, const EmitOptions& options) {
  Halves halves(b, type, options);
  if (Value* same = halves.Of(v)) return same;
  if (RoundsOnce(*v)) {
    auto* op = llvm::cast<llvm::BinaryOperator>(v);
    Value *x = halves.Of(op->getOperand(0)), *y = x == nullptr ? nullptr : halves.Of(op->getOperand(1));
    if (y != nullptr) return b.CreateBinOp(op->getOpcode(), x, y);
  }
  // LLVM folds a rounding of f64 to f32 and one to a half into one from f64.
  if (llvm::isa<llvm::FPTruncInst>(v)) v = b.CreateArithmeticFence(v, v->getType());
  return b.CreateFPTrunc(v, WithLanesOf(v->getType(), type == PrimitiveType::kBF16 ? b.getBFloatTy() : b.getHalfTy()));
}

}  // namespace tenon
