#include "tools/lab/regress.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "hlo/sizes.h"
#include "hlo/text/text.h"
#include "tools/lab/generate/random_inputs.h"

namespace tenon::lab {
namespace {

// "f32[2,3] {{1, 2, 3}, {4, 5, 6}}"
absl::StatusOr<Literal> ParseArgument(const std::string& text, Module* module) {
  const size_t space = text[0] == '(' ? text.find(") ") + 1 : text.find(' ');
  if (space == std::string::npos) return absl::InvalidArgumentError(absl::StrCat("no value: ", text));
  TENON_ASSIGN_OR_RETURN(const Shape shape, ParseShape(text.substr(0, space), &module->dims()));
  return ParseLiteral(shape, text.substr(space + 1));
}

}  // namespace

std::string PrintRegress(const Module& module, absl::Span<const Literal> arguments, std::string_view comment) {
  std::string text;
  for (absl::string_view line : absl::StrSplit(absl::string_view(comment.data(), comment.size()), '\n', absl::SkipEmpty())) {
    absl::StrAppend(&text, "// ", line, "\n");
  }
  for (const Literal& a : arguments) absl::StrAppend(&text, "// argument: ", a.shape().ToString(), " ", a.ToString(), "\n");
  return text + module.ToString();
}

absl::StatusOr<Case> ParseRegress(std::string_view text) {
  Case c;
  TENON_ASSIGN_OR_RETURN(c.module, ParseModule(text));
  Sizes sizes;
  for (absl::string_view line : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    constexpr absl::string_view kArgument = "// argument: ", kInputs = "// inputs: ", kSizes = "// sizes: ";
    if (line.substr(0, kArgument.size()) == kArgument) {
      TENON_ASSIGN_OR_RETURN(Literal argument, ParseArgument(std::string(line.substr(kArgument.size())), c.module.get()));
      c.arguments.push_back(std::move(argument));
    } else if (line.substr(0, kInputs.size()) == kInputs) {
      TENON_ASSIGN_OR_RETURN(const std::unique_ptr<Module> numbers, WithSizes(*c.module, sizes));
      c.arguments = RandomInputs(*numbers, std::strtoull(std::string(line.substr(kInputs.size())).c_str(), nullptr, 10));
    } else if (line.substr(0, kSizes.size()) == kSizes) {
      TENON_ASSIGN_OR_RETURN(sizes, ParseSizes(std::string(line.substr(kSizes.size()))));
    }
  }
  if (c.arguments.size() != c.module->entry()->parameters().size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("wanted ", c.module->entry()->parameters().size(), " arguments, got ", c.arguments.size()));
  }
  return c;
}

}  // namespace tenon::lab
