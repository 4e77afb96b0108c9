#include "hlo/eval/custom_calls.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "hlo/eval/lapack.h"
#include "hlo/eval/lapack_library.h"

namespace tenon {
namespace {

using Targets = std::map<std::string, EvalOptions::CustomCall, std::less<>>;

// What only matters where there are several devices, or memories.
absl::StatusOr<Literal> Unchanged(const Instruction& call, absl::Span<const Literal> operands) {
  if (operands.size() != 1) return absl::InvalidArgumentError(absl::StrCat(call.name(), ": wanted one operand"));
  return operands[0];
}

Targets OwnTargets() {
  Targets targets = LapackCustomCalls();
  targets.merge(LapackLibraryCalls());
  for (const char* name : {"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "LayoutConstraint", "MoveToHost",
                           "MoveToDevice", "annotate_device_placement"}) {
    targets[name] = Unchanged;
  }
  return targets;
}

struct Registry {
  absl::Mutex mutex;
  Targets targets = OwnTargets();
};

Registry& Global() {
  static auto* registry = new Registry;
  return *registry;
}

bool IsNameCharacter(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

}  // namespace

void RegisterCustomCall(std::string target, EvalOptions::CustomCall call) {
  Registry& registry = Global();
  absl::MutexLock lock(&registry.mutex);
  if (call) {
    registry.targets[std::move(target)] = std::move(call);
  } else {
    registry.targets.erase(target);
  }
}

EvalOptions::CustomCall FindCustomCall(std::string_view target) {
  Registry& registry = Global();
  absl::MutexLock lock(&registry.mutex);
  auto it = registry.targets.find(target);
  return it == registry.targets.end() ? nullptr : it->second;
}

std::vector<std::string> CustomCallTargets() {
  Registry& registry = Global();
  absl::MutexLock lock(&registry.mutex);
  std::vector<std::string> names;
  for (const auto& [name, call] : registry.targets) names.push_back(name);
  return names;
}

std::optional<double> CustomCallAttribute(const Instruction& call, std::string_view name) {
  const std::string text = call.backend_config();
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    size_t next = at + name.size();
    if (at > 0 && IsNameCharacter(text[at - 1])) continue;
    if (next < text.size() && text[next] == '"') ++next;
    while (next < text.size() && text[next] == ' ') ++next;
    if (next >= text.size() || (text[next] != '=' && text[next] != ':')) continue;
    next = text.find_first_not_of(' ', next + 1);
    if (next == std::string::npos) return std::nullopt;
    if (text.compare(next, 4, "true") == 0) return 1;
    if (text.compare(next, 5, "false") == 0) return 0;
    if (text[next] == '"' && next + 1 < text.size()) return static_cast<unsigned char>(text[next + 1]);
    char* end = nullptr;
    const double value = std::strtod(text.c_str() + next, &end);
    if (end != text.c_str() + next) return value;
  }
  return std::nullopt;
}

}  // namespace tenon
