// Plans that are changed at random (tools/lab/generate/random_plan.h), as hlo-fuzz runs them.
#include "tools/lab/generate/random_plan.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "backends/driver/literal_executable.h"
#include "hlo/check.h"
#include "hlo/text/text.h"
#include "tools/lab/judge/miscompare.h"

namespace tenon::lab {
namespace {

constexpr char kPlans[] =
    "a, b:  // k0\n  loop loops=[0:64] split=0 block=1024 tile=-1 lanes=16 unroll=2 tail=mask phases=[] scratch=0\n"
    "c:  // k1\n  loop loops=[0:7 1:9] split=1 block=0 tile=-1 lanes=8 unroll=1 tail=scalar phases=[] scratch=0\n";

TEST(RandomPlan, OneIsChangedTheOthersAreNot) {
  Random random(3);
  DimTable dims;
  int changed = 0;
  for (int k = 0; k < 40; ++k) {
    const absl::StatusOr<std::string> other = WithOneChanged(kPlans, random, &dims);
    ASSERT_TRUE(other.ok()) << other.status();
    const std::vector<std::string> lines = absl::StrSplit(*other, '\n'), own = absl::StrSplit(std::string(kPlans), '\n');
    ASSERT_EQ(lines.size(), own.size());
    int here = 0;
    for (size_t i = 0; i < lines.size(); ++i) here += lines[i] != own[i];
    EXPECT_LE(here, 1) << *other;
    EXPECT_TRUE(lines[0] == own[0] && lines[2] == own[2]) << "whose they are";
    changed += here;
  }
  EXPECT_GE(changed, 20);
}

TEST(RandomPlan, ModulesAreRightUnderThem) {
  const auto module = ParseModule(R"(HloModule m
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[37,65] parameter(0)
  z = f32[] constant(0)
  r = f32[37] reduce(x, z), dimensions={1}, to_apply=add
  b = f32[37,65] broadcast(r), dimensions={0}
  ROOT y = f32[37,65] divide(x, b)
})");
  ASSERT_TRUE(module.ok()) << module.status();
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Verdict verdict = Judge(**module, RandomInputs(**module, seed), {.threads = 3, .plans = seed});
    EXPECT_EQ(verdict.outcome, Outcome::kSame) << verdict.text;
  }
}

// What hlo-fuzz found: units of the whole loop, times its blocks, of which kernels did the first only (--seed=20263501 --module=419).
TEST(RandomPlan, BlocksOfAnOuterLoopAreRefused) {
  const auto module = ParseModule("HloModule m\nENTRY e {\n  x = f32[169] parameter(0)\n  ROOT y = f32[169] negate(x)\n}");
  ASSERT_TRUE(module.ok()) << module.status();
  CompileOptions options;
  options.plans = "fusion_y:\n  loop loops=[0:169] split=1 block=48 tile=-1 lanes=16 unroll=2 tail=mask phases=[] scratch=0\n";
  const auto executable = LiteralExecutable::Compile(**module, options);
  EXPECT_TRUE(absl::IsInvalidArgument(executable.status())) << executable.status();
  EXPECT_TRUE(absl::StrContains(executable.status().message(), "blocks of a loop in the outer range")) << executable.status();
}

// What hlo-fuzz found: a sum stored at a place that hangs on a loop of its steps, which broke the compiler's own memory
// (--seed=20700001 --module=36281).
TEST(RandomPlan, KeptLoopsInsideOfReducedOnesAreRefused) {
  const auto module = ParseModule(R"(HloModule m
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
ENTRY e {
  x = f32[2,2,4] parameter(0)
  zero = f32[] constant(0)
  ROOT y = f32[2,4] reduce(x, zero), dimensions={1}, to_apply=add
})");
  ASSERT_TRUE(module.ok()) << module.status();
  for (const bool inside : {false, true}) {
    CompileOptions options;
    options.plans = absl::StrCat("fusion_y:\n  column loops=[", inside ? "1:2! 0:2" : "0:2 1:2!",
                                 " 2:4] split=0 block=64 tile=-1 lanes=4 unroll=8 tail=mask phases=[{reduces 2; roots; kept}] ",
                                 "scratch=4416\n");
    const absl::Status status = LiteralExecutable::Compile(**module, options).status();
    EXPECT_EQ(status.ok(), !inside) << status;
    if (inside) EXPECT_TRUE(absl::StrContains(status.message(), "a kept loop inside of a reduced one")) << status;
  }
}

}  // namespace
}  // namespace tenon::lab
