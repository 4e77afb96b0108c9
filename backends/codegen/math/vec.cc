#include "backends/codegen/math/vec.h"

#include <vector>

#include "llvm/IR/Intrinsics.h"

namespace tenon::math {
namespace {

llvm::Type* WithElement(llvm::Type* type, llvm::Type* element) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type);
  return vector ? llvm::FixedVectorType::get(element, vector->getNumElements()) : element;
}

V Unary(llvm::Intrinsic::ID id, V x) { return x.With(x.b->CreateUnaryIntrinsic(id, x.v)); }

template <typename T>
std::vector<T> EveryOther(std::span<const T> c, size_t first) {
  std::vector<T> taken;
  for (size_t k = first; k < c.size(); k += 2) taken.push_back(c[k]);
  return taken;
}

template <typename T>
V Horner(V x, std::span<T> c) {
  V sum = x.Constant(c.back());
  for (size_t k = c.size() - 1; k-- > 0;) sum = Fma(sum, x, x.Constant(c[k]));
  return sum;
}

}  // namespace

V Fma(V x, V y, V z) {
  return x.With(x.b->CreateIntrinsic(llvm::Intrinsic::fma, {x.type()}, {x.v, y.v, z.v}));
}
V Abs(V x) { return Unary(llvm::Intrinsic::fabs, x); }
V Sqrt(V x) { return Unary(llvm::Intrinsic::sqrt, x); }
V Trunc(V x) { return Unary(llvm::Intrinsic::trunc, x); }
V CopySign(V magnitude, V sign) {
  return magnitude.With(
      magnitude.b->CreateBinaryIntrinsic(llvm::Intrinsic::copysign, magnitude.v, sign.v));
}

V ToF64(V x) { return x.With(x.b->CreateFPExt(x.v, WithElement(x.type(), x.b->getDoubleTy()))); }
V ToF32(V x) { return x.With(x.b->CreateFPTrunc(x.v, WithElement(x.type(), x.b->getFloatTy()))); }

V Bits(V x) {
  return x.With(x.b->CreateBitCast(
      x.v, WithElement(x.type(), x.b->getIntNTy(x.type()->getScalarSizeInBits()))));
}
V FromBits(V x, llvm::Type* type) { return x.With(x.b->CreateBitCast(x.v, type)); }

V LowWord(V x) { return x.With(x.b->CreateTrunc(x.v, WithElement(x.type(), x.b->getInt32Ty()))); }
V HighWord(V x) {
  V bits = Bits(x);
  return LowWord(x.With(x.b->CreateLShr(bits.v, bits.Int(32).v)));
}
V SignedToF32(V x) {
  return x.With(x.b->CreateSIToFP(x.v, WithElement(x.type(), x.b->getFloatTy())));
}
V SignedToF64(V x) {
  return x.With(x.b->CreateSIToFP(x.v, WithElement(x.type(), x.b->getDoubleTy())));
}

V Polynomial(V x, std::span<const float> c) { return Horner(x, c); }
V Polynomial(V x, std::span<const double> c) { return Horner(x, c); }
V PolynomialInHalves(V x, std::span<const double> c) {
  const std::vector<double> even = EveryOther(c, 0), odd = EveryOther(c, 1);
  V square = x * x;
  return Fma(x, Horner(square, std::span(odd)), Horner(square, std::span(even)));
}
V PolynomialInQuarters(V x, std::span<const float> c) {
  V square = x * x, fourth = square * square;
  V halves[2] = {x, x};
  for (size_t k = 0; k < 2; ++k) {
    const std::vector<float> half = EveryOther(c, k), low = EveryOther<float>(half, 0), high = EveryOther<float>(half, 1);
    halves[k] = Fma(square, Horner(fourth, std::span(high)), Horner(fourth, std::span(low)));
  }
  return Fma(x, halves[1], halves[0]);
}

}  // namespace tenon::math
