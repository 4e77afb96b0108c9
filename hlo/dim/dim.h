// Dim: a dimension size, either a constant or a symbolic integer expression. 8 bytes, copied by value.
//
// A symbolic Dim points at an interned, immutable DimExpr owned by a DimTable, and every Module shares ownership of
// its table: so a Dim prints, compares and combines without the table at hand, and two equal canonical expressions
// of one table are the same pointer. There is no implicit conversion to int64_t: whoever needs a number says
// `constant()` (checked) or asks `is_constant()` first. Comparisons answer yes, no or unknown; unknown must make a
// rewrite refuse.
//
// Canonical form: a sum of coefficient * product of atoms + constant; an atom is a symbol, floordiv, mod, min or max.
// Symbols are integers >= 0 unless their range says otherwise. Constants lie in [-2^62, 2^62).
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "hlo/check.h"

namespace tenon {

class DimExpr;
class DimTable;

// Thrown by Dim::constant(): a number was needed where a size is an expression.
class SymbolicDim : public InternalError {
 public:
  using InternalError::InternalError;
};

enum class Ternary : uint8_t { kNo, kYes, kUnknown };

class Dim {
 public:
  constexpr Dim() = default;                                                  // zero
  template <std::integral T>
  constexpr Dim(T value)  // NOLINT: a number is a Dim
      : bits_((static_cast<uint64_t>(value) << 1) | 1) {
    TENON_CHECK(static_cast<T>(static_cast<int64_t>(bits_) >> 1) == value, "a dimension beyond 2^62");
  }

  bool is_constant() const { return (bits_ & 1) != 0; }
  int64_t constant() const {
    if (!is_constant()) [[unlikely]]
      ThrowSymbolic();
    return static_cast<int64_t>(bits_) >> 1;
  }
  int64_t constant_or(int64_t otherwise) const { return is_constant() ? constant() : otherwise; }
  const DimExpr* expr() const { return is_constant() ? nullptr : reinterpret_cast<const DimExpr*>(bits_); }

  // Same canonical form. "false" does not prove inequality: use Equal().
  friend bool operator==(Dim a, Dim b) { return a.bits_ == b.bits_; }
  template <typename H>
  friend H AbslHashValue(H h, Dim d) {
    return H::combine(std::move(h), d.bits_);
  }

  std::string ToString() const;  // "768", "s0", "4*s0+1", "floordiv(s0,2)", "mod(s0,2)", "min(a,b)", "max(a,b)"

 private:
  friend class DimTable;
  [[noreturn]] void ThrowSymbolic() const;
  // Two arguments, so that Dim(0) is a number and not a null pointer.
  Dim(const DimExpr* e, DimTable*) : bits_(reinterpret_cast<uint64_t>(e)) {}
  uint64_t bits_ = 1;
};
static_assert(sizeof(Dim) == 8);

std::ostream& operator<<(std::ostream& os, Dim d);

// Arithmetic. Symbols of two different tables must not meet (checked).
Dim operator+(Dim a, Dim b);
Dim operator-(Dim a, Dim b);
Dim operator*(Dim a, Dim b);
inline Dim& operator*=(Dim& a, Dim b) { return a = a * b; }
inline Dim& operator+=(Dim& a, Dim b) { return a = a + b; }
Dim FloorDiv(Dim a, Dim b);  // rounds to -inf; b != 0
Dim CeilDiv(Dim a, Dim b);
Dim Mod(Dim a, Dim b);  // result has b's sign (Python's rule)
Dim Min(Dim a, Dim b);
Dim Max(Dim a, Dim b);

Ternary Equal(Dim a, Dim b);
Ternary Less(Dim a, Dim b);
Ternary Divides(Dim divisor, Dim a);
inline bool KnownEqual(Dim a, Dim b) { return Equal(a, b) == Ternary::kYes; }
inline bool KnownOne(Dim a) { return KnownEqual(a, 1); }

int64_t LowerBound(Dim d);  // from the symbols' ranges; INT64_MIN when unknown
int64_t UpperBound(Dim d);  // INT64_MAX when unknown

// What a symbol stands for in Typical() where nobody says more.
constexpr int64_t kTypicalSize = 256;

// A number to plan for where any is right: each symbol is taken for its `typical`, or for what of its range and divisor is next to it.
int64_t Typical(Dim d);

// `value_of` gives each symbol's value by name.
absl::StatusOr<int64_t> Evaluate(Dim d, const std::function<absl::StatusOr<int64_t>(std::string_view)>& value_of);

// One atom or product tree, for code that must walk expressions (code generation, the dim program).
class DimExpr {
 public:
  enum class Kind : uint8_t { kSymbol, kSum, kProduct, kFloorDiv, kMod, kMin, kMax };
  Kind kind;
  DimTable* table;
  int32_t id;              // creation order in the table: stable within a process run, used for canonical order
  std::string symbol;      // kSymbol
  int64_t lower = 0, upper = INT64_MAX, divisor = 1;  // kSymbol: lower <= value <= upper, divisor | value
  int64_t typical = kTypicalSize;                     // kSymbol: a value to plan for; no other is worse than slow
  // kSum: sum coefficient[i] * operand[i] + addend. kProduct: product of operands. The others: two operands.
  absl::InlinedVector<Dim, 2> operands;
  absl::InlinedVector<int64_t, 2> coefficients;
  int64_t addend = 0;
};

// Owns the expressions of one module (and of whatever was cloned from it). Thread-safe.
class DimTable {
 public:
  DimTable();
  ~DimTable();
  DimTable(const DimTable&) = delete;

  // Finds or makes a symbol. A second call with other bounds narrows nothing and fails a check if they differ.
  Dim Symbol(std::string_view name, int64_t lower = 0, int64_t upper = INT64_MAX, int64_t divisor = 1, int64_t typical = kTypicalSize);
  // Parses what Dim::ToString prints plus Python/sympy spellings: + - * // %, FloorDiv(), Mod(), Min(), Max(),
  // parentheses. Unknown names become symbols with range [0, inf).
  absl::StatusOr<Dim> Parse(std::string_view text);
  // Copies an expression of another table, symbols by name.
  Dim Import(Dim foreign);

 private:
  friend struct DimBuilder;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tenon
