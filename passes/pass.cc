#include "passes/pass.h"

#include "hlo/json.h"

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

std::string SourceOf(const Instruction& op) {
  const Metadata& m = op.metadata();
  const std::string at = m.source_file.empty() ? "" : m.source_file + ":" + std::to_string(m.source_line);
  if (m.module_path.empty()) return at;
  return at.empty() ? m.module_path : m.module_path + " @ " + at;
}

std::string Remark::ToJson() const {
  Json json = {{"instruction", instruction}, {"kind", kind}};
  for (const auto& [key, value] : numbers) json["numbers"][key] = value;
  json["pass"] = pass;
  json["reason"] = reason;
  if (!source.empty()) json["source"] = source;
  return json.dump();
}

void PassContext::Note(std::string_view pass, std::string_view kind, const Instruction& at, std::string reason,
                       std::vector<std::pair<std::string, double>> numbers) const {
  if (remarks == nullptr) return;
  remarks->push_back({std::string(pass), at.name(), std::string(kind), std::move(reason), std::move(numbers), SourceOf(at)});
}

}  // namespace tenon
