// Dims as text: printing, and a parser that also takes Python's and sympy's spellings.
#include <charconv>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "hlo/dim/dim.h"

namespace tenon {
namespace {

std::string Factor(Dim d) {
  std::string text = d.ToString();
  return !d.is_constant() && d.expr()->kind == DimExpr::Kind::kSum ? "(" + text + ")" : text;
}

std::string SumText(const DimExpr& e) {
  std::string text;
  for (size_t i = 0; i < e.operands.size(); ++i) {
    int64_t c = e.coefficients[i];
    if (c < 0) text += '-';
    if (c > 0 && i > 0) text += '+';
    if (c != 1 && c != -1) absl::StrAppend(&text, c < 0 ? -c : c, "*");
    text += e.operands[i].ToString();
  }
  if (e.addend > 0) text += '+';
  if (e.addend != 0) absl::StrAppend(&text, e.addend);
  return text;
}

std::string CallText(const char* name, const DimExpr& e) {
  return absl::StrCat(name, "(", e.operands[0].ToString(), ",", e.operands[1].ToString(), ")");
}

// sum := term (('+'|'-') term)*; term := unary (('*'|'//'|'%') unary)*; unary := '-' unary | primary
class Parser {
 public:
  Parser(DimTable* table, std::string_view text) : table_(table), text_(text) {}

  absl::StatusOr<Dim> Parse() {
    TENON_ASSIGN_OR_RETURN(Dim d, Sum());
    SkipSpace();
    if (at_ != text_.size()) return Error("wanted the end");
    return d;
  }

 private:
  absl::Status Error(std::string wanted) const {
    return absl::InvalidArgumentError(absl::StrCat("dimension '", std::string(text_), "', column ",
                                                   at_ + 1, ": ", wanted));
  }

  void SkipSpace() {
    while (at_ < text_.size() && absl::ascii_isspace(text_[at_])) ++at_;
  }

  bool Accept(std::string_view token) {
    SkipSpace();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }

  absl::StatusOr<Dim> Sum() {
    if (++depth_ > 100) return Error("nested too deep");
    TENON_ASSIGN_OR_RETURN(Dim sum, Term());
    for (;;) {
      if (Accept("+")) {
        TENON_ASSIGN_OR_RETURN(Dim next, Term());
        sum = sum + next;
      } else if (Accept("-")) {
        TENON_ASSIGN_OR_RETURN(Dim next, Term());
        sum = sum - next;
      } else {
        --depth_;
        return sum;
      }
    }
  }

  absl::StatusOr<Dim> Term() {
    TENON_ASSIGN_OR_RETURN(Dim product, Unary());
    for (;;) {
      bool power = Accept("**");
      if (power || Accept("//") || Accept("%")) {
        char op = text_[at_ - 1];
        TENON_ASSIGN_OR_RETURN(Dim next, Unary());
        TENON_ASSIGN_OR_RETURN(product, Apply(power ? "pow" : op == '%' ? "mod" : "floordiv",
                                              product, next));
      } else if (Accept("*")) {
        TENON_ASSIGN_OR_RETURN(Dim next, Unary());
        product = product * next;
      } else {
        return product;
      }
    }
  }

  absl::StatusOr<Dim> Unary() {
    if (++depth_ > 100) return Error("nested too deep");
    absl::StatusOr<Dim> result = 0;
    if (Accept("-")) {
      result = Unary();
      if (result.ok()) result = 0 - *result;
    } else {
      result = Primary();
    }
    --depth_;
    return result;
  }

  absl::StatusOr<Dim> Primary() {
    if (Accept("(")) {
      TENON_ASSIGN_OR_RETURN(Dim inner, Sum());
      if (!Accept(")")) return Error("wanted ')'");
      return inner;
    }
    SkipSpace();
    size_t start = at_;
    if (at_ < text_.size() && absl::ascii_isdigit(text_[at_])) return Number();
    while (at_ < text_.size() && (absl::ascii_isalnum(text_[at_]) || text_[at_] == '_' ||
                                  text_[at_] == '.' || text_[at_] == '$')) {
      ++at_;
    }
    if (at_ == start) return Error("wanted a number, a symbol or '('");
    std::string name(text_.substr(start, at_ - start));
    if (!Accept("(")) return table_->Symbol(name);
    return Call(absl::AsciiStrToLower(name));
  }

  absl::StatusOr<Dim> Number() {
    int64_t value = 0;
    auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc() || value >= (int64_t{1} << 62)) return Error("number too large");
    at_ = end - text_.data();
    return Dim(value);
  }

  absl::StatusOr<Dim> Call(const std::string& name) {
    TENON_ASSIGN_OR_RETURN(Dim result, Sum());
    int count = 1;
    while (Accept(",")) {
      TENON_ASSIGN_OR_RETURN(Dim next, Sum());
      TENON_ASSIGN_OR_RETURN(result, Apply(name, result, next));
      ++count;
    }
    if (!Accept(")")) return Error("wanted ')'");
    bool chains = name == "min" || name == "max";
    if (count != 2 && !(chains && count > 2)) return Error("wanted two arguments of " + name);
    return result;
  }

  absl::StatusOr<Dim> Apply(std::string_view name, Dim a, Dim b) {
    if (name == "min") return Min(a, b);
    if (name == "max") return Max(a, b);
    if (name == "pow") {
      if (!b.is_constant() || b.constant() < 0 || b.constant() > 16) return Error("bad exponent");
      Dim power = 1;
      for (int64_t i = 0; i < b.constant(); ++i) power *= a;
      return power;
    }
    bool is_mod = name == "mod" || name == "pythonmod";
    bool is_ceil = name == "ceildiv" || name == "ceiltointdiv";
    if (!is_mod && !is_ceil && name != "floordiv" && name != "cleandiv" && name != "intdiv") {
      return Error(absl::StrCat("unknown function '", std::string(name), "'"));
    }
    if (b == Dim(0)) return Error("division by zero");
    return is_mod ? Mod(a, b) : is_ceil ? CeilDiv(a, b) : FloorDiv(a, b);
  }

  DimTable* table_;
  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::string Dim::ToString() const {
  if (is_constant()) return absl::StrCat(constant());
  const DimExpr& e = *expr();
  switch (e.kind) {
    case DimExpr::Kind::kSymbol:
      return e.symbol;
    case DimExpr::Kind::kSum:
      return SumText(e);
    case DimExpr::Kind::kProduct: {
      std::string text;
      for (Dim operand : e.operands) {
        if (!text.empty()) text += '*';
        text += Factor(operand);
      }
      return text;
    }
    case DimExpr::Kind::kFloorDiv:
      return CallText("floordiv", e);
    case DimExpr::Kind::kMod:
      return CallText("mod", e);
    case DimExpr::Kind::kMin:
      return CallText("min", e);
    case DimExpr::Kind::kMax:
      return CallText("max", e);
  }
  return "";
}

std::ostream& operator<<(std::ostream& os, Dim d) { return os << d.ToString(); }

absl::StatusOr<Dim> DimTable::Parse(std::string_view text) {
  try {
    return Parser(this, text).Parse();
  } catch (const InternalError& e) {  // overflow, which the text caused
    return absl::InvalidArgumentError(
        absl::StrCat("dimension '", std::string(text), "': ", e.what()));
  }
}

}  // namespace tenon
