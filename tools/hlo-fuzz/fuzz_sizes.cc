// Modules with symbols: one executable each, called at several sizes, and as it may not be called.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "hlo/sizes.h"
#include "tools/hlo-fuzz/fuzz_parts.h"
#include "tools/lab/generate/random_inputs.h"
#include "tools/lab/generate/random_sizes.h"

namespace tenon::lab {
namespace {

constexpr int64_t kMostElements = 1 << 17;  // of all arrays of a module, so that a run stays quick

// A call, and what is expected of it with and without excess precision, made when first asked for.
class SizedCall {
 public:
  SizedCall(std::unique_ptr<Module> numbers, Sizes sizes, uint64_t seed)
      : numbers_(std::move(numbers)), sizes_(std::move(sizes)), arguments_(RandomInputs(*numbers_, seed)) {}

  const Sizes& sizes() const { return sizes_; }
  const std::vector<Literal>& arguments() const { return arguments_; }
  const absl::StatusOr<Expectation>& expected(bool excess_precision) {
    std::optional<absl::StatusOr<Expectation>>& e = expected_[excess_precision ? 1 : 0];
    if (!e.has_value()) e = Expect(*numbers_, arguments_, excess_precision);
    return *e;
  }

 private:
  std::unique_ptr<Module> numbers_;
  Sizes sizes_;
  std::vector<Literal> arguments_;
  std::optional<absl::StatusOr<Expectation>> expected_[2];
};

// Every call once, some twice, in any order.
std::vector<size_t> OrderOfCalls(size_t count, Random& random) {
  std::vector<size_t> order;
  for (size_t k = 0; k < count; ++k) order.insert(order.begin() + random.Below(static_cast<int64_t>(k) + 1), k);
  for (size_t k = 0; k < count / 2; ++k) order.push_back(order[static_cast<size_t>(random.Below(static_cast<int64_t>(count)))]);
  return order;
}

class SizesFuzz {
 public:
  SizesFuzz(const FuzzOptions& options, const Module& module, Record* r)
      : options_(options), module_(module), r_(*r), random_(ModuleSeed(options.seed, r->k) + 3) {}

  void Run() {
    if (absl::Status made = MakeCalls(); !made.ok()) {
      r_.outcome = Outcome::kEvaluatorError;
      r_.text = std::string(made.message());
      return;
    }
    for (const RunOptions& run : ConfigurationsOf(options_, r_.k)) {
      if (!Configuration(run)) return;
    }
  }

 private:
  // Sizes that shape inference promised for all symbols within their ranges, and that then don't hold, are an error too.
  absl::Status MakeCalls() {
    for (Sizes& sizes : RandomSizes(module_, random_, options_.sizes, kMostElements)) {
      TENON_ASSIGN_OR_RETURN(std::unique_ptr<Module> numbers, WithSizes(module_, sizes));
      calls_.emplace_back(std::move(numbers), std::move(sizes), random_.Next());
    }
    return absl::OkStatus();
  }

  // False: the record has its outcome.
  bool Configuration(const RunOptions& run) {
    Verdict v;
    const std::unique_ptr<Subject> subject = Subject::Compile(module_, run, &v);
    if (subject == nullptr) return Failed(v, run, calls_[0]);
    const std::vector<size_t> order = OrderOfCalls(calls_.size(), random_);
    for (size_t n = 0; n < order.size(); ++n) {
      SizedCall& call = calls_[order[n]];
      const absl::StatusOr<Expectation>& expected = call.expected(run.excess_precision);
      if (!expected.ok()) return Failed({.outcome = Outcome::kEvaluatorError, .text = std::string(expected.status().message())}, run, call);
      v = subject->Run(call.arguments(), *expected);
      ++r_.calls;
      r_.elements += v.elements;
      r_.bounded += v.bounded;
      r_.unjudged += v.unjudged;
      if (v.outcome == Outcome::kSame && n < 2) {
        v = subject->RunRefused(call.arguments());
        r_.refused_calls += v.refused_calls;
      }
      if (v.outcome == Outcome::kSame) continue;
      if (n > 0) v.text = absl::StrCat("call ", n + 1, ": ", v.text);
      return Failed(v, run, call);
    }
    return true;
  }

  bool Failed(const Verdict& v, const RunOptions& run, const SizedCall& call) {
    r_.outcome = v.outcome;
    r_.configuration = absl::StrCat(run.ToString(), " at ", SizesText(call.sizes()));
    r_.text = v.text;
    if (v.outcome != Outcome::kRefused && v.outcome != Outcome::kEvaluatorError) {
      r_.file = ReducedFile(options_, module_, call.arguments(), run, v, r_);
    }
    return false;
  }

  const FuzzOptions& options_;
  const Module& module_;
  Record& r_;
  Random random_;
  std::vector<SizedCall> calls_;
};

}  // namespace

Record FuzzSizes(const FuzzOptions& options, const Module& module, Record r) {
  SizesFuzz(options, module, &r).Run();
  return r;
}

}  // namespace tenon::lab
