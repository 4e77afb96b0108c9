// fmod, exact. Division by division: with q = trunc(r / d) rounded to 53 bits, r - q d is a multiple of a power of two that leaves it at
// most 53
// bits, so one FMA gives it exactly; it is at least 2^51 times smaller than r, or r's remainder but for its sign. f32 is computed in f64,
// where its quotients don't overflow.
#include <limits>

#include "backends/codegen/math/bodies.h"
#include "backends/codegen/math/math.h"
#include "backends/codegen/math/out_of_line.h"

namespace tenon::math {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// 0 <= x, 0 < d, finite, f64; `far`: x / d may be 2^900 or more.
V Remainder(V x, V d, bool far) {
  llvm::IRBuilderBase& b = *x.b;
  llvm::BasicBlock* entry = b.GetInsertBlock();
  llvm::BasicBlock* loop = llvm::BasicBlock::Create(b.getContext(), "loop", entry->getParent());
  llvm::BasicBlock* done = llvm::BasicBlock::Create(b.getContext(), "done", entry->getParent());
  b.CreateBr(loop);
  b.SetInsertPoint(loop);
  llvm::PHINode* phi = b.CreatePHI(x.type(), 2);
  V r = x.With(phi);
  V divisor = d;
  if (far) {  // the quotient by a multiple of d first, by which it is below 2^900
    V once = d * 0x1p700, twice = once * 0x1p700;
    divisor = Select(Abs(r) < once * 0x1p200, d, Select(Abs(r) < twice * 0x1p200, once, twice));
  }
  V rest = Fma(-Trunc(r / divisor), divisor, r);
  phi->addIncoming(x.v, entry);
  phi->addIncoming(rest.v, loop);
  b.CreateCondBr(AnyLane(b, x.With(b.CreateFCmpOGE(Abs(rest).v, d.v)).v), loop, done);
  b.SetInsertPoint(done);
  return Select(rest < 0, rest + d, rest);
}

}  // namespace

llvm::Value* EmitRemainder(llvm::IRBuilderBase& builder, llvm::Value* dividend, llvm::Value* divisor) {
  llvm::Value* const args[] = {dividend, divisor};
  llvm::Type* const type = dividend->getType();
  return CallOutOfLine(builder, "fmod", args, {&type, 1}, [](llvm::IRBuilderBase& b, std::span<llvm::Value* const> in) {
    V x{&b, in[0]}, y{&b, in[1]};
    const bool narrow = x.type()->getScalarType()->isFloatTy();
    V a = narrow ? ToF64(Abs(x)) : Abs(x), d = narrow ? ToF64(Abs(y)) : Abs(y);
    V valid = And(a < kInf, d > 0);  // false for NaN, too
    V whole = Or(Not(valid), d == kInf);
    V r = Remainder(Select(whole, 0, a), Select(whole, 1, d), /*far=*/!narrow);
    r = Select(d == kInf, a, r);
    r = Select(valid, r, std::numeric_limits<double>::quiet_NaN());
    return std::vector<llvm::Value*>{CopySign(narrow ? ToF32(r) : r, x).v};
  })[0];
}

}  // namespace tenon::math
