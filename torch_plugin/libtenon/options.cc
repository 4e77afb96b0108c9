#include "torch_plugin/libtenon/options.h"

#include <functional>
#include <map>

#include "absl/strings/str_cat.h"
#include "hlo/check.h"
#include "hlo/eval/evaluator.h"
#include "torch_plugin/libtenon/seam_values.h"

namespace tenon {
namespace {

using Kind = FrameworkArg::Kind;
using Setter = std::function<bool(const FrameworkArg&)>;  // false: not the type wanted
struct Option {
  const char* wanted;
  Setter set;
};

Option Bool(bool* to) {
  return {"true or false", [to](const FrameworkArg& v) { return v.kind == Kind::kBool && (*to = v.i != 0, true); }};
}
Option Int(int* to) {
  return {"a number", [to](const FrameworkArg& v) {
            *to = static_cast<int>(v.i);
            return v.kind == Kind::kInt && v.i == *to;
          }};
}
Option String(std::string* to) {
  return {"a string", [to](const FrameworkArg& v) { return v.kind == Kind::kString && (*to = v.s, true); }};
}
Option Strings(std::vector<std::string>* to) {
  return {"a list of strings", [to](const FrameworkArg& v) {
            if (v.kind != Kind::kList) return false;
            for (const FrameworkArg& element : v.list) {
              if (element.kind != Kind::kString) return false;
              to->push_back(element.s);
            }
            return true;
          }};
}

std::map<std::string, Option> Options(RequestOptions* o) {
  return {
      {"tier",
       {"\"native\" or \"eager_program\"",
        [o](const FrameworkArg& v) {
          o->eager_program = v.s == "eager_program";
          return v.kind == Kind::kString && (v.s == "native" || v.s == "eager_program");
        }}},
      {"name", String(&o->name)},
      {"reason", String(&o->reason)},
      {"any_inputs", Bool(&o->any_inputs)},
      {"symbols",
       {"a list of [name, number]",
        [o](const FrameworkArg& v) {
          if (v.kind != Kind::kList) return false;
          for (const FrameworkArg& pair : v.list) {
            if (pair.kind != Kind::kList || pair.list.size() != 2) return false;
            if (pair.list[0].kind != Kind::kString || pair.list[1].kind != Kind::kInt) return false;
            o->symbols.emplace_back(pair.list[0].s, pair.list[1].i);
          }
          return true;
        }}},
      {"frozen",
       {"a list of input numbers",
        [o](const FrameworkArg& v) {
          if (v.kind != Kind::kList) return false;
          for (const FrameworkArg& element : v.list) {
            if (element.kind != Kind::kInt || element.i < 0) return false;
            o->frozen.push_back(element.i);
          }
          return true;
        }}},
      {"cache", Bool(&o->cache)},
      {"lost_operators",
       {"a number",
        [o](const FrameworkArg& v) {
          o->lost_operators = v.i;
          return v.kind == Kind::kInt;
        }}},
      {"repro_dir", String(&o->repro_dir)},
      {"disable_lowering", Strings(&o->lower.disable)},
      {"fill_empty", Bool(&o->lower.fill_empty)},
      {"default_dtype",
       {"a floating dtype",
        [o](const FrameworkArg& v) {
          o->lower.default_dtype = v.dtype;
          return v.kind == Kind::kDtype && IsFloat(v.dtype);
        }}},
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
        [o](const FrameworkArg& v) {
          using Report = CompileOptions::Report;
          o->compile.report = v.s == "module" ? Report::kModule : v.s == "code" ? Report::kCode : Report::kNone;
          return v.kind == Kind::kString && (v.s == "none" || v.s == "module" || v.s == "code");
        }}},
      {"inject_fault", String(&o->compile.inject_fault)},
  };
}

}  // namespace

absl::StatusOr<RequestOptions> ReadOptions(const TenonOption* given, int64_t count) {
  RequestOptions options;
  options.compile.evaluate = ConstantFolder();
  if (count < 0 || (count > 0 && given == nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat("options: wanted a list, got NULL with ", count, " elements"));
  }
  const std::map<std::string, Option> known = Options(&options);
  for (int64_t k = 0; k < count; ++k) {
    if (given[k].name == nullptr) return absl::InvalidArgumentError("options: wanted a name, got NULL");
    const std::string name = given[k].name;
    const auto option = known.find(name);
    if (option == known.end()) {
      std::string names;
      for (const auto& [other, unused] : known) absl::StrAppend(&names, names.empty() ? "" : ", ", other);
      return absl::InvalidArgumentError(absl::StrCat("options: unknown key \"", name, "\"; known: ", names));
    }
    TENON_ASSIGN_OR_RETURN(const std::vector<FrameworkArg> value, ArgsOf(&given[k].value, 1));
    if (!option->second.set(value[0])) {
      return absl::InvalidArgumentError(
          absl::StrCat("options: \"", name, "\": wanted ", option->second.wanted, ", got ", ToString(value[0])));
    }
  }
  options.lower.excess_precision = options.compile.excess_precision;
  return options;
}

}  // namespace tenon
