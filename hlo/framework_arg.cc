#include "hlo/framework_arg.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "hlo/check.h"

namespace tenon {
namespace {

std::string FloatText(double value) {
  if (std::isnan(value)) return std::signbit(value) ? "-nan" : "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[32];
  const char* end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  std::string text(static_cast<const char*>(buffer), end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

void AppendQuoted(const std::string& s, std::string* out) {
  static constexpr char kHex[] = "0123456789abcdef";
  out->push_back('"');
  for (unsigned char c : s) {
    if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(static_cast<char>(c));
    } else if (c == '\n') {
      *out += "\\n";
    } else if (c < 0x20) {
      *out += "\\x";
      out->push_back(kHex[c >> 4]);
      out->push_back(kHex[c & 15]);
    } else {
      out->push_back(static_cast<char>(c));
    }
  }
  out->push_back('"');
}

void AppendNumbers(const FrameworkArg& list, char open, char close, std::string* out) {
  out->push_back(open);
  for (size_t i = 0; i < list.list.size(); ++i) absl::StrAppend(out, i == 0 ? "" : ",", list.list[i].i);
  out->push_back(close);
}

void Append(const FrameworkArg& arg, std::string* out) {
  using Kind = FrameworkArg::Kind;
  switch (arg.kind) {
    case Kind::kNone: *out += "none"; return;
    case Kind::kTensor: absl::StrAppend(out, "%", arg.i, WindowText(arg)); return;
    case Kind::kInt: absl::StrAppend(out, arg.i); return;
    case Kind::kFloat: *out += FloatText(arg.f); return;
    case Kind::kBool: *out += arg.i != 0 ? "true" : "false"; return;
    case Kind::kComplex:
      absl::StrAppend(out, "complex(", FloatText(arg.f), ",", FloatText(arg.im), ")");
      return;
    case Kind::kString: AppendQuoted(arg.s, out); return;
    case Kind::kDtype: absl::StrAppend(out, "dtype:", std::string(PrimitiveTypeName(arg.dtype))); return;
    case Kind::kLayout: absl::StrAppend(out, "layout:", arg.s); return;
    case Kind::kDevice: absl::StrAppend(out, "device:", arg.s); return;
    case Kind::kMemoryFormat: absl::StrAppend(out, "format:", arg.s); return;
    case Kind::kSymInt: absl::StrAppend(out, "sym(", arg.s, ")"); return;
    case Kind::kList: break;
  }
  out->push_back('[');
  for (size_t i = 0; i < arg.list.size(); ++i) {
    if (i != 0) *out += ", ";
    Append(arg.list[i], out);
  }
  out->push_back(']');
}

constexpr int kMaxDepth = 64;

// A cursor over the text; every Consume leaves `rest` behind what it read.
class ArgParser {
 public:
  using TensorName = std::function<absl::StatusOr<int64_t>(std::string_view)>;
  ArgParser(std::string_view text, const TensorName& tensor_name)
      : rest_(text), tensor_name_(tensor_name) {}
  std::string_view rest() const { return rest_; }

  absl::StatusOr<FrameworkArg> Argument(int depth = 0);
  void SkipSpace() {
    size_t n = 0;
    while (n < rest_.size() && (rest_[n] == ' ' || rest_[n] == '\t')) ++n;
    rest_.remove_prefix(n);
  }
  bool Eat(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  absl::Status Wanted(std::string_view what) const {
    std::string came(rest_.substr(0, 24));
    return absl::InvalidArgumentError(
        absl::StrCat("wanted ", std::string(what), ", got ", rest_.empty() ? "the end" : "'" + came + "'"));
  }

 private:
  absl::StatusOr<FrameworkArg> Number();
  absl::StatusOr<double> Double();
  absl::StatusOr<std::string> Quoted();
  absl::StatusOr<FrameworkArg> Word(std::string_view word);
  std::string_view TakeWhile(bool (*in)(char)) {
    size_t n = 0;
    while (n < rest_.size() && in(rest_[n])) ++n;
    std::string_view taken = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return taken;
  }

  absl::Status Numbers(char close, FrameworkArg* arg);
  absl::Status Window(FrameworkArg* tensor);

  std::string_view rest_;
  const TensorName& tensor_name_;
};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsAlpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsName(char c) { return IsAlpha(c) || IsDigit(c) || c == '.'; }
bool IsValueName(char c) { return IsName(c) || c == ':' || c == '-'; }
bool IsNumberChar(char c) { return IsDigit(c) || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-'; }

absl::StatusOr<double> ArgParser::Double() {
  SkipSpace();
  bool negative = false;
  std::string_view text = rest_;
  if (!text.empty() && text.front() == '-') {
    negative = true;
    text.remove_prefix(1);
  }
  for (auto [word, value] : {std::pair<std::string_view, double>{"inf", std::numeric_limits<double>::infinity()},
                             {"nan", std::numeric_limits<double>::quiet_NaN()}}) {
    if (!text.starts_with(word)) continue;
    rest_ = text.substr(word.size());
    return negative ? -value : value;
  }
  double value = 0;
  auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
  if (error == std::errc::result_out_of_range) return absl::InvalidArgumentError("number out of range");
  if (error != std::errc()) return Wanted("a number");
  rest_.remove_prefix(end - rest_.data());
  return value;
}

absl::StatusOr<FrameworkArg> ArgParser::Number() {
  std::string_view before = rest_;
  std::string_view token = TakeWhile(IsNumberChar);
  if (token.find_first_of(".eE") == std::string_view::npos && !token.empty() && token != "-") {
    int64_t value = 0;
    auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
    if (error == std::errc() && end == token.data() + token.size()) return FrameworkArg::Int(value);
  }
  rest_ = before;
  std::string_view digits = token.starts_with('-') ? token.substr(1) : token;
  if (!digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat("integer ", std::string(token), " does not fit 64 bits"));
  }
  TENON_ASSIGN_OR_RETURN(double value, Double());
  return FrameworkArg::Float(value);
}

absl::StatusOr<std::string> ArgParser::Quoted() {
  auto hex = [](char c) { return IsDigit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  std::string out;
  Eat('"');
  while (!rest_.empty() && rest_.front() != '"') {
    char c = rest_.front();
    rest_.remove_prefix(1);
    if (c == '\n') return absl::InvalidArgumentError("a string may not span lines");
    if (c == '\\') {
      if (rest_.empty()) break;
      c = rest_.front();
      rest_.remove_prefix(1);
      if (c == 'n') {
        c = '\n';
      } else if (c == 't') {
        c = '\t';
      } else if (c == 'x') {
        if (rest_.size() < 2 || hex(rest_[0]) < 0 || hex(rest_[1]) < 0) return Wanted("two hex digits after \\x");
        c = static_cast<char>(hex(rest_[0]) * 16 + hex(rest_[1]));
        rest_.remove_prefix(2);
      }
    }
    out.push_back(c);
  }
  if (!Eat('"')) return absl::InvalidArgumentError("unterminated string");
  return out;
}

absl::StatusOr<FrameworkArg> ArgParser::Word(std::string_view word) {
  using Kind = FrameworkArg::Kind;
  if (word == "none") return FrameworkArg::None();
  if (word == "true" || word == "false") return FrameworkArg::Bool(word == "true");
  if (word == "inf") return FrameworkArg::Float(std::numeric_limits<double>::infinity());
  if (word == "nan") return FrameworkArg::Float(std::numeric_limits<double>::quiet_NaN());
  if (word == "complex") {
    FrameworkArg arg{.kind = Kind::kComplex};
    if (!Eat('(')) return Wanted("'(' after complex");
    TENON_ASSIGN_OR_RETURN(arg.f, Double());
    SkipSpace();
    if (!Eat(',')) return Wanted("',' in complex");
    TENON_ASSIGN_OR_RETURN(arg.im, Double());
    SkipSpace();
    if (!Eat(')')) return Wanted("')' after complex");
    return arg;
  }
  if (word == "sym") {
    if (!Eat('(')) return Wanted("'(' after sym");
    int depth = 1;
    size_t n = 0;
    for (; n < rest_.size() && rest_[n] != '\n'; ++n) {
      if (rest_[n] == '(') ++depth;
      if (rest_[n] == ')' && --depth == 0) break;
    }
    if (depth != 0) return absl::InvalidArgumentError("unterminated sym(...)");
    FrameworkArg arg{.kind = Kind::kSymInt};
    arg.s = std::string(rest_.substr(0, n));
    rest_.remove_prefix(n + 1);
    return arg;
  }
  if (!Eat(':')) {
    return absl::InvalidArgumentError(absl::StrCat("wanted an argument, got '", std::string(word), "'"));
  }
  FrameworkArg arg;
  std::string_view value = TakeWhile(IsValueName);
  if (word == "dtype") {
    auto type = ParsePrimitiveType(value);
    if (!type) return absl::InvalidArgumentError(absl::StrCat("unknown dtype '", std::string(value), "'"));
    arg.kind = Kind::kDtype;
    arg.dtype = *type;
    return arg;
  }
  if (word == "layout") {
    arg.kind = Kind::kLayout;
  } else if (word == "device") {
    arg.kind = Kind::kDevice;
  } else if (word == "format") {
    arg.kind = Kind::kMemoryFormat;
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("wanted dtype:, layout:, device: or format:, got '", std::string(word), ":'"));
  }
  if (value.empty()) return Wanted(absl::StrCat("a name after ", std::string(word), ":"));
  arg.s = std::string(value);
  return arg;
}

// What stands between brackets, as a list behind what `arg` has.
absl::Status ArgParser::Numbers(char close, FrameworkArg* arg) {
  FrameworkArg list{.kind = FrameworkArg::Kind::kList};
  while (!Eat(close)) {
    if (!list.list.empty() && !Eat(',')) return Wanted(absl::StrCat("',' or '", std::string(1, close), "'"));
    TENON_ASSIGN_OR_RETURN(FrameworkArg number, Number());
    if (number.kind != FrameworkArg::Kind::kInt) return Wanted("an integer");
    list.list.push_back(std::move(number));
  }
  arg->list.push_back(std::move(list));
  return absl::OkStatus();
}

// {strides}, [sizes]{strides} or [sizes]{strides}+offset behind a tensor's name; or nothing.
absl::Status ArgParser::Window(FrameworkArg* tensor) {
  const bool sized = Eat('[');
  if (sized) TENON_RETURN_IF_ERROR(Numbers(']', tensor));
  if (!Eat('{')) return sized ? Wanted("'{' and strides behind a view's sizes") : absl::OkStatus();
  TENON_RETURN_IF_ERROR(Numbers('}', tensor));
  if (!sized) return absl::OkStatus();
  if (tensor->list[0].list.size() != tensor->list[1].list.size()) {
    return absl::InvalidArgumentError("a view wants as many strides as sizes");
  }
  FrameworkArg offset = FrameworkArg::Int(0);
  if (Eat('+')) {
    TENON_ASSIGN_OR_RETURN(offset, Number());
    if (offset.kind != FrameworkArg::Kind::kInt) return Wanted("an integer");
  }
  tensor->list.push_back(std::move(offset));
  return absl::OkStatus();
}

absl::StatusOr<FrameworkArg> ArgParser::Argument(int depth) {
  if (depth > kMaxDepth) return absl::InvalidArgumentError("lists nested too deeply");
  SkipSpace();
  if (rest_.empty()) return Wanted("an argument");
  char c = rest_.front();
  if (c == '%') {
    rest_.remove_prefix(1);
    std::string_view name = TakeWhile(IsName);
    if (name.empty()) return Wanted("a tensor's name after %");
    if (tensor_name_ != nullptr) {
      TENON_ASSIGN_OR_RETURN(int64_t operand, tensor_name_(name));
      FrameworkArg tensor = FrameworkArg::Tensor(operand);
      TENON_RETURN_IF_ERROR(Window(&tensor));
      return tensor;
    }
    int64_t index = 0;
    auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    if (error != std::errc() || end != name.data() + name.size()) {
      return absl::InvalidArgumentError(absl::StrCat("wanted an operand number, got '%", std::string(name), "'"));
    }
    FrameworkArg tensor = FrameworkArg::Tensor(index);
    TENON_RETURN_IF_ERROR(Window(&tensor));
    return tensor;
  }
  if (c == '"') {
    FrameworkArg arg{.kind = FrameworkArg::Kind::kString};
    TENON_ASSIGN_OR_RETURN(arg.s, Quoted());
    return arg;
  }
  if (c == '[') {
    rest_.remove_prefix(1);
    FrameworkArg arg{.kind = FrameworkArg::Kind::kList};
    SkipSpace();
    if (Eat(']')) return arg;
    while (true) {
      TENON_ASSIGN_OR_RETURN(FrameworkArg element, Argument(depth + 1));
      arg.list.push_back(std::move(element));
      SkipSpace();
      if (Eat(']')) return arg;
      if (!Eat(',')) return Wanted("',' or ']' in a list");
    }
  }
  if (c == '-' && rest_.size() > 1 && IsAlpha(rest_[1])) {
    TENON_ASSIGN_OR_RETURN(double value, Double());
    return FrameworkArg::Float(value);
  }
  if (IsDigit(c) || c == '-' || c == '.') return Number();
  if (IsAlpha(c)) return Word(TakeWhile(IsName));
  return Wanted("an argument");
}

}  // namespace

bool IsWindow(const FrameworkArg& tensor) {
  const auto numbers = [](const FrameworkArg& list) {
    return list.kind == FrameworkArg::Kind::kList &&
           std::all_of(list.list.begin(), list.list.end(), [](const FrameworkArg& n) { return n.kind == FrameworkArg::Kind::kInt; });
  };
  const std::vector<FrameworkArg>& w = tensor.list;
  if (w.size() <= 1) return w.empty() || numbers(w[0]);
  return w.size() == 3 && numbers(w[0]) && numbers(w[1]) && w[0].list.size() == w[1].list.size() && w[2].kind == FrameworkArg::Kind::kInt;
}

std::string WindowText(const FrameworkArg& tensor) {
  std::string out;
  if (tensor.list.size() == 1) AppendNumbers(tensor.list[0], '{', '}', &out);
  if (tensor.list.size() == 3) {
    AppendNumbers(tensor.list[0], '[', ']', &out);
    AppendNumbers(tensor.list[1], '{', '}', &out);
    if (tensor.list[2].i != 0) absl::StrAppend(&out, "+", tensor.list[2].i);
  }
  return out;
}

std::string ToString(const FrameworkArg& arg) {
  std::string out;
  Append(arg, &out);
  return out;
}

std::string ToString(const std::vector<FrameworkArg>& args) {
  std::string out = "(";
  for (size_t i = 0; i < args.size(); ++i) {
    if (i != 0) out += ", ";
    Append(args[i], &out);
  }
  return out + ")";
}

absl::StatusOr<FrameworkArg> ConsumeFrameworkArg(
    std::string_view& text, const std::function<absl::StatusOr<int64_t>(std::string_view)>& tensor_name) {
  ArgParser parser(text, tensor_name);
  auto arg = parser.Argument();
  text = parser.rest();  // also on errors: where it went wrong
  return arg;
}

absl::StatusOr<std::vector<FrameworkArg>> ParseFrameworkArgs(std::string_view text) {
  std::function<absl::StatusOr<int64_t>(std::string_view)> numbered;
  ArgParser parser(text, numbered);
  std::vector<FrameworkArg> args;
  parser.SkipSpace();
  if (!parser.Eat('(')) return parser.Wanted("'('");
  parser.SkipSpace();
  bool done = parser.Eat(')');
  while (!done) {
    TENON_ASSIGN_OR_RETURN(FrameworkArg arg, parser.Argument());
    args.push_back(std::move(arg));
    parser.SkipSpace();
    done = parser.Eat(')');
    if (!done && !parser.Eat(',')) return parser.Wanted("',' or ')'");
  }
  parser.SkipSpace();
  if (!parser.rest().empty()) return parser.Wanted("the end");
  return args;
}

}  // namespace tenon
