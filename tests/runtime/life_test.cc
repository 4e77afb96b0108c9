// Threads and long lives; meant for ThreadSanitizer too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <thread>

#include "runtime/cache/memory_cache.h"
#include "runtime/execute/frame.h"
#include "tests/runtime/fakes.h"

namespace tenon::testing {
namespace {

constexpr PrimitiveType kF = PrimitiveType::kF32;

Program Chain(int64_t n, int64_t grain) {
  Program p;
  p.name = "chain";
  p.regions.resize(1);
  const int32_t in = AddInput(p, kF, {n}), out = AddOutput(p, kF, {n});
  p.arena_bytes = (n * 4 + 63) / 64 * 64;
  p.num_slots = 1;
  const int32_t mid = AddValue(p, ValueKind::kArena, 0, n * 4),
                slot = AddValue(p, ValueKind::kSlot, 0, n * 4);
  const int32_t k = AddKernel(p, "add_one");
  const View m = MakeView(mid, kF, {n}), s = MakeView(slot, kF, {n});
  p.regions[0].steps = {KernelCall(k, {MakeView(in, kF, {n}), m}, n, grain),
                        FrameworkCall("test.add", {m, m}, s, ResultRule::kOwned),
                        KernelCall(k, {s, MakeView(out, kF, {n})}, n, grain)};
  p.regions[0].steps[2].release_slots = {0};
  return p;
}

bool RunOnce(Executable& e, int64_t n, float x) {
  Array in({n}, x), out({n});
  TenonTensor inputs[] = {in.tensor()}, outputs[] = {out.tensor()};
  if (e.Run(inputs, outputs).code != TENON_OK) return false;
  for (float v : out.data) {
    if (v != 2 * (x + 1) + 1) return false;
  }
  return true;
}

TEST(Life, EightThreadsRunOneExecutableWhileOthersCompileAndDrop) {
  FakeHost host;
  MemoryCache cache(2);
  constexpr int64_t kN = 500;
  auto shared = *Executable::Create(Chain(kN, 50), FakeLoader(), host.get());
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int k = 0; k < 100; ++k) wrong += !RunOnce(*shared, kN, static_cast<float>(t * 100 + k));
    });
  }
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int k = 0; k < 50; ++k) {
        CacheKey key;
        key.Add("size", std::to_string((t + k) % 5));
        const int64_t n = 10 + (t + k) % 5;
        auto own = cache.GetOrCompile(
            key, [&] { return Executable::Create(Chain(n, 1), FakeLoader(), host.get()); });
        wrong += !own.ok() || !RunOnce(**own, n, static_cast<float>(k));
        if (k % 10 == 0) FramePool::TrimIdle(0);
        if (k % 17 == 0) shared->StatsJson(k % 2 == 0);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(shared->idle_frames(), 8) << "at most the concurrency seen";
  shared.reset();
  cache.Clear();
  EXPECT_TRUE(host.clean());
}

TEST(Life, IdleFramesAreTrimmed) {
  FakeHost host;
  auto e = *Executable::Create(Chain(1000, 1 << 20), FakeLoader(), host.get());
  ASSERT_TRUE(RunOnce(*e, 1000, 1));
  EXPECT_GT(host.live_bytes(), 0);
  FramePool::TrimIdle(3600);
  EXPECT_EQ(e->idle_frames(), 1);
  FramePool::TrimIdle(0);
  EXPECT_EQ(e->idle_frames(), 0);
  EXPECT_EQ(host.live_bytes(), 0);
  EXPECT_TRUE(RunOnce(*e, 1000, 2));
}

int64_t ResidentPages() {
  long total = 0, resident = 0;
  std::FILE* f = std::fopen("/proc/self/statm", "r");
  if (f == nullptr || std::fscanf(f, "%ld %ld", &total, &resident) != 2) resident = 0;
  if (f != nullptr) std::fclose(f);
  return resident;
}

TEST(Life, AThousandExecutablesLeaveMemoryFlat) {
  FakeHost host;
  auto one = [&](int64_t k) {
    auto e = *Executable::Create(Chain(1000 + k % 7, 1 << 20), FakeLoader(), host.get());
    ASSERT_TRUE(RunOnce(*e, 1000 + k % 7, 1));
  };
  for (int64_t k = 0; k < 100; ++k) one(k);
  const int64_t before = ResidentPages();
  for (int64_t k = 0; k < 1000; ++k) one(k);
  EXPECT_TRUE(host.clean());
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  EXPECT_LT((ResidentPages() - before) * sysconf(_SC_PAGESIZE), 2 << 20);
#else
  (void)before;
#endif
}

}  // namespace
}  // namespace tenon::testing
