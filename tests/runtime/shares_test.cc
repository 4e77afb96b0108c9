// Shares: threads that are done take what others have not come to, each unit is computed once, and short work is one piece a thread.
#include "runtime/execute/shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <mutex>
#include <thread>

#include "runtime/execute/executable.h"
#include "tests/runtime/fakes.h"

namespace tenon::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;
constexpr PrimitiveType kF = PrimitiveType::kF32;

// The kernel of these tests adds 1 to each of its units, and notes its calls; `before` comes first.
struct Calls {
  std::mutex mutex;
  std::vector<std::pair<int64_t, int64_t>> ranges;
  std::map<std::thread::id, int64_t> units_of;
  std::atomic<int64_t> done{0}, disturbed{0};
  std::function<void(int64_t begin)> before;
};
Calls* calls = nullptr;

void Visit(void* const* p, const int64_t*, int64_t begin, int64_t end, void* scratch) {
  if (calls->before) calls->before(begin);
  // The scratch is this thread's for as long as the call takes.
  auto& owner = *static_cast<std::atomic<const void*>*>(scratch);
  owner = &begin;
  std::this_thread::yield();
  for (int64_t i = begin; i < end; ++i) static_cast<float*>(p[1])[i] += 1;
  calls->disturbed += owner != &begin;
  const std::lock_guard lock(calls->mutex);
  calls->ranges.emplace_back(begin, end);
  calls->units_of[std::this_thread::get_id()] += end - begin;
  calls->done += end - begin;
}

class VisitLoader final : public CodeLoader {
 public:
  std::string_view target() const override { return kHostTarget; }
  absl::StatusOr<std::unique_ptr<LoadedCode>> Load(std::span<const uint8_t>, std::span<const std::string> symbols) override {
    struct Loaded final : LoadedCode {
      explicit Loaded(size_t n) { functions_.assign(n, Visit); }
    };
    return std::make_unique<Loaded>(symbols.size());
  }
};

// One thread that is said to be many: it runs their pieces one after the other.
TenonHost InTurn(int threads) {
  TenonHost host = ThreadedHost(threads);
  host.parallel_for = [](void*, int64_t begin, int64_t end, int64_t, void (*run)(void*, int64_t, int64_t), void* data) {
    for (int64_t k = begin; k < end; ++k) run(data, k, k + 1);
  };
  return host;
}

// A kernel for each of `sizes`, of so many units.
Program Visits(const std::vector<int64_t>& sizes, int64_t grain, bool joins_units = false) {
  Program p;
  p.name = "shares";
  p.regions.push_back({.name = "main"});
  const int32_t visit = AddKernel(p, "visit", sizeof(std::atomic<const void*>));
  for (const int64_t n : sizes) {
    const int32_t in = AddInput(p, kF, {n}), out = AddOutput(p, kF, {n});
    p.regions[0].steps.push_back(KernelCall(visit, {MakeView(in, kF, {n}), MakeView(out, kF, {n})}, n, grain));
    std::get<KernelStep>(p.regions[0].steps.back().body).joins_units = joins_units;
  }
  return p;
}

// How often each of `n` units was computed.
std::vector<float> Computed(Calls& here, int64_t n, int64_t grain, const TenonHost& host, bool joins_units = false) {
  calls = &here;
  VisitLoader loader;
  auto made = Executable::Create(Visits({n}, grain, joins_units), &loader, &host);
  EXPECT_TRUE(made.ok()) << made.status();
  Array x({n}), y({n});
  TenonTensor inputs[] = {x.tensor()}, outputs[] = {y.tensor()};
  EXPECT_EQ((*made)->Run(inputs, outputs).code, TENON_OK);
  EXPECT_EQ(here.disturbed, 0) << "calls of two threads in one scratch";
  return y.data;
}

TEST(Shares, AThreadThatIsDoneTakesWhatAnotherHasNotComeTo) {
  constexpr int64_t n = 800;
  Calls here;
  bool waited_in_vain = false;
  const std::thread::id quick = std::this_thread::get_id();
  here.before = [&](int64_t begin) {
    if (begin != n / 2) return;  // the second thread's own part, which it is at until all others are done
    EXPECT_NE(std::this_thread::get_id(), quick);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (here.done < n - 300 && !waited_in_vain) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      waited_in_vain = std::chrono::steady_clock::now() > until;
    }
  };
  EXPECT_THAT(Computed(here, n, 1, ThreadedHost(2)), Each(1.0f));
  EXPECT_FALSE(waited_in_vain) << here.done;
  EXPECT_EQ(here.units_of[quick], 500);
}

// Nothing is open to two threads at once, or to none, however they meet.
TEST(Shares, EachUnitIsComputedOnce) {
  for (const int count : {2, 3, 8}) {
    for (const int64_t n : {33, 64, 1001, 40000}) {
      for (const int64_t grain : {1, 3}) {
        for (const bool in_turn : {true, false}) {
          Calls here;
          EXPECT_THAT(Computed(here, n, grain, in_turn ? InTurn(count) : ThreadedHost(count)), Each(1.0f)) << n << " by " << count;
          int64_t sum = 0;
          for (const auto& [begin, end] : here.ranges) sum += end - begin;
          EXPECT_EQ(sum, n);
        }
      }
    }
  }
}

// Where a host runs all pieces in one thread, the first takes all that is open.
TEST(Shares, AreClosedButForTheirLastQuarter) {
  Calls here;
  EXPECT_THAT(Computed(here, 640, 10, InTurn(2)), Each(1.0f));
  EXPECT_THAT(here.ranges, ElementsAre(Pair(0, 240), Pair(240, 280), Pair(280, 300), Pair(300, 310), Pair(310, 320),  //
                                       Pair(560, 600), Pair(600, 620), Pair(620, 630), Pair(630, 640), Pair(320, 560)));
}

TEST(Shares, ShortWorkIsOnePieceAThread) {
  Calls here;
  constexpr int64_t grain = 100, n = 3 * kGrainsOfOpenShare * grain - 1;
  EXPECT_THAT(Computed(here, n, grain, ThreadedHost(3)), Each(1.0f));
  EXPECT_THAT(here.ranges, UnorderedElementsAre(Pair(0, n / 3), Pair(n / 3, 2 * n / 3), Pair(2 * n / 3, n)));
}

TEST(Shares, UnitsThatAreComputedTogetherStayTogether) {
  Calls here;
  EXPECT_THAT(Computed(here, 640, 10, InTurn(2), /*joins_units=*/true), Each(1.0f));
  EXPECT_THAT(here.ranges, ElementsAre(Pair(0, 320), Pair(320, 640)));
}

// Shares are opened anew for each kernel and each run.
TEST(Shares, OfOneKernelAreNotTheNextOnes) {
  Calls here;
  calls = &here;
  const TenonHost host = ThreadedHost(3);
  const std::vector<int64_t> sizes = {4000, 50, 12000};
  std::vector<Array> arrays;
  std::vector<TenonTensor> tensors;
  for (const int64_t n : sizes) arrays.emplace_back(std::vector<int64_t>{n});
  for (Array& a : arrays) tensors.push_back(a.tensor());
  VisitLoader loader;
  auto made = Executable::Create(Visits(sizes, 1), &loader, &host);
  ASSERT_TRUE(made.ok()) << made.status();
  for (float run = 1; run <= 20; ++run) {
    ASSERT_EQ((*made)->Run(tensors.data(), tensors.data()).code, TENON_OK);
    for (const Array& a : arrays) ASSERT_THAT(a.data, Each(run));
  }
}

// Many threads at the same shares, one after the other.
TEST(Shares, AStormTakesAllOnce) {
  constexpr int64_t kShares = 5000, kUnits = 64;
  std::vector<OpenShare> shares(kShares);
  for (OpenShare& s : shares) s.Open(0, kUnits, 1);
  std::vector<std::atomic<int>> taken(kShares * kUnits);
  std::vector<std::thread> all;
  for (int t = 0; t < 4; ++t) {
    all.emplace_back([&] {
      for (int64_t k = 0; k < kShares; ++k) {
        shares[static_cast<size_t>(k)].Take([&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) ++taken[static_cast<size_t>(k * kUnits + i)];
        });
      }
    });
  }
  for (std::thread& t : all) t.join();
  for (int64_t i = 0; i < kShares * kUnits; ++i) ASSERT_EQ(taken[static_cast<size_t>(i)], i % kUnits < shares[0].begin ? 0 : 1) << i;
}

}  // namespace
}  // namespace tenon::testing
