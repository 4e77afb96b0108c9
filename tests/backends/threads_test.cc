// Several threads compile, run and drop at once; forks, interrupts and fatal errors among them. Meant for ThreadSanitizer too.
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "backends/codegen/llvm/llvm_threads.h"
#include "backends/driver/literal_executable.h"
#include "hlo/text/text.h"
#include "runtime/fork.h"

namespace tenon {
namespace {

// x -> n * x + sum(x), by two kernels at least.
std::unique_ptr<Module> Text(int n) {
  auto module = ParseModule(absl::StrCat(R"(HloModule m
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
ENTRY e {
  x = f32[64,16] parameter(0)
  n = f32[] constant()", n, R"()
  ns = f32[64,16] broadcast(n), dimensions={}
  y = f32[64,16] multiply(x, ns)
  zero = f32[] constant(0)
  s = f32[16] reduce(x, zero), dimensions={0}, to_apply=add
  b = f32[64,16] broadcast(s), dimensions={1}
  ROOT r = f32[64,16] add(y, b)
})"));
  return module.ok() ? *std::move(module) : nullptr;
}

Literal Ones() {
  Literal x(Shape::Array(PrimitiveType::kF32, {64, 16}));
  auto* data = reinterpret_cast<float*>(x.mutable_bytes());
  std::fill(data, data + 64 * 16, 1.0f);
  return x;
}

bool CompilesAndRuns(int n, const CompileOptions& options = {}) {
  const std::unique_ptr<Module> module = Text(n);
  if (module == nullptr) return false;
  auto executable = LiteralExecutable::Compile(*module, options);
  if (!executable.ok()) return false;
  auto results = (*executable)->Run({Ones()});
  return results.ok() && (*results)[0].GetAsDouble(17) == n + 64;
}

TEST(Threads, CompileRunAndDropAtOnce) {
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int k = 0; k < 4; ++k) right += CompilesAndRuns(10 * t + k, {.compile_threads = 1 + k % 3});
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(right, 16);
}

#if !defined(__SANITIZE_THREAD__)  // fork() in a threaded process is what tsan refuses
TEST(Threads, AChildCompilesWhileTheParentDoes) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer's allocator does not hold its locks over fork(): a child may wait for one for ever (seen with gdb)";
#endif
  std::atomic<bool> stop = false;
  std::atomic<int> compiled = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      while (!stop) compiled += CompilesAndRuns(100 + t);
    });
  }
  while (compiled < 2) std::this_thread::yield();
  for (int k = 0; k < 10; ++k) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);  // a deadlock must end the child
      _exit(!ForkedInsideSection() && CompilesAndRuns(k) ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  stop = true;
  for (std::thread& t : threads) t.join();
}
#endif

// Three hundred kernels, each of a shape of its own.
std::string Large() {
  std::string text = "HloModule large\nadd { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }\nENTRY e {\n"
                     "  zero = f32[] constant(0)\n  s0 = f32[] parameter(0)\n";
  for (int k = 1; k <= 300; ++k) {
    absl::StrAppend(&text, "  i", k, " = f32[64,", k, "] iota(), iota_dimension=1\n  t", k, " = f32[64,", k, "] sine(i", k, ")\n  r", k,
                    " = f32[] reduce(t", k, ", zero), dimensions={0,1}, to_apply=add\n  s", k, " = f32[] add(s", k - 1, ", r", k, ")\n");
  }
  return absl::StrCat(text, "  ROOT r = f32[] negate(s300)\n}\n");
}

TEST(Threads, AnInterruptEndsACompile) {
  int asked = 0;
  CompileOptions options;
  options.interrupted = [&] { return ++asked > 0; };
  auto module = ParseModule(Large());
  ASSERT_TRUE(module.ok()) << module.status();
  const absl::Status status = LiteralExecutable::Compile(**module, options).status();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_LE(asked, 2);
  EXPECT_TRUE(CompilesAndRuns(5));
}

// 0: as wanted. In a process of its own, since what is parked stays so.
int FatalErrors() {
  for (int k = 1; k <= kMostParked; ++k) {
    const absl::Status status = LiteralExecutable::Compile(*Text(3), {.inject_fault = "fatal-error"}).status();
    const bool told = status.message().find("LLVM gave up: injected fatal error") != status.message().npos;
    if (status.code() != absl::StatusCode::kInternal || !told) return k;
    if (ParkedLlvmThreads() != k || CompilesAndRuns(4) != (k < kMostParked)) return 10 + k;
  }
  return LiteralExecutable::Compile(*Text(3), {}).status().code() == absl::StatusCode::kResourceExhausted ? 0 : 20;
}

TEST(Threads, WhatLlvmGivesUpOnIsAnErrorThreeTimes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(_exit(FatalErrors()), ::testing::ExitedWithCode(0), "");
}

// More tasks than threads: so many run at once, each task once, and the other thread does what one is not free for.
TEST(Threads, TakeTheNextTaskWhenTheyAreDone) {
  constexpr int kTasks = 7;
  std::atomic<int> at_once = 0, most = 0, others_done = 0;
  std::atomic<bool> slow_began = false;
  std::vector<std::atomic<int>> ran(kTasks);
  std::vector<std::function<absl::Status()>> tasks;
  for (int k = 0; k < kTasks; ++k) {
    tasks.push_back([&, k] {
      const int here = ++at_once;
      int seen = most;
      while (here > seen && !most.compare_exchange_weak(seen, here)) continue;
      if (k == 0) slow_began = true;
      const auto waits = [&] { return k == 0 ? others_done < kTasks - 1 : !slow_began; };
      for (int ms = 0; waits() && ms < 20000; ++ms) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++ran[static_cast<size_t>(k)];
      --at_once;
      if (k == 0 && others_done < kTasks - 1) return absl::DeadlineExceededError("others waited for a slow task");
      others_done += k > 0;
      return k == 3 ? absl::NotFoundError("of the third") : absl::OkStatus();
    });
  }
  const std::vector<absl::Status> results = RunOnLlvmThreads(std::move(tasks), 2);
  ASSERT_EQ(results.size(), kTasks);
  for (int k = 0; k < kTasks; ++k) {
    EXPECT_EQ(ran[static_cast<size_t>(k)], 1) << k;
    EXPECT_EQ(results[static_cast<size_t>(k)].code(), k == 3 ? absl::StatusCode::kNotFound : absl::StatusCode::kOk) << k;
  }
  EXPECT_EQ(most, 2);
}

}  // namespace
}  // namespace tenon
