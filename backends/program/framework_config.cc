#include "backends/program/framework_config.h"

#include "absl/strings/str_cat.h"
#include "hlo/check.h"
#include "hlo/json.h"
#include "hlo/own_calls.h"

namespace tenon {
namespace {

// Throws JsonError where a value is of another type.
absl::StatusOr<FrameworkConfig> Read(const Instruction& op, const Json& json) {
  FrameworkConfig config;
  TENON_ASSIGN_OR_RETURN(config.args, ParseFrameworkArgs(json["args"].get<std::string>()));
  const std::string rule = json.value("rule", "owned");
  if (rule != "owned" && rule != "view") {
    return absl::InvalidArgumentError(absl::StrCat(op.name(), ": unknown result rule \"", rule, "\""));
  }
  config.rule = rule == "view" ? ResultRule::kView : ResultRule::kOwned;
  config.total = json.value("total", false);
  if (json.contains("writes") && WrittenOperands(op).size() != json["writes"].get<std::vector<std::vector<int64_t>>>().size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(op.name(), ": \"writes\" wants [leaf of the result, operand] pairs, got ", json["writes"].dump()));
  }
  config.reason = json.value("reason", "");
  if (json.contains("strides")) config.strides = json["strides"].get<std::vector<std::vector<int64_t>>>();
  if (json.contains("num_results")) {
    config.num_results = json["num_results"].get<int64_t>();
    config.results = json["results"].get<std::vector<int64_t>>();
  }
  return config;
}

}  // namespace

absl::StatusOr<FrameworkConfig> ConfigOf(const Instruction& op) {
  const Json json = Json::Parse(op.backend_config()).value_or(Json());
  const auto wrong = [&](std::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(op.name(), ": wanted backend_config={\"args\":\"(...)\", ...}, got \"",
                                                   op.backend_config(), "\"", std::string(why)));
  };
  if (!json.contains("args")) return wrong("");
  try {
    return Read(op, json);
  } catch (const JsonError& e) {
    return wrong(absl::StrCat(" (", e.what(), ")"));
  }
}

}  // namespace tenon
