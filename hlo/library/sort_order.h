// Which comparators of `sort` say a plain order of one key, and that order as unsigned numbers: a < b exactly if Code(a) < Code(b).
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "hlo/instruction.h"

namespace tenon::library {

struct SortOrder {
  bool descending = false;
  // Floats only. total: by sign and bits, as compare's TOTALORDER. Else -0 equals 0 and all NaNs are equal, and `nan_first` says on
  // which side of the numbers they stand.
  bool total = false, nan_first = false;
  bool operator==(const SortOrder&) const = default;
};

// Element types that may be keys: integers and pred of whole bytes, f16, bf16, f32, f64.
bool IsSortKey(PrimitiveType type);

struct PlainOrder {
  int64_t key = 0;  // the operand that decides
  SortOrder order;
};
// Of a sort's comparator, if it compares one operand by one of these orders and looks at no other. A comparator is understood by
// what it answers in each case (less, equal, greater, either NaN, both), so it may be spelled in any way. LT of floats alone is
// no order of NaNs, and not understood.
std::optional<PlainOrder> PlainOrderOf(const Instruction& sort);

enum class KeyKind : uint8_t { kUnsigned, kSigned, kFloat };
KeyKind KeyKindOf(PrimitiveType type);
// The bits of infinity of a float type, 0 of others.
uint64_t InfinityBits(PrimitiveType type);

// `bits` of a key as a number to compare; floats that are NaN take the first or the last one.
template <KeyKind kKind, std::unsigned_integral U>
inline U CodeOf(U bits, U infinity, const SortOrder& order) {
  constexpr U kSign = U{1} << (8 * sizeof(U) - 1);
  U code = bits;
  if constexpr (kKind == KeyKind::kSigned) code = static_cast<U>(bits ^ kSign);
  if constexpr (kKind == KeyKind::kFloat) {
    using S = std::make_signed_t<U>;
    const U magnitude = bits & static_cast<U>(~kSign);
    // Masks instead of choices: loops over keys become vectors.
    if (!order.total) bits &= static_cast<U>(-static_cast<S>(magnitude != 0));
    const U negative = static_cast<U>(static_cast<S>(bits) >> (8 * sizeof(U) - 1));
    code = static_cast<U>(bits ^ static_cast<U>(negative | kSign));
    if (order.descending) code = static_cast<U>(~code);
    if (order.total) return code;
    const U nan = static_cast<U>(-static_cast<S>(static_cast<S>(magnitude) > static_cast<S>(infinity)));
    return static_cast<U>(order.nan_first ? code & static_cast<U>(~nan) : code | nan);
  }
  return order.descending ? static_cast<U>(~code) : code;
}

// The bits that CodeOf was given; not of NaNs and -0 unless the order is total.
template <KeyKind kKind, std::unsigned_integral U>
inline U BitsOf(U code, const SortOrder& order) {
  constexpr U kSign = U{1} << (8 * sizeof(U) - 1);
  if (order.descending) code = static_cast<U>(~code);
  if constexpr (kKind == KeyKind::kSigned) return static_cast<U>(code ^ kSign);
  if constexpr (kKind == KeyKind::kFloat) return (code & kSign) != 0 ? static_cast<U>(code ^ kSign) : static_cast<U>(~code);
  return code;
}

// Does BitsOf lose these bits?
template <KeyKind kKind, std::unsigned_integral U>
inline bool IsLost(U bits, U infinity, const SortOrder& order) {
  constexpr U kSign = U{1} << (8 * sizeof(U) - 1);
  if (kKind != KeyKind::kFloat || order.total) return false;
  return bits == kSign || static_cast<U>(bits & static_cast<U>(~kSign)) > infinity;
}

}  // namespace tenon::library
