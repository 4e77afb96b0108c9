// Miscompare: one module, one set of arguments, on the evaluator and on the CPU backend, judged by one rule.
//
// The rule: every element of every result leaf is the evaluator's, bit for bit (NaN is NaN), except where its value
// went through an operation whose result depends on rounding inside of it; there |got - want| may be as large as the bound
// that error_bound.h computes for that element, and an element for which no bound can be stated, or one that says nothing, is
// counted as not judged. The rule follows from the module, the arguments and the options alone, so it stays sound while a reducer
// cuts the module down.
//
// Each executable runs three times: on the arguments, on others made from them, on the arguments again. The first and the last
// result are judged: what a run leaves behind may not be seen by the next. Results and arena are poisoned before each run.
//
// A module with symbols (hlo/sizes.h) is judged at the sizes that its arguments bring: the evaluator has the module of numbers, the
// backend one program for all sizes. Its runs on others are runs at other sizes, and calls that it must refuse (violations.h).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/driver/compile.h"
#include "hlo/literal.h"
#include "hlo/module.h"

namespace tenon::lab {

// How the backend compiles and runs.
struct RunOptions {
  std::string target;  // "": the CPU. Else a device (tools/lab/gpu/devices.h): all that it can compute, in its memory
  std::string isa;  // "": the host's best
  int threads = 0;  // 0: the pool's
  int64_t max_grain = 1;  // work is cut into as many pieces as there are threads however small it is; 0: as a user's
  std::vector<std::string> passes, disable_passes;
  std::string provider;  // who computes contractions; "": as the table has it
  uint64_t frozen = 0;   // parameter p is frozen if bit p % 64 is set: what hangs on such alone is computed by a program of its own
  uint64_t plans = 0;  // not 0: a kernel of the CPU has another plan, changed at random by this seed until one is not refused
  bool excess_precision = false;  // bf16 and f16 values between instructions may keep the bits of f32
  bool verify_passes = VerifyByDefault();
  CompileOptions::Sabotage sabotage;  // empty: PlantedBug() (plant.h)

  std::string ToString() const;  // "isa=avx2 threads=3"
};

// What a right backend returns: the leaves of the root, and how far each element may be off.
struct Expectation {
  std::vector<Literal> values;  // the evaluator's; float sums as they are in f64, rounded once (error_bound.h)
  // Per leaf: f64 of the leaf's dims (each part of a complex number may be off by it), infinity where nothing can be said.
  // None: exact.
  std::vector<std::optional<Literal>> bounds;
  std::vector<bool> open_sizes;  // per leaf, or none at all: nothing can be said of it, how many elements it has neither
};
// The Status is the evaluator's. `excess_precision`: of a backend that is compiled so.
absl::StatusOr<Expectation> Expect(const Module& module, absl::Span<const Literal> arguments, bool excess_precision = false);

enum class Outcome : uint8_t {
  kSame,
  kDifferent,
  kRefused,         // the backend says Unimplemented and names what
  kCompileError,    // any other refusal: an internal error, an invalid program
  kRunError,
  kEvaluatorError,  // the evaluator has no value to compare with
};
std::string_view OutcomeName(Outcome outcome);  // "same", "different", ...

struct Verdict {
  Outcome outcome = Outcome::kSame;
  std::string text;                // kDifferent: "output 1 f32[2,3] at [0,2]: got 1.5, want 2, ..."; errors: the message
  std::string rule;                // kDifferent: "exact" or "bounded"
  int64_t leaf = -1;               // of the worst element
  std::vector<int64_t> index;
  double got = 0, want = 0, allowed = 0;
  // bounded: not bit by bit, the unjudged ones included. unjudged: no bound, or one of at least the element's magnitude and
  // the median of its array's numbers that aren't zero.
  int64_t differing = 0, elements = 0, bounded = 0, unjudged = 0;
  int64_t refused_calls = 0;  // calls that break a guard and were refused
};

// The arrays of a literal, in tuple order.
void AppendLeaves(const Literal& l, std::vector<Literal>* leaves);

// A module compiled once, for several runs.
class Subject {
 public:
  // Never throws; what fails is in `verdict`, and null is returned.
  static std::unique_ptr<Subject> Compile(const Module& module, const RunOptions& options, Verdict* verdict);
  ~Subject();
  // One run, judged.
  Verdict Run(absl::Span<const Literal> arguments, const Expectation& expected) const;
  // The three runs.
  Verdict RunThrice(absl::Span<const Literal> arguments, const Expectation& expected) const;
  // Calls that a program of symbolic sizes must refuse, made from these arguments of a right one. kSame: it does, each.
  Verdict RunRefused(absl::Span<const Literal> arguments) const;

 private:
  struct Impl;
  explicit Subject(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Compiles and runs thrice. Never throws: a failed check inside the backend is kCompileError or kRunError.
Verdict Judge(const Module& module, absl::Span<const Literal> arguments, const RunOptions& options = {});
// The same with the evaluator's part done before, for the same excess_precision.
Verdict Judge(const Module& module, absl::Span<const Literal> arguments, const Expectation& expected,
              const RunOptions& options = {});
// Compares what some other executor returned (leaves in tuple order).
Verdict Compare(absl::Span<const Literal> got, const Expectation& expected);

// The same outcome for the same reason, as far as a reducer should care: a difference stays a difference, an error keeps its
// message's shape (numbers and names aside).
bool SameFailure(const Verdict& a, const Verdict& b);

}  // namespace tenon::lab
