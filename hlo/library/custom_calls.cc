#include "hlo/library/custom_calls.h"

#include <cctype>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "hlo/library/call.h"
#include "hlo/library/describe.h"

namespace tenon {
namespace {

struct Registry {
  absl::Mutex mutex;
  std::map<std::string, CustomCallFunction, std::less<>> functions;
};

Registry& Global() {
  static auto* registry = new Registry;
  return *registry;
}

bool IsNameCharacter(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

}  // namespace

void RegisterCustomCall(std::string target, CustomCallFunction function) {
  Registry& registry = Global();
  absl::MutexLock lock(&registry.mutex);
  if (function) {
    registry.functions[std::move(target)] = std::move(function);
  } else {
    registry.functions.erase(target);
  }
}

CustomCallFunction FindCustomCall(std::string_view target) {
  Registry& registry = Global();
  absl::MutexLock lock(&registry.mutex);
  auto it = registry.functions.find(target);
  return it == registry.functions.end() ? nullptr : it->second;
}

std::vector<std::string> CustomCallTargets() {
  const std::vector<std::string> own = library::OwnTargets();
  std::set<std::string> names(own.begin(), own.end());
  Registry& registry = Global();
  absl::MutexLock lock(&registry.mutex);
  for (const auto& [name, function] : registry.functions) names.insert(name);
  return {names.begin(), names.end()};
}

std::optional<double> CustomCallAttribute(std::string_view config, std::string_view name) {
  const std::string text(config);
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

// ---- library function "custom-call": what a user registered ----------------------------------------------------------------

namespace library {
namespace {

absl::Status Check(const Signature& s) {
  for (const char* name : {"target", "name", "backend_config", "instruction"}) {
    if (s.attributes.String(name) == nullptr) return Invalid(s, absl::StrCat("wanted ", name));
  }
  const int64_t* tuple = s.attributes.Int("tuple");
  if (tuple == nullptr || (*tuple == 0 && s.results.size() != 1)) return Invalid(s, "wanted one result, or a tuple of them");
  return absl::OkStatus();
}

absl::Status Run(const Call& call) {
  const Signature& s = call.signature;
  auto text = [&](std::string_view name) { return *s.attributes.String(name); };
  CustomCall custom{text("target"), text("name"), text("backend_config"), text("instruction"), {}};
  const bool tuple = *s.attributes.Int("tuple") != 0;
  custom.result = tuple ? Shape::Tuple(s.results) : s.results[0];
  const CustomCallFunction function = FindCustomCall(custom.target);
  if (!function) {
    return absl::UnimplementedError(
        absl::StrCat(custom.name, ": custom-call target \"", custom.target, "\" is not registered any more"));
  }
  std::vector<Literal> operands;
  for (size_t k = 0; k < s.operands.size(); ++k) {
    // A copy: the function may keep what it is given.
    Literal l(s.operands[k]);
    if (l.num_elements() > 0) std::memcpy(l.mutable_bytes(), call.operands[k], l.size_bytes());
    operands.push_back(std::move(l));
  }
  TENON_ASSIGN_OR_RETURN(const Literal result, function(custom, operands));
  if (!Shape::Compatible(result.shape(), custom.result)) {
    return absl::InvalidArgumentError(absl::StrCat(custom.name, ": target \"", custom.target, "\" gave ",
                                                   result.shape().ToString(), ", wanted ", custom.result.ToString()));
  }
  for (size_t k = 0; k < s.results.size(); ++k) {
    const Literal& leaf = tuple ? result.elements()[k] : result;
    if (leaf.num_elements() > 0) std::memcpy(call.results[k], leaf.bytes(), leaf.size_bytes());
  }
  return absl::OkStatus();
}

constexpr Function kFunctions[] = {{"custom-call", Check, nullptr, Run}};

}  // namespace

absl::Span<const Function> CustomCallFunctions() { return kFunctions; }

}  // namespace library
}  // namespace tenon
