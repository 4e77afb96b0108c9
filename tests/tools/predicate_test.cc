// The predicates of hlo-reduce: what counts, in this process and in a child.
#include "tools/lab/reduce/predicate.h"

#include <gtest/gtest.h>

#include "hlo/text/text.h"
#include "tools/lab/case_files.h"
#include "tools/lab/judge/plant.h"

namespace tenon::lab {
namespace {

std::unique_ptr<Module> Parse(std::string_view text) {
  absl::StatusOr<std::unique_ptr<Module>> module = ParseModule(text);
  EXPECT_TRUE(module.ok()) << module.status();
  return *std::move(module);
}

constexpr char kShift[] =
    "ENTRY e { p = f32[6] parameter(0) z = f32[] constant(0) ROOT r = f32[6] pad(p, z), "
    "padding=1_-1 }";
// The shift happens to what a sum has made inexact.
constexpr char kShiftOfInexact[] = R"(
  less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT l = pred[] compare(a, b), direction=LT }
  ENTRY e {
    p = f32[6] parameter(0)
    t = f32[6] tanh(p)
    u = f32[6] sine(t)
    q = f32[6] divide(t, u)
    z = f32[] constant(0)
    s = f32[6] pad(q, z), padding=1_-1
    ROOT r = f32[6] sort(s), dimensions={0}, to_apply=less
  })";

std::vector<Literal> Ramp() {
  const float values[] = {0.25f, 0.5f, 0.75f, 1.0f, 1.25f, 1.5f};
  return {Literal::FromSpan<float>(PrimitiveType::kF32, {6}, values)};
}

class PredicateTest : public testing::Test {
 protected:
  void SetUp() override {
  }
  void TearDown() override { SetPlant(kNoPlant); }
};

TEST_F(PredicateTest, AMiscompareIsOneHereAndInAChild) {
  const auto module = Parse(kShift);
  for (double isolate : {0.0, 60.0}) {
    SetPlant(kNoPlant);
    EXPECT_FALSE(Miscompares({.isolate_seconds = isolate})(*module, Ramp()));
    SetPlant(*ParsePlant("pad-off-by-one"));
    EXPECT_TRUE(Miscompares({.isolate_seconds = isolate})(*module, Ramp()));
  }
}

TEST_F(PredicateTest, AChildThatNeedsTooLongSaysNo) {
  SetPlant(*ParsePlant("pad-off-by-one"));
  EXPECT_FALSE(Miscompares({.isolate_seconds = 1e-5})(*Parse(kShift), Ramp()));
  EXPECT_TRUE(Crashes({}, 1e-5)(*Parse(kShift), Ramp()));
  EXPECT_FALSE(Crashes({}, 60)(*Parse(kShift), Ramp()));
}

TEST_F(PredicateTest, ToleranceCountsUntilTheRuleIsBroken) {
  const auto inexact = Parse(kShiftOfInexact), exact = Parse(kShift);
  SetPlant(*ParsePlant("pad-off-by-one"));
  const bool by_rule = Judge(*inexact, Ramp()).outcome == Outcome::kDifferent;
  ASSERT_FALSE(by_rule)
      << "the rule has become sharper: this test wants a module that it leaves open";
  for (double isolate : {0.0, 60.0}) {
    const StillFails fails = Miscompares({.tolerance = 1e-3, .isolate_seconds = isolate});
    EXPECT_TRUE(fails(*inexact, Ramp())) << "by tolerance";
    EXPECT_TRUE(fails(*exact, Ramp())) << "by the rule";
    EXPECT_FALSE(fails(*inexact, Ramp())) << "from now on only the rule counts";
  }
}

TEST(Predicate, ErrorsByTheirText) {
  const auto module = Parse(
      "ENTRY e { p = f32[6] parameter(0) ROOT c = f32[6] custom-call(p), "
      "custom_call_target=\"nobody.knows\" }");
  absl::StatusOr<StillFails> known = FailsWith("nobody[.]knows", {}),
                             other = FailsWith("somebody", {});
  ASSERT_TRUE(known.ok() && other.ok());
  EXPECT_TRUE((*known)(*module, Ramp()));
  EXPECT_FALSE((*other)(*module, Ramp()));
  EXPECT_EQ(FailsWith("(", {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Predicate, AScriptSeesTheCase) {
  const auto module = Parse(kShift);
  EXPECT_TRUE(Script("grep -q padding")(*module, Ramp()));
  EXPECT_FALSE(Script("grep -q transpose")(*module, Ramp()));
  EXPECT_TRUE(Script("sh -c 'test -s \"${0%.hlo}.npz\"'")(*module, Ramp()));
}

TEST(CaseFiles, RoundTrip) {
  const auto module = Parse(kShift);
  const std::string path = testing::TempDir() + "/case_files_round_trip.hlo";
  absl::StatusOr<std::string> npz = WriteCase(*module, Ramp(), path);
  ASSERT_TRUE(npz.ok()) << npz.status();
  absl::StatusOr<std::unique_ptr<Module>> again = ReadModule(path);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(StructurallyEqual(*module, **again));
  absl::StatusOr<std::vector<Literal>> arguments = ReadArguments(**again, *npz);
  ASSERT_TRUE(arguments.ok()) << arguments.status();
  ASSERT_EQ(arguments->size(), 1u);
  EXPECT_EQ((*arguments)[0], Ramp()[0]);
  EXPECT_FALSE(ReadModule(path + ".absent").ok());
  EXPECT_FALSE(WriteCase(*module, Ramp(), "/nowhere/x.hlo").ok());
}

TEST(CaseFiles, JsonStringsAreEscaped) {
  EXPECT_EQ(JsonString("a\"b\\c\nd\x01"), "\"a\\\"b\\\\c\\nd\\u0001\"");
}

}  // namespace
}  // namespace tenon::lab
