// Outputs side by side.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hlo/literal.h"
#include "tools/hlo-run/options.h"

namespace tenon::run {

// The number of outputs that differ by more than the rule allows. A line per output on stdout, or a row in *json if not
// null.
int Compare(const std::vector<Literal>& got, const std::vector<Literal>& want, const std::string& what,
            const Options& options, nlohmann::ordered_json* json);

}  // namespace tenon::run
