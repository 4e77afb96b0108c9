// Literal: a constant array (dense, row-major whatever the shape's layout says, static dims) or a tuple of literals.
//
// Copies share the bytes (copy on write through mutable_data): large constants are cheap to pass around. A literal may
// borrow foreign memory whose owner it keeps alive. pred is one byte 0/1; sub-byte types one byte per element; complex
// is (re, im) pairs.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hlo/shape.h"

namespace tenon {

class Literal {
 public:
  Literal() = default;                                   // the empty tuple
  explicit Literal(Shape shape);                         // zeros
  Literal(Shape shape, std::shared_ptr<const void> owner, const void* data);  // borrows, data row-major
  static Literal Tuple(std::vector<Literal> elements);
  // One value converted to `type` (numeric_types.h rules), broadcast to dims.
  static Literal Full(PrimitiveType type, absl::Span<const int64_t> dims, double value);
  static Literal Scalar(PrimitiveType type, double value) { return Full(type, {}, value); }
  static Literal ScalarInt(PrimitiveType type, int64_t value);
  template <typename T>  // T: the native C++ type of `type` (numeric_types.h)
  static Literal FromSpan(PrimitiveType type, absl::Span<const int64_t> dims, std::span<const T> values) {
    Literal l(Shape::Array(type, dims));
    TENON_CHECK(sizeof(T) == static_cast<size_t>(ByteWidth(type)) && static_cast<int64_t>(values.size()) == l.num_elements());
    std::copy(values.begin(), values.end(), reinterpret_cast<T*>(l.mutable_bytes()));
    return l;
  }

  const Shape& shape() const { return shape_; }
  PrimitiveType type() const { return shape_.element_type(); }
  int64_t num_elements() const { return shape_.num_elements_constant(); }
  int64_t size_bytes() const { return num_elements() * ByteWidth(type()); }
  const std::byte* bytes() const { return data_; }
  std::byte* mutable_bytes();  // copies first if shared or borrowed
  template <typename T>
  std::span<const T> data() const {
    return {reinterpret_cast<const T*>(data_), static_cast<size_t>(num_elements())};
  }
  template <typename T>
  std::span<T> mutable_data() {
    return {reinterpret_cast<T*>(mutable_bytes()), static_cast<size_t>(num_elements())};
  }
  const std::vector<Literal>& elements() const { return elements_; }

  // Element `i` (row-major) as a double/int64 (exact for what fits).
  double GetAsDouble(int64_t i) const;
  int64_t GetAsInt64(int64_t i) const;
  std::complex<double> GetAsComplex(int64_t i) const;
  void SetFromDouble(int64_t i, double value);
  void SetFromInt64(int64_t i, int64_t value);

  bool IsAllEqualTo(double value) const;  // every element equals value (-0 == 0, NaN equals nothing)
  // True if one scalar repeated; then element 0 is it. Bytewise.
  bool IsSplat() const;

  friend bool operator==(const Literal& a, const Literal& b);  // shapes and bytes
  // Content hash (stable across processes).
  uint64_t Hash() const;
  std::string ToString() const;  // HLO's literal text without the shape: "{{1, 2}, {3, 4}}"

 private:
  Shape shape_;
  std::shared_ptr<const void> owner_;
  const std::byte* data_ = nullptr;
  bool unique_ = false;  // owner_ is ours and writable
  std::vector<Literal> elements_;
};

}  // namespace tenon
