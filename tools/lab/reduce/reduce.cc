#include "tools/lab/reduce/reduce.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "hlo/sizes.h"
#include "hlo/text/text.h"
#include "hlo/verifier.h"
#include "tools/lab/reduce/reduce_session.h"

namespace tenon::lab {
namespace {

uint64_t FingerprintOf(const Case& c) {
  uint64_t h = absl::HashOf(Print(*c.module, {.canonical = true}), c.module->is_scheduled);
  for (const Literal& l : c.arguments) h = absl::HashOf(h, l.Hash());
  return h;
}

bool ArgumentsFit(const Case& c) {
  const auto parameters = c.module->entry()->parameters();
  if (parameters.size() != c.arguments.size()) return false;
  if (HasSymbols(*c.module)) return SizesOfArguments(*c.module, c.arguments).ok();
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!Shape::Compatible(c.arguments[i].shape(), parameters[i]->shape())) return false;
  }
  return true;
}

}  // namespace

Session::Session(Case start, const StillFails& still_fails, const ReduceOptions& options)
    : best_(std::move(start)),
      size_(SizeOf(best_)),
      still_fails_(still_fails),
      options_(options),
      start_(std::chrono::steady_clock::now()) {}

double Session::Seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

const Values& Session::values() {
  if (!values_known_) values_ = ValuesOf(best_);
  values_known_ = true;
  return values_;
}

bool Session::Fails(const Case& candidate) {
  if (exhausted_ || !ArgumentsFit(candidate) || !Verify(*candidate.module).ok()) return false;
  if (!asked_.insert(FingerprintOf(candidate)).second) return false;
  if (result_.tries >= options_.max_tries || Seconds() > options_.max_seconds) {
    exhausted_ = true;
    return false;
  }
  ++result_.tries;
  try {
    return still_fails_(*candidate.module, candidate.arguments);
  } catch (const std::exception&) {
    return false;
  }
}

void Session::Accept(Case candidate, std::string_view step, bool values_stay) {
  best_ = std::move(candidate);
  size_ = SizeOf(best_);
  values_known_ &= values_stay;
  result_.steps.push_back(
      {std::string(step), size_.instructions, size_.elements, result_.tries, Seconds()});
  if (options_.progress) options_.progress(result_.steps.back());
}

bool Session::Try(std::optional<Case> candidate, std::string_view step, bool values_stay) {
  if (!candidate || !(SizeOf(*candidate) < size_) || !Fails(*candidate)) return false;
  Accept(*std::move(candidate), step, values_stay);
  return true;
}

ReduceResult Session::Finish() {
  result_.module = std::move(best_.module);
  result_.arguments = std::move(best_.arguments);
  result_.seconds = Seconds();
  result_.finished = !exhausted_;
  return std::move(result_);
}

absl::StatusOr<ReduceResult> Reduce(const Module& module, absl::Span<const Literal> arguments,
                                    const StillFails& still_fails, const ReduceOptions& options) {
  if (absl::Status s = Verify(module); !s.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("the module isn't valid: ", s.message()));
  }
  Case start{module.Clone(), {arguments.begin(), arguments.end()}};
  if (!ArgumentsFit(start))
    return absl::InvalidArgumentError("the arguments don't fit the entry's parameters");
  Session s(start.Clone(), still_fails, options);
  if (!s.Fails(start)) {
    return absl::FailedPreconditionError(
        "the module doesn't fail as given: there is nothing to reduce");
  }
  StripText(s);
  // Large steps until they stop paying.
  for (bool more = true; more && !s.exhausted();) {
    more = ReduceOutputs(s);
    more |= CutEnds(s);
  }
  CutChunks(s);
  for (bool more = true; more && !s.exhausted();) {
    more = ReduceOutputs(s);
    more |= ReduceInstructions(s);
    more |= ReduceComputations(s);
    if (more) continue;
    more |= CutChunks(s);
    if (options.dims) more |= ReduceDims(s);
    more |= ReduceAttributes(s);
    if (more) continue;
    if (options.values) more |= ReduceValues(s);
  }
  return s.Finish();
}

absl::StatusOr<ReduceResult> Reduce(const Module& module,
                                    const std::function<bool(const Module&)>& still_fails,
                                    const ReduceOptions& options) {
  std::vector<Literal> arguments;
  for (const Instruction* p : module.entry()->parameters()) {
    std::optional<Literal> argument = ValueOf(p, {});
    if (!argument)
      return absl::InvalidArgumentError(absl::StrCat("parameter ", p->name(), " has no literal"));
    arguments.push_back(*std::move(argument));
  }
  return Reduce(
      module, arguments, [&](const Module& m, absl::Span<const Literal>) { return still_fails(m); },
      options);
}

}  // namespace tenon::lab
