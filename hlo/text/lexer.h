// Lexer: a cursor over HLO text. Tokens are context-sensitive (b01f_01io->b01f, 0_0x3_3, {[0:5:1]}), so the parser asks
// for what the grammar allows next instead of being handed classified tokens. Views point into the text.
//
// The first error wins and is kept with its line and column; every function that fails returns false or nullopt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace tenon {

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  size_t position() const { return pos_; }
  void set_position(size_t pos) { pos_ = pos; }
  std::string_view text() const { return text_; }
  std::string_view Between(size_t from, size_t to) const { return text_.substr(from, to - from); }

  // Skips blanks, newlines, /* */ and // comments.
  void SkipSpace();
  // The next character after blanks, '\0' at the end.
  char Peek();
  char RawPeek(size_t offset = 0) const { return pos_ + offset < text_.size() ? text_[pos_ + offset] : '\0'; }
  bool AtEnd() { return SkipSpace(), pos_ >= text_.size(); }

  bool Try(char c);                  // consumes c after blanks
  bool TryToken(std::string_view t); // consumes t after blanks (punctuation)
  bool TryWord(std::string_view w);  // consumes an identifier equal to w
  bool Expect(char c);
  bool ExpectToken(std::string_view t);

  // [A-Za-z_][A-Za-z0-9_.-]*, not eating the '-' of "->". Empty if none is there.
  std::string_view Identifier();
  std::string_view PeekIdentifier();
  // A name of an instruction or computation: %name, name or either with a trailing ':'. Empty if none.
  std::string_view Name();
  // Decimal int64, sign allowed. nullopt if none or out of range (error set).
  std::optional<int64_t> Int();
  // Digits right here, without skipping blanks.
  std::optional<int64_t> AdjacentInt();
  // A maximal run of [0-9A-Za-z_.+-]: numbers of every spelling. Empty if none.
  std::string_view NumberText();
  // "..." with C escapes undone.
  std::optional<std::string> Quoted();
  // Text of a value with balanced (), [], {} and quotes, up to a ',' ')' '}' ']' or blank outside of them.
  std::optional<std::string_view> Balanced(bool braced = false);  // braced: one {...}, up to its closing brace
  // The rest of the line, trimmed; consumes the newline.
  std::string_view Line();

  bool Error(size_t pos, std::string_view wanted, std::string_view got);
  bool Error(std::string_view wanted);  // at the next token, naming it
  bool failed() const { return !status_.ok(); }
  const absl::Status& status() const { return status_; }
  std::string NextToken();  // for messages, shortened

 private:
  std::string_view text_;
  size_t pos_ = 0;
  absl::Status status_;
};

// Outside quotes, runs of blanks and comments become one blank or none next to punctuation.
std::string NormalizeSpace(std::string_view text);
// Undoes C escapes; false if malformed.
bool Unescape(std::string_view text, std::string* out);
std::string Escape(std::string_view text);

}  // namespace tenon
