#include "hlo/eval/convert.h"

#include <bit>
#include <cmath>
#include <type_traits>

#include "hlo/numeric_types.h"

namespace tenon::eval {
namespace {

template <typename T>
using Wide = std::conditional_t<
    kIsComplex<T>, std::complex<double>,
    std::conditional_t<std::is_same_v<T, bool> || std::is_unsigned_v<T> || std::is_same_v<T, U1> ||
                           std::is_same_v<T, U2> || std::is_same_v<T, U4>,
                       uint64_t,
                       std::conditional_t<std::is_convertible_v<T, int64_t> &&
                                              !std::is_floating_point_v<T>,
                                          int64_t, double>>>;

template <typename T>
void Load(const void* from, void* to, int64_t n) {
  auto* in = static_cast<const T*>(from);
  auto* out = static_cast<Wide<T>*>(to);
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Wide<T>>(in[i]);
}

template <typename T>
void Store(const void* from, void* to, int64_t n) {
  auto* in = static_cast<const Wide<T>*>(from);
  auto* out = static_cast<T*>(to);
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<T, bool>) {
      out[i] = in[i] != 0;
    } else if constexpr (kIsComplex<T>) {
      using C = typename T::value_type;
      out[i] = T(static_cast<C>(in[i].real()), static_cast<C>(in[i].imag()));
    } else if constexpr (std::is_same_v<Wide<T>, uint64_t> && !std::is_integral_v<T>) {
      out[i] = T(static_cast<int64_t>(in[i]));
    } else {
      out[i] = static_cast<T>(in[i]);
    }
  }
}

// An integer as a double, inexact ones to the odd neighbour, so that a later rounding to a narrower float is right.
template <typename Int>
double ToDoubleOdd(Int value) {
  double d = static_cast<double>(value);
  if (std::fabs(d) < 0x1p53) return d;
  // Compare exactly in 128 bits.
  __int128 back = static_cast<__int128>(d), exact = value;
  if (back == exact) return d;
  uint64_t bits = std::bit_cast<uint64_t>(d);
  if (bits & 1) return d;
  bool away = (back > exact) == (exact > 0);  // rounded away from zero: one step back is odd
  return std::bit_cast<double>(away ? bits - 1 : bits + 1);
}

int64_t Saturate(double value, PrimitiveType type) {
  int64_t x = TruncateSaturating<int64_t>(value);
  int bits = BitWidth(type);
  if (bits == 64) return x;
  int64_t max = (int64_t{1} << (bits - 1)) - 1;
  return x > max ? max : x < -max - 1 ? -max - 1 : x;
}

uint64_t SaturateUnsigned(double value, PrimitiveType type) {
  uint64_t x = TruncateSaturating<uint64_t>(value);
  int bits = BitWidth(type);
  return bits == 64 || x < (uint64_t{1} << bits) ? x : (uint64_t{1} << bits) - 1;
}

template <typename From>
double RealPart(From x) {
  if constexpr (kIsComplex<From>) {
    return x.real();
  } else {
    return static_cast<double>(x);
  }
}

template <typename From, PrimitiveType to>
void ToInteger(const void* from, void* result, int64_t n) {
  auto* in = static_cast<const From*>(from);
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (to == PrimitiveType::kPred) {
      static_cast<uint64_t*>(result)[i] = in[i] != From(0);
    } else if constexpr (std::is_integral_v<From>) {
      static_cast<uint64_t*>(result)[i] = static_cast<uint64_t>(in[i]);  // wraps when stored
    } else if (IsSigned(to)) {
      static_cast<int64_t*>(result)[i] = Saturate(RealPart(in[i]), to);
    } else {
      static_cast<uint64_t*>(result)[i] = SaturateUnsigned(RealPart(in[i]), to);
    }
  }
}

template <typename From, bool kExact>
double IntoDouble(From x) {
  if constexpr (kIsComplex<From>) {
    return x.real();
  } else if constexpr (std::is_integral_v<From> && !kExact) {
    return ToDoubleOdd(x);
  } else {
    return static_cast<double>(x);
  }
}

template <typename From, bool kExact>
void ToFloat(const void* from, void* to, int64_t n) {
  auto* in = static_cast<const From*>(from);
  auto* out = static_cast<double*>(to);
  for (int64_t i = 0; i < n; ++i) out[i] = IntoDouble<From, kExact>(in[i]);
}

template <typename From, bool kExact>
void ToComplex(const void* from, void* to, int64_t n) {
  auto* in = static_cast<const From*>(from);
  auto* out = static_cast<std::complex<double>*>(to);
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (kIsComplex<From>) {
      out[i] = in[i];
    } else {
      out[i] = IntoDouble<From, kExact>(in[i]);
    }
  }
}

template <typename From>
Converter ConverterFrom(PrimitiveType to) {
  switch (to) {
#define TENON_CASE(e)    \
  case PrimitiveType::e: \
    return ToInteger<From, PrimitiveType::e>;
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
#undef TENON_CASE
    case PrimitiveType::kF64:
      return ToFloat<From, true>;
    case PrimitiveType::kC64:
      return ToComplex<From, false>;
    case PrimitiveType::kC128:
      return ToComplex<From, true>;
    default:
      return ToFloat<From, false>;
  }
}

}  // namespace

Domain DomainOf(PrimitiveType type) {
  switch (ClassOf(type)) {
    case TypeClass::kSigned:
      return Domain::kSigned;
    case TypeClass::kFloat:
      return Domain::kFloat;
    case TypeClass::kComplex:
      return Domain::kComplex;
    default:
      return Domain::kUnsigned;
  }
}

Converter LoaderOf(PrimitiveType type) {
  return DispatchType(type, []<typename T>(TypeTag<T>) -> Converter { return Load<T>; });
}

Converter StorerOf(PrimitiveType type) {
  return DispatchType(type, []<typename T>(TypeTag<T>) -> Converter { return Store<T>; });
}

Converter DomainConverter(PrimitiveType from, PrimitiveType to) {
  switch (DomainOf(from)) {
    case Domain::kSigned:
      return ConverterFrom<int64_t>(to);
    case Domain::kUnsigned:
      return ConverterFrom<uint64_t>(to);
    case Domain::kFloat:
      return ConverterFrom<double>(to);
    case Domain::kComplex:
      return ConverterFrom<std::complex<double>>(to);
  }
  return nullptr;
}

}  // namespace tenon::eval
