#include "tests/eval/op_cases.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "hlo/text/text.h"

namespace tenon {
namespace {

absl::StatusOr<Literal> ReadLiteral(const std::string& text) {
  size_t space = text.find(' ');
  if (space == std::string::npos) return absl::InvalidArgumentError("wanted a shape and a literal");
  DimTable dims;
  TENON_ASSIGN_OR_RETURN(Shape shape, ParseShape(text.substr(0, space), &dims));
  return ParseLiteral(shape, text.substr(space + 1));
}

absl::StatusOr<ToleranceRule> ReadTolerance(const std::string& text) {
  std::istringstream in(text);
  std::string kind, word;
  in >> kind;
  ToleranceRule rule;
  if (kind == "exact") {
    rule.zero_signs = static_cast<bool>(in >> word) && word == "zero_signs";
    return rule;
  }
  double a = 0, b = 0;
  if (kind == "ulps" && in >> a) return ToleranceRule::Ulps(static_cast<int64_t>(a));
  if (kind == "abs" && in >> a >> word >> b && word == "rel") return ToleranceRule::AbsRel(a, b);
  return absl::InvalidArgumentError(absl::StrCat("tolerance '", text, "'"));
}

}  // namespace

std::vector<std::filesystem::path> OpFilePaths() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           std::string(TENON_SOURCE_DIR) + "/tests/ops")) {
    if (entry.path().extension() == ".hlo") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

absl::StatusOr<OpFile> ReadOpFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(in), {});
  OpFile file;
  file.path = path;
  TENON_ASSIGN_OR_RETURN(file.module, ParseModule(text));
  std::istringstream lines(text);
  std::string line;
  file.cases.emplace_back();
  auto after = [&line](const std::string& key, std::string* rest) {
    std::string prefix = "// " + key + ": ";
    if (line.compare(0, prefix.size(), prefix) != 0) return false;
    *rest = line.substr(prefix.size());
    return true;
  };
  while (std::getline(lines, line)) {
    std::string rest;
    OpCase& current = file.cases.back();
    if (after("case", &rest)) {
      file.cases.push_back({rest, {}, {}, ""});
    } else if (after("arg", &rest)) {
      TENON_ASSIGN_OR_RETURN(Literal l, ReadLiteral(rest));
      current.args.push_back(std::move(l));
    } else if (after("expect", &rest)) {
      TENON_ASSIGN_OR_RETURN(Literal l, ReadLiteral(rest));
      current.expected.push_back(std::move(l));
    } else if (after("error", &rest)) {
      current.error = rest;
    } else if (after("tolerance", &rest)) {
      TENON_ASSIGN_OR_RETURN(file.tolerance, ReadTolerance(rest));
    }
  }
  for (const OpCase& c : file.cases) {
    if (c.expected.empty() && c.error.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("case '", c.name, "' expects nothing"));
    }
  }
  return file;
}

std::vector<Literal> Leaves(const Literal& literal) {
  if (literal.shape().is_array()) return {literal};
  std::vector<Literal> leaves;
  for (const Literal& e : literal.elements()) {
    for (Literal& leaf : Leaves(e)) leaves.push_back(std::move(leaf));
  }
  return leaves;
}

}  // namespace tenon
