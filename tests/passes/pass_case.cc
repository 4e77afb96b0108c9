#include "tests/passes/pass_case.h"

#include <sstream>

#include "tests/hlo/text_files.h"

namespace tenon {
namespace {

bool Directive(const std::string& line, std::string_view key, std::string* value) {
  const std::string start = "// " + std::string(key) + ":";
  if (!line.starts_with(start)) return false;
  const size_t at = line.find_first_not_of(' ', start.size());
  *value = at == std::string::npos ? "" : line.substr(at);
  return true;
}

std::string Trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of('\n');
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of('\n') - first + 1) + "\n";
}

}  // namespace

PassFile ReadPassFile(const std::filesystem::path& path) {
  PassFile file;
  std::istringstream in(ReadTestFile(path));
  enum { kPreamble, kInput, kExpect } at = kPreamble;
  std::string ignored;
  for (std::string line; std::getline(in, line);) {
    if (Directive(line, "case", &ignored)) {
      file.cases.push_back({.name = ignored, .header = line + "\n"});
      at = kInput;
      continue;
    }
    if (at == kPreamble) {
      file.preamble += line + "\n";
      continue;
    }
    PassCase& c = file.cases.back();
    if (at == kInput &&
        (Directive(line, "run", &c.run) || Directive(line, "numerics", &c.numerics) || Directive(line, "symbols", &c.symbols) ||
         Directive(line, "target", &c.target) || Directive(line, "print", &c.print))) {
      c.header += line + "\n";
    } else if (Directive(line, "expect", &ignored)) {
      c.unchanged = ignored == "unchanged";
      at = kExpect;
    } else {
      (at == kInput ? c.input : c.expect) += line + "\n";
    }
  }
  for (PassCase& c : file.cases) {
    c.input = Trimmed(c.input);
    c.expect = Trimmed(c.expect);
  }
  return file;
}

std::string PrintPassFile(const PassFile& file) {
  std::string text = Trimmed(file.preamble);
  for (const PassCase& c : file.cases) {
    text += "\n" + c.header + c.input + (c.unchanged ? "// expect: unchanged\n" : "// expect:\n" + c.expect);
  }
  return text;
}

}  // namespace tenon
