// Several threads make the first GPU code of a process: LLVM's list of targets is filled by them all.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

#include "backends/driver/compile.h"
#include "backends/gpu/gpu.h"
#include "hlo/text/text.h"
#include "passes/spaces/spaces.h"
#include "runtime/program/binding.h"

namespace tenon::gpu {
namespace {

// How many of `threads` compiles, all begun at once, fail.
int Failures(int threads) {
  std::atomic<int> ready = 0, failures = 0;
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t) {
    all.emplace_back([&] {
      const auto module = ParseModule("HloModule m\nENTRY f {\n x = f32[64] parameter(0)\n ROOT r = f32[64] negate(x)\n}");
      MoveSignature(**module, kSpace);
      CompileOptions options;
      options.compile_threads = 1;
      options.targets.push_back(MakeGpu({.model = *FindGpuModel("sm_90")}));
      for (++ready; ready < threads;) {}
      failures += !CompileToProgram((*module)->Clone(), BindingOf(**module), options).ok();
    });
  }
  for (std::thread& t : all) t.join();
  return failures;
}

// A process each, in which nothing was compiled before.
TEST(GpuThreadsDeathTest, RegisterLlvmsTargetOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (int process = 0; process < 10; ++process) EXPECT_EXIT(std::exit(Failures(4)), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tenon::gpu
