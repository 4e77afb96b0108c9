#include "tools/gpu-runner/checks.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "hlo/text/text.h"
#include "tests/backends/hlo_cases.h"
#include "tools/lab/case_files.h"
#include "tools/lab/generate/random_inputs.h"
#include "tools/lab/gpu/kernel_kinds.h"
#include "tools/lab/regress.h"

namespace tenon::runner {
namespace {

// Made when its turn comes: arguments may be large.
struct Check {
  std::string name;
  bool excess_precision = false;
  std::function<absl::StatusOr<lab::Case>()> make;
};

Check OfFile(const HloCase& c) {
  const auto make = [c]() -> absl::StatusOr<lab::Case> {
    TENON_ASSIGN_OR_RETURN(std::unique_ptr<Module> module, ParseModule(c.text));
    std::vector<Literal> arguments = ArgumentsOf(*module, c, 9000);
    return lab::Case{std::move(module), std::move(arguments)};
  };
  return {absl::StrCat(c.file, "/", c.name), !c.strict, make};
}

Check OfKind(const gpu::KernelKind& kind, const std::string& type, int64_t rows, int64_t columns, uint64_t seed) {
  const auto make = [&kind, type, rows, columns, seed]() -> absl::StatusOr<lab::Case> {
    TENON_ASSIGN_OR_RETURN(std::unique_ptr<Module> module, ParseModule(gpu::KindText(kind, type, rows, columns)));
    std::vector<Literal> arguments = lab::RandomInputs(*module, seed);
    return lab::Case{std::move(module), std::move(arguments)};
  };
  return {absl::StrCat(kind.name, "/", type, "[", rows, ",", columns, "]"), true, make};
}

std::vector<Check> AllChecks(const std::string& tests) {
  std::vector<Check> checks;
  for (const char* folder : {"/backends", "/backends/control"}) {
    for (const HloCase& c : LoadCases(tests + folder)) checks.push_back(OfFile(c));
  }
  std::vector<std::string> regress;
  for (const auto& entry : std::filesystem::directory_iterator(tests + "/regress")) {
    if (entry.path().extension() == ".hlo") regress.push_back(entry.path().string());
  }
  std::sort(regress.begin(), regress.end());
  for (const std::string& path : regress) {
    const auto make = [path]() -> absl::StatusOr<lab::Case> {
      TENON_ASSIGN_OR_RETURN(const std::string text, lab::ReadText(path));
      return lab::ParseRegress(text);
    };
    checks.push_back({absl::StrCat("regress/", std::filesystem::path(path).stem().string()), false, make});
  }
  uint64_t seed = 1;
  for (const gpu::KernelKind& kind : gpu::KernelKinds()) {
    for (const int64_t rows : {1, 2, 33}) {
      for (const int64_t columns : {1, 3, 32, 37, 256, 515}) checks.push_back(OfKind(kind, "f32", rows, columns, ++seed));
    }
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{260, 5}, {5, 3000}, {0, 5}}) {
      checks.push_back(OfKind(kind, "f32", rows, columns, ++seed));
    }
    for (const char* type : {"f64", "bf16", "f16", "f8e5m2", "c64", "s32", "s8", "u4", "s64"}) {
      if (gpu::TakesType(kind, type)) checks.push_back(OfKind(kind, type, 33, 70, ++seed));
    }
  }
  return checks;
}

lab::Verdict Judged(const Check& check, const std::string& device) {
  lab::Verdict verdict;
  const absl::StatusOr<lab::Case> c = check.make();
  if (!c.ok()) {
    verdict.outcome = lab::Outcome::kCompileError;
    verdict.text = std::string(c.status().message());
    return verdict;
  }
  return lab::Judge(*c->module, c->arguments, {.target = device, .excess_precision = check.excess_precision});
}

}  // namespace

Checks RunChecks(const CheckOptions& options) {
  Checks all;
  const std::vector<Check> checks = AllChecks(options.tests);
  const int64_t count = (static_cast<int64_t>(checks.size()) + options.every - 1) / options.every;
  for (int64_t n = 0; n < count; ++n) {
    const Check& check = checks[static_cast<size_t>(n * options.every)];
    if (options.time_is_up()) {
      all.not_run = count - n;
      break;
    }
    const lab::Verdict v = Judged(check, options.device);
    const CheckResult result{check.name, v.outcome, v.text};
    if (v.outcome == lab::Outcome::kSame) {
      ++all.right;
    } else if (v.outcome == lab::Outcome::kRefused || v.outcome == lab::Outcome::kEvaluatorError) {
      ++all.refused;
      all.refusals.push_back(result);
    } else {
      all.wrong.push_back(result);
      options.tell(absl::StrCat("WRONG ", check.name, ": ", std::string(lab::OutcomeName(v.outcome)), ": ", v.text));
    }
    if ((n + 1) % 50 == 0 || n + 1 == count) {
      options.tell(absl::StrFormat("checks: %d of %d, %d right, %d wrong, %d refused", n + 1, count, all.right, all.wrong.size(),
                                   all.refused));
    }
  }
  return all;
}

}  // namespace tenon::runner
