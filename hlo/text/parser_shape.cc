// Shapes: f32[2,<=8,s0]{1,0:T(8,128)}, tuples, b(buffer), token[].
#include "hlo/infer/context.h"
#include "hlo/text/parser.h"

namespace tenon::text {
namespace {

// An expression is handed to DimTable::Parse whole, so its nesting and length are bounded here.
constexpr size_t kMaxExpression = 1024;
constexpr int kMaxExpressionDepth = 32;

bool IsNumber(std::string_view s) {
  if (s.empty() || s.size() > 18) return false;
  for (char c : s) {
    if (c < '0' || c > '9') return false;
  }
  return true;
}

}  // namespace

bool Parser::AtShape() {
  const char c = lex_.Peek();
  if (c == '(') return true;
  const std::string_view word = lex_.PeekIdentifier();
  if (word.empty()) return false;
  const char next = lex_.RawPeek(word.size());
  if (word == "b") return next == '(';
  return next == '[' && ParsePrimitiveType(word).has_value();
}

bool Parser::ParseShape(Shape* out) {
  Depth depth(this);
  if (!depth.ok()) return false;
  if (lex_.Peek() == '(') {
    lex_.Expect('(');
    std::vector<Shape> elements;
    if (!lex_.Try(')')) {
      do {
        if (!ParseShape(&elements.emplace_back())) return false;
      } while (lex_.Try(','));
      if (!lex_.Expect(')')) return false;
    }
    *out = Shape::Tuple(std::move(elements));
    return true;
  }
  const size_t position = lex_.position();
  const std::string_view word = lex_.PeekIdentifier();
  if (word == "b" && lex_.RawPeek(1) == '(') {
    lex_.Identifier();
    Shape element;
    if (!lex_.Expect('(') || !ParseShape(&element) || !lex_.Expect(')')) return false;
    *out = Shape::Tuple({std::move(element)});
    out->set_element_type(PrimitiveType::kBuffer);
    return true;
  }
  const std::optional<PrimitiveType> type = ParsePrimitiveType(word);
  if (!type.has_value() || *type == PrimitiveType::kTuple || *type == PrimitiveType::kBuffer) {
    return lex_.Error("a shape");
  }
  lex_.Identifier();
  if (!ArrayShape(*type, out)) return false;
  const absl::Status sized = infer::CheckShapeSize(*out);
  return sized.ok() || Fail(position, sized);
}

bool Parser::ArrayShape(PrimitiveType type, Shape* out) {
  if (!lex_.Expect('[')) return false;
  DimVector dims;
  absl::InlinedVector<int64_t, 2> dynamic;
  if (!lex_.Try(']')) {
    do {
      Dim dim;
      bool is_dynamic = false;
      if (!Dimension(&dim, &is_dynamic)) return false;
      if (is_dynamic) dynamic.push_back(static_cast<int64_t>(dims.size()));
      dims.push_back(dim);
    } while (lex_.Try(','));
    if (!lex_.Expect(']')) return false;
  }
  if (!IsArrayType(type) && !dims.empty()) return lex_.Error("no dimensions of a token or an opaque value");
  *out = Shape(type, dims);
  for (int64_t i : dynamic) out->set_dynamic(i, true);
  return Layout(out);
}

bool Parser::Dimension(Dim* dim, bool* dynamic) {
  lex_.SkipSpace();
  if (lex_.TryToken("<=")) *dynamic = true;
  return DimExpression(",]", dim);
}

// A number, or an expression of symbols up to one of `stops` outside parentheses. "?" is an unbounded dimension: one
// symbol of that name.
bool Parser::DimExpression(std::string_view stops, Dim* out) {
  lex_.SkipSpace();
  const size_t start = lex_.position();
  size_t end = start;
  int depth = 0;
  for (;; ++end) {
    if (end - start > kMaxExpression) return lex_.Error(start, "a dimension of at most 1024 characters", "a longer one");
    if (end >= lex_.text().size()) break;
    const char c = lex_.text()[end];
    if (c == '(' && ++depth > kMaxExpressionDepth) return lex_.Error(end, "less nesting", "32 parentheses");
    if (c == ')' && depth > 0) --depth;
    else if (depth == 0 && stops.find(c) != std::string_view::npos) break;
  }
  std::string_view text = lex_.Between(start, end);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\n' || text.back() == '\t')) text.remove_suffix(1);
  if (IsNumber(text)) {
    int64_t value = 0;
    for (char c : text) value = value * 10 + (c - '0');
    *out = value;
  } else if (text == "?") {
    *out = dims().Symbol("?");
  } else if (text.empty()) {
    return lex_.Error("a dimension");
  } else {
    absl::StatusOr<Dim> parsed = dims().Parse(text);
    if (!parsed.ok()) {
      return lex_.Error(start, "a dimension",
                        absl::StrCat("'", Abs(text), "' (", parsed.status().message(), ")"));
    }
    *out = *parsed;
  }
  lex_.set_position(end);
  return true;
}

// '{' after a shape is a layout only before an integer or ':': otherwise it opens a computation.
bool Parser::Layout(Shape* shape) {
  const size_t before = lex_.position();
  if (!lex_.Try('{')) return true;
  const char next = lex_.Peek();
  if (next == '}' && shape->is_scalar()) return lex_.Expect('}');  // the layout of a scalar
  if (next != ':' && !(next >= '0' && next <= '9')) {
    lex_.set_position(before);
    return true;
  }
  Permutation order;
  const size_t start = lex_.position();
  if (next != ':') {
    do {
      const std::optional<int64_t> d = lex_.Int();
      if (!d.has_value()) return false;
      order.push_back(*d);
    } while (lex_.Try(','));
  }
  if (order.empty() && next == ':' && shape->is_array()) order = RowMajor(shape->rank());  // a tiling alone: {:T(128)}
  if (!shape->is_array() || !IsPermutation(order, shape->rank())) {
    return lex_.Error(start, absl::StrCat("a layout that permutes ", shape->rank(), " dimensions"),
                      absl::StrCat("{", absl::StrJoin(order, ","), "}"));
  }
  shape->set_layout(order);
  if (lex_.Try(':')) {
    const size_t suffix = lex_.position();
    while (lex_.Peek() != '}' && lex_.Peek() != '\0') {
      if (lex_.Try(',')) continue;
      if (!lex_.Balanced().has_value()) return false;
    }
    shape->layout_suffix() = NormalizeSpace(lex_.Between(suffix, lex_.position()));
  }
  return lex_.Expect('}');
}

}  // namespace tenon::text
