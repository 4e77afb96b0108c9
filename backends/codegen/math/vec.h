// V: a float or integer scalar or vector in the making, with operators that emit IR. For the bodies
// in this folder only. Doubles on one side of an operator become constants of the other side's
// type. Comparisons are ordered (false on NaN).
#pragma once

#include <cstdint>
#include <span>

#include "llvm/IR/IRBuilder.h"

namespace tenon::math {

struct V {
  llvm::IRBuilderBase* b;
  llvm::Value* v;

  llvm::Type* type() const { return v->getType(); }
  V With(llvm::Value* value) const { return {b, value}; }
  V Constant(double value) const { return With(llvm::ConstantFP::get(type(), value)); }
  V Int(uint64_t value) const { return With(llvm::ConstantInt::get(type(), value)); }
};

inline V operator+(V x, V y) { return x.With(x.b->CreateFAdd(x.v, y.v)); }
inline V operator-(V x, V y) { return x.With(x.b->CreateFSub(x.v, y.v)); }
inline V operator*(V x, V y) { return x.With(x.b->CreateFMul(x.v, y.v)); }
inline V operator/(V x, V y) { return x.With(x.b->CreateFDiv(x.v, y.v)); }
inline V operator+(V x, double y) { return x + x.Constant(y); }
inline V operator-(V x, double y) { return x - x.Constant(y); }
inline V operator*(V x, double y) { return x * x.Constant(y); }
inline V operator+(double x, V y) { return y.Constant(x) + y; }
inline V operator-(double x, V y) { return y.Constant(x) - y; }
inline V operator/(double x, V y) { return y.Constant(x) / y; }
inline V operator-(V x) { return x.With(x.b->CreateFNeg(x.v)); }

inline V operator<(V x, V y) { return x.With(x.b->CreateFCmpOLT(x.v, y.v)); }
inline V operator<(V x, double y) { return x < x.Constant(y); }
inline V operator>(V x, double y) { return x.With(x.b->CreateFCmpOGT(x.v, x.Constant(y).v)); }
inline V operator<=(V x, double y) { return x.With(x.b->CreateFCmpOLE(x.v, x.Constant(y).v)); }
inline V operator>=(V x, double y) { return x.With(x.b->CreateFCmpOGE(x.v, x.Constant(y).v)); }
inline V operator==(V x, V y) { return x.With(x.b->CreateFCmpOEQ(x.v, y.v)); }
inline V operator==(V x, double y) { return x == x.Constant(y); }
inline V IsNan(V x) { return x.With(x.b->CreateFCmpUNO(x.v, x.v)); }
inline V And(V x, V y) { return x.With(x.b->CreateAnd(x.v, y.v)); }
inline V Or(V x, V y) { return x.With(x.b->CreateOr(x.v, y.v)); }
inline V Not(V x) { return x.With(x.b->CreateNot(x.v)); }

inline V Select(V c, V x, V y) { return x.With(x.b->CreateSelect(c.v, x.v, y.v)); }
inline V Select(V c, V x, double y) { return Select(c, x, x.Constant(y)); }
inline V Select(V c, double x, V y) { return Select(c, y.Constant(x), y); }

// The smaller or larger of x and a constant; NaN stays NaN. The operand order is minps's, so that
// it is one instruction.
inline V ClampHigh(V x, double hi) { return Select(x > hi, hi, x); }
inline V ClampLow(V x, double lo) { return Select(x < lo, lo, x); }

V Fma(V x, V y, V z);
inline V Fma(V x, double y, V z) { return Fma(x, x.Constant(y), z); }
inline V Fma(V x, V y, double z) { return Fma(x, y, x.Constant(z)); }
inline V Fma(V x, double y, double z) { return Fma(x, x.Constant(y), x.Constant(z)); }
V Abs(V x);
V Sqrt(V x);
V Trunc(V x);
V CopySign(V magnitude, V sign);

// Same lanes, other width.
V ToF64(V x);
V ToF32(V x);

// Bit patterns: integer of the same width and lanes, and back.
V Bits(V x);
V HighWord(V x);  // of f64: the upper 32 bits as i32
V LowWord(V x);   // of i64: the lower 32 bits as i32
V SignedToF32(V x);
V SignedToF64(V x);
V FromBits(V x, llvm::Type* type);
inline V AddInt(V x, V y) { return x.With(x.b->CreateAdd(x.v, y.v)); }
inline V SubInt(V x, V y) { return x.With(x.b->CreateSub(x.v, y.v)); }
inline V AndInt(V x, uint64_t mask) { return x.With(x.b->CreateAnd(x.v, x.Int(mask).v)); }
inline V OrInt(V x, V y) { return x.With(x.b->CreateOr(x.v, y.v)); }
inline V XorInt(V x, V y) { return x.With(x.b->CreateXor(x.v, y.v)); }
inline V AndInt(V x, V y) { return x.With(x.b->CreateAnd(x.v, y.v)); }
inline V ShlInt(V x, int n) { return x.With(x.b->CreateShl(x.v, x.Int(n).v)); }
inline V NotZeroInt(V x) { return x.With(x.b->CreateICmpNE(x.v, x.Int(0).v)); }

// c[0] + c[1] x + c[2] x^2 + ... by Horner's rule with FMAs.
V Polynomial(V x, std::span<const float> c);
V Polynomial(V x, std::span<const double> c);
// Even and odd powers apart, which takes half of the time where nothing else is there to do.
V PolynomialInHalves(V x, std::span<const double> c);
// By the exponents' remainders of 4: for long ones, whose many steps wait for each other with more vectors in flight than a core can keep.
V PolynomialInQuarters(V x, std::span<const float> c);

}  // namespace tenon::math
