#include "backends/driver/given_plans.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace tenon {

absl::StatusOr<GivenPlans> GivenPlans::Parse(std::string_view text) {
  GivenPlans given;
  std::vector<std::string> names;  // whose plan comes next, a line for each launch
  bool planned = true;             // they have a line
  int line = 0;
  for (const auto& whole : absl::StrSplit(std::string(text), '\n')) {
    ++line;
    std::string s(whole);
    if (const size_t comment = s.find("//"); comment != std::string::npos) s.resize(comment);
    absl::StripAsciiWhitespace(&s);
    if (s.empty()) continue;
    const auto wrong = [&](std::string_view wanted) {
      const std::string got = s.substr(0, 60);
      return absl::InvalidArgumentError(absl::StrCat("plans, line ", line, ": wanted ", std::string(wanted), ", got \"", got, "\""));
    };
    if (s.back() == ':' ? planned : names.empty()) {
      if (s.back() != ':') return wrong("\"fusion, ...:\"");
      names.clear();
      planned = false;
      s.pop_back();
      for (const auto& piece : absl::StrSplit(s, ',')) {
        std::string name(piece);
        absl::StripAsciiWhitespace(&name);
        if (name.empty()) return wrong("a fusion's name");
        if (given.plans_.contains(name)) return wrong("one plan a fusion");
        names.push_back(std::move(name));
      }
    } else {
      if (s.back() == ':') return wrong("a plan");
      for (const std::string& name : names) given.plans_[name] += planned ? "\n" + s : s;
      planned = true;
    }
  }
  if (!planned) return absl::InvalidArgumentError(absl::StrCat("plans: none for ", names[0]));
  return given;
}

const std::string& GivenPlans::For(const std::string& fusion) {
  static const std::string none;
  asked_.insert(fusion);
  const auto plan = plans_.find(fusion);
  return plan == plans_.end() ? none : plan->second;
}

absl::Status GivenPlans::AllUsed() const {
  for (const auto& [name, plan] : plans_) {
    if (asked_.contains(name)) continue;
    return absl::InvalidArgumentError(absl::StrCat("plans: there is no fusion ", name, "; there are ", absl::StrJoin(asked_, ", ")));
  }
  return absl::OkStatus();
}

std::string PlansOf(const Program& program) {
  // By the kernels of its launches, in order of the first of them: who has them.
  using Launches = std::vector<int32_t>;
  std::vector<std::pair<Launches, std::vector<std::string>>> plans;
  auto add = [&](const Launches& launches, const std::string& name) {
    if (launches.empty()) return;
    auto of = std::find_if(plans.begin(), plans.end(), [&](const auto& p) { return p.first == launches; });
    if (of == plans.end()) of = plans.insert(of, {launches, {}});
    if (std::find(of->second.begin(), of->second.end(), name) == of->second.end()) of->second.push_back(name);
  };
  for (const Region& region : program.regions) {
    Launches launches;
    std::string name;  // whose
    for (const Step& step : region.steps) {
      const auto* kernel = std::get_if<KernelStep>(&step.body);
      if (kernel == nullptr || kernel->kernel < 0) continue;
      if (step.name != name) add(std::exchange(launches, {}), std::exchange(name, step.name));
      launches.push_back(kernel->kernel);
    }
    add(launches, name);
  }
  std::stable_sort(plans.begin(), plans.end(), [](const auto& a, const auto& b) { return a.first[0] < b.first[0]; });
  std::string text;
  for (const auto& [launches, names] : plans) {
    std::vector<std::string> symbols;
    for (const int32_t k : launches) symbols.push_back(program.kernels[static_cast<size_t>(k)].symbol);
    absl::StrAppend(&text, absl::StrJoin(names, ", "), ":  // ", absl::StrJoin(symbols, " "), "\n");
    for (const int32_t k : launches) absl::StrAppend(&text, "  ", program.kernels[static_cast<size_t>(k)].plan, "\n");
  }
  return text;
}

}  // namespace tenon
