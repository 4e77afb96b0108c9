#include "passes/lower/named_provider.h"

#include "hlo/json.h"

namespace tenon {

std::string NamedProvider(const Instruction& contraction) {
  if (!contraction.attrs().has(Attr::kBackendConfig)) return "";
  const Json config = Json::Parse(contraction.backend_config()).value_or(Json());
  if (!config.contains("tenon") || !config["tenon"].contains("provider")) return "";
  const Json& name = config["tenon"]["provider"];
  return name.is_string() ? name.get<std::string>() : "";
}

void NameProvider(Instruction* contraction, std::string_view provider) {
  contraction->set_backend_config_json(Json({{"tenon", Json({{"provider", provider}})}}).dump());
}

}  // namespace tenon
