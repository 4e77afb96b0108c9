#include "hlo/eval/scalar_kernels.h"

#include <bit>
#include <cmath>
#include <complex>
#include <cstring>

#include "hlo/numeric_types.h"

namespace tenon::eval {
namespace {

// IEEE totalOrder: -NaN < -inf < ... < -0 < +0 < ... < inf < NaN.
int64_t TotalOrderKey(double x) {
  int64_t bits = std::bit_cast<int64_t>(x);
  return bits < 0 ? std::numeric_limits<int64_t>::min() - bits - 1 : bits;
}

template <typename T, typename Relation>
ScalarOp::Kernel CompareWith(bool total_order) {
  if constexpr (std::is_same_v<T, double>) {
    if (total_order) {
      return BinaryKernel<uint64_t, double>([](double a, double b) -> uint64_t {
        return Relation{}(TotalOrderKey(a), TotalOrderKey(b));
      });
    }
  }
  return BinaryKernel<uint64_t, T>([](T a, T b) -> uint64_t { return Relation{}(a, b); });
}

template <typename T>
ScalarOp::Kernel Compare(std::string_view direction, bool total_order) {
  if (direction == "EQ") return CompareWith<T, std::equal_to<>>(total_order);
  if (direction == "NE") return CompareWith<T, std::not_equal_to<>>(total_order);
  if constexpr (!kIsComplex<T>) {
    if (direction == "LT") return CompareWith<T, std::less<>>(total_order);
    if (direction == "LE") return CompareWith<T, std::less_equal<>>(total_order);
    if (direction == "GT") return CompareWith<T, std::greater<>>(total_order);
    if (direction == "GE") return CompareWith<T, std::greater_equal<>>(total_order);
  }
  return nullptr;
}

template <size_t kWidth>
struct Block {
  std::byte bytes[kWidth];
};

template <size_t kWidth>
void Select(const void* const* in, void* out, int64_t n, const ScalarOpParams&) {
  auto* pred = static_cast<const uint8_t*>(in[0]);
  auto* a = static_cast<const Block<kWidth>*>(in[1]);
  auto* b = static_cast<const Block<kWidth>*>(in[2]);
  for (int64_t i = 0; i < n; ++i) static_cast<Block<kWidth>*>(out)[i] = pred[i] ? a[i] : b[i];
}

template <size_t kWidth>
void Copy(const void* const* in, void* out, int64_t n, const ScalarOpParams&) {
  std::memcpy(out, in[0], n * kWidth);
}

// reduce-precision on the stored bits: the mantissa is rounded to nearest even, then an exponent out of the smaller
// range becomes infinity or a signed zero (results that would be subnormal included).
template <typename Bits, int kExponentBits, int kMantissaBits>
void ReducePrecision(const void* const* in, void* out, int64_t n, const ScalarOpParams& p) {
  constexpr Bits one = 1;
  constexpr Bits mantissa_mask = (one << kMantissaBits) - 1;
  constexpr Bits exponent_mask = ((one << kExponentBits) - 1) << kMantissaBits;
  constexpr Bits sign_mask = one << (kExponentBits + kMantissaBits);
  for (int64_t i = 0; i < n; ++i) {
    Bits x = static_cast<const Bits*>(in[0])[i];
    bool is_nan = (x & exponent_mask) == exponent_mask && (x & mantissa_mask) != 0;
    Bits y = x;
    if (p.mantissa_bits < kMantissaBits) {
      int drop = kMantissaBits - static_cast<int>(p.mantissa_bits);
      Bits last = (y >> drop) & 1;
      y = static_cast<Bits>(y + last + ((one << (drop - 1)) - 1));
      y &= static_cast<Bits>(~((one << drop) - 1));
    }
    if (p.exponent_bits < kExponentBits) {
      Bits bias = (one << (kExponentBits - 1)) - 1;
      Bits reduced = (one << (p.exponent_bits - 1)) - 1;
      Bits exponent = y & exponent_mask;
      Bits sign = x & sign_mask;
      if (exponent > static_cast<Bits>((bias + reduced) << kMantissaBits)) y = sign | exponent_mask;
      if (exponent <= static_cast<Bits>((bias - reduced) << kMantissaBits)) y = sign;
    }
    if (is_nan) {
      y = p.mantissa_bits > 0 ? static_cast<Bits>(x | (one << (kMantissaBits - 1)))
                              : static_cast<Bits>((x & sign_mask) | exponent_mask);
    }
    static_cast<Bits*>(out)[i] = y;
  }
}

}  // namespace

ScalarOp::Kernel RawKernel(Opcode opcode, PrimitiveType type) {
  if (opcode == Opcode::kReducePrecision) {
    switch (type) {
      case PrimitiveType::kF16:
        return ReducePrecision<uint16_t, 5, 10>;
      case PrimitiveType::kBF16:
        return ReducePrecision<uint16_t, 8, 7>;
      case PrimitiveType::kF32:
        return ReducePrecision<uint32_t, 8, 23>;
      case PrimitiveType::kF64:
        return ReducePrecision<uint64_t, 11, 52>;
      case PrimitiveType::kF8E5M2:
        return ReducePrecision<uint8_t, 5, 2>;
      case PrimitiveType::kF8E4M3:
        return ReducePrecision<uint8_t, 4, 3>;
      case PrimitiveType::kF8E3M4:
        return ReducePrecision<uint8_t, 3, 4>;
      default:
        return nullptr;
    }
  }
  bool select = opcode == Opcode::kSelect;
  switch (ByteWidth(type)) {
    case 1:
      return select ? Select<1> : Copy<1>;
    case 2:
      return select ? Select<2> : Copy<2>;
    case 4:
      return select ? Select<4> : Copy<4>;
    case 8:
      return select ? Select<8> : Copy<8>;
    default:
      return select ? Select<16> : Copy<16>;
  }
}

ScalarOp::Kernel ConvertKernel(PrimitiveType from, PrimitiveType to) {
  // The parameters name the two types; the converter is looked up per chunk.
  return [](const void* const* in, void* out, int64_t n, const ScalarOpParams& p) {
    DomainConverter(p.type, p.result)(in[0], out, n);
  };
}

ScalarOp::Kernel CompareKernel(std::string_view direction, std::string_view comparison_type,
                               PrimitiveType type) {
  bool total = comparison_type == "TOTALORDER";
  switch (DomainOf(type)) {
    case Domain::kSigned:
      return Compare<int64_t>(direction, total);
    case Domain::kUnsigned:
      return Compare<uint64_t>(direction, total);
    case Domain::kFloat:
      return Compare<double>(direction, total);
    case Domain::kComplex:
      return Compare<std::complex<double>>(direction, total);
  }
  return nullptr;
}

ScalarOp::Kernel KernelOf(Opcode opcode, PrimitiveType type, PrimitiveType result) {
  if (opcode == Opcode::kSelect || opcode == Opcode::kCopy || opcode == Opcode::kReducePrecision) {
    return RawKernel(opcode, type);
  }
  switch (DomainOf(type)) {
    case Domain::kSigned:
      return SignedKernel(opcode);
    case Domain::kUnsigned:
      return UnsignedKernel(opcode);
    case Domain::kFloat:
      return FloatKernel(opcode, result);
    case Domain::kComplex:
      return ComplexKernel(opcode);
  }
  return nullptr;
}

}  // namespace tenon::eval
