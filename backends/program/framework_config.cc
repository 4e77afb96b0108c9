#include "backends/program/framework_config.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "hlo/check.h"

namespace tenon {

using Json = nlohmann::json;

absl::StatusOr<FrameworkConfig> ConfigOf(const Instruction& op) {
  const Json json = Json::parse(op.backend_config(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("args")) {
    return absl::InvalidArgumentError(absl::StrCat(op.name(), ": wanted backend_config={\"args\":...}, got \"",
                                                   op.backend_config(), "\""));
  }
  FrameworkConfig config;
  TENON_ASSIGN_OR_RETURN(config.args, ParseFrameworkArgs(json["args"].get<std::string>()));
  const std::string rule = json.value("rule", "owned");
  if (rule != "owned" && rule != "view") {
    return absl::InvalidArgumentError(absl::StrCat(op.name(), ": unknown result rule \"", rule, "\""));
  }
  config.rule = rule == "view" ? ResultRule::kView : ResultRule::kOwned;
  config.reason = json.value("reason", "");
  if (json.contains("strides")) config.strides = json["strides"].get<std::vector<std::vector<int64_t>>>();
  if (json.contains("num_results")) {
    config.num_results = json["num_results"].get<int64_t>();
    config.results = json["results"].get<std::vector<int64_t>>();
  }
  return config;
}

}  // namespace tenon
