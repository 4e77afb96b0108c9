#include "tools/hlo-fuzz/plants.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>

#include "hlo/check.h"
#include "hlo/text/text.h"
#include "tools/lab/generate/random_inputs.h"
#include "tools/lab/generate/random_sizes.h"
#include "tools/lab/judge/plant.h"
#include "tools/lab/reduce/predicate.h"
#include "tools/lab/reduce/reduce.h"

namespace tenon::lab {
namespace {

constexpr int64_t kMostInstructions = 10, kLargeEvery = 20;
constexpr int kMostReductions = 12;
constexpr int kSizes = 3;  // of a module with symbols
constexpr int64_t kMostElements = 1 << 15;
constexpr double kReduceSeconds = 20, kTrySeconds = 4, kRunSeconds = 30;

struct Found {
  int64_t tried = 0, module = -1, before = 0, after = -1;
  int64_t reduced = -1;  // the last module that was
  int reductions = 0;
  double reduce_seconds = 0;

  bool cut() const { return module >= 0 && after >= 0 && after <= kMostInstructions; }
  // One that isn't cut far enough in one module may be in another.
  bool wanted() const { return !cut() && reductions < kMostReductions; }
};

// Of this process and of the reducer's children.
double CpuSeconds() {
  double seconds = 0;
  for (int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage used;
    getrusage(who, &used);
    seconds += static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec);
    seconds += static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
  }
  return seconds;
}

class Search {
 public:
  Search(const FuzzOptions& options, bool quiet) : options_(options), quiet_(quiet), found_(AllPlants().size()) {}

  // The plants that modules like these have places for.
  bool Asked(Plant p) const { return AllPlants()[p - 1].sizes == options_.generator.symbols; }

  bool Done() const {
    for (Plant p = 1; p <= static_cast<Plant>(found_.size()); ++p) {
      if (Asked(p) && found_[p - 1].wanted()) return false;
    }
    return true;
  }

  void Try(int64_t k) {
    const std::unique_ptr<Module> module = MakeModule(options_, k);
    const uint64_t seed = ModuleSeed(options_.seed, k);
    if (!options_.generator.symbols) return TryOn(k, *module, RandomInputs(*module, seed));
    Random random(seed);
    for (const Sizes& sizes : RandomSizes(*module, random, kSizes, kMostElements)) {
      const absl::StatusOr<std::unique_ptr<Module>> numbers = WithSizes(*module, sizes);
      if (numbers.ok()) TryOn(k, *module, RandomInputs(**numbers, random.Next()));
    }
  }

  bool Report() const {
    bool good = true;
    std::printf("plant                  module   tried  instructions  seconds to cut\n");
    for (size_t p = 0; p < found_.size(); ++p) {
      if (!Asked(static_cast<Plant>(p) + 1)) continue;
      const Found& f = found_[p];
      const std::string name(AllPlants()[p].name);
      good = good && f.cut();
      if (f.module < 0) std::printf("%-20s   NOT FOUND; tried with %lld modules\n", name.c_str(), static_cast<long long>(f.tried));
      else std::printf("%-20s %8lld %7lld  %4lld to %3lld %15.1f%s\n", name.c_str(), static_cast<long long>(f.module),
                       static_cast<long long>(f.tried), static_cast<long long>(f.before), static_cast<long long>(f.after),
                       f.reduce_seconds, f.cut() ? "" : "  NOT CUT");
    }
    return good;
  }

 private:
  void TryOn(int64_t k, const Module& module, const std::vector<Literal>& arguments) {
    for (RunOptions run : ConfigurationsOf(options_, k)) {
      absl::flat_hash_set<Plant> places;
      run.sabotage = FindPlaces(&places, options_.generator.symbols);
      Verdict v;
      const std::unique_ptr<Subject> sound = Subject::Compile(module, run, &v);
      run.sabotage = {};
      if (sound == nullptr || !AnyWanted(places)) continue;
      const absl::StatusOr<Expectation> expected = Expect(module, arguments, run.excess_precision);
      if (!expected.ok() || sound->RunThrice(arguments, *expected).outcome != Outcome::kSame) continue;
      for (Plant p = 1; p <= static_cast<Plant>(found_.size()); ++p) {
        if (places.contains(p) && found_[p - 1].wanted()) TryPlant(p, k, module, arguments, *expected, run);
      }
    }
  }

  bool AnyWanted(const absl::flat_hash_set<Plant>& places) const {
    return std::any_of(places.begin(), places.end(), [&](Plant p) { return found_[p - 1].wanted(); });
  }

  void TryPlant(Plant p, int64_t k, const Module& module, const std::vector<Literal>& arguments, const Expectation& expected,
                const RunOptions& run) {
    Found& f = found_[p - 1];
    if (f.reduced == k) return;  // other sizes and configurations of a module come to the same end
    ++f.tried;
    SetPlant(p);
    // In a child, as the reducer's tries: a planted bug, or what the reducer makes of a loop, may never end.
    const auto differs = [&] { return Judge(module, arguments, expected, run).outcome == Outcome::kDifferent; };
    if (SaysInTime(differs, kRunSeconds)) {
      const double begin = CpuSeconds();
      const StillFails fails = Miscompares({.run = run, .isolate_seconds = kTrySeconds});
      const absl::StatusOr<ReduceResult> cut = Reduce(module, arguments, fails, {.max_seconds = kReduceSeconds});
      const int64_t after = cut.ok() ? cut->module->instruction_count() : module.instruction_count();
      f.reduce_seconds += CpuSeconds() - begin;
      f.reduced = k;
      ++f.reductions;
      if (f.module < 0 || after < f.after) f.module = k, f.before = module.instruction_count(), f.after = after;
      if (!quiet_) std::fprintf(stderr, "%s: module %lld (%s), %lld instructions after %.1f s\n", std::string(PlantName(p)).c_str(),
                                static_cast<long long>(k), run.ToString().c_str(), static_cast<long long>(after), f.reduce_seconds);
      if (!quiet_ && cut.ok()) std::fprintf(stderr, "%s\n", Print(*cut->module).c_str());
    }
    SetPlant(kNoPlant);
  }

  const FuzzOptions& options_;
  const bool quiet_;
  std::vector<Found> found_;
};

}  // namespace

int FindPlants(FuzzOptions options, double seconds, int64_t modules, bool quiet) {
  options.large_every = kLargeEvery;
  Search search(options, quiet);
  int64_t k = 0;
  for (; !search.Done() && (modules < 0 || k < modules) && (seconds <= 0 || CpuSeconds() < seconds); ++k) {
    try {
      search.Try(k);
    } catch (const InternalError& e) {
      std::fprintf(stderr, "module %lld: %s\n", static_cast<long long>(k), e.what());
    }
  }
  const bool good = search.Report();
  std::printf("seed %llu, %lld modules, %.0f CPU seconds\n", static_cast<unsigned long long>(options.seed), static_cast<long long>(k),
              CpuSeconds());
  return good ? 0 : 1;
}

}  // namespace tenon::lab
