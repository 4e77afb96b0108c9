// Everything that hlo-fuzz or a user once found wrong, under every instruction set of this machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "backends/driver/targets.h"
#include "tools/lab/judge/miscompare.h"
#include "tools/lab/regress.h"

namespace tenon::lab {
namespace {

std::vector<std::string> Files() {
  std::vector<std::string> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(TENON_SOURCE_DIR) + "/tests/regress")) {
    if (entry.path().extension() == ".hlo") files.push_back(entry.path().stem().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Some element is exact or has a bound, if only one that a number as small as it is within.
bool HasBounds(const Expectation& expected) {
  for (const std::optional<Literal>& bound : expected.bounds) {
    if (!bound.has_value()) return true;
    for (int64_t n = 0; n < bound->num_elements(); ++n) {
      if (std::isfinite(bound->GetAsDouble(n))) return true;
    }
  }
  return false;
}

class Regress : public testing::TestWithParam<std::string> {};

TEST_P(Regress, StaysRight) {
  std::ifstream in(std::string(TENON_SOURCE_DIR) + "/tests/regress/" + GetParam() + ".hlo");
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const absl::StatusOr<Case> c = ParseRegress(text);
  ASSERT_TRUE(c.ok()) << c.status();
  const absl::StatusOr<Expectation> expected = Expect(*c->module, c->arguments);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const std::string& isa : HostVariants()) {
    for (int threads : {1, 3}) {
      const RunOptions run{.isa = isa, .threads = threads, .verify_passes = true};
      const Verdict v = Judge(*c->module, c->arguments, *expected, run);
      EXPECT_EQ(v.outcome, Outcome::kSame)
          << run.ToString() << ": " << OutcomeName(v.outcome) << ": " << v.text;
      EXPECT_TRUE(v.elements == 0 || HasBounds(*expected)) << "nothing of it is compared";
    }
  }
}

// With all that a GPU computes in its memory, by plans of one element a thread and of vectors.
TEST_P(Regress, StaysRightOnAnEmulatedGpu) {
  std::ifstream in(std::string(TENON_SOURCE_DIR) + "/tests/regress/" + GetParam() + ".hlo");
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const absl::StatusOr<Case> c = ParseRegress(text);
  ASSERT_TRUE(c.ok()) << c.status();
  const absl::StatusOr<Expectation> expected = Expect(*c->module, c->arguments);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const char* target : {"gpu-emulated", "gpu-emulated:sm_80,sms=1,threads_per_sm=8"}) {
    const RunOptions run{.target = target, .verify_passes = true};
    const Verdict v = Judge(*c->module, c->arguments, *expected, run);
    EXPECT_EQ(v.outcome, Outcome::kSame) << run.ToString() << ": " << OutcomeName(v.outcome) << ": " << v.text;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, Regress, testing::ValuesIn(Files()),
                         [](const testing::TestParamInfo<std::string>& p) { return p.param; });

TEST(RegressFile, RoundTrips) {
  auto c = ParseRegress(
      "// argument: f32[2] {1.5, nan}\n// argument: s32[] 3\nENTRY f { a = f32[2] parameter(0) b = "
      "s32[] parameter(1) ROOT t = (f32[2], s32[]) tuple(a, b) }");
  ASSERT_TRUE(c.ok()) << c.status();
  auto again = ParseRegress(PrintRegress(*c->module, c->arguments, "two\nlines"));
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_EQ(again->arguments.size(), 2u);
  EXPECT_EQ(again->arguments[1].GetAsInt64(0), 3);
  EXPECT_FALSE(ParseRegress("ENTRY f { ROOT a = f32[2] parameter(0) }").ok())
      << "an argument is missing";
}

TEST(RegressFile, SizesForASeedOfInputs) {
  const auto c = ParseRegress("// sizes: s=3,t=5\n// inputs: 7\nENTRY f { ROOT a = f32[t,2*s] parameter(0) }");
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_EQ(Judge(*c->module, c->arguments).outcome, Outcome::kEvaluatorError) << "no argument says s";
  const auto read = ParseRegress("// sizes: s=3,t=5\n// inputs: 7\nENTRY f { a = f32[t,2*s] parameter(0) ROOT b = f32[s] parameter(1) }");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->arguments[0].shape().ToString(), "f32[5,6]");
  EXPECT_EQ(Judge(*read->module, read->arguments).outcome, Outcome::kSame);
}

}  // namespace
}  // namespace tenon::lab
