#include "runtime/program/value_lives.h"

#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "runtime/program/step_views.h"

namespace tenon {
namespace {

// The first and the last of a region's steps that touch a value, themselves or in regions that they run.
struct Use {
  int32_t value = 0;
  int64_t first = 0, last = 0;
};

std::vector<Use> UsesIn(const Program& program, const std::vector<const Step*>& steps) {
  std::vector<Use> uses;
  absl::flat_hash_map<int32_t, size_t> use_of;
  for (int64_t at = 0; at < static_cast<int64_t>(steps.size()); ++at) {
    ForEachViewInside(program, *steps[at], [&](const View& view) {
      if (view.value < 0 || !program.values[view.value].has_life()) return;
      const auto [use, is_new] = use_of.try_emplace(view.value, uses.size());
      if (is_new) uses.push_back({view.value, at, at});
      uses[use->second].last = at;
    });
  }
  return uses;
}

absl::Status CheckSteps(const Program& program, const std::vector<const Step*>& steps) {
  const std::vector<Use> uses = UsesIn(program, steps);  // by the first step
  for (size_t a = 0; a < uses.size(); ++a) {
    for (size_t b = a + 1; b < uses.size() && uses[b].first <= uses[a].last; ++b) {
      const int64_t first = uses[b].first, last = std::min(uses[a].last, uses[b].last);
      if (first == last && !RegionsOf(*steps[first]).empty()) continue;  // the region's steps say whether they meet there
      const Value &x = program.values[uses[a].value], &y = program.values[uses[b].value];
      if (x.space != y.space || x.life.Meets(y.life)) continue;
      return absl::InvalidArgumentError(absl::StrCat("program ", program.name, ": step ", steps[first]->name, ": values ", uses[a].value,
                                                     " and ", uses[b].value, " are in use at once, and not alive together"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckLives(const Program& program) {
  for (size_t r = 0; r < program.regions.size(); ++r) {
    if (static_cast<int32_t>(r) == program.commit_region) continue;
    std::vector<const Step*> steps;
    for (const Step& step : program.regions[r].steps) steps.push_back(&step);
    if (r == 0 && program.commit_region >= 0) {  // it follows
      for (const Step& step : program.regions[program.commit_region].steps) steps.push_back(&step);
    }
    if (absl::Status s = CheckSteps(program, steps); !s.ok()) return s;
  }
  return absl::OkStatus();
}

}  // namespace tenon
