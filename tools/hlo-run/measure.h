// What runs of the CPU backend cost: --bench, --profile, --html.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backends/driver/literal_executable.h"
#include "tools/hlo-run/options.h"

namespace tenon::run {

// Runs `executable` on `args` as often as the options say; prints tables on stdout, or fills *json in if not null;
// writes the page.
absl::Status Measure(const LiteralExecutable& executable, absl::Span<const Literal> args, const Options& options,
                     nlohmann::ordered_json* json);

}  // namespace tenon::run
