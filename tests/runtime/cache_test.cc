#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "absl/synchronization/notification.h"
#include "runtime/cache/memory_cache.h"
#include "tests/runtime/fakes.h"

namespace tenon::testing {
namespace {

CacheKey Key(const std::string& module, const std::string& isa = "avx2") {
  CacheKey key;
  key.Add("module", module).Add("target", isa);
  return key;
}

absl::StatusOr<std::shared_ptr<Executable>> Compile() {
  Program p;
  p.regions.resize(1);
  return Executable::Create(std::move(p), nullptr, DefaultHost());
}

TEST(MemoryCache, SharesAndCounts) {
  MemoryCache cache(4);
  auto a = cache.GetOrCompile(Key("m"), Compile), b = cache.GetOrCompile(Key("m"), Compile);
  EXPECT_EQ(*a, *b);
  EXPECT_EQ(cache.counters().hits, 1);
  EXPECT_EQ(cache.counters().compiles, 1);
  EXPECT_GT(cache.counters().bytes, 0);
  cache.Clear();
  EXPECT_EQ(cache.counters().entries, 0);
  EXPECT_EQ(cache.counters().bytes, 0);
}

TEST(MemoryCache, ThreeIsasMakeThreeEntriesAndAMissSaysWhatDiffered) {
  MemoryCache cache(8);
  for (const char* isa : {"sse4", "avx2", "avx512"})
    ASSERT_TRUE(cache.GetOrCompile(Key("m", isa), Compile).ok());
  EXPECT_EQ(cache.counters().entries, 3);
  EXPECT_EQ(cache.last_miss(), "target");
  ASSERT_TRUE(cache.GetOrCompile(Key("other", "avx2"), Compile).ok());
  EXPECT_EQ(cache.last_miss(), "module");
}

TEST(MemoryCache, KeysAreUnambiguous) {
  CacheKey a, b;
  a.Add("x", "1;y:1:2").Add("z", "");
  b.Add("x", "1").Add("y", "2;z:0:");
  EXPECT_NE(a.text(), b.text());
}

TEST(MemoryCache, LeastRecentlyUsedGoesAndUsersKeepTheirs) {
  MemoryCache cache(2);
  auto a = cache.GetOrCompile(Key("a"), Compile);
  cache.GetOrCompile(Key("b"), Compile).IgnoreError();
  cache.GetOrCompile(Key("a"), Compile).IgnoreError();
  cache.GetOrCompile(Key("c"), Compile).IgnoreError();
  EXPECT_EQ(cache.counters().evictions, 1);
  EXPECT_EQ(*cache.GetOrCompile(Key("a"), Compile), *a) << "b was the oldest";
  EXPECT_EQ((*a)->Run(nullptr, nullptr).code, TENON_OK);
}

// An entry of that many bytes.
MemoryCache::CompileFn Sized(size_t bytes) {
  return [bytes] {
    Program p;
    p.regions.resize(1);
    p.report.resize(bytes);
    return Executable::Create(std::move(p), nullptr, DefaultHost());
  };
}

TEST(MemoryCache, BytesAreBoundedToo) {
  MemoryCache cache(100, 10'000);
  for (const char* name : {"a", "b", "c", "d"}) cache.GetOrCompile(Key(name), Sized(4000)).IgnoreError();
  EXPECT_LE(cache.counters().bytes, 10'000);
  EXPECT_EQ(cache.counters().entries, 2);
  EXPECT_EQ(cache.counters().evictions, 2);
  cache.GetOrCompile(Key("d"), Sized(4000)).IgnoreError();
  EXPECT_EQ(cache.counters().hits, 1);
  cache.GetOrCompile(Key("huge"), Sized(50'000)).IgnoreError();  // alone, since somebody has just asked for it
  EXPECT_EQ(cache.counters().entries, 1);
  cache.GetOrCompile(Key("huge"), Sized(50'000)).IgnoreError();
  EXPECT_EQ(cache.counters().hits, 2);
}

TEST(MemoryCache, SomebodyElsesInterruptIsNotMine) {
  MemoryCache cache(4);
  absl::Notification started, go;
  std::thread interrupted([&] {
    auto result = cache.GetOrCompile(Key("m"), [&]() -> absl::StatusOr<std::shared_ptr<Executable>> {
      started.Notify();
      go.WaitForNotification();
      return absl::CancelledError("interrupted");
    });
    EXPECT_TRUE(absl::IsCancelled(result.status()));
  });
  started.WaitForNotification();
  std::thread waiting([&] { EXPECT_TRUE(cache.GetOrCompile(Key("m"), Compile).ok()); });
  while (cache.counters().waits < 1) std::this_thread::yield();
  go.Notify();
  interrupted.join();
  waiting.join();
  EXPECT_EQ(cache.counters().entries, 1);
}

TEST(MemoryCache, OneFlightForManyThreads) {
  MemoryCache cache(4);
  std::atomic<int> compiles{0};
  absl::Notification go;
  std::vector<std::thread> threads;
  std::vector<std::shared_ptr<Executable>> got(8);
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      got[t] = *cache.GetOrCompile(Key("m"), [&] {
        ++compiles;
        go.WaitForNotification();
        return Compile();
      });
    });
  }
  while (cache.counters().waits < 7) std::this_thread::yield();
  go.Notify();
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(compiles, 1);
  for (const auto& e : got) EXPECT_EQ(e, got[0]);
}

TEST(MemoryCache, AFailureReachesAllWaitersAndIsNotKept) {
  MemoryCache cache(4);
  absl::Notification go;
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      auto result =
          cache.GetOrCompile(Key("m"), [&]() -> absl::StatusOr<std::shared_ptr<Executable>> {
            go.WaitForNotification();
            return absl::InternalError("broken");
          });
      failed += result.status().message() == "broken";
    });
  }
  while (cache.counters().waits < 3) std::this_thread::yield();
  go.Notify();
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(failed, 4);
  EXPECT_EQ(cache.counters().failures, 1);
  EXPECT_TRUE(cache.GetOrCompile(Key("m"), Compile).ok());
}

TEST(MemoryCache, AThrowingCompileFreesTheKey) {
  MemoryCache cache(4);
  EXPECT_THROW(cache
                   .GetOrCompile(Key("m"),
                                 []() -> absl::StatusOr<std::shared_ptr<Executable>> {
                                   throw std::runtime_error("x");
                                 })
                   .IgnoreError(),
               std::runtime_error);
  EXPECT_TRUE(cache.GetOrCompile(Key("m"), Compile).ok());
}

#if !defined(__SANITIZE_THREAD__)  // fork() in a threaded process is what tsan refuses
TEST(MemoryCache, AForkedChildCompilesWhatTheParentWasCompiling) {
  MemoryCache cache(4);
  absl::Notification started, go;
  std::thread compiling([&] {
    cache
        .GetOrCompile(Key("m"),
                      [&] {
                        started.Notify();
                        go.WaitForNotification();
                        return Compile();
                      })
        .IgnoreError();
  });
  started.WaitForNotification();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a deadlock must end the child
    const auto mine = cache.GetOrCompile(Key("m"), Compile);
    int64_t sum = 0;
    DefaultHost()->parallel_for(
        nullptr, 0, 1000, 1,
        [](void* s, int64_t b, int64_t e) {
          __atomic_fetch_add(static_cast<int64_t*>(s), e - b, __ATOMIC_RELAXED);
        },
        &sum);
    _exit(mine.ok() && (*mine)->Run(nullptr, nullptr).code == TENON_OK && sum == 1000 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  go.Notify();
  compiling.join();
  EXPECT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}
#endif

}  // namespace
}  // namespace tenon::testing
