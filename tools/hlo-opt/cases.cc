#include "tools/hlo-opt/cases.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tools/lab/case_files.h"

namespace tenon::opt {
namespace {

bool EndsCase(std::string_view line) {
  while (!line.empty() && (line.back() == ' ' || line.back() == '\r' || line.back() == '\t')) line.remove_suffix(1);
  return line == "// -----";
}

}  // namespace

absl::StatusOr<std::vector<Case>> ReadCases(const std::string& path, bool split) {
  absl::StatusOr<std::string> text = lab::ReadText(path);
  if (!text.ok()) return absl::NotFoundError("cannot open the file");  // whose path the caller prints
  if (!split) return std::vector<Case>{{.file = path, .name = path, .text = *std::move(text)}};
  std::vector<Case> cases;
  std::string part;
  int64_t line_number = 1, first = 1;
  const auto end_case = [&] {
    if (part.find_first_not_of(" \t\r\n") != std::string::npos) {
      const auto number = static_cast<int64_t>(cases.size());
      cases.push_back({.file = path,
                       .name = absl::StrCat(path, ":", first),
                       .number = number,
                       .text = absl::StrCat(std::string(first - 1, '\n'), part)});
    }
    part.clear();
    first = line_number + 1;
  };
  for (size_t from = 0; from < text->size(); ++line_number) {
    const size_t newline = std::min(text->find('\n', from), text->size());
    const std::string_view line(text->data() + from, newline - from);
    if (EndsCase(line))
      end_case();
    else
      absl::StrAppend(&part, std::string(line), "\n");
    from = newline + 1;
  }
  end_case();
  return cases;
}

}  // namespace tenon::opt
