#include "hlo/shape.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tenon {

Shape::Shape(PrimitiveType type, absl::Span<const Dim> dims)
    : type_(type), dims_(dims.begin(), dims.end()) {}

Shape::Shape(PrimitiveType type, absl::Span<const Dim> dims,
             absl::Span<const int64_t> minor_to_major)
    : Shape(type, dims) {
  set_layout(minor_to_major);
}

Shape Shape::Array(PrimitiveType type, absl::Span<const int64_t> dims) {
  return Shape(type, DimVector(dims.begin(), dims.end()));
}

Shape Shape::Tuple(std::vector<Shape> elements) {
  Shape shape;
  shape.elements_ = std::move(elements);
  return shape;
}

Shape Shape::Token() { return Shape(PrimitiveType::kToken, {}); }
Shape Shape::Opaque() { return Shape(PrimitiveType::kOpaque, {}); }

void Shape::set_dynamic(int64_t i, bool dynamic) {
  if (dynamic_.empty() && !dynamic) return;
  dynamic_.resize(dims_.size(), false);
  dynamic_[i] = dynamic;
  if (std::none_of(dynamic_.begin(), dynamic_.end(), [](bool d) { return d; })) dynamic_.clear();
}

bool Shape::is_static() const {
  return dynamic_.empty() &&
         std::all_of(dims_.begin(), dims_.end(), [](Dim d) { return d.is_constant(); }) &&
         std::all_of(elements_.begin(), elements_.end(),
                     [](const Shape& e) { return e.is_static(); });
}

std::vector<int64_t> Shape::constant_dims() const {
  std::vector<int64_t> dims;
  dims.reserve(dims_.size());
  for (Dim d : dims_) dims.push_back(d.constant());
  return dims;
}

Permutation Shape::minor_to_major() const { return layout_ ? *layout_ : RowMajor(rank()); }

void Shape::set_layout(absl::Span<const int64_t> minor_to_major) {
  TENON_CHECK(IsPermutation(minor_to_major, rank()),
              absl::StrCat("layout {", absl::StrJoin(minor_to_major, ","), "} of ", ToString()));
  layout_.emplace(minor_to_major.begin(), minor_to_major.end());
}

namespace {

struct Place {
  size_t begin = std::string::npos, end = std::string::npos;
};
// "S(" ... ")" of a suffix: a word of its own, not the end of another one.
Place FindSpace(std::string_view suffix) {
  for (size_t at = suffix.find("S("); at != std::string_view::npos; at = suffix.find("S(", at + 1)) {
    const bool word = at == 0 || !absl::ascii_isalnum(static_cast<unsigned char>(suffix[at - 1]));
    const size_t close = suffix.find(')', at);
    if (word && close != std::string_view::npos) return {at, close + 1};
  }
  return {};
}

}  // namespace

int64_t Shape::SpaceInSuffix() const {
  const Place place = FindSpace(layout_suffix_);
  int64_t space = 0;
  const bool found = place.begin != std::string::npos;
  return found && absl::SimpleAtoi(layout_suffix_.substr(place.begin + 2, place.end - place.begin - 3), &space) && space > 0 ? space : 0;
}

void Shape::set_memory_space(int64_t space) {
  TENON_CHECK(is_array() && space >= 0, absl::StrCat("memory space ", space, " of ", ToString()));
  if (const Place place = FindSpace(layout_suffix_); place.begin != std::string::npos) {
    layout_suffix_.erase(place.begin, place.end - place.begin);
  }
  if (space == 0) return;
  if (!layout_) set_layout(RowMajor(rank()));
  absl::StrAppend(&layout_suffix_, "S(", space, ")");
}

void Shape::clear_layout() {
  layout_.reset();
  layout_suffix_.clear();
}

Dim Shape::num_elements() const {
  TENON_CHECK(is_array(), ToString());
  Dim n = 1;
  for (Dim d : dims_) n *= d;
  return n;
}

Dim Shape::byte_size() const {
  if (is_array()) return num_elements() * ByteWidth(type_);
  Dim n = 0;
  for (const Shape& e : elements_) n += e.byte_size();
  return n;
}

DimVector Shape::strides() const {
  DimVector strides(dims_.size());
  Dim stride = 1;
  for (int64_t d : minor_to_major()) {
    strides[d] = stride;
    stride *= dims_[d];
  }
  return strides;
}

bool Shape::SameDims(const Shape& a, const Shape& b) { return a.dims_ == b.dims_; }

bool Shape::Compatible(const Shape& a, const Shape& b) {
  return a.type_ == b.type_ && SameDims(a, b) &&
         std::equal(a.elements_.begin(), a.elements_.end(), b.elements_.begin(), b.elements_.end(),
                    Compatible);
}

bool Shape::SameWithLayout(const Shape& a, const Shape& b) {
  if (a.type_ != b.type_ || !SameDims(a, b)) return false;
  auto order = [](const Shape& s) {
    Permutation p;
    for (int64_t d : s.minor_to_major()) {
      if (s.dims_[d] != Dim(1)) p.push_back(d);
    }
    return p;
  };
  return order(a) == order(b) &&
         std::equal(a.elements_.begin(), a.elements_.end(), b.elements_.begin(), b.elements_.end(),
                    SameWithLayout);
}

bool operator==(const Shape& a, const Shape& b) {
  return a.type_ == b.type_ && a.dims_ == b.dims_ && a.dynamic_ == b.dynamic_ &&
         a.layout_ == b.layout_ && a.layout_suffix_ == b.layout_suffix_ &&
         a.elements_ == b.elements_;
}

std::string Shape::ToString(bool with_layout) const {
  if (is_tuple()) {
    return absl::StrCat("(",
                        absl::StrJoin(elements_, ", ",
                                      [&](std::string* out, const Shape& e) {
                                        out->append(e.ToString(with_layout));
                                      }),
                        ")");
  }
  if (type_ == PrimitiveType::kBuffer && elements_.size() == 1) {
    return absl::StrCat("b(", elements_[0].ToString(with_layout), ")");
  }
  std::string_view name = PrimitiveTypeName(type_);
  std::string text(name);
  text += '[';
  for (int64_t i = 0; i < rank(); ++i) {
    if (i > 0) text += ',';
    if (is_dynamic(i)) text += "<=";
    text += dims_[i].ToString();
  }
  text += ']';
  if (with_layout && layout_ && (!layout_->empty() || !layout_suffix_.empty())) {
    absl::StrAppend(&text, "{", absl::StrJoin(*layout_, ","), layout_suffix_.empty() ? "" : ":",
                    layout_suffix_, "}");
  }
  return text;
}

std::ostream& operator<<(std::ostream& os, const Shape& s) { return os << s.ToString(true); }

namespace {

void Flatten(const Shape& shape, std::vector<Shape>* leaves) {
  if (!shape.is_tuple()) {
    leaves->push_back(shape);
    return;
  }
  for (const Shape& e : shape.elements()) Flatten(e, leaves);
}

}  // namespace

std::vector<Shape> FlattenShape(const Shape& shape) {
  std::vector<Shape> leaves;
  Flatten(shape, &leaves);
  return leaves;
}

Permutation RowMajor(int64_t rank) {
  Permutation p(rank);
  for (int64_t i = 0; i < rank; ++i) p[i] = rank - 1 - i;
  return p;
}

bool IsRowMajor(const Shape& shape) {
  return Shape::SameWithLayout(shape, Shape(shape.element_type(), shape.dims(), RowMajor(shape.rank())));
}

bool IsPermutation(absl::Span<const int64_t> p, int64_t rank) {
  if (static_cast<int64_t>(p.size()) != rank) return false;
  std::vector<bool> seen(rank);
  for (int64_t d : p) {
    if (d < 0 || d >= rank || seen[d]) return false;
    seen[d] = true;
  }
  return true;
}

}  // namespace tenon
