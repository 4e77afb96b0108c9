#include "backends/driver/given_plans.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace tenon {

absl::StatusOr<GivenPlans> GivenPlans::Parse(std::string_view text) {
  GivenPlans given;
  std::vector<std::string> names;  // whose plan comes next
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
    if (names.empty()) {
      if (s.back() != ':') return wrong("\"fusion, ...:\"");
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
      for (const std::string& name : names) given.plans_[name] = s;
      names.clear();
    }
  }
  if (!names.empty()) return absl::InvalidArgumentError(absl::StrCat("plans: none for ", names[0]));
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
  std::vector<std::vector<std::string>> names(program.kernels.size());
  for (const Region& region : program.regions) {
    for (const Step& step : region.steps) {
      const auto* kernel = std::get_if<KernelStep>(&step.body);
      if (kernel == nullptr || kernel->kernel < 0) continue;
      std::vector<std::string>& of = names[static_cast<size_t>(kernel->kernel)];
      if (std::find(of.begin(), of.end(), step.name) == of.end()) of.push_back(step.name);
    }
  }
  std::string text;
  for (size_t k = 0; k < names.size(); ++k) {
    absl::StrAppend(&text, absl::StrJoin(names[k], ", "), ":  // ", program.kernels[k].symbol, "\n  ", program.kernels[k].plan, "\n");
  }
  return text;
}

}  // namespace tenon
