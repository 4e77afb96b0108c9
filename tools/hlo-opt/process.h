// One module from its text to what was asked for.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/hlo-opt/cases.h"
#include "tools/hlo-opt/options.h"

namespace tenon::opt {

// Prints what was asked for, as it comes into being; with options.json one line at the end, whatever happens. Adds the
// module's part of a page to *graphs where --html is given.
absl::Status Process(const Case& input, const Options& options, std::vector<std::string>* graphs);

}  // namespace tenon::opt
