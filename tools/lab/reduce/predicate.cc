#include "tools/lab/reduce/predicate.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <regex>

#include "absl/strings/str_cat.h"
#include "hlo/check.h"
#include "tools/lab/case_files.h"

namespace tenon::lab {
namespace {

constexpr int kDied = -1;

// fn() in a child; kDied if it ends by a signal, another exit code than one of [0, 3), or not in
// time.
int InChild(const std::function<int()>& fn, double timeout_seconds) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) return fn();  // no process to be had: better asked here than not at all
  if (child == 0) {
    // What a crash prints is no news to the user.
    if (const int null = open("/dev/null", O_WRONLY); null >= 0) dup2(null, 2);
    int code = 0;
    try {
      code = fn();
    } catch (...) {
    }
    _exit(code);
  }
  const auto start = std::chrono::steady_clock::now();
  useconds_t pause = 200;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() >
        timeout_seconds) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return kDied;
    }
    usleep(pause);
    pause = std::min<useconds_t>(pause * 2, 5000);
  }
  return WIFEXITED(status) && WEXITSTATUS(status) < 3 ? WEXITSTATUS(status) : kDied;
}

int Ask(const std::function<int()>& fn, double isolate_seconds) {
  return isolate_seconds > 0 ? InChild(fn, isolate_seconds) : fn();
}

double LargestMagnitude(const Literal& l) {
  double largest = 0;
  for (int64_t i = 0; i < l.num_elements(); ++i) {
    const double v = IsComplex(l.type()) ? std::abs(l.GetAsComplex(i)) : std::abs(l.GetAsDouble(i));
    if (std::isfinite(v)) largest = std::max(largest, v);
  }
  return largest;
}

// Where nothing is said, `tolerance`.
void CloseBounds(double tolerance, Expectation* e) {
  for (size_t leaf = 0; leaf < e->values.size(); ++leaf) {
    if (!e->bounds[leaf].has_value()) continue;
    Literal& bound = *e->bounds[leaf];
    const double allowed = tolerance * LargestMagnitude(e->values[leaf]);
    for (int64_t i = 0; i < bound.num_elements(); ++i) {
      if (std::isinf(bound.GetAsDouble(i))) bound.SetFromDouble(i, allowed);
    }
  }
}

}  // namespace

bool SaysInTime(const std::function<bool()>& fn, double seconds) {
  return InChild([&] { return fn() ? 1 : 0; }, seconds) == 1;
}

Verdict JudgeByTolerance(const Module& module, absl::Span<const Literal> arguments,
                         const RunOptions& run, double tolerance) {
  absl::StatusOr<Expectation> expected = Expect(module, arguments, run.excess_precision);
  if (!expected.ok())
    return {.outcome = Outcome::kEvaluatorError, .text = std::string(expected.status().message())};
  CloseBounds(tolerance, &*expected);
  return Judge(module, arguments, *expected, run);
}

StillFails Miscompares(const MiscompareOptions& options) {
  auto by_rule_only = std::make_shared<bool>(options.tolerance <= 0);
  return [options, by_rule_only](const Module& module, absl::Span<const Literal> arguments) {
    auto grade = [&] {  // 2: the lab's rule is broken, 1: the tolerance is
      absl::StatusOr<Expectation> expected = Expect(module, arguments, options.run.excess_precision);
      if (!expected.ok()) return 0;
      if (*by_rule_only)
        return Judge(module, arguments, *expected, options.run).outcome == Outcome::kDifferent ? 2
                                                                                               : 0;
      Expectation closed = *expected;
      CloseBounds(options.tolerance, &closed);
      if (Judge(module, arguments, closed, options.run).outcome != Outcome::kDifferent) return 0;
      return Judge(module, arguments, *expected, options.run).outcome == Outcome::kDifferent ? 2
                                                                                             : 1;
    };
    const int result = Ask(grade, options.isolate_seconds);
    if (result == 2) *by_rule_only = true;
    return result > 0;
  };
}

absl::StatusOr<StillFails> FailsWith(const std::string& regex, const RunOptions& run,
                                     double isolate_seconds) {
  std::regex pattern;
  try {
    pattern = std::regex(regex);
  } catch (const std::regex_error& e) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", regex, "\" is no regular expression: ", e.what()));
  }
  return StillFails(
      [pattern, run, isolate_seconds](const Module& module, absl::Span<const Literal> arguments) {
        auto matches = [&] {
          const Verdict v = Judge(module, arguments, run);
          const bool error = v.outcome != Outcome::kSame && v.outcome != Outcome::kDifferent;
          return error && std::regex_search(v.text, pattern) ? 1 : 0;
        };
        return Ask(matches, isolate_seconds) == 1;
      });
}

StillFails Crashes(const RunOptions& run, double timeout_seconds) {
  return [run, timeout_seconds](const Module& module, absl::Span<const Literal> arguments) {
    return InChild([&] { return Judge(module, arguments, run), 0; }, timeout_seconds) == kDied;
  };
}

StillFails Script(const std::string& command) {
  return [command](const Module& module, absl::Span<const Literal> arguments) {
    char directory[] = "/tmp/hlo-reduce-XXXXXX";
    if (mkdtemp(directory) == nullptr) return false;
    const std::string file = absl::StrCat(directory, "/candidate.hlo");
    const absl::StatusOr<std::string> inputs = WriteCase(module, arguments, file);
    const bool yes =
        inputs.ok() &&
        std::system(absl::StrCat(command, " '", file, "' >/dev/null 2>&1").c_str()) == 0;
    if (inputs.ok()) std::remove(inputs->c_str());
    std::remove(file.c_str());
    rmdir(directory);
    return yes;
  };
}

}  // namespace tenon::lab
