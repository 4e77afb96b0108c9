// The lab: inputs are the same everywhere, a right module passes, a wrong result is seen.
#include <gtest/gtest.h>

#include "hlo/eval/evaluator.h"
#include "hlo/sizes.h"
#include "hlo/text/text.h"
#include "tools/lab/generate/random_inputs.h"
#include "tools/lab/judge/miscompare.h"

namespace tenon::lab {
namespace {

constexpr char kModule[] = R"(
ENTRY f {
  a = f32[3,5]{0,1} parameter(0)
  b = f32[3,5] parameter(1)
  i = s32[7] parameter(2)
  s = f32[3,5] add(a, b)
  d = f32[3,5] divide(s, b)
  j = s32[7] shift-left(i, i)
  ROOT r = (f32[3,5], s32[7]) tuple(d, j)
}
)";

TEST(RandomInputs, ArePinned) {
  auto module = ParseModule(kModule);
  ASSERT_TRUE(module.ok()) << module.status();
  uint64_t hash = 0;
  for (const Literal& l : RandomInputs(**module, 7)) hash = hash * 31 + l.Hash();
  EXPECT_EQ(hash, 14812028236172014808u)
      << "regression files name their inputs by seed: a change here makes them other inputs";
}

TEST(Miscompare, RightModulesPass) {
  auto module = ParseModule(kModule);
  ASSERT_TRUE(module.ok()) << module.status();
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<Literal> inputs = RandomInputs(**module, seed);
    for (const char* isa : {"sse4", "avx2"}) {
      const Verdict v = Judge(**module, inputs, {.isa = isa, .threads = 3});
      EXPECT_EQ(v.outcome, Outcome::kSame) << "seed " << seed << ": " << v.text;
      EXPECT_EQ(v.elements, 22);
    }
  }
}

TEST(Miscompare, OneWrongBitIsSeen) {
  auto module = ParseModule(kModule);
  const std::vector<Literal> inputs = RandomInputs(**module, 1);
  auto expected = Expect(**module, inputs);
  ASSERT_TRUE(expected.ok()) << expected.status();
  std::vector<Literal> got = expected->values;
  EXPECT_EQ(Compare(got, *expected).outcome, Outcome::kSame);
  got[1].mutable_data<int32_t>()[3] ^= 1;
  const Verdict v = Compare(got, *expected);
  EXPECT_EQ(v.outcome, Outcome::kDifferent);
  EXPECT_EQ(v.leaf, 1);
  EXPECT_EQ(v.index, std::vector<int64_t>{3});
  EXPECT_EQ(v.differing, 1);
}

TEST(Miscompare, SignsOfZeroCount) {
  Expectation expected{{Literal::Scalar(PrimitiveType::kF32, 0.0)}, {std::nullopt}};
  EXPECT_EQ(Compare({Literal::Scalar(PrimitiveType::kF32, -0.0)}, expected).outcome,
            Outcome::kDifferent);
}

TEST(Miscompare, SymbolsAreJudgedAtTheArgumentsSizes) {
  auto module = ParseModule(R"(HloModule m, symbols={s:[1,64]}
    ENTRY f { a = f32[s] parameter(0) b = f32[2*s] parameter(1) c = f32[3*s] concatenate(a, b), dimensions={0} ROOT d = f32[3*s] negate(c) })");
  ASSERT_TRUE(module.ok()) << module.status();
  const auto numbers = WithSizes(**module, {{"s", 5}});
  ASSERT_TRUE(numbers.ok()) << numbers.status();
  const Verdict v = Judge(**module, RandomInputs(**numbers, 1));
  EXPECT_EQ(v.outcome, Outcome::kSame) << v.text;
  EXPECT_EQ(v.elements, 15);
  Verdict verdict;
  const auto subject = Subject::Compile(**module, {}, &verdict);
  ASSERT_NE(subject, nullptr) << verdict.text;
  const Verdict refused = subject->RunRefused(RandomInputs(**numbers, 1));
  EXPECT_EQ(refused.outcome, Outcome::kSame) << refused.text;
  // s of 0 and of 65; another size of b, and then of a; two wrong strides, two ranks and a type of each.
  EXPECT_EQ(refused.refused_calls, 16);
  EXPECT_EQ(Judge(**module, {RandomInputs(**numbers, 1)[0], RandomInputs(**numbers, 1)[0]}).outcome, Outcome::kEvaluatorError);
}

TEST(Miscompare, RefusalsAreNamed) {
  auto module = ParseModule(
      "ENTRY f { p = f32[4] parameter(0) ROOT c = f32[4] custom-call(p), "
      "custom_call_target=\"nobody\" }");
  ASSERT_TRUE(module.ok()) << module.status();
  const Verdict v = Judge(**module, RandomInputs(**module, 1));
  EXPECT_EQ(v.outcome, Outcome::kEvaluatorError) << v.text;
  Expectation nothing{{Literal(Shape::Array(PrimitiveType::kF32, {4}))}, {std::nullopt}};
  const Verdict refused = Judge(**module, RandomInputs(**module, 1), nothing);
  EXPECT_EQ(refused.outcome, Outcome::kRefused) << refused.text;
}

}  // namespace
}  // namespace tenon::lab
