#include "tools/hlo-fuzz/plants.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>

#include "hlo/check.h"
#include "hlo/text/text.h"
#include "tools/lab/plant.h"
#include "tools/lab/predicate.h"
#include "tools/lab/random_inputs.h"
#include "tools/lab/reduce.h"

namespace tenon::lab {
namespace {

constexpr int64_t kMostInstructions = 10, kLargeEvery = 20;
constexpr double kReduceSeconds = 20;

struct Found {
  int64_t tried = 0, module = -1, before = 0, after = -1;
  double reduce_seconds = 0;
  std::string text;
};

double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

class Search {
 public:
  Search(const FuzzOptions& options, bool quiet) : options_(options), quiet_(quiet), found_(AllPlants().size()) {}

  bool Done() const {
    return std::all_of(found_.begin(), found_.end(), [](const Found& f) { return f.module >= 0; });
  }

  void Try(int64_t k) {
    const std::unique_ptr<Module> module = MakeModule(options_, k);
    const std::vector<Literal> arguments = RandomInputs(*module, ModuleSeed(options_.seed, k));
    for (RunOptions run : ConfigurationsOf(options_, k)) {
      absl::flat_hash_set<Plant> places;
      run.sabotage = FindPlaces(&places);
      Verdict v;
      const std::unique_ptr<Subject> sound = Subject::Compile(*module, run, &v);
      run.sabotage = {};
      if (sound == nullptr || !AnyWanted(places)) continue;
      const absl::StatusOr<Expectation> expected = Expect(*module, arguments, run.excess_precision);
      if (!expected.ok() || sound->RunThrice(arguments, *expected).outcome != Outcome::kSame) continue;
      for (Plant p = 1; p <= static_cast<Plant>(found_.size()); ++p) {
        if (places.contains(p) && found_[p - 1].module < 0) TryPlant(p, k, *module, arguments, *expected, run);
      }
    }
  }

  bool Report() const {
    bool good = true;
    std::printf("plant                  module   tried  instructions  seconds to cut\n");
    for (size_t p = 0; p < found_.size(); ++p) {
      const Found& f = found_[p];
      const std::string name(AllPlants()[p].name);
      const bool cut = f.module >= 0 && f.after >= 0 && f.after <= kMostInstructions;
      good = good && cut;
      if (f.module < 0) std::printf("%-20s   NOT FOUND; tried with %lld modules\n", name.c_str(), static_cast<long long>(f.tried));
      else std::printf("%-20s %8lld %7lld  %4lld to %3lld %15.1f%s\n", name.c_str(), static_cast<long long>(f.module),
                       static_cast<long long>(f.tried), static_cast<long long>(f.before), static_cast<long long>(f.after),
                       f.reduce_seconds, cut ? "" : "  NOT CUT");
    }
    return good;
  }

 private:
  bool AnyWanted(const absl::flat_hash_set<Plant>& places) const {
    return std::any_of(places.begin(), places.end(), [&](Plant p) { return found_[p - 1].module < 0; });
  }

  void TryPlant(Plant p, int64_t k, const Module& module, const std::vector<Literal>& arguments, const Expectation& expected,
                const RunOptions& run) {
    Found& f = found_[p - 1];
    ++f.tried;
    SetPlant(p);
    if (Judge(module, arguments, expected, run).outcome == Outcome::kDifferent) {
      f.module = k;
      f.before = f.after = module.instruction_count();
      const double begin = CpuSeconds();
      const absl::StatusOr<ReduceResult> cut = Reduce(module, arguments, Miscompares({.run = run}), {.max_seconds = kReduceSeconds});
      f.reduce_seconds = CpuSeconds() - begin;
      if (cut.ok()) f.after = cut->module->instruction_count();
      if (!quiet_) std::fprintf(stderr, "%s: module %lld (%s), %lld instructions after %.1f s\n", std::string(PlantName(p)).c_str(),
                                static_cast<long long>(k), run.ToString().c_str(), static_cast<long long>(f.after), f.reduce_seconds);
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
  const auto begin = std::chrono::steady_clock::now();
  const auto passed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  int64_t k = 0;
  for (; !search.Done() && (modules < 0 || k < modules) && (seconds <= 0 || passed() < seconds); ++k) {
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
