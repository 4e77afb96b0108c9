// Arguments from files or at random, expected and saved outputs.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hlo/literal.h"
#include "hlo/module.h"
#include "tools/hlo-run/options.h"

namespace tenon::run {

// One literal per parameter: the given files' arrays by parameter leaf, else random ones.
absl::StatusOr<std::vector<Literal>> Arguments(const Module& module, const Options& options);
// The leaves of the result as a file has them.
absl::StatusOr<std::vector<Literal>> Expected(const std::string& path, const Module& module);
absl::Status Save(const std::string& path, const std::vector<Literal>& outputs);

}  // namespace tenon::run
