// Shape: element type, dimensions, layout; or a tuple of shapes. A value type.
//
// A layout is a permutation `minor_to_major` (minor_to_major[0] is the dimension that varies fastest), XLA's meaning.
// Without a layout an array is row-major ({n-1,...,0}). Whatever XLA prints behind ':' in a layout (tiles, memory
// space, ...) is kept verbatim in `layout_suffix`; but for the memory space S(n) it means nothing.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "hlo/dim/dim.h"
#include "hlo/primitive_type.h"

namespace tenon {

using DimVector = absl::InlinedVector<Dim, 6>;
using Permutation = absl::InlinedVector<int64_t, 6>;

class Shape {
 public:
  Shape() : Shape(PrimitiveType::kTuple, {}) {}  // the empty tuple
  Shape(PrimitiveType type, absl::Span<const Dim> dims);
  Shape(PrimitiveType type, absl::Span<const Dim> dims, absl::Span<const int64_t> minor_to_major);
  static Shape Array(PrimitiveType type, absl::Span<const int64_t> dims);
  static Shape Scalar(PrimitiveType type) { return Shape(type, {}); }
  static Shape Tuple(std::vector<Shape> elements);
  static Shape Token();
  static Shape Opaque();  // a value that only calls know: opaque[]

  PrimitiveType element_type() const { return type_; }
  bool is_tuple() const { return type_ == PrimitiveType::kTuple; }
  bool is_opaque() const { return type_ == PrimitiveType::kOpaque; }
  bool is_array() const { return IsArrayType(type_); }
  bool is_scalar() const { return is_array() && dims_.empty(); }
  int64_t rank() const { return static_cast<int64_t>(dims_.size()); }
  absl::Span<const Dim> dims() const { return dims_; }
  Dim dim(int64_t i) const { return dims_[i]; }
  void set_dim(int64_t i, Dim d) { dims_[i] = d; }
  void set_element_type(PrimitiveType t) { type_ = t; }
  // "f32[<=8]": the size is bounded by dim(i) and carried at run time. Empty when no dimension is.
  bool is_dynamic(int64_t i) const { return !dynamic_.empty() && dynamic_[i]; }
  void set_dynamic(int64_t i, bool dynamic);
  bool is_static() const;                       // all dims constant, none dynamic (recursively)
  std::vector<int64_t> constant_dims() const;   // checked: all constant
  int64_t constant_dim(int64_t i) const { return dims_[i].constant(); }

  absl::Span<const Shape> elements() const { return elements_; }
  const Shape& element(int64_t i) const { return elements_[i]; }
  Shape& mutable_element(int64_t i) { return elements_[i]; }

  bool has_layout() const { return layout_.has_value(); }
  // The permutation in force: the given one, or row-major.
  Permutation minor_to_major() const;
  void set_layout(absl::Span<const int64_t> minor_to_major);
  void clear_layout();
  std::string& layout_suffix() { return layout_suffix_; }
  const std::string& layout_suffix() const { return layout_suffix_; }
  // The n of S(n) in layout_suffix, as XLA writes memory spaces; 0 where there is none. Of arrays.
  int64_t memory_space() const { return layout_suffix_.empty() ? 0 : SpaceInSuffix(); }
  // 0 takes S(n) away; another space gives an array without a layout the row-major one.
  void set_memory_space(int64_t space);

  Dim num_elements() const;                 // arrays; 1 for a scalar
  int64_t num_elements_constant() const { return num_elements().constant(); }
  Dim byte_size() const;                    // arrays: elements * ByteWidth; tuples: sum of the leaves
  DimVector strides() const;                // in elements, dense, by minor_to_major()

  // Same type and dims (leaf by leaf); layouts are not looked at.
  static bool Compatible(const Shape& a, const Shape& b);
  static bool SameDims(const Shape& a, const Shape& b);
  // Compatible and the same effective layout, dims of size 1 ignored.
  static bool SameWithLayout(const Shape& a, const Shape& b);
  friend bool operator==(const Shape& a, const Shape& b);  // exact, layouts and suffix included
  template <typename H>
  friend H AbslHashValue(H h, const Shape& s) {
    h = H::combine(std::move(h), s.type_, s.dims_, s.elements_.size());
    for (const Shape& e : s.elements_) h = H::combine(std::move(h), e);
    return h;
  }

  std::string ToString(bool with_layout = false) const;  // "f32[2,3]{1,0}", "(f32[], s32[4])"

 private:
  int64_t SpaceInSuffix() const;

  PrimitiveType type_;
  DimVector dims_;
  absl::InlinedVector<bool, 6> dynamic_;
  std::optional<Permutation> layout_;
  std::string layout_suffix_;
  std::vector<Shape> elements_;
};

std::ostream& operator<<(std::ostream& os, const Shape& s);

// The leaves of a (nested) tuple in order; an array or token shape is its own single leaf.
std::vector<Shape> FlattenShape(const Shape& shape);
Permutation RowMajor(int64_t rank);
bool IsRowMajor(const Shape& shape);  // an array's effective layout: dense, the last dim fastest
bool IsPermutation(absl::Span<const int64_t> p, int64_t rank);

}  // namespace tenon
