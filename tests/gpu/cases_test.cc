// The modules of tests/backends with all that a GPU can compute in its memory, on the emulator, against the evaluator: two models (whose
// plans take one element at a time, and vectors), two orders of threads and blocks.
#include <gtest/gtest.h>

#include <iostream>
#include <set>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backends/driver/literal_executable.h"
#include "hlo/check.h"
#include "hlo/eval/evaluator.h"
#include "hlo/text/text.h"
#include "passes/spaces/spaces.h"
#include "runtime/host/plain_host.h"
#include "runtime/program/binding.h"
#include "tests/backends/hlo_cases.h"
#include "tools/lab/gpu/emulated_memory.h"
#include "tools/lab/gpu/emulated_target.h"
#include "tools/lab/spaces.h"

namespace tenon::gpu {
namespace {

// The second one's plans think that a few elements keep it busy.
constexpr const char* kModels[] = {"gpu-emulated", "gpu-emulated:sm_80,sms=1,threads_per_sm=8"};

CompileOptions OptionsFor(const HloCase& c, const char* model) {
  CompileOptions options{.excess_precision = !c.strict};
  options.verify_passes = true;
  const auto target = MakeEmulatedGpu(model);
  TENON_CHECK(target.ok(), std::string(target.status().message()));
  options.targets.push_back(*target);
  return options;
}

class GpuCases : public testing::TestWithParam<HloCase> {};

TEST_P(GpuCases, EqualTheEvaluator) {
  const HloCase& c = GetParam();
  const auto module = ParseModule(c.text);
  ASSERT_TRUE(module.ok()) << module.status();
  const std::vector<Literal> args = ArgumentsOf(**module, c, 9000);
  const absl::StatusOr<Literal> want = Evaluate(**module, args, ChecksPass());
  ASSERT_TRUE(want.ok()) << want.status();
  const std::vector<Literal> leaves = Leaves(*want);
  lab::MoveInside(**module, 1);
  const int64_t bytes = TheEmulatedMemory().live_bytes();
  for (const char* model : kModels) {
    auto executable = LiteralExecutable::Compile(**module, OptionsFor(c, model), EmulatedHost(PlainHost()));
    ASSERT_TRUE(executable.ok()) << model << ": " << executable.status();
    for (const uint64_t seed : {0, 77}) {
      SetEmulation({.order_seed = seed});
      const absl::StatusOr<std::vector<Literal>> got = (*executable)->Run(args);
      ASSERT_TRUE(got.ok()) << model << ", order " << seed << ": " << got.status();
      std::vector<Literal> arrays;
      for (const Literal& l : *got) {
        if (l.shape().is_array()) arrays.push_back(l);
      }
      size_t next = 0;
      for (const Literal& leaf : leaves) {
        if (!leaf.shape().is_array()) continue;
        ASSERT_LT(next, arrays.size());
        const LiteralDifference d = CompareLiterals(arrays[next++], leaf, c.tolerance);
        EXPECT_TRUE(d.within) << model << ", order " << seed << ", result " << next - 1 << ": " << d.what;
      }
    }
  }
  EXPECT_EQ(TheEmulatedMemory().live_bytes(), bytes);
}

INSTANTIATE_TEST_SUITE_P(Hlo, GpuCases, testing::ValuesIn(DeviceCases()), [](const auto& info) { return TestName(info.param); });

// What it leaves to the host, by opcode: checks.
TEST(Gpu, RunsMostOfThem) {
  int launched = 0, all = 0;
  std::set<std::string> reasons;
  for (const HloCase& c : DeviceCases()) {
    const auto module = ParseModule(c.text);
    MoveSignature(**module, 1);
    const absl::StatusOr<Program> program = CompileToProgram((*module)->Clone(), BindingOf(**module), OptionsFor(c, kModels[0]));
    ASSERT_TRUE(program.ok()) << c.name << program.status();
    ++all;
    int64_t launches = 0;
    for (const KernelSpec& k : program->kernels) launches += program->code[k.code].space != 0;
    launched += launches > 0;
    for (const std::string& remark : program->remarks) {
      if (!absl::StrContains(remark, "\"kind\":\"host\"")) continue;
      const size_t at = remark.find("\"reason\":\"") + 10;
      reasons.insert(remark.substr(at, remark.find('"', at) - at));
    }
  }
  std::cout << launched << " of " << all << " modules launch kernels\n";
  EXPECT_GE(launched, all * 85 / 100);
  std::set<std::string> opcodes;
  for (const std::string& reason : reasons) {
    ASSERT_TRUE(reason.starts_with("no code for ") && reason.ends_with(" in memory space 1")) << reason;
    opcodes.insert(reason.substr(12, reason.size() - 12 - 18));
  }
  EXPECT_EQ(absl::StrJoin(opcodes, " "), "custom-call");
}

}  // namespace
}  // namespace tenon::gpu
