#include "tools/gpu-runner/checks.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "hlo/text/text.h"
#include "tests/backends/hlo_cases.h"
#include "tools/lab/case_files.h"
#include "tools/lab/generate/random_inputs.h"
#include "tools/lab/gpu/attention_text.h"
#include "tools/lab/gpu/devices.h"
#include "tools/lab/gpu/kernel_kinds.h"
#include "tools/lab/regress.h"
#include "tools/lab/workers.h"

namespace tenon::runner {
namespace {

// Made when its turn comes: arguments may be large.
struct Check {
  std::string name;
  bool excess_precision = false;
  std::function<absl::StatusOr<lab::Case>()> make;
};

absl::StatusOr<lab::Case> CaseOf(const std::string& text, const std::function<std::vector<Literal>(const Module&)>& arguments_of) {
  TENON_ASSIGN_OR_RETURN(std::unique_ptr<Module> module, ParseModule(text));
  std::vector<Literal> arguments = arguments_of(*module);
  return lab::Case{std::move(module), std::move(arguments)};
}

Check OfFile(const HloCase& c) {
  const auto make = [c] { return CaseOf(c.text, [&](const Module& m) { return ArgumentsOf(m, c, 9000); }); };
  return {absl::StrCat(c.file, "/", c.name), !c.strict, make};
}

Check OfKind(const gpu::KernelKind& kind, const std::string& type, int64_t rows, int64_t columns, uint64_t seed) {
  const auto make = [&kind, type, rows, columns, seed] {
    return CaseOf(gpu::KindText(kind, type, rows, columns), [&](const Module& m) { return lab::RandomInputs(m, seed); });
  };
  return {absl::StrCat(kind.name, "/", type, "[", rows, ",", columns, "]"), true, make};
}

Check OfAttention(const gpu::AttentionSizes& sizes, uint64_t seed) {
  const auto make = [sizes, seed] {
    return CaseOf(gpu::AttentionText(sizes), [&](const Module& m) { return gpu::AttentionInputs(m, seed); });
  };
  return {absl::StrCat("attention of masks/", sizes.type, "[", sizes.batch, ",", sizes.queries, ",", sizes.keys, ",", sizes.terms, ",",
                       sizes.columns, "] mask ", static_cast<int>(sizes.mask), sizes.turned ? " turned" : ""),
          true, make};
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
  for (const char* type : {"f32", "f16", "bf16"}) {
    for (int mask = 0; mask <= static_cast<int>(gpu::AttentionMask::kShiftGuarded); ++mask) {
      gpu::AttentionSizes sizes{.type = type, .queries = 33, .keys = 70, .terms = 24, .columns = 40};
      sizes.mask = static_cast<gpu::AttentionMask>(mask);
      checks.push_back(OfAttention(sizes, ++seed));
      checks.push_back(OfAttention({.type = type, .batch = 3, .queries = 130, .keys = 257, .mask = sizes.mask}, ++seed));
    }
    checks.push_back(OfAttention({.type = type, .queries = 37, .keys = 41, .terms = 33, .columns = 31, .turned = true}, ++seed));
    checks.push_back(OfAttention({.type = type, .queries = 40, .keys = 48, .terms = 128, .columns = 128, .turned = true}, ++seed));
    // Tiles of the most queries, on a GPU of up to 132 multiprocessors.
    for (const auto& [head, mask] : {std::pair{64, gpu::AttentionMask::kNone}, {64, gpu::AttentionMask::kCausal},
                                     {128, gpu::AttentionMask::kBias}}) {
      checks.push_back(
          OfAttention({.type = type, .batch = 44, .queries = 300, .keys = 70, .terms = head, .columns = head, .mask = mask}, ++seed));
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
  const auto check = [&](int64_t n) -> const Check& { return checks[static_cast<size_t>(n * options.every)]; };
  const auto wrong = [&](const CheckResult& result) {
    options.tell(absl::StrCat("WRONG ", result.name, ": ", std::string(lab::OutcomeName(result.outcome)), ": ", result.text));
    all.wrong.push_back(result);
  };
  lab::WorkersOptions workers{.jobs = options.jobs, .count = count, .seconds = options.seconds, .seconds_per_number = 120,
                              .worn_out = gpu::GpuIsLost};
  const int64_t finished = lab::RunWorkers(
      workers,
      [&](int64_t n) {
        const lab::Verdict v = Judged(check(n), options.device);
        return absl::StrCat(static_cast<int>(v.outcome), " ", absl::CEscape(v.text));
      },
      [&](int64_t n, const std::string& line) {
        const std::pair<std::string, std::string> answer = absl::StrSplit(line, absl::MaxSplits(' ', 1));
        CheckResult result{check(n).name, lab::Outcome::kRunError, "no answer"};
        if (int outcome = 0; absl::SimpleAtoi(answer.first, &outcome)) result.outcome = static_cast<lab::Outcome>(outcome);
        absl::CUnescape(answer.second, &result.text);
        if (result.outcome == lab::Outcome::kSame) {
          ++all.right;
        } else if (result.outcome == lab::Outcome::kRefused || result.outcome == lab::Outcome::kEvaluatorError) {
          ++all.refused;
          all.refusals.push_back(result);
        } else {
          wrong(result);
        }
      },
      [&](int64_t n, const std::string& how) { wrong({check(n).name, lab::Outcome::kRunError, how}); },
      [&] {
        options.tell(absl::StrFormat("checks: %d of %d, %d right, %d wrong, %d refused", all.right + all.refused +
                                     static_cast<int64_t>(all.wrong.size()), count, all.right, all.wrong.size(), all.refused));
      });
  all.not_run = count - finished;
  return all;
}

}  // namespace tenon::runner
