#include "torch_plugin/libtenon/options.h"

#include <functional>
#include <map>

#include "absl/strings/str_cat.h"
#include "hlo/check.h"
#include "hlo/eval/evaluator.h"
#include "hlo/json.h"

namespace tenon {
namespace {

using Setter = std::function<bool(const Json&)>;  // false: not the type wanted
struct Option {
  const char* wanted;
  Setter set;
};

Option Bool(bool* to) {
  return {"true or false",
          [to](const Json& v) { return v.is_boolean() && (*to = v.get<bool>(), true); }};
}
Option Int(int* to) {
  return {"a number",
          [to](const Json& v) { return v.is_number_integer() && (*to = v.get<int>(), true); }};
}
Option String(std::string* to) {
  return {"a string",
          [to](const Json& v) { return v.is_string() && (*to = v.get<std::string>(), true); }};
}
Option Strings(std::vector<std::string>* to) {
  return {"a list of strings", [to](const Json& v) {
            if (!v.is_array()) return false;
            for (const Json& element : v.elements()) {
              if (!element.is_string()) return false;
              to->push_back(element.get<std::string>());
            }
            return true;
          }};
}

std::map<std::string, Option> Options(RequestOptions* o) {
  return {
      {"tier",
       {"\"native\" or \"eager_program\"",
        [o](const Json& v) {
          o->eager_program = v == "eager_program";
          return v == "native" || v == "eager_program";
        }}},
      {"name", String(&o->name)},
      {"reason", String(&o->reason)},
      {"symbols",
       {"an object of numbers",
        [o](const Json& v) {
          if (!v.is_object()) return false;
          for (const auto& [name, value] : v.items()) {
            if (!value.is_number_integer()) return false;
            o->symbols.emplace_back(name, value.get<int64_t>());
          }
          return true;
        }}},
      {"frozen",
       {"a list of input numbers",
        [o](const Json& v) {
          if (!v.is_array()) return false;
          for (const Json& element : v.elements()) {
            if (!element.is_number_integer() || element.get<int64_t>() < 0) return false;
            o->frozen.push_back(element.get<int64_t>());
          }
          return true;
        }}},
      {"cache", Bool(&o->cache)},
      {"repro_dir", String(&o->repro_dir)},
      {"disable_lowering", Strings(&o->lower.disable)},
      {"excess_precision", Bool(&o->compile.excess_precision)},
      {"isa", String(&o->compile.isa)},
      {"provider", String(&o->compile.provider)},
      {"passes", Strings(&o->compile.passes)},
      {"disable_passes", Strings(&o->compile.disable_passes)},
      {"stop_after", String(&o->compile.stop_after)},
      {"verify_passes", Bool(&o->compile.verify_passes)},
      {"threads", Int(&o->compile.threads)},
      {"compile_threads", Int(&o->compile.compile_threads)},
      {"dump_dir", String(&o->compile.dump_dir)},
      {"dump_prefix", String(&o->compile.dump_prefix)},
      {"report",
       {"\"none\", \"module\" or \"code\"",
        [o](const Json& v) {
          using Report = CompileOptions::Report;
          o->compile.report = v == "module" ? Report::kModule : v == "code" ? Report::kCode : Report::kNone;
          return v == "none" || v == "module" || v == "code";
        }}},
      {"inject_fault", String(&o->compile.inject_fault)},
  };
}

}  // namespace

absl::StatusOr<RequestOptions> ParseRequestOptions(std::string_view json) {
  RequestOptions options;
  options.compile.evaluate = ConstantFolder();
  if (json.empty()) return options;
  const Json parsed = Json::Parse(json).value_or(Json());
  if (!parsed.is_object()) return absl::InvalidArgumentError("options: wanted a JSON object");
  const std::map<std::string, Option> known = Options(&options);
  for (const auto& [key, value] : parsed.items()) {
    const auto option = known.find(key);
    if (option == known.end()) {
      std::string names;
      for (const auto& [name, unused] : known)
        absl::StrAppend(&names, names.empty() ? "" : ", ", name);
      return absl::InvalidArgumentError(
          absl::StrCat("options: unknown key \"", key, "\"; known: ", names));
    }
    if (!option->second.set(value)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "options: \"", key, "\": wanted ", option->second.wanted, ", got ", value.dump()));
    }
  }
  options.lower.excess_precision = options.compile.excess_precision;
  return options;
}

}  // namespace tenon
