// What the parser promises of any bytes, as one function: the fuzzer and the replay of its corpus ask it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "hlo/text/text.h"

namespace tenon {

using Printer = std::function<std::string(const Module&, const PrintOptions&)>;

// nullopt, or which promise is broken: text is refused with "line N, column M: ..." or becomes a module whose prints (plain,
// with types and names spelled out, canonical) parse again to the same module and print the same. `print` is replaced by tests
// of this function only.
std::optional<std::string> ParserFinding(std::string_view text, const Printer& print = [](const Module& m, const PrintOptions& o) {
  return Print(m, o);
});

}  // namespace tenon
