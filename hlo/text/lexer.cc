#include "hlo/text/lexer.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace tenon {
namespace {

absl::string_view Abs(std::string_view s) { return {s.data(), s.size()}; }

struct CharTable {
  bool space[256] = {}, name[256] = {}, start[256] = {};
  constexpr CharTable() {
    for (char c : {' ', '\t', '\n', '\r', '\f', '\v'}) space[static_cast<uint8_t>(c)] = true;
    for (int c = 0; c < 128; ++c) {
      const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
      start[c] = letter;
      name[c] = letter || (c >= '0' && c <= '9') || c == '.' || c == '-';
    }
  }
};
constexpr CharTable kChars;

bool IsSpace(char c) { return kChars.space[static_cast<uint8_t>(c)]; }
bool IsNameChar(char c) { return kChars.name[static_cast<uint8_t>(c)]; }
bool IsNameStart(char c) { return kChars.start[static_cast<uint8_t>(c)]; }

// The end of the comment that starts at `pos`, or pos.
size_t SkipComment(std::string_view text, size_t pos) {
  if (pos + 1 >= text.size() || text[pos] != '/') return pos;
  if (text[pos + 1] == '/') return std::min(text.find('\n', pos), text.size());
  if (text[pos + 1] != '*') return pos;
  const size_t end = text.find("*/", pos + 2);
  return end == std::string_view::npos ? text.size() : end + 2;
}

// The end of the quoted string that starts at `pos`, or npos.
size_t SkipQuoted(std::string_view text, size_t pos) {
  for (size_t i = pos + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

}  // namespace

void Lexer::SkipSpace() {
  for (;;) {
    while (pos_ < text_.size() && IsSpace(text_[pos_])) ++pos_;
    const size_t after = SkipComment(text_, pos_);
    if (after == pos_) return;
    pos_ = after;
  }
}

char Lexer::Peek() {
  SkipSpace();
  return RawPeek();
}

bool Lexer::Try(char c) {
  if (Peek() != c || pos_ >= text_.size()) return false;
  ++pos_;
  return true;
}

bool Lexer::TryToken(std::string_view t) {
  SkipSpace();
  if (text_.substr(pos_, t.size()) != t) return false;
  pos_ += t.size();
  return true;
}

bool Lexer::TryWord(std::string_view w) {
  if (PeekIdentifier() != w) return false;
  pos_ += w.size();
  return true;
}

bool Lexer::Expect(char c) { return Try(c) || Error(absl::StrCat("'", absl::string_view(&c, 1), "'")); }
bool Lexer::ExpectToken(std::string_view t) { return TryToken(t) || Error(absl::StrCat("'", Abs(t), "'")); }

std::string_view Lexer::PeekIdentifier() {
  SkipSpace();
  if (!IsNameStart(RawPeek())) return {};
  size_t end = pos_ + 1;
  while (end < text_.size() && IsNameChar(text_[end])) {
    if (text_[end] == '-' && end + 1 < text_.size() && text_[end + 1] == '>') break;
    ++end;
  }
  return text_.substr(pos_, end - pos_);
}

std::string_view Lexer::Identifier() {
  const std::string_view id = PeekIdentifier();
  pos_ += id.size();
  return id;
}

std::string_view Lexer::Name() {
  SkipSpace();
  std::string_view name;
  if (RawPeek() == '%') {
    size_t end = pos_ + 1;
    while (end < text_.size() && IsNameChar(text_[end])) {
      if (text_[end] == '-' && end + 1 < text_.size() && text_[end + 1] == '>') break;
      ++end;
    }
    name = text_.substr(pos_ + 1, end - pos_ - 1);
    if (!name.empty()) pos_ = end;
  } else {
    name = Identifier();
  }
  if (!name.empty() && RawPeek() == ':') ++pos_;
  return name;
}

std::optional<int64_t> Lexer::AdjacentInt() {
  const char* first = text_.data() + pos_;
  const char* last = text_.data() + text_.size();
  int64_t value = 0;
  const auto [end, error] = std::from_chars(first, last, value);
  if (error == std::errc::invalid_argument) {
    Error("an integer");
    return std::nullopt;
  }
  if (error != std::errc()) {
    Error(pos_, "an integer of 64 bits", NextToken());
    return std::nullopt;
  }
  pos_ += end - first;
  return value;
}

std::optional<int64_t> Lexer::Int() {
  SkipSpace();
  return AdjacentInt();
}

std::string_view Lexer::NumberText() {
  SkipSpace();
  size_t end = pos_;
  while (end < text_.size() && (IsNameChar(text_[end]) || text_[end] == '+')) ++end;
  const std::string_view number = text_.substr(pos_, end - pos_);
  pos_ = end;
  return number;
}

std::optional<std::string> Lexer::Quoted() {
  SkipSpace();
  if (RawPeek() != '"') {
    Error("a quoted string");
    return std::nullopt;
  }
  const size_t end = SkipQuoted(text_, pos_);
  if (end == std::string_view::npos) {
    Error(pos_, "a closing quote", "end of text");
    return std::nullopt;
  }
  std::string value;
  if (!Unescape(text_.substr(pos_ + 1, end - pos_ - 2), &value)) {
    Error(pos_, "a string with valid escapes", NextToken());
    return std::nullopt;
  }
  pos_ = end;
  return value;
}

std::optional<std::string_view> Lexer::Balanced(bool braced) {
  SkipSpace();
  const size_t start = pos_;
  if (braced && RawPeek() != '{') {
    Error("'{'");
    return std::nullopt;
  }
  std::string open;  // the closers that are due; heap, so depth is bounded by the text
  while (pos_ < text_.size()) {
    const char c = text_[pos_];
    if (open.empty() && (IsSpace(c) || c == ',' || c == ')' || c == '}' || c == ']')) break;
    if (c == '"') {
      const size_t end = SkipQuoted(text_, pos_);
      if (end == std::string_view::npos) {
        Error(pos_, "a closing quote", "end of text");
        return std::nullopt;
      }
      pos_ = end;
      continue;
    }
    if (const size_t after = SkipComment(text_, pos_); after != pos_) {
      pos_ = after;
      continue;
    }
    if (c == '{') open.push_back('}');
    if (c == '(') open.push_back(')');
    if (c == '[') open.push_back(']');
    if (c == '}' || c == ')' || c == ']') {
      if (open.back() != c) {
        Error(absl::StrCat("'", absl::string_view(&open.back(), 1), "'"));
        return std::nullopt;
      }
      open.pop_back();
    }
    ++pos_;
    if (braced && open.empty()) break;
  }
  if (!open.empty()) {
    Error(pos_, absl::StrCat("'", absl::string_view(&open.back(), 1), "'"), "end of text");
    return std::nullopt;
  }
  if (pos_ == start) {
    Error("a value");
    return std::nullopt;
  }
  return text_.substr(start, pos_ - start);
}

std::string_view Lexer::Line() {
  const size_t end = std::min(text_.find('\n', pos_), text_.size());
  std::string_view line = text_.substr(pos_, end - pos_);
  pos_ = std::min(end + 1, text_.size());
  while (!line.empty() && IsSpace(line.front())) line.remove_prefix(1);
  while (!line.empty() && IsSpace(line.back())) line.remove_suffix(1);
  return line;
}

bool Lexer::Error(size_t pos, std::string_view wanted, std::string_view got) {
  if (failed()) return false;
  pos = std::min(pos, text_.size());
  const std::string_view before = text_.substr(0, pos);
  const size_t line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t newline = before.rfind('\n');
  const size_t column = newline == std::string_view::npos ? pos + 1 : pos - newline;
  status_ = absl::InvalidArgumentError(
      absl::StrCat("line ", line, ", column ", column, ": wanted ", Abs(wanted), ", got ", Abs(got)));
  return false;
}

bool Lexer::Error(std::string_view wanted) {
  SkipSpace();
  return Error(pos_, wanted, NextToken());
}

std::string Lexer::NextToken() {
  SkipSpace();
  if (pos_ >= text_.size()) return "end of text";
  size_t end = pos_;
  while (end < text_.size() && end - pos_ < 40 && IsNameChar(text_[end])) ++end;
  if (end == pos_) end = pos_ + 1;
  const std::string_view token = text_.substr(pos_, end - pos_);
  return absl::StrCat("'", token == "\"" ? "\"" : absl::CHexEscape(Abs(token)), "'");
}

std::string NormalizeSpace(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool pending = false;
  for (size_t i = 0; i < text.size();) {
    if (const size_t after = SkipComment(text, i); after != i) {
      pending = true;
      i = after;
      continue;
    }
    if (IsSpace(text[i])) {
      pending = true;
      ++i;
      continue;
    }
    if (pending && !out.empty()) out.push_back(' ');
    pending = false;
    if (text[i] == '"') {
      const size_t end = std::min(SkipQuoted(text, i), text.size());
      out.append(text.substr(i, end - i));
      i = end;
    } else {
      out.push_back(text[i++]);
    }
  }
  return out;
}

bool Unescape(std::string_view text, std::string* out) {
  if (text.find('\\') == std::string_view::npos) {
    out->assign(text);
    return true;
  }
  return absl::CUnescape(Abs(text), out);
}

std::string Escape(std::string_view text) { return absl::CEscape(Abs(text)); }

}  // namespace tenon
