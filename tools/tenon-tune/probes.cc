#include "tools/tenon-tune/probes.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/contract/kernel.h"
#include "backends/driver/targets.h"
#include "hlo/check.h"
#include "hlo/text/text.h"
#include "passes/memory/value_views.h"
#include "runtime/clock.h"
#include "runtime/host/thread_pool.h"
#include "runtime/profile/machine_roof.h"

namespace tenon::tune {
namespace {

constexpr double kTrialNs = 60e6;
constexpr int kTrials = 3;
constexpr int64_t kSide = 256;  // of the product whose multiply-adds are counted: its operands lie in L2
constexpr int64_t kArrays = 3;  // two that are read, one that is written
constexpr int kForkJoins = 2000;
constexpr double kPatienceNs = 2e5;  // a fork and join that takes longer is none
constexpr int kFewest = 20;

// A module of one fusion: of `op`, on x and y, which have the result's shape.
std::string FusionOf(const std::string& shape, const std::string& op) {
  const std::string operands = absl::StrCat(" x = ", shape, " parameter(0)\n y = ", shape, " parameter(1)\n");
  return absl::StrCat("HloModule probe\nprobed {\n", operands, " ROOT z = ", shape, " ", op, "\n}\nENTRY e {\n", operands,
                      " ROOT f = ", shape, " fusion(x, y), kind=kLoop, calls=probed\n}\n");
}

// One generated kernel and what it is called with.
class Kernel {
 public:
  // `text`: a module whose entry is one fusion.
  static absl::StatusOr<Kernel> Make(const Target& target, const std::string& text) {
    Kernel k;
    TENON_ASSIGN_OR_RETURN(k.module_, ParseModule(text));
    const ValueViews views(*k.module_);
    TENON_ASSIGN_OR_RETURN(const LaunchPlan plan, target.Plan(*k.module_->entry()->root(), views, /*excess_precision=*/true));
    k.planned_ = std::dynamic_pointer_cast<const PlannedKernel>(plan.target);
    if (k.planned_ == nullptr) return absl::InternalError("the target launches several kernels");
    const std::vector<std::string> symbols = {"probe"};
    TENON_ASSIGN_OR_RETURN(const std::vector<uint8_t> image,
                           target.Emit({.name = "probe", .kernels = {&k.planned_, 1}, .symbols = symbols}));
    TENON_ASSIGN_OR_RETURN(k.code_, target.loader()->Load(image, symbols));
    for (uint64_t literal : k.planned_->info().literals) k.args_.push_back(static_cast<int64_t>(literal));
    return k;
  }

  int64_t units() const { return planned_->info().end.constant(); }
  int64_t scratch_bytes() const { return planned_->info().scratch_bytes; }
  void Run(void* const* pointers, int64_t begin, int64_t end, void* scratch) const {
    code_->functions()[0](pointers, args_.data(), begin, end, scratch);
  }

 private:
  std::unique_ptr<Module> module_;
  std::shared_ptr<const PlannedKernel> planned_;
  std::unique_ptr<LoadedCode> code_;
  std::vector<int64_t> args_;
};

class Memory {
 public:
  explicit Memory(int64_t bytes) : bytes_(static_cast<char*>(std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64)))) {}
  char* data() const { return bytes_.get(); }

 private:
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  std::unique_ptr<char, Free> bytes_;
};

// Best of the trials: all of `threads` call work(k) again and again until the time is over; what it returns is counted, per ns.
template <typename Work>
double Rate(int threads, double trial_ns, const Work& work) {
  struct Thread {
    double done = 0;
    uint64_t begin = 0, end = 0;
  };
  struct Trial {
    const Work* work;
    uint64_t ticks;
    std::vector<Thread> threads;
  };
  double best = 0;
  for (int t = 0; t < kTrials; ++t) {
    Trial trial{&work, NsToTicks(trial_ns / kTrials), std::vector<Thread>(static_cast<size_t>(threads))};
    PoolParallelFor(
        0, threads, 1,
        [](void* arg, int64_t first, int64_t last) {
          Trial& trial = *static_cast<Trial*>(arg);
          for (int64_t k = first; k < last; ++k) {
            Thread& own = trial.threads[static_cast<size_t>(k)];
            own.begin = Ticks();
            double done = 0;
            do {
              done += (*trial.work)(k);
              own.end = Ticks();
            } while (own.end - own.begin < trial.ticks);
            own.done = done;
          }
        },
        &trial);
    double rate = 0;  // each by its own time: they need not begin together
    for (const Thread& thread : trial.threads) rate += thread.done / TicksToNs(thread.end - thread.begin);
    best = std::max(best, rate);
  }
  return best;
}

class Probes {
 public:
  Probes(const ProbeOptions& options, std::shared_ptr<const Target> target)
      : options_(options), target_(std::move(target)), trial_ns_(options.quick ? kTrialNs / 20 : kTrialNs) {}

  absl::StatusOr<MachineModel> Run() {
    MachineModel model{.name = "tuned", .isa = target_->facts().variant, .threads = PoolThreads()};
    model.levels[0].bytes = CacheBytes(_SC_LEVEL1_DCACHE_SIZE, 32 << 10);
    model.levels[1].bytes = CacheBytes(_SC_LEVEL2_CACHE_SIZE, 256 << 10);
    model.levels[2].bytes = std::max<double>(static_cast<double>(SharedCacheBytes()), 2 * model.levels[1].bytes * model.threads);
    TENON_RETURN_IF_ERROR(MeasureLevels(&model));
    Say("multiply-adds");
    TENON_ASSIGN_OR_RETURN(model.multiply_adds_per_ns, MultiplyAdds());
    Say("fork and join");
    model.fork_join_ns = ForkJoin();
    return model;
  }

 private:
  void Say(const std::string& what) {
    constexpr int kProbes = 2 * MachineModel::kLevels + 2;
    if (options_.progress) options_.progress(what, done_, kProbes);
    ++done_;
  }

  static double CacheBytes(int name, int64_t otherwise) {
    const int64_t bytes = sysconf(name);
    return static_cast<double>(bytes > 0 ? bytes : otherwise);
  }

  // What a thread's arrays take together, so that they lie in this level.
  int64_t BytesIn(const MachineModel& model, int k, int threads) const {
    constexpr int64_t kLeast = 64 << 20, kMost = 768 << 20, kQuick = 24 << 20;
    const double below = k > 0 ? model.levels[static_cast<size_t>(k) - 1].bytes : 0, own = model.levels[static_cast<size_t>(k)].bytes;
    if (k < 2) return static_cast<int64_t>((below + own) / 2);  // more than the one below holds, less than this one
    if (k == 2) return static_cast<int64_t>(std::min(3 * below, own / threads));
    if (options_.quick) return kQuick / threads;
    return std::clamp<int64_t>(static_cast<int64_t>(2 * below), kLeast, kMost) / threads;
  }

  absl::Status MeasureLevels(MachineModel* model) {
    const int64_t most = BytesIn(*model, MachineModel::kLevels - 1, 1), elements = most / kArrays / 4 / kLine * kLine;
    const std::string shape = absl::StrCat("f32[", elements, "]");
    TENON_ASSIGN_OR_RETURN(const Kernel add, Kernel::Make(*target_, FusionOf(shape, "add(x, y)")));
    std::vector<Memory> arrays;
    for (int64_t k = 0; k < kArrays; ++k) {
      arrays.emplace_back(elements * 4);
      if (arrays.back().data() == nullptr) return absl::ResourceExhaustedError("no memory for the arrays that are streamed");
      pointers_.push_back(arrays.back().data());
    }
    const double per_unit = static_cast<double>(elements) / static_cast<double>(add.units()) * 4 * kArrays;
    Touch(arrays, elements * 4);
    for (int k = 0; k < MachineModel::kLevels; ++k) {
      MemoryLevel& level = model->levels[static_cast<size_t>(k)];
      for (const bool all : {false, true}) {
        const int threads = all ? model->threads : 1;
        Say(absl::StrCat(std::string(MachineModel::kLevelNames[static_cast<size_t>(k)]), all ? ", all threads" : ", one thread"));
        (all ? level.all_bytes_per_ns : level.bytes_per_ns) =
            Streamed(add, threads, std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(BytesIn(*model, k, threads)) / per_unit)),
                     per_unit);
      }
    }
    pointers_.clear();
    // A level is never slower than a larger one, nor are all threads than one: what was measured beside other work may say so.
    for (int k = MachineModel::kLevels; k-- > 0;) {
      MemoryLevel& level = model->levels[static_cast<size_t>(k)];
      if (k + 1 < MachineModel::kLevels) {
        const MemoryLevel& larger = model->levels[static_cast<size_t>(k) + 1];
        level.bytes_per_ns = std::max(level.bytes_per_ns, larger.bytes_per_ns);
        level.all_bytes_per_ns = std::max(level.all_bytes_per_ns, larger.all_bytes_per_ns);
      }
      level.all_bytes_per_ns = std::max(level.all_bytes_per_ns, level.bytes_per_ns);
    }
    return absl::OkStatus();
  }

  // By those who will stream it.
  static void Touch(const std::vector<Memory>& arrays, int64_t bytes) {
    struct Arrays {
      const std::vector<Memory>* arrays;
      int64_t bytes;
    } all{&arrays, bytes};
    PoolParallelFor(
        0, PoolThreads(), 1,
        [](void* arg, int64_t first, int64_t last) {
          const Arrays& all = *static_cast<Arrays*>(arg);
          const int64_t begin = all.bytes * first / PoolThreads(), end = all.bytes * last / PoolThreads();
          for (const Memory& array : *all.arrays) std::fill(array.data() + begin, array.data() + end, 0);
        },
        &all);
  }

  // Each thread has `units` of its own, which it streams in steps that a look at the clock is nothing beside.
  double Streamed(const Kernel& add, int threads, int64_t units, double bytes_per_unit) const {
    constexpr int64_t kStep = 8, kRepeats = 64;
    units = std::min(units, add.units() / threads);
    std::vector<int64_t> next(static_cast<size_t>(threads) * 8);  // a cache line each
    return Rate(threads, trial_ns_, [&](int64_t k) {
      int64_t& at = next[static_cast<size_t>(k) * 8];
      int64_t done = 0;
      for (int64_t n = 0; n < kRepeats; ++n) {
        const int64_t step = std::min(kStep, units - at), begin = k * units + at;
        add.Run(pointers_.data(), begin, begin + step, nullptr);
        done += step;
        at = at + step == units ? 0 : at + step;
      }
      return static_cast<double>(done) * bytes_per_unit;
    });
  }

  absl::StatusOr<double> MultiplyAdds() const {
    const std::string shape = absl::StrCat("f32[", kSide, ",", kSide, "]");
    TENON_ASSIGN_OR_RETURN(const Kernel product,
                           Kernel::Make(*target_, FusionOf(shape, "dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}")));
    constexpr int64_t kBytes = kSide * kSide * 4;
    const Memory x(kBytes), y(kBytes), z(kBytes), scratch(std::max<int64_t>(product.scratch_bytes(), 1));
    if (!x.data() || !y.data() || !z.data() || !scratch.data()) return absl::ResourceExhaustedError("no memory for a product");
    for (const Memory* m : {&x, &y, &z}) std::fill(m->data(), m->data() + kBytes, 0);
    void* const pointers[] = {x.data(), y.data(), z.data()};
    return Rate(1, trial_ns_, [&](int64_t) {
      product.Run(pointers, 0, product.units(), scratch.data());
      return static_cast<double>(kSide * kSide * kSide);
    });
  }

  // Every piece waits until each has a thread, so that no thread does the work of one that is still asleep. Of the times a
  // low one: where another program keeps a worker from its core, that is not what it costs.
  double ForkJoin() const {
    struct Meeting {
      std::atomic<int> there = 0;
      int wanted;
      uint64_t patience = NsToTicks(kPatienceNs);  // a pool may have got fewer threads than it wanted
    };
    std::vector<double> times;
    const int count = options_.quick ? kForkJoins / 10 : kForkJoins;
    const uint64_t end = Ticks() + NsToTicks(5 * trial_ns_);
    for (int n = 0; n < count && (n < kFewest || Ticks() < end); ++n) {
      Meeting meeting{.wanted = PoolThreads()};
      const uint64_t begin = Ticks();
      PoolParallelFor(
          0, meeting.wanted, 1,
          [](void* arg, int64_t first, int64_t last) {
            Meeting& m = *static_cast<Meeting*>(arg);
            m.there += static_cast<int>(last - first);
            for (const uint64_t began = Ticks(); m.there < m.wanted && Ticks() - began < m.patience;) {
            }
          },
          &meeting);
      times.push_back(TicksToNs(Ticks() - begin));
    }
    const auto low = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 10);
    std::nth_element(times.begin(), low, times.end());
    return std::max(1.0, *low);
  }

  static constexpr int64_t kLine = 1024;  // elements: whole units of a kernel of one dim

  const ProbeOptions& options_;
  const std::shared_ptr<const Target> target_;
  const double trial_ns_;
  std::vector<void*> pointers_;
  int done_ = 0;
};

}  // namespace

absl::StatusOr<MachineModel> Measure(const ProbeOptions& options) {
  TENON_ASSIGN_OR_RETURN(std::shared_ptr<const Target> target, MakeHostTarget(options.isa));
  return Probes(options, std::move(target)).Run();
}

}  // namespace tenon::tune
