#include "tests/parser_fuzz/finding.h"

#include "absl/strings/str_cat.h"

namespace tenon {
namespace {

constexpr int64_t kMaxElements = 1 << 14;  // of one literal: keeps a run of the fuzzer fast

absl::StatusOr<std::unique_ptr<Module>> Parse(std::string_view text) { return ParseModule(text, {.max_elements = kMaxElements}); }

// Prints, parses, compares, prints again.
std::optional<std::string> TripFinding(const Module& module, const char* form, const PrintOptions& options, const Printer& print) {
  const std::string once = print(module, options);
  const auto again = Parse(once);
  if (!again.ok()) return absl::StrCat("the ", form, " print is refused: ", std::string(again.status().message()), "\n", once);
  std::string why;
  if (!options.canonical && !StructurallyEqual(module, **again, &why)) {
    return absl::StrCat("the ", form, " print is another module: ", why, "\n", once);
  }
  const std::string twice = print(**again, options);
  if (once != twice) return absl::StrCat("the ", form, " print is no fixed point:\n", once, "\nthen\n", twice);
  return std::nullopt;
}

}  // namespace

std::optional<std::string> ParserFinding(std::string_view text, const Printer& print) {
  const auto module = Parse(text);
  if (!module.ok()) {
    const std::string message(module.status().message());
    if (!absl::IsInvalidArgument(module.status()) || !message.starts_with("line ")) {
      return absl::StrCat("refused without a place: ", module.status().ToString());
    }
    return std::nullopt;
  }
  if (auto finding = TripFinding(**module, "plain", {}, print)) return finding;
  if (auto finding = TripFinding(**module, "long", {.percent = true, .operand_shapes = true}, print)) return finding;
  return TripFinding(**module, "canonical", {.canonical = true}, print);
}

}  // namespace tenon
