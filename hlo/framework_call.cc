#include "hlo/framework_call.h"

#include "absl/strings/str_cat.h"
#include "hlo/check.h"
#include "hlo/json.h"

namespace tenon {
namespace {

constexpr std::string_view kEffects[] = {"pure", "random", "mutates", "host_read", "error"};  // by Effect

// Bytes that are no UTF-8 stay as they are, unlike in Json::dump.
void AppendString(std::string_view s, std::string* out) {
  static constexpr char kHex[] = "0123456789abcdef";
  *out += '"';
  for (unsigned char c : s) {
    if (c == '"' || c == '\\') {
      *out += {'\\', static_cast<char>(c)};
    } else if (c < 0x20) {
      *out += {'\\', 'u', '0', '0', kHex[c >> 4], kHex[c & 15]};
    } else {
      *out += static_cast<char>(c);
    }
  }
  *out += '"';
}

template <typename T, typename F>
void AppendList(const std::vector<T>& list, std::string* out, const F& append) {
  *out += '[';
  for (size_t k = 0; k < list.size(); ++k) {
    if (k != 0) *out += ',';
    append(list[k]);
  }
  *out += ']';
}

// Throws JsonError where a value is of another type.
absl::StatusOr<FrameworkCallSite> Read(const Json& json) {
  FrameworkCallSite site;
  TENON_ASSIGN_OR_RETURN(site.args, ParseFrameworkArgs(json["args"].get<std::string>()));
  const std::string rule = json.value("rule", "owned");
  if (rule != "owned" && rule != "view") return absl::InvalidArgumentError(absl::StrCat("unknown result rule \"", rule, "\""));
  site.rule = rule == "view" ? ResultRule::kView : ResultRule::kOwned;
  site.total = json.value("total", false);
  const std::string effect = json.value("effect", "pure");
  for (size_t k = 0; k < std::size(kEffects); ++k) {
    if (effect == kEffects[k]) site.effect = static_cast<Effect>(k);
  }
  site.reason = json.value("reason", "");
  if (json.contains("strides")) {
    site.strides.emplace();
    for (const std::vector<int64_t>& strides : json["strides"].get<std::vector<std::vector<int64_t>>>()) {
      site.strides->emplace_back(strides.begin(), strides.end());
    }
  }
  if (json.contains("writes")) {
    for (const std::vector<int64_t>& pair : json["writes"].get<std::vector<std::vector<int64_t>>>()) {
      if (pair.size() != 2) return absl::InvalidArgumentError("\"writes\" wants [leaf of the result, operand] pairs");
      site.writes.push_back({pair[0], pair[1]});
    }
  }
  if (json.contains("num_results")) {
    site.num_results = json["num_results"].get<int64_t>();
    site.results = json["results"].get<std::vector<int64_t>>();
  }
  return site;
}

}  // namespace

std::string ToString(const FrameworkCallSite& site) {
  std::string out = "{\"args\":";
  AppendString(ToString(site.args), &out);
  absl::StrAppend(&out, ",\"rule\":\"", site.rule == ResultRule::kView ? "view" : "owned", "\"");
  if (site.total) out += ",\"total\":true";
  if (site.effect != Effect::kPure) {
    const std::string_view name = kEffects[static_cast<size_t>(site.effect)];
    absl::StrAppend(&out, ",\"effect\":\"", absl::string_view(name.data(), name.size()), "\"");
  }
  if (site.num_results) {
    absl::StrAppend(&out, ",\"num_results\":", *site.num_results, ",\"results\":");
    AppendList(site.results, &out, [&](int64_t k) { absl::StrAppend(&out, k); });
  }
  if (site.strides) {
    out += ",\"strides\":";
    AppendList(*site.strides, &out, [&](const std::vector<Dim>& strides) {
      AppendList(strides, &out, [&](Dim d) { absl::StrAppend(&out, d.ToString()); });
    });
  }
  if (!site.writes.empty()) {
    out += ",\"writes\":";
    AppendList(site.writes, &out, [&](const WrittenOperand& w) { absl::StrAppend(&out, "[", w.leaf, ",", w.operand, "]"); });
  }
  out += ",\"reason\":";
  AppendString(site.reason, &out);
  return out + "}";
}

absl::StatusOr<FrameworkCallSite> ReadCallSite(std::string_view text) {
  const Json json = Json::Parse(text).value_or(Json());
  if (!json.contains("args")) return absl::InvalidArgumentError("");
  try {
    return Read(json);
  } catch (const JsonError& e) {
    return absl::InvalidArgumentError(e.what());
  }
}

}  // namespace tenon
