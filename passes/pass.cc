#include "passes/pass.h"

#include <nlohmann/json.hpp>

namespace tenon {

#define TENON_PASS(name, text, doc) absl::StatusOr<bool> name(Module&, PassContext&);
#include "passes/passes.def"

absl::Span<const PassInfo> AllPasses() {
  static constexpr PassInfo passes[] = {
#define TENON_PASS(name, text, doc) {text, name, doc},
#include "passes/passes.def"
  };
  return passes;
}

const PassInfo* FindPass(std::string_view name) {
  for (const PassInfo& pass : AllPasses()) {
    if (pass.name == name) return &pass;
  }
  return nullptr;
}

std::string Remark::ToJson() const {
  nlohmann::json json = {{"pass", pass}, {"instruction", instruction}, {"kind", kind}, {"reason", reason}};
  if (!source.empty()) json["source"] = source;
  for (const auto& [key, value] : numbers) json["numbers"][key] = value;
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void PassContext::Note(std::string_view pass, std::string_view kind, const Instruction& at, std::string reason,
                       std::vector<std::pair<std::string, double>> numbers) const {
  if (remarks == nullptr) return;
  const Metadata& m = at.metadata();
  std::string source = m.module_path;
  if (!m.source_file.empty()) source += " @ " + m.source_file + ":" + std::to_string(m.source_line);
  remarks->push_back({std::string(pass), at.name(), std::string(kind), std::move(reason), std::move(numbers), std::move(source)});
}

}  // namespace tenon
