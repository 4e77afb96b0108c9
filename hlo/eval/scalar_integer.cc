// Elementwise ops on integers, signed in int64_t and unsigned (pred too) in uint64_t; a result wraps when stored.
#include <bit>

#include "hlo/eval/scalar_kernels.h"

namespace tenon::eval {
namespace {

using Params = ScalarOpParams;

uint64_t Low(uint64_t x, int bits) { return bits == 64 ? x : x & ((uint64_t{1} << bits) - 1); }

int64_t SignExtend(uint64_t x, int bits) {
  return bits == 64 ? static_cast<int64_t>(x)
                    : static_cast<int64_t>(x << (64 - bits)) >> (64 - bits);
}

template <typename Int>
Int Divide(Int a, Int b) {
  if (b == 0) return static_cast<Int>(-1);
  // INT_MIN / -1 wraps to itself.
  if constexpr (std::is_signed_v<Int>) {
    if (b == -1) return static_cast<Int>(-static_cast<uint64_t>(a));
  }
  return a / b;
}

template <typename Int>
Int Remainder(Int a, Int b) {
  if (b == 0) return a;
  if constexpr (std::is_signed_v<Int>) {
    if (b == -1) return 0;
  }
  return a % b;
}

// base^-n is 0 but for a base of 1 or -1.
template <typename Int>
Int Power(Int base, Int exponent) {
  if constexpr (std::is_signed_v<Int>) {
    if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
  }
  uint64_t result = 1, square = static_cast<uint64_t>(base);
  for (uint64_t e = static_cast<uint64_t>(exponent); e != 0; e >>= 1) {
    if (e & 1) result *= square;
    square *= square;
  }
  return static_cast<Int>(result);
}

template <typename Int>
Int MulHi(Int a, Int b, const Params& p) {
  using Wide = std::conditional_t<std::is_signed_v<Int>, __int128, unsigned __int128>;
  return static_cast<Int>((static_cast<Wide>(a) * static_cast<Wide>(b)) >> p.bits);
}

// A shift by the width or more (or by a negative amount, which is one when unsigned) moves every bit out.
template <typename Int>
Int ShiftLeft(Int x, Int amount, const Params& p) {
  uint64_t n = Low(static_cast<uint64_t>(amount), p.bits);
  return n >= static_cast<uint64_t>(p.bits) ? 0 : static_cast<Int>(static_cast<uint64_t>(x) << n);
}

template <typename Int>
Int ShiftRightLogical(Int x, Int amount, const Params& p) {
  uint64_t n = Low(static_cast<uint64_t>(amount), p.bits);
  return n >= static_cast<uint64_t>(p.bits)
             ? 0
             : static_cast<Int>(Low(static_cast<uint64_t>(x), p.bits) >> n);
}

template <typename Int>
Int ShiftRightArithmetic(Int x, Int amount, const Params& p) {
  uint64_t n = Low(static_cast<uint64_t>(amount), p.bits);
  int64_t value = SignExtend(static_cast<uint64_t>(x), p.bits);
  return static_cast<Int>(value >> std::min<uint64_t>(n, p.bits - 1));
}

template <typename Int>
ScalarOp::Kernel IntegerKernel(Opcode opcode) {
#define TENON_UNARY(e, expr) \
  case Opcode::e:            \
    return UnaryKernel<Int, Int>([](Int x, const Params& p) -> Int { return expr; });
#define TENON_BINARY(e, expr) \
  case Opcode::e:             \
    return BinaryKernel<Int, Int>([](Int a, Int b, const Params& p) -> Int { return expr; });
  using U = uint64_t;
  switch (opcode) {
    TENON_UNARY(kAbs, x < 0 ? static_cast<Int>(-static_cast<U>(x)) : x)
    TENON_UNARY(kCountLeadingZeros, p.bits - std::bit_width(Low(static_cast<U>(x), p.bits)))
    TENON_UNARY(kNegate, static_cast<Int>(-static_cast<U>(x)))
    TENON_UNARY(kNot, static_cast<Int>(~static_cast<U>(x) & Low(~U{0}, p.bits)))
    TENON_UNARY(kPopcnt, std::popcount(Low(static_cast<U>(x), p.bits)))
    TENON_UNARY(kSign, (x > 0) - (x < 0))
    TENON_UNARY(kFloor, x)
    TENON_UNARY(kCeil, x)
    TENON_BINARY(kAdd, static_cast<Int>(static_cast<U>(a) + static_cast<U>(b)))
    TENON_BINARY(kAnd, a & b)
    TENON_BINARY(kDivide, Divide(a, b))
    TENON_BINARY(kMaximum, a > b ? a : b)
    TENON_BINARY(kMinimum, a < b ? a : b)
    TENON_BINARY(kMulhi, MulHi(a, b, p))
    TENON_BINARY(kMultiply, static_cast<Int>(static_cast<U>(a) * static_cast<U>(b)))
    TENON_BINARY(kOr, a | b)
    TENON_BINARY(kPower, Power(a, b))
    TENON_BINARY(kRemainder, Remainder(a, b))
    TENON_BINARY(kShiftLeft, ShiftLeft(a, b, p))
    TENON_BINARY(kShiftRightArithmetic, ShiftRightArithmetic(a, b, p))
    TENON_BINARY(kShiftRightLogical, ShiftRightLogical(a, b, p))
    TENON_BINARY(kSubtract, static_cast<Int>(static_cast<U>(a) - static_cast<U>(b)))
    TENON_BINARY(kXor, a ^ b)
    case Opcode::kClamp:
      return TernaryKernel<Int>(
          [](Int lo, Int x, Int hi) { return std::min(std::max(lo, x), hi); });
    default:
      return nullptr;
  }
#undef TENON_UNARY
#undef TENON_BINARY
}

}  // namespace

ScalarOp::Kernel SignedKernel(Opcode opcode) { return IntegerKernel<int64_t>(opcode); }
ScalarOp::Kernel UnsignedKernel(Opcode opcode) { return IntegerKernel<uint64_t>(opcode); }

}  // namespace tenon::eval
