#include "tools/lab/judge/miscompare.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "backends/contract/provider.h"
#include "backends/driver/literal_executable.h"
#include "backends/driver/targets.h"
#include "hlo/check.h"
#include "hlo/eval/evaluator.h"
#include "hlo/sizes.h"
#include "hlo/tolerance.h"
#include "passes/freeze/split_frozen.h"
#include "runtime/host/plain_host.h"
#include "runtime/host/thread_pool.h"
#include "tools/lab/generate/random_inputs.h"
#include "tools/lab/generate/random_plan.h"
#include "tools/lab/generate/random_sizes.h"
#include "tools/lab/gpu/devices.h"
#include "tools/lab/gpu/emulated_target.h"
#include "tools/lab/judge/error_bound.h"
#include "tools/lab/judge/error_rules.h"
#include "tools/lab/judge/plant.h"
#include "tools/lab/judge/violations.h"
#include "tools/lab/spaces.h"

namespace tenon::lab {
namespace {

// No number, index or flag that a program is likely to compute: what was not stored shows.
constexpr int kPoison = 0xfb;

// PlainHost with a number of threads of its own (0: the pool's), and arenas full of poison. Its context is the number.
const TenonHost* HostWithThreads(int threads) {
  constexpr int kMost = 64;
  static TenonHost* hosts = [] {
    auto* made = new TenonHost[kMost + 1];
    for (int n = 0; n <= kMost; ++n) {
      made[n] = *PlainHost();
      made[n].context = reinterpret_cast<void*>(static_cast<intptr_t>(n));
      if (n > 0) made[n].num_threads = [](void* context) { return static_cast<int>(reinterpret_cast<intptr_t>(context)); };
      made[n].allocate = [](void*, size_t bytes) {
        void* memory = PlainHost()->allocate(PlainHost()->context, bytes);
        return memory == nullptr ? nullptr : std::memset(memory, kPoison, bytes);
      };
    }
    return made;
  }();
  return &hosts[std::clamp(threads, 0, kMost)];
}

// One leaf's elements, parts of complex numbers apart.
class LeafComparer {
 public:
  LeafComparer(int64_t leaf, const Literal& got, const Literal& want, const Literal* bound, Verdict* verdict)
      : leaf_(leaf), got_(got), want_(want), bound_(bound), v_(*verdict), type_(ComplexComponent(want.type())) {}

  void Run() {
    v_.elements += want_.num_elements();
    if (bound_ != nullptr) vacuous_ = MedianMagnitude();
    if (bound_ == nullptr && std::memcmp(got_.bytes(), want_.bytes(), want_.size_bytes()) == 0) return;
    for (int64_t i = 0; i < want_.num_elements(); ++i) {
      if (IsComplex(want_.type())) {
        const std::complex<double> g = got_.GetAsComplex(i), w = want_.GetAsComplex(i);
        Float(i, g.real(), w.real());
        Float(i, g.imag(), w.imag());
      } else if (IsFloat(type_)) {
        Float(i, got_.GetAsDouble(i), want_.GetAsDouble(i));
      } else {
        Integer(i);
      }
    }
  }

 private:
  double Allowed(int64_t element) const { return bound_ == nullptr ? 0 : bound_->GetAsDouble(element); }

  void Float(int64_t element, double got, double want) {
    const double allowed = Allowed(element);
    if (!Count(allowed, want)) return;
    if (std::isnan(want) && std::isnan(got)) return;
    if (got == want && (allowed > 0 || std::signbit(got) == std::signbit(want))) return;
    if (allowed > 0 && !std::isnan(got) && !std::isnan(want) && Within(got, want, allowed)) return;
    Note(element, got, want, allowed);
  }

  // Beyond the largest number lies infinity: an error may carry a value there or keep it from it.
  bool Within(double got, double want, double allowed) const {
    const double largest = LargestFinite();
    if (std::isinf(want) && std::isinf(got)) return false;
    if (std::isinf(want)) return std::signbit(want) == std::signbit(got) && std::fabs(got) >= largest - allowed;
    if (std::isinf(got)) return std::signbit(want) == std::signbit(got) && std::fabs(want) + allowed >= largest;
    return std::fabs(got - want) <= allowed;
  }

  double LargestFinite() const {
    switch (type_) {
      case PrimitiveType::kF64: return std::numeric_limits<double>::max();
      case PrimitiveType::kF32: return std::numeric_limits<float>::max();
      case PrimitiveType::kBF16: return 0x1.fep127;
      case PrimitiveType::kF16: return 65504;
      case PrimitiveType::kF8E5M2: return 57344;
      case PrimitiveType::kF8E4M3: return 240;
      case PrimitiveType::kF8E3M4: return 15.5;
      default: return std::numeric_limits<double>::infinity();  // no infinity in the format
    }
  }

  void Integer(int64_t element) {
    const double allowed = Allowed(element);
    if (!Count(allowed, want_.GetAsDouble(element))) return;
    if (got_.GetAsInt64(element) == want_.GetAsInt64(element)) return;
    Note(element, got_.GetAsDouble(element), want_.GetAsDouble(element), allowed);
  }

  bool Count(double allowed, double want) {
    if (allowed > 0) ++v_.bounded;
    if (allowed >= std::max({vacuous_, std::fabs(want), 2 * kZeroSign})) ++v_.unjudged;
    return !std::isinf(allowed);
  }

  // Of the numbers of this array that aren't zero; a bound as large as it and as the element itself says nothing.
  double MedianMagnitude() const {
    std::vector<double> magnitudes;
    for (int64_t i = 0; i < want_.num_elements(); ++i) {
      const double m = IsComplex(want_.type()) ? std::abs(want_.GetAsComplex(i)) : std::fabs(want_.GetAsDouble(i));
      if (std::isfinite(m) && m > 0) magnitudes.push_back(m);
    }
    if (magnitudes.empty()) return 0;
    const auto middle = magnitudes.begin() + static_cast<int64_t>(magnitudes.size() / 2);
    std::nth_element(magnitudes.begin(), middle, magnitudes.end());
    return *middle;
  }

  void Note(int64_t element, double got, double want, double allowed) {
    const double off = std::fabs(got - want);
    if (v_.differing++ > 0 && !(off - allowed > std::fabs(v_.got - v_.want) - v_.allowed)) return;
    v_.outcome = Outcome::kDifferent;
    v_.leaf = leaf_;
    v_.rule = allowed > 0 ? "bounded" : "exact";
    v_.got = got, v_.want = want, v_.allowed = allowed;
    v_.index.assign(want_.shape().rank(), 0);
    for (int64_t k = want_.shape().rank() - 1, rest = element; k >= 0; --k) {
      v_.index[k] = rest % want_.shape().constant_dim(k);
      rest /= want_.shape().constant_dim(k);
    }
  }

  int64_t leaf_;
  const Literal &got_, &want_, *bound_;
  double vacuous_ = 0;
  Verdict& v_;
  PrimitiveType type_;
};

Verdict Failed(Outcome outcome, const absl::Status& status) {
  Verdict v;
  v.outcome = outcome;
  v.text = std::string(status.message());
  return v;
}

// Other arguments of the same shapes for a run whose result nobody looks at: floats move on by one and change their sign. Integers
// stay: they say how often a loop runs.
Literal Other(const Literal& a) {
  if (a.shape().is_tuple()) {
    std::vector<Literal> elements;
    for (const Literal& e : a.elements()) elements.push_back(Other(e));
    return Literal::Tuple(std::move(elements));
  }
  if (!a.shape().is_array() || !IsFloat(a.type())) return a;
  Literal other(a.shape());
  const int64_t n = a.num_elements();
  for (int64_t i = 0; i < n; ++i) other.SetFromDouble(i, -a.GetAsDouble((i + 1) % n));
  return other;
}

Verdict CompileFailure(const absl::Status& status) {
  return Failed(absl::IsUnimplemented(status) ? Outcome::kRefused : Outcome::kCompileError, status);
}

// Its own plans are what there is if too many are refused, or if the programs are made in the runs.
absl::StatusOr<std::unique_ptr<LiteralExecutable>> WithOtherPlan(const Module& module, CompileOptions compile, const TenonHost* host,
                                                                 const RunOptions& options) {
  constexpr int kTries = 8;
  const auto plans = std::make_shared<std::string>();  // programs that are made in the runs show theirs as well
  compile.stages.wanted = 1u << static_cast<int>(StageKind::kPlans);
  compile.stages.take = [plans](const Stage& stage) { *plans = stage.text; };
  absl::StatusOr<std::unique_ptr<LiteralExecutable>> own = LiteralExecutable::Compile(module, compile, host, options.max_grain);
  if (!own.ok() || plans->empty() || (*own)->executable() == nullptr) return own;
  compile.stages = {};
  const std::unique_ptr<Module> names = module.Clone();
  Random random(options.plans);
  for (int tries = 0; tries < kTries; ++tries) {
    TENON_ASSIGN_OR_RETURN(compile.plans, WithOneChanged(*plans, random, &names->dims()));
    absl::StatusOr<std::unique_ptr<LiteralExecutable>> other = LiteralExecutable::Compile(module, compile, host, options.max_grain);
    if (!absl::IsInvalidArgument(other.status()) && !absl::IsUnimplemented(other.status())) return other;
  }
  return own;
}

absl::StatusOr<std::unique_ptr<LiteralExecutable>> Compiled(const Module& module, const RunOptions& options) {
  CompileOptions compile;
  compile.evaluate = ConstantFolder();
  compile.isa = options.isa;
  compile.passes = options.passes;
  compile.disable_passes = options.disable_passes;
  compile.excess_precision = options.excess_precision;
  compile.verify_passes = options.verify_passes;
  compile.provider = options.provider;
  compile.threads = options.threads;
  compile.compile_threads = 1;
  compile.sabotage = options.sabotage.module || options.sabotage.program ? options.sabotage : PlantedBug();
  const TenonHost* host = HostWithThreads(options.threads);
  try {
    if (options.target.empty() && options.plans != 0) return WithOtherPlan(module, std::move(compile), host, options);
    if (options.target.empty()) return LiteralExecutable::Compile(module, compile, host, options.max_grain);
    TENON_ASSIGN_OR_RETURN(const gpu::LabDevice device, gpu::FindDevice(options.target));
    const std::unique_ptr<Module> moved = module.Clone();
    MoveInside(*moved, device.target->facts().space);
    compile.targets.push_back(device.target);
    return LiteralExecutable::Compile(*moved, compile, device.host(host), options.max_grain);
  } catch (const InternalError& e) {
    return absl::InternalError(e.what());
  }
}

FrozenSplit SplitOff(Module& module, const RunOptions& options) {
  std::vector<bool> frozen;
  for (size_t p = 0; p < module.entry()->parameters().size(); ++p) frozen.push_back(((options.frozen >> (p % 64)) & 1) != 0);
  const absl::StatusOr<std::shared_ptr<const Target>> target = MakeHostTarget(options.isa);
  TENON_CHECK(target.ok(), std::string(target.status().message()));
  const ContractionSite site{.target = target->get(), .host_functions = kPlainFunctions, .excess_precision = options.excess_precision,
                             .wanted = options.provider};
  return SplitFrozen(module, frozen, [&](const Instruction& op) { return PackedFor(op, site); });
}

}  // namespace

void AppendLeaves(const Literal& l, std::vector<Literal>* leaves) {
  if (!l.shape().is_tuple()) return leaves->push_back(l);
  for (const Literal& e : l.elements()) AppendLeaves(e, leaves);
}

std::string RunOptions::ToString() const {
  std::string text = absl::StrCat(target.empty() ? "" : "target=", target, target.empty() ? "" : " ", "isa=", isa.empty() ? "best" : isa,
                                  " threads=", threads);
  if (!passes.empty()) absl::StrAppend(&text, " passes=", absl::StrJoin(passes, ","));
  if (!disable_passes.empty()) absl::StrAppend(&text, " disable=", absl::StrJoin(disable_passes, ","));
  if (max_grain == 0 && threads > 0) absl::StrAppend(&text, " whole grains");
  if (!provider.empty()) absl::StrAppend(&text, " provider=", provider);
  if (frozen != 0) absl::StrAppend(&text, " frozen=", frozen);
  if (plans != 0) absl::StrAppend(&text, " plans=", plans);
  if (excess_precision) absl::StrAppend(&text, " excess_precision");
  return text;
}

std::string_view OutcomeName(Outcome outcome) {
  constexpr std::string_view kNames[] = {"same", "different", "refused", "compile error", "run error", "evaluator error"};
  return kNames[static_cast<int>(outcome)];
}

absl::StatusOr<Expectation> Expect(const Module& module, absl::Span<const Literal> arguments, bool excess_precision) {
  try {
    if (HasSymbols(module)) {
      TENON_ASSIGN_OR_RETURN(const Sizes sizes, SizesOfArguments(module, arguments));
      TENON_ASSIGN_OR_RETURN(const std::unique_ptr<Module> numbers, WithSizes(module, sizes));
      return Expect(*numbers, arguments, excess_precision);
    }
    if (HasInexact(module, excess_precision)) return EvaluateWithBounds(module, arguments, excess_precision);
    TENON_ASSIGN_OR_RETURN(const Literal result, Evaluate(module, arguments));
    Expectation expected;
    AppendLeaves(result, &expected.values);
    expected.bounds.resize(expected.values.size());
    return expected;
  } catch (const InternalError& e) {
    return absl::InternalError(e.what());
  }
}

Verdict Compare(absl::Span<const Literal> got, const Expectation& expected) {
  Verdict v;
  // A token has no value; a backend may or may not list it.
  std::vector<const Literal*> arrays, wanted;
  std::vector<const Literal*> bounds;
  for (const Literal& l : got) {
    if (l.shape().is_array()) arrays.push_back(&l);
  }
  std::vector<bool> open;
  for (size_t i = 0; i < expected.values.size(); ++i) {
    if (!expected.values[i].shape().is_array()) continue;
    open.push_back(i < expected.open_sizes.size() && expected.open_sizes[i]);
    wanted.push_back(&expected.values[i]);
    bounds.push_back(expected.bounds[i].has_value() ? &*expected.bounds[i] : nullptr);
  }
  if (arrays.size() != wanted.size()) {
    v.outcome = Outcome::kDifferent;
    v.rule = "exact";
    v.text = absl::StrCat("wanted ", wanted.size(), " results, got ", arrays.size());
    return v;
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (open[i]) {
      const int64_t n = arrays[i]->num_elements();
      v.elements += n, v.bounded += n, v.unjudged += n;
      continue;
    }
    if (!Shape::Compatible(arrays[i]->shape(), wanted[i]->shape())) {
      v.outcome = Outcome::kDifferent;
      v.rule = "exact";
      v.leaf = static_cast<int64_t>(i);
      v.text = absl::StrCat("output ", i, ": wanted ", wanted[i]->shape().ToString(), ", got ", arrays[i]->shape().ToString());
      return v;
    }
    LeafComparer(static_cast<int64_t>(i), *arrays[i], *wanted[i], bounds[i], &v).Run();
  }
  if (v.outcome == Outcome::kDifferent) {
    v.text = absl::StrFormat("output %d %s at [%s]: got %.17g, want %.17g, allowed %.3g; %d of %d elements off (%s)", v.leaf,
                             wanted[v.leaf]->shape().ToString(), absl::StrJoin(v.index, ","), v.got, v.want, v.allowed,
                             v.differing, v.elements, v.rule);
  }
  return v;
}

struct Subject::Impl {
  std::unique_ptr<Module> symbolic;  // null: a module of numbers
  std::unique_ptr<LiteralExecutable> once, executable;
  bool emulated = false;
  mutable uint64_t runs = 0;

  // Runs whose results nobody looks at: only what they leave behind is of interest.
  void RunOthers(absl::Span<const Literal> arguments) const {
    if (symbolic == nullptr) {
      std::vector<Literal> others;
      for (const Literal& a : arguments) others.push_back(Other(a));
      return Run(others).IgnoreError();
    }
    const absl::StatusOr<Sizes> now = SizesOfArguments(*symbolic, arguments);
    if (!now.ok()) return;
    for (const Sizes& sizes : OtherSizes(*symbolic, *now)) {
      const absl::StatusOr<std::unique_ptr<Module>> numbers = WithSizes(*symbolic, sizes);
      if (numbers.ok()) Run(RandomInputs(**numbers, 1)).IgnoreError();
    }
  }

  absl::StatusOr<std::vector<Literal>> Run(absl::Span<const Literal> arguments) const {
    // Threads and blocks in ascending order, then in others.
    if (emulated) gpu::SetEmulation({.order_seed = runs % 2 == 0 ? 0 : runs});
    ++runs;
    try {
      if (once == nullptr) return executable->Run(arguments);
      TENON_ASSIGN_OR_RETURN(const std::vector<Literal> values, once->Run(arguments));
      std::vector<Literal> all(arguments.begin(), arguments.end());
      all.insert(all.end(), values.begin(), values.end());
      return executable->Run(all);
    } catch (const InternalError& e) {
      return absl::InternalError(e.what());
    }
  }
};

Subject::Subject(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Subject::~Subject() = default;

std::unique_ptr<Subject> Subject::Compile(const Module& module, const RunOptions& options, Verdict* verdict) {
  auto impl = std::make_unique<Impl>();
  impl->emulated = !options.target.empty();
  std::unique_ptr<Module> rest;
  if (options.frozen != 0) {
    rest = module.Clone();
    const FrozenSplit split = SplitOff(*rest, options);
    if (split.once != nullptr) {
      auto once = Compiled(*split.once, options);
      if (!once.ok()) return *verdict = CompileFailure(once.status()), nullptr;
      impl->once = *std::move(once);
    }
  }
  absl::StatusOr<std::unique_ptr<LiteralExecutable>> executable = Compiled(rest == nullptr ? module : *rest, options);
  if (!executable.ok()) return *verdict = CompileFailure(executable.status()), nullptr;
  impl->executable = *std::move(executable);
  if (HasSymbols(module)) impl->symbolic = module.Clone();
  return std::unique_ptr<Subject>(new Subject(std::move(impl)));
}

Verdict Subject::Run(absl::Span<const Literal> arguments, const Expectation& expected) const {
  const absl::StatusOr<std::vector<Literal>> got = impl_->Run(arguments);
  // Sizes known at run time are compiled for then.
  if (absl::IsUnimplemented(got.status())) return CompileFailure(got.status());
  if (!got.ok()) return Failed(Outcome::kRunError, got.status());
  return Compare(*got, expected);
}

Verdict Subject::RunThrice(absl::Span<const Literal> arguments, const Expectation& expected) const {
  const Verdict first = Run(arguments, expected);
  if (first.outcome != Outcome::kSame) return first;
  impl_->RunOthers(arguments);
  if (impl_->symbolic != nullptr) {
    if (const Verdict refused = RunRefused(arguments); refused.outcome != Outcome::kSame) return refused;
  }
  Verdict again = Run(arguments, expected);
  if (again.outcome == Outcome::kSame) return first;
  again.text = absl::StrCat("after a run on other arguments: ", again.text);
  return again;
}

Verdict Subject::RunRefused(absl::Span<const Literal> arguments) const {
  Verdict v;
  if (impl_->symbolic == nullptr || impl_->executable->executable() == nullptr) return v;
  const Violations violations = TryViolations(*impl_->symbolic, *impl_->executable->executable(), arguments);
  v.refused_calls = violations.calls;
  if (violations.wrong.empty()) return v;
  v.outcome = Outcome::kDifferent;
  v.rule = "guard";
  v.text = violations.wrong;
  return v;
}

Verdict Judge(const Module& module, absl::Span<const Literal> arguments, const Expectation& expected, const RunOptions& options) {
  Verdict verdict;
  const std::unique_ptr<Subject> subject = Subject::Compile(module, options, &verdict);
  return subject == nullptr ? verdict : subject->RunThrice(arguments, expected);
}

Verdict Judge(const Module& module, absl::Span<const Literal> arguments, const RunOptions& options) {
  const absl::StatusOr<Expectation> expected = Expect(module, arguments, options.excess_precision);
  if (!expected.ok()) return Failed(Outcome::kEvaluatorError, expected.status());
  return Judge(module, arguments, *expected, options);
}

bool SameFailure(const Verdict& a, const Verdict& b) {
  if (a.outcome != b.outcome) return false;
  if (a.outcome == Outcome::kDifferent) return (a.rule == "guard") == (b.rule == "guard");
  if (a.outcome == Outcome::kSame) return true;
  // Names, numbers and shapes change while a module shrinks; words don't.
  auto words = [](const std::string& text) {
    std::string kept;
    size_t from = 0;
    while (from < text.size()) {
      const size_t to = std::min(text.find(' ', from), text.size());
      const std::string word = text.substr(from, to - from);
      if (word.find_first_of("0123456789[{.%") == std::string::npos) kept += word + " ";
      from = to + 1;
    }
    return kept;
  };
  return words(a.text) == words(b.text);
}

}  // namespace tenon::lab
