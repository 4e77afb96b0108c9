// Native C++ types of the HLO element types, with the exact conversion rules.
//
// A narrow float holds its bits; it converts to double exactly and from double in one rounding (nearest, ties to even;
// never through an intermediate type). Out of range: infinity where the format has one, else NaN, else (f4e2m1fn) the
// largest finite value. Formats without NaN turn it into -0; e8m0fnu turns zero and negatives into NaN. Rules as in
// ml_dtypes, which heeds the NaN's sign where we don't. Sub-byte integers hold one value per byte and wrap on conversion.
#pragma once

#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "hlo/check.h"
#include "hlo/primitive_type.h"

namespace tenon {

// What the largest exponent and the sign of zero mean.
enum class FloatSpecials : uint8_t {
  kIeee,    // all-ones exponent: infinity and NaNs
  kFn,      // no infinity; all ones is NaN
  kFnuz,    // no infinity, no -0: its code is the NaN
  kFinite,  // neither infinity nor NaN
};

template <typename Rep_, int kExponentBits, int kMantissaBits, int kBias, FloatSpecials kSpecials>
class NarrowFloat {
 public:
  using Rep = Rep_;
  static constexpr int exponent_bits = kExponentBits, mantissa_bits = kMantissaBits;
  static constexpr int digits = kMantissaBits + 1;

  constexpr NarrowFloat() = default;
  static constexpr NarrowFloat FromBits(Rep bits) {
    NarrowFloat f;
    f.bits_ = bits;
    return f;
  }
  explicit NarrowFloat(double value) : bits_(Round(value)) {}
  constexpr Rep bits() const { return bits_; }
  explicit operator double() const { return Widen(bits_); }
  explicit operator float() const { return static_cast<float>(Widen(bits_)); }
  friend bool operator==(NarrowFloat a, NarrowFloat b) {
    return static_cast<double>(a) == static_cast<double>(b);
  }

  bool is_nan() const { return std::isnan(Widen(bits_)); }
  static constexpr NarrowFloat QuietNan() { return FromBits(NanBits(false)); }

 private:
  static constexpr Rep kSign = Rep{1} << (kExponentBits + kMantissaBits);
  static constexpr Rep kMagnitude = kSign - 1;
  static constexpr Rep kMantissaMask = (Rep{1} << kMantissaBits) - 1;
  static constexpr Rep kExponentMask = kMagnitude & ~kMantissaMask;
  static constexpr Rep kMaxFinite = kSpecials == FloatSpecials::kIeee ? kExponentMask - 1
                                    : kSpecials == FloatSpecials::kFn ? kMagnitude - 1
                                                                      : kMagnitude;

  static constexpr Rep NanBits(bool negative) {
    switch (kSpecials) {
      case FloatSpecials::kIeee:
        return (negative ? kSign : 0) | kExponentMask | (Rep{1} << (kMantissaBits - 1));
      case FloatSpecials::kFn:
        return (negative ? kSign : 0) | kMagnitude;
      case FloatSpecials::kFnuz:
        return kSign;
      case FloatSpecials::kFinite:
        return kSign;  // whatever the NaN's sign, which no operation promises
    }
    return 0;
  }

  static Rep Overflow(bool negative) {
    Rep sign = negative ? kSign : 0;
    if (kSpecials == FloatSpecials::kIeee) return sign | kExponentMask;
    if (kSpecials == FloatSpecials::kFinite) return sign | kMaxFinite;
    return NanBits(negative);
  }

  static Rep Round(double value) {
    uint64_t bits = std::bit_cast<uint64_t>(value);
    bool negative = (bits >> 63) != 0;
    int exponent = static_cast<int>((bits >> 52) & 0x7ff);
    uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
    if (exponent == 0x7ff) {
      if (fraction == 0) return Overflow(negative);
      if (kSpecials != FloatSpecials::kIeee) return NanBits(negative);
      // The payload's top bits survive, quietened, as hardware does.
      Rep payload = static_cast<Rep>(fraction >> (52 - kMantissaBits));
      return NanBits(negative) | payload;
    }
    Rep zero = negative && kSpecials != FloatSpecials::kFnuz ? kSign : 0;
    if (exponent == 0) return zero;  // a double subnormal is below every format's half step
    fraction |= uint64_t{1} << 52;
    int target = exponent - 1023 + kBias;                 // biased exponent in this format
    int shift = 52 - kMantissaBits + (target < 1 ? 1 - target : 0);
    if (shift > 54) return zero;
    uint64_t kept = fraction >> shift;
    uint64_t lost = fraction & ((uint64_t{1} << shift) - 1), half = uint64_t{1} << (shift - 1);
    kept += lost > half || (lost == half && (kept & 1));
    // With the implicit bit inside `kept`, adding the exponent field carries a rounding overflow by itself.
    uint64_t magnitude =
        kept + (target < 1 ? 0 : static_cast<uint64_t>(target - 1) << kMantissaBits);
    if (magnitude > kMaxFinite) return Overflow(negative);
    if (magnitude == 0) return zero;
    return static_cast<Rep>(magnitude) | (negative ? kSign : 0);
  }

  static double Widen(Rep bits) {
    Rep magnitude = bits & kMagnitude;
    bool negative = (bits & kSign) != 0;
    if (kSpecials == FloatSpecials::kFnuz && bits == kSign) {
      return -std::numeric_limits<double>::quiet_NaN();
    }
    if (kSpecials == FloatSpecials::kFn && magnitude == kMagnitude) {
      return std::copysign(std::numeric_limits<double>::quiet_NaN(), negative ? -1.0 : 1.0);
    }
    uint64_t mantissa = magnitude & kMantissaMask;
    uint64_t exponent = magnitude >> kMantissaBits;
    uint64_t sign = negative ? uint64_t{1} << 63 : 0;
    if (kSpecials == FloatSpecials::kIeee && (magnitude & kExponentMask) == kExponentMask) {
      return std::bit_cast<double>(sign | (uint64_t{0x7ff} << 52) |
                                   (mantissa << (52 - kMantissaBits)));
    }
    if (exponent == 0) {
      double value = std::ldexp(static_cast<double>(mantissa), 1 - kBias - kMantissaBits);
      return negative ? -value : value;
    }
    return std::bit_cast<double>(sign | ((exponent + 1023 - kBias) << 52) |
                                 (mantissa << (52 - kMantissaBits)));
  }

  Rep bits_ = 0;
};

using F16 = NarrowFloat<uint16_t, 5, 10, 15, FloatSpecials::kIeee>;
using BF16 = NarrowFloat<uint16_t, 8, 7, 127, FloatSpecials::kIeee>;
using F8E5M2 = NarrowFloat<uint8_t, 5, 2, 15, FloatSpecials::kIeee>;
using F8E4M3 = NarrowFloat<uint8_t, 4, 3, 7, FloatSpecials::kIeee>;
using F8E3M4 = NarrowFloat<uint8_t, 3, 4, 3, FloatSpecials::kIeee>;
using F8E4M3FN = NarrowFloat<uint8_t, 4, 3, 7, FloatSpecials::kFn>;
using F8E4M3B11FNUZ = NarrowFloat<uint8_t, 4, 3, 11, FloatSpecials::kFnuz>;
using F8E5M2FNUZ = NarrowFloat<uint8_t, 5, 2, 16, FloatSpecials::kFnuz>;
using F8E4M3FNUZ = NarrowFloat<uint8_t, 4, 3, 8, FloatSpecials::kFnuz>;
using F4E2M1FN = NarrowFloat<uint8_t, 2, 1, 1, FloatSpecials::kFinite>;

// A power of two, 2^(bits - 127); 0xff is NaN. No sign, no zero.
class F8E8M0FNU {
 public:
  using Rep = uint8_t;
  static constexpr int digits = 1;
  constexpr F8E8M0FNU() = default;
  static constexpr F8E8M0FNU FromBits(uint8_t bits) {
    F8E8M0FNU f;
    f.bits_ = bits;
    return f;
  }
  explicit F8E8M0FNU(double value) : bits_(Round(value)) {}
  constexpr uint8_t bits() const { return bits_; }
  explicit operator double() const {
    return bits_ == 0xff ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, bits_ - 127);
  }
  explicit operator float() const { return static_cast<float>(static_cast<double>(*this)); }
  friend bool operator==(F8E8M0FNU a, F8E8M0FNU b) {
    return static_cast<double>(a) == static_cast<double>(b);
  }
  bool is_nan() const { return bits_ == 0xff; }

 private:
  static uint8_t Round(double value) {
    if (!(value > 0) || std::isinf(value)) return 0xff;
    int exponent;
    double fraction = std::frexp(value, &exponent);  // [0.5, 1)
    int code = exponent - 1 + 127;
    // A tie goes up: with no mantissa, the lower value's last bit is the implicit one, which is odd.
    if (fraction >= 0.75) ++code;
    if (code > 254) return 0xff;
    return code < 0 ? 0 : static_cast<uint8_t>(code);
  }
  uint8_t bits_ = 0;
};

// s1 s2 s4 u1 u2 u4.
template <int kBits, bool kSigned>
class NarrowInt {
 public:
  using Rep = std::conditional_t<kSigned, int8_t, uint8_t>;
  constexpr NarrowInt() = default;
  explicit constexpr NarrowInt(int64_t value) : value_(Wrap(value)) {}
  constexpr operator int64_t() const { return value_; }  // NOLINT: every value fits

 private:
  static constexpr Rep Wrap(int64_t value) {
    uint8_t low = static_cast<uint8_t>(value) & ((1u << kBits) - 1);
    if (kSigned && (low >> (kBits - 1))) low |= static_cast<uint8_t>(~((1u << kBits) - 1));
    return static_cast<Rep>(low);
  }
  Rep value_ = 0;
};
using S1 = NarrowInt<1, true>;
using S2 = NarrowInt<2, true>;
using S4 = NarrowInt<4, true>;
using U1 = NarrowInt<1, false>;
using U2 = NarrowInt<2, false>;
using U4 = NarrowInt<4, false>;

template <PrimitiveType type>
struct NativeTypeOf;
#define TENON_NATIVE(e, T)                 \
  template <>                              \
  struct NativeTypeOf<PrimitiveType::e> {  \
    using type = T;                        \
  };
TENON_NATIVE(kPred, bool)
TENON_NATIVE(kS1, S1)
TENON_NATIVE(kS2, S2)
TENON_NATIVE(kS4, S4)
TENON_NATIVE(kS8, int8_t)
TENON_NATIVE(kS16, int16_t)
TENON_NATIVE(kS32, int32_t)
TENON_NATIVE(kS64, int64_t)
TENON_NATIVE(kU1, U1)
TENON_NATIVE(kU2, U2)
TENON_NATIVE(kU4, U4)
TENON_NATIVE(kU8, uint8_t)
TENON_NATIVE(kU16, uint16_t)
TENON_NATIVE(kU32, uint32_t)
TENON_NATIVE(kU64, uint64_t)
TENON_NATIVE(kF16, F16)
TENON_NATIVE(kBF16, BF16)
TENON_NATIVE(kF32, float)
TENON_NATIVE(kF64, double)
TENON_NATIVE(kF8E5M2, F8E5M2)
TENON_NATIVE(kF8E4M3, F8E4M3)
TENON_NATIVE(kF8E4M3FN, F8E4M3FN)
TENON_NATIVE(kF8E4M3B11FNUZ, F8E4M3B11FNUZ)
TENON_NATIVE(kF8E3M4, F8E3M4)
TENON_NATIVE(kF8E5M2FNUZ, F8E5M2FNUZ)
TENON_NATIVE(kF8E4M3FNUZ, F8E4M3FNUZ)
TENON_NATIVE(kF4E2M1FN, F4E2M1FN)
TENON_NATIVE(kF8E8M0FNU, F8E8M0FNU)
TENON_NATIVE(kC64, std::complex<float>)
TENON_NATIVE(kC128, std::complex<double>)
#undef TENON_NATIVE

template <typename T>
struct TypeTag {
  using type = T;
};

// Calls f(TypeTag<T>{}) with the native type of `type`, which must be an array type.
template <typename F>
decltype(auto) DispatchType(PrimitiveType type, F&& f) {
  switch (type) {
#define TENON_CASE(e)    \
  case PrimitiveType::e: \
    return f(TypeTag<NativeTypeOf<PrimitiveType::e>::type>{});
    TENON_CASE(kPred)
    TENON_CASE(kS1)
    TENON_CASE(kS2)
    TENON_CASE(kS4)
    TENON_CASE(kS8)
    TENON_CASE(kS16)
    TENON_CASE(kS32)
    TENON_CASE(kS64)
    TENON_CASE(kU1)
    TENON_CASE(kU2)
    TENON_CASE(kU4)
    TENON_CASE(kU8)
    TENON_CASE(kU16)
    TENON_CASE(kU32)
    TENON_CASE(kU64)
    TENON_CASE(kF16)
    TENON_CASE(kBF16)
    TENON_CASE(kF32)
    TENON_CASE(kF64)
    TENON_CASE(kF8E5M2)
    TENON_CASE(kF8E4M3)
    TENON_CASE(kF8E4M3FN)
    TENON_CASE(kF8E4M3B11FNUZ)
    TENON_CASE(kF8E3M4)
    TENON_CASE(kF8E5M2FNUZ)
    TENON_CASE(kF8E4M3FNUZ)
    TENON_CASE(kF4E2M1FN)
    TENON_CASE(kF8E8M0FNU)
    TENON_CASE(kC64)
    TENON_CASE(kC128)
#undef TENON_CASE
    default:
      CheckFailed("IsArrayType(type)", __FILE__, __LINE__, std::string(PrimitiveTypeName(type)));
  }
}

template <typename T>
inline constexpr bool kIsComplex = false;
template <typename T>
inline constexpr bool kIsComplex<std::complex<T>> = true;

// float -> integer: truncates, saturates, NaN -> 0.
template <typename Int>
Int TruncateSaturating(double value) {
  if (std::isnan(value)) return 0;
  // 2^(bits-1) or 2^bits, exact in double, unlike max() of a 64-bit type.
  double limit = std::ldexp(1.0, std::numeric_limits<Int>::digits);
  if (value >= limit) return std::numeric_limits<Int>::max();
  if (std::is_signed_v<Int> ? value < -limit : value <= -1.0) return std::numeric_limits<Int>::min();
  return static_cast<Int>(value);
}

}  // namespace tenon
