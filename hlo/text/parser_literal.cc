// Literals: nested braces, (re, im), inf, nan(0x..), tuples, and {...} where a dump left the data out.
#include "hlo/text/literal_text.h"
#include "hlo/text/parser.h"

namespace tenon::text {

bool Parser::ParseLiteral(const Shape& shape, std::string_view name, Literal* out) {
  Depth depth(this);
  if (!depth.ok()) return false;
  lex_.SkipSpace();
  const size_t start = lex_.position();
  if (lex_.Try('{') && lex_.TryToken("...")) return lex_.Expect('}') && ElidedLiteral(shape, name, out);
  lex_.set_position(start);
  if (shape.is_tuple()) return TupleLiteral(shape, name, out);
  if (!shape.is_array()) return lex_.Error("a literal of an array or a tuple");
  return ArrayLiteral(shape, out);
}

bool Parser::TupleLiteral(const Shape& shape, std::string_view name, Literal* out) {
  if (!lex_.Expect('(')) return false;
  std::vector<Literal> elements;
  for (const Shape& s : shape.elements()) {
    if (!elements.empty() && !lex_.Expect(',')) return false;
    if (s.is_array() && AtShape()) {  // an element may repeat its shape
      Shape repeated;
      const size_t position = lex_.position();
      if (!ParseShape(&repeated)) return false;
      if (!Shape::Compatible(repeated, s)) {
        return lex_.Error(position, s.ToString(), repeated.ToString());
      }
    }
    if (!ParseLiteral(s, name, &elements.emplace_back())) return false;
  }
  *out = Literal::Tuple(std::move(elements));
  return lex_.Expect(')');
}

bool Parser::ArrayLiteral(const Shape& shape, Literal* out) {
  if (!shape.is_static()) return lex_.Error("a literal of constant dimensions");
  const int64_t elements = shape.num_elements_constant();
  if (shape.rank() > 0 && lex_.Peek() != '{') return Splat(shape, elements, out);
  const auto left = static_cast<int64_t>(lex_.text().size() - lex_.position());
  // Every element takes at least one character, so what can't be there isn't allocated.
  if (elements > options_.max_elements || elements > left) {
    return lex_.Error(absl::StrCat("a literal of ", shape.ToString()));
  }
  *out = Literal(shape);
  if (elements > 0) out->mutable_bytes();
  int64_t next = 0;
  return Elements(shape, shape.constant_dims(), 0, &next, out);
}

// One number for every element: f32[3,3] constant(1). Counted with the elided constants, since a short text makes a large literal.
bool Parser::Splat(const Shape& shape, int64_t elements, Literal* out) {
  if (!TakeFilled(shape)) return false;
  Literal one(Shape::Scalar(shape.element_type()));
  if (!Element(shape.element_type(), &one, 0)) return false;
  *out = Literal(shape);
  const int64_t width = ByteWidth(shape.element_type());
  std::byte* bytes = elements > 0 ? out->mutable_bytes() : nullptr;
  for (int64_t i = 0; i < elements; ++i) std::copy_n(one.bytes(), width, bytes + i * width);
  return true;
}

// Room for a literal whose elements the text does not hold.
bool Parser::TakeFilled(const Shape& shape) {
  constexpr int64_t kMaxFilledBytes = int64_t{4} << 30;
  if (!shape.is_array() || !shape.is_static() || shape.num_elements_constant() > options_.max_elements ||
      shape.byte_size().constant() > kMaxFilledBytes - filled_bytes_) {
    return lex_.Error(lex_.position(), "elided and repeated constants of constant dimensions and 4 GiB in all", shape.ToString());
  }
  filled_bytes_ += shape.byte_size().constant();
  return true;
}

bool Parser::Elements(const Shape& shape, const std::vector<int64_t>& dims, size_t level, int64_t* next,
                      Literal* out) {
  if (level == dims.size()) {
    const int64_t index = (*next)++;
    return Element(shape.element_type(), out, index);
  }
  Depth depth(this);
  if (!depth.ok() || !lex_.Expect('{')) return false;
  for (int64_t i = 0; i < dims[level]; ++i) {
    if (i > 0 && !lex_.Expect(',')) return false;
    if (!Elements(shape, dims, level + 1, next, out)) return false;
  }
  return lex_.Expect('}');
}

bool Parser::Element(PrimitiveType type, Literal* whole, int64_t index) {
  lex_.SkipSpace();
  const size_t start = lex_.position();
  auto number = [&]() {
    std::string_view text = lex_.NumberText();
    if (text.ends_with("nan") && lex_.RawPeek() == '(') {  // nan(0x123)
      const size_t from = lex_.position() - text.size();
      const size_t close = lex_.text().find(')', lex_.position());
      if (close != std::string_view::npos && close - from < 40) {
        lex_.set_position(close + 1);
        text = lex_.Between(from, close + 1);
      }
    }
    return text;
  };
  if (!IsComplex(type)) {
    if (ParseNumber(type, number(), whole, index)) return true;
  } else {
    // The parts are read into a two-element array of the component type: number parsing knows one element at a time.
    Literal parts(Shape::Array(ComplexComponent(type), {2}));
    const bool pair = lex_.Try('(');
    if (ParseNumber(parts.type(), number(), &parts, 0)) {
      if (pair) {
        if (!lex_.Expect(',')) return false;
        lex_.SkipSpace();
        if (!ParseNumber(parts.type(), number(), &parts, 1)) return lex_.Error(start, "(re, im)", "another value");
        if (!lex_.Expect(')')) return false;
      }
      std::copy_n(parts.bytes(), ByteWidth(type), whole->mutable_bytes() + index * ByteWidth(type));
      return true;
    }
  }
  const std::string_view name = PrimitiveTypeName(type);
  lex_.set_position(start);
  return lex_.Error(start, absl::StrCat("a value of ", Abs(name)), lex_.NextToken());
}

bool Parser::ElidedLiteral(const Shape& shape, std::string_view name, Literal* out) {
  if (!options_.fill_elided_constants) {
    return lex_.Error(lex_.position(), "the constant's data (the dump left it out; parse with fill_elided_constants)",
                      "{...}");
  }
  if (shape.is_tuple()) {
    std::vector<Literal> elements(shape.elements().size());
    for (size_t i = 0; i < elements.size(); ++i) {
      if (!ElidedLiteral(shape.element(i), name, &elements[i])) return false;
    }
    *out = Literal::Tuple(std::move(elements));
    return true;
  }
  if (!TakeFilled(shape)) return false;
  *out = Literal(shape);
  FillDeterministic(name, out);
  return true;
}

}  // namespace tenon::text
