// The parser of aten::Graph text. One pass, no token list: 5,000 nodes take a few milliseconds.
#include <algorithm>
#include <charconv>
#include <optional>

#include "absl/strings/str_cat.h"
#include "hlo/text_counts.h"
#include "torch_plugin/aten/graph_builder.h"

namespace tenon::aten {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsNameChar(char c) { return IsNameStart(c) || IsDigit(c) || c == '.'; }
bool IsOpChar(char c) { return IsNameChar(c) || c == ':'; }

class GraphParser {
 public:
  explicit GraphParser(std::string_view text) : text_(text), rest_(text) {}

  absl::StatusOr<GraphBuilder> Run() {
    absl::Status status = ParseAll();
    if (status.ok()) return std::move(builder_);
    size_t at = text_.size() - rest_.size();
    size_t line = 1 + std::count(text_.begin(), text_.begin() + at, '\n');
    size_t start = at == 0 ? 0 : text_.rfind('\n', at - 1) + 1;  // npos + 1 == 0
    return absl::InvalidArgumentError(
        absl::StrCat("line ", line, ", column ", at - start + 1, ": ", std::string(status.message())));
  }

 private:
  absl::Status ParseAll();
  absl::Status ParseSymbols();
  absl::Status ParseStatement();
  absl::Status ParseNode(std::vector<std::string_view> names, size_t names_at);
  absl::Status ParseResults(Node* node, const std::vector<std::string_view>& names, std::vector<Meta>* metas);
  absl::Status ParseProvenance(Node* node);
  absl::Status ParseReturn();
  absl::StatusOr<Meta> ParseMeta();
  absl::Status ParseDims(char close, std::vector<Dim>* dims);
  absl::StatusOr<Dim> ParseDim(std::string_view stop);
  absl::StatusOr<Literal> ParseLiteralValues(const Meta& meta);
  absl::StatusOr<std::string> QuotedString();
  absl::StatusOr<int64_t> Integer();

  void Skip() {  // white space and comments
    size_t n = 0;
    while (n < rest_.size()) {
      char c = rest_[n];
      if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
        ++n;
      } else if (c == '/' && n + 1 < rest_.size() && rest_[n + 1] == '/') {
        while (n < rest_.size() && rest_[n] != '\n') ++n;
      } else {
        break;
      }
    }
    rest_.remove_prefix(n);
  }
  bool Eat(std::string_view token) {
    Skip();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  bool EatWord(std::string_view word) {
    Skip();
    if (!rest_.starts_with(word)) return false;
    if (rest_.size() > word.size() && IsNameChar(rest_[word.size()])) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  std::string_view Take(bool (*in)(char)) {
    size_t n = 0;
    while (n < rest_.size() && in(rest_[n])) ++n;
    std::string_view taken = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return taken;
  }
  absl::Status Wanted(std::string_view what) {
    Skip();
    std::string came(rest_.substr(0, std::min<size_t>(24, rest_.find('\n'))));
    return absl::InvalidArgumentError(
        absl::StrCat("wanted ", std::string(what), ", got ", rest_.empty() ? "the end" : "'" + came + "'"));
  }
  absl::Status Want(std::string_view token) {
    return Eat(token) ? absl::OkStatus() : Wanted(absl::StrCat("'", std::string(token), "'"));
  }
  absl::Status FailAt(size_t at, absl::Status status) {
    rest_ = text_.substr(at);
    return status;
  }
  size_t At() {
    Skip();
    return text_.size() - rest_.size();
  }

  std::string_view text_, rest_;
  GraphBuilder builder_{""};
};

absl::StatusOr<std::string> GraphParser::QuotedString() {
  Skip();
  if (rest_.empty() || rest_.front() != '"') return Wanted("a string");
  TENON_ASSIGN_OR_RETURN(FrameworkArg arg, ConsumeFrameworkArg(rest_));
  return std::move(arg.s);
}

absl::StatusOr<int64_t> GraphParser::Integer() {
  Skip();
  int64_t value = 0;
  auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
  if (error != std::errc()) return Wanted("an integer");
  rest_.remove_prefix(end - rest_.data());
  return value;
}

absl::Status GraphParser::ParseAll() {
  if (!EatWord("graph")) return Wanted("'graph'");
  TENON_ASSIGN_OR_RETURN(builder_.mutable_graph().name, QuotedString());
  TENON_RETURN_IF_ERROR(Want("{"));
  if (EatWord("symbols")) TENON_RETURN_IF_ERROR(ParseSymbols());
  while (!EatWord("return")) TENON_RETURN_IF_ERROR(ParseStatement());
  TENON_RETURN_IF_ERROR(ParseReturn());
  TENON_RETURN_IF_ERROR(Want("}"));
  Skip();
  return rest_.empty() ? absl::OkStatus() : Wanted("the end");
}

absl::Status GraphParser::ParseSymbols() {
  do {
    Skip();
    Symbol symbol;
    if (rest_.empty() || !IsNameStart(rest_.front())) return Wanted("a symbol's name");
    size_t at = At();
    symbol.name = std::string(Take(IsNameChar));
    if (EatWord("in")) {
      TENON_RETURN_IF_ERROR(Want("["));
      TENON_ASSIGN_OR_RETURN(symbol.lower, Integer());
      TENON_RETURN_IF_ERROR(Want(","));
      if (!EatWord("inf")) {
        TENON_ASSIGN_OR_RETURN(symbol.upper, Integer());
      }
      TENON_RETURN_IF_ERROR(Want("]"));
    }
    if (Eat("~")) {
      TENON_ASSIGN_OR_RETURN(symbol.typical, Integer());
      if (symbol.typical < 1) return Wanted("a size to plan for, at least 1");
    }
    const absl::Status added = builder_.AddSymbol(symbol.name, symbol.lower, symbol.upper, symbol.typical);
    if (!added.ok()) return FailAt(at, added);
  } while (Eat(","));
  return absl::OkStatus();
}

absl::StatusOr<Dim> GraphParser::ParseDim(std::string_view stop) {
  Skip();
  int64_t number = 0;
  const char* limit = rest_.data() + rest_.size();
  auto [end, error] = std::from_chars(rest_.data(), limit, number);
  constexpr int64_t kLargest = (int64_t{1} << 62) - 1;
  if (error == std::errc() && (end == limit || stop.find(*end) != std::string_view::npos)) {
    if (number > kLargest || number < -kLargest) return Wanted("a size that fits 62 bits");
    rest_.remove_prefix(end - rest_.data());
    return Dim(number);
  }
  int depth = 0;
  size_t n = 0;
  for (; n < rest_.size() && rest_[n] != '\n'; ++n) {
    char c = rest_[n];
    if (depth == 0 && stop.find(c) != std::string_view::npos) break;
    if (c == '(') ++depth;
    if (c == ')') --depth;
  }
  std::string_view text = rest_.substr(0, n);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  if (text.empty()) return Wanted("a size");
  TENON_ASSIGN_OR_RETURN(Dim dim, builder_.Expression(text));
  rest_.remove_prefix(n);
  return dim;
}

absl::Status GraphParser::ParseDims(char close, std::vector<Dim>* dims) {
  const char stop[] = {',', close, '\0'};
  std::string_view closing(stop + 1, 1);
  if (Eat(closing)) return absl::OkStatus();
  while (true) {
    TENON_ASSIGN_OR_RETURN(Dim dim, ParseDim(stop));
    dims->push_back(dim);
    if (Eat(closing)) return absl::OkStatus();
    if (!Eat(",")) return Wanted(absl::StrCat("',' or '", std::string(closing), "'"));
  }
}

absl::StatusOr<Meta> GraphParser::ParseMeta() {
  Meta meta;
  if (EatWord("none")) {
    meta.kind = Meta::Kind::kNone;
    return meta;
  }
  if (EatWord("symint")) {
    meta.kind = Meta::Kind::kSymInt;
    TENON_ASSIGN_OR_RETURN(meta.symint, ParseDim(", @\n"));
    return meta;
  }
  if (EatWord("other")) {
    meta.kind = Meta::Kind::kOther;
    TENON_RETURN_IF_ERROR(Want("("));
    TENON_ASSIGN_OR_RETURN(meta.other, QuotedString());
    TENON_RETURN_IF_ERROR(Want(")"));
    return meta;
  }
  size_t at = At();
  std::string_view type_name = Take(IsNameChar);
  auto type = ParsePrimitiveType(type_name);
  if (!type || !IsArrayType(*type)) return FailAt(at, Wanted("a dtype, symint, none or other"));
  meta.dtype = *type;
  TENON_RETURN_IF_ERROR(Want("["));
  TENON_RETURN_IF_ERROR(ParseDims(']', &meta.sizes));
  size_t strides_at = At();
  TENON_RETURN_IF_ERROR(Want("{"));
  TENON_RETURN_IF_ERROR(ParseDims('}', &meta.strides));
  if (meta.sizes.size() != meta.strides.size()) {
    return FailAt(strides_at, absl::InvalidArgumentError(absl::StrCat(
                                  "wanted ", meta.sizes.size(), " strides, got ", meta.strides.size())));
  }
  for (Dim size : meta.sizes) {
    if (size.is_constant() && size.constant() < 0) {
      return FailAt(at, absl::InvalidArgumentError(absl::StrCat("a size is negative: ", size.constant())));
    }
  }
  if (Eat("+")) {
    TENON_ASSIGN_OR_RETURN(meta.offset, ParseDim(", @\n"));
  }
  if (EatWord("on")) {
    TENON_ASSIGN_OR_RETURN(meta.device, QuotedString());
  }
  return meta;
}

absl::StatusOr<Literal> GraphParser::ParseLiteralValues(const Meta& meta) {
  std::vector<int64_t> dims;
  int64_t count = 1;
  for (Dim size : meta.sizes) {
    if (!size.is_constant()) return absl::InvalidArgumentError("a literal's sizes must be numbers");
    dims.push_back(size.constant());
    if (__builtin_mul_overflow(count, size.constant(), &count)) {
      return absl::InvalidArgumentError("a literal's sizes are too large");
    }
  }
  size_t at = At();
  TENON_ASSIGN_OR_RETURN(FrameworkArg values, ConsumeFrameworkArg(rest_));
  if (values.kind != FrameworkArg::Kind::kList || static_cast<int64_t>(values.list.size()) != count) {
    return FailAt(at, absl::InvalidArgumentError(absl::StrCat("wanted a list of ", count, " values, got ",
                                                              values.list.size())));
  }
  Literal literal(Shape::Array(meta.dtype, dims));
  for (int64_t i = 0; i < count; ++i) {
    const FrameworkArg& v = values.list[i];
    switch (v.kind) {
      case FrameworkArg::Kind::kInt:
      case FrameworkArg::Kind::kBool: literal.SetFromInt64(i, v.i); break;
      case FrameworkArg::Kind::kFloat: literal.SetFromDouble(i, v.f); break;
      case FrameworkArg::Kind::kComplex:
        if (meta.dtype == PrimitiveType::kC64) {
          literal.mutable_data<std::complex<float>>()[i] = {static_cast<float>(v.f), static_cast<float>(v.im)};
          break;
        }
        if (meta.dtype == PrimitiveType::kC128) {
          literal.mutable_data<std::complex<double>>()[i] = {v.f, v.im};
          break;
        }
        [[fallthrough]];
      default: return FailAt(at, absl::InvalidArgumentError("a literal's values must be numbers of its dtype"));
    }
  }
  return literal;
}

absl::Status GraphParser::ParseStatement() {
  std::vector<std::string_view> names;
  size_t at = At();
  if (Eat("%")) {
    do {
      std::string_view name = Take(IsNameChar);
      if (name.empty()) return Wanted("a value's name");
      names.push_back(name);
    } while (Eat(",") && Eat("%"));
    TENON_RETURN_IF_ERROR(Want("="));
  }
  const bool single = names.size() == 1;
  bool input = single && EatWord("input");
  bool constant = !input && single && EatWord("constant");
  bool literal = !input && !constant && single && EatWord("literal");
  if (!input && !constant && !literal) return ParseNode(std::move(names), at);
  size_t meta_at = At();
  TENON_ASSIGN_OR_RETURN(Meta meta, ParseMeta());
  if (!input && meta.kind != Meta::Kind::kTensor) {
    return FailAt(meta_at, absl::InvalidArgumentError("a constant must be a tensor"));
  }
  std::optional<Literal> values;
  if (literal) {
    TENON_ASSIGN_OR_RETURN(values, ParseLiteralValues(meta));
  }
  const absl::Status added = (input      ? builder_.AddInput(names[0], std::move(meta))
                              : constant ? builder_.AddConstant(names[0], std::move(meta))
                                         : builder_.AddLiteral(names[0], std::move(meta), *std::move(values)))
                                 .status();
  return added.ok() ? added : FailAt(at, added);
}

absl::Status GraphParser::ParseNode(std::vector<std::string_view> names, size_t names_at) {
  Node node;
  Skip();
  if (rest_.empty() || !IsNameStart(rest_.front())) return Wanted("a value, an operator or 'return'");
  node.op = std::string(Take(IsOpChar));
  TENON_RETURN_IF_ERROR(Want("("));
  const std::function<absl::StatusOr<int64_t>(std::string_view)> tensor_name = [&](std::string_view name) {
    return absl::StatusOr<int64_t>(builder_.Lookup(name));
  };
  bool done = Eat(")");
  while (!done) {
    Skip();
    TENON_ASSIGN_OR_RETURN(FrameworkArg arg, ConsumeFrameworkArg(rest_, tensor_name));
    node.args.push_back(std::move(arg));
    done = Eat(")");
    if (!done && !Eat(",")) return Wanted("',' or ')' in an argument list");
  }
  TENON_RETURN_IF_ERROR(builder_.NumberOperands(&node));
  const size_t writes_at = At();
  if (EatWord("writes")) {
    TENON_RETURN_IF_ERROR(Want("("));
    do {
      TENON_RETURN_IF_ERROR(Want("%"));
      TENON_ASSIGN_OR_RETURN(ValueId id, builder_.Lookup(Take(IsNameChar)));
      if (absl::Status s = aten::AddWritten(id, &node); !s.ok()) return FailAt(writes_at, s);
    } while (Eat(","));
    TENON_RETURN_IF_ERROR(Want(")"));
  }
  std::vector<Meta> metas;
  TENON_RETURN_IF_ERROR(Want("->"));
  TENON_RETURN_IF_ERROR(ParseResults(&node, names, &metas));
  TENON_RETURN_IF_ERROR(ParseProvenance(&node));
  const absl::Status added = builder_.AddNode(std::move(node), names, std::move(metas)).status();
  return added.ok() ? added : FailAt(names_at, added);
}

absl::Status GraphParser::ParseResults(Node* node, const std::vector<std::string_view>& names,
                                       std::vector<Meta>* metas) {
  size_t at = At();
  if (EatWord("alias")) {
    TENON_RETURN_IF_ERROR(Want("%"));
    TENON_ASSIGN_OR_RETURN(ValueId base, builder_.Lookup(Take(IsNameChar)));
    if (node->operands.empty() || node->operands[0] != base || names.size() > 1) {
      return FailAt(at, absl::InvalidArgumentError("an alias must name the operator's first tensor"));
    }
    node->mutates_first = true;
    return absl::OkStatus();
  }
  do {
    TENON_ASSIGN_OR_RETURN(Meta meta, ParseMeta());
    metas->push_back(std::move(meta));
  } while (Eat(","));
  if (names.empty() && metas->size() == 1 && (*metas)[0].kind == Meta::Kind::kNone) metas->clear();
  if (metas->size() != names.size()) {
    return FailAt(at, absl::InvalidArgumentError(
                          absl::StrCat(node->op, ": ", names.size(), " names for ", metas->size(), " results")));
  }
  return absl::OkStatus();
}

absl::Status GraphParser::ParseProvenance(Node* node) {
  if (!Eat("@")) return absl::OkStatus();
  TENON_ASSIGN_OR_RETURN(node->module_path, QuotedString());
  Skip();
  if (!rest_.empty() && rest_.front() == '"') {
    TENON_ASSIGN_OR_RETURN(node->source, QuotedString());
  }
  return absl::OkStatus();
}

absl::Status GraphParser::ParseReturn() {
  TENON_RETURN_IF_ERROR(Want("("));
  if (Eat(")")) return builder_.Finish();
  while (true) {
    GraphOutput output;
    if (EatWord("none")) {
      output.kind = GraphOutput::Kind::kNone;
    } else if (EatWord("sym")) {
      output.kind = GraphOutput::Kind::kSymInt;
      TENON_RETURN_IF_ERROR(Want("("));
      TENON_ASSIGN_OR_RETURN(output.symint, ParseDim(")"));
      TENON_RETURN_IF_ERROR(Want(")"));
    } else if (Eat("%")) {
      TENON_ASSIGN_OR_RETURN(output.value, builder_.Lookup(Take(IsNameChar)));
    } else {
      return Wanted("a value, none or sym(...)");
    }
    TENON_RETURN_IF_ERROR(builder_.AddOutput(output));
    if (Eat(")")) return builder_.Finish();
    if (!Eat(",")) return Wanted("',' or ')'");
  }
}

}  // namespace

absl::StatusOr<GraphBuilder> ParseInto(std::string_view text) {
  Count(text_counts.graphs_parsed);
  return GraphParser(text).Run();
}

absl::StatusOr<Graph> ParseGraph(std::string_view text) {
  TENON_ASSIGN_OR_RETURN(GraphBuilder builder, ParseInto(text));
  return builder.Take();
}

}  // namespace tenon::aten
