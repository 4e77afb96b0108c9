// How exact a right backend must be: sums that are exact in any order, bounds where they are not, and what cannot be judged.
#include <gtest/gtest.h>

#include <cmath>

#include "hlo/eval/evaluator.h"
#include "hlo/numeric_types.h"
#include "hlo/text/text.h"
#include "tools/lab/judge/error_bound.h"
#include "tools/lab/judge/miscompare.h"

namespace tenon::lab {
namespace {

Expectation Expected(const std::string& text, const std::vector<Literal>& arguments, bool excess = false) {
  auto module = ParseModule(text);
  EXPECT_TRUE(module.ok()) << module.status();
  auto expected = Expect(**module, arguments, excess);
  EXPECT_TRUE(expected.ok()) << expected.status();
  return *expected;
}

Literal F32(std::vector<float> values) {
  return Literal::FromSpan<float>(PrimitiveType::kF32, {static_cast<int64_t>(values.size())}, values);
}

Literal F32Columns(std::vector<float> values) {
  return Literal::FromSpan<float>(PrimitiveType::kF32, {static_cast<int64_t>(values.size()), 1}, values);
}

constexpr char kSum[] = R"(
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
ENTRY f { x = f32[4] parameter(0) z = f32[] constant(0) ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=add }
)";

TEST(ErrorBound, SumsOfSmallIntegersAreExact) {
  const Expectation e = Expected(kSum, {F32({1, -3, 1000, 4})});
  EXPECT_FALSE(e.bounds[0].has_value());
}

TEST(ErrorBound, OtherSumsHaveTheBoundOfTheirMagnitude) {
  const Expectation e = Expected(kSum, {F32({0.1f, 1e7f, -1e7f, 3})});
  ASSERT_TRUE(e.bounds[0].has_value());
  const double bound = e.bounds[0]->GetAsDouble(0);
  EXPECT_GT(bound, 2e7 * 0x1p-23);
  EXPECT_LT(bound, 20 * 2e7 * 0x1p-23);
}

TEST(ErrorBound, OverflowInSomeOrderIsNotJudged) {
  const Expectation e = Expected(kSum, {F32({3e38f, 3e38f, -3e38f, -3e38f})});
  EXPECT_TRUE(std::isinf(e.bounds[0]->GetAsDouble(0)));
  EXPECT_EQ(Compare({Literal::Scalar(PrimitiveType::kF32, 1)}, e).unjudged, 1);
}

// hlo-fuzz --seed=20740001 --module=39483: a denormal f32 has fewer bits to drop than the double that it is.
TEST(ErrorBound, BitsAreDroppedFromADenormalAsOfItsType) {
  constexpr char kReduced[] = R"(
ENTRY f {
  x = f32[1] parameter(0)
  h = f16[1] convert(x)
  y = f32[1] convert(h)
  ROOT r = f32[1] reduce-precision(y), exponent_bits=10, mantissa_bits=22
}
)";
  const Expectation e = Expected(kReduced, {F32({-3 * 0x1p-149f})}, /*excess=*/true);
  ASSERT_TRUE(e.bounds[0].has_value());
  EXPECT_GE(e.bounds[0]->GetAsDouble(0), 0x1p-147);
  EXPECT_LE(e.bounds[0]->GetAsDouble(0), 0x1p-146);
}

// hlo-fuzz --seed=20750001 --module=649: of which of two zeros it is the one is as open as what is compared.
TEST(ErrorBound, ASelectBetweenTwoZerosHasAnOpenSign) {
  constexpr char kSelected[] = R"(
ENTRY f {
  x = f32[1] parameter(0)
  h = f16[1] convert(x)
  y = f32[1] convert(h)
  k = u8[1] convert(y)
  l = u8[1] constant({46})
  p = pred[1] compare(k, l), direction=LT
  a = f32[1] constant({0})
  b = f32[1] constant({-0})
  ROOT r = f32[1] select(p, a, b)
}
)";
  const Expectation e = Expected(kSelected, {F32({45.98666f})}, /*excess=*/true);
  for (const float zero : {0.0f, -0.0f}) EXPECT_EQ(Compare({F32({zero})}, e).outcome, Outcome::kSame) << zero;
}

// A gradient of batch norm is finite in f64; in f32 a product of its factors overflows, or not, by their order.
TEST(ErrorBound, OverflowOnTheWayToAGradientIsNotJudged) {
  constexpr char kGradient[] = R"(
ENTRY f {
  x = f32[2,1] parameter(0)
  s = f32[1] parameter(1)
  ROOT g = (f32[2,1], f32[1], f32[1]) batch-norm-grad(x, s, s, s, x), epsilon=0.001, feature_index=1
})";
  const Expectation large = Expected(kGradient, {F32Columns({7e15f, 1}), F32({0})});
  EXPECT_TRUE(std::isinf(large.bounds[0]->GetAsDouble(0)));
  const Expectation small = Expected(kGradient, {F32Columns({7, 1}), F32({0.5f})});
  EXPECT_LT(small.bounds[0]->GetAsDouble(0), 0.01);
}

// Of a product below the smallest number, a sum that rounds it first is +0, a fused one -0.
TEST(ErrorBound, AProductThatUnderflowsHasEitherZero) {
  const Expectation e = Expected(
      "ENTRY f { x = f32[1] parameter(0) y = f32[1] parameter(1) "
      "ROOT d = f32[] dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0} }",
      {F32({4e-45f}), F32({-0.005f})});
  ASSERT_TRUE(e.bounds[0].has_value());
  for (const float zero : {0.f, -0.f}) {
    EXPECT_EQ(Compare({Literal::Scalar(PrimitiveType::kF32, zero)}, e).outcome, Outcome::kSame) << zero;
  }
}

TEST(ErrorBound, ANanAmongTheTermsIsExact) {
  const Expectation e = Expected(kSum, {F32({NAN, 1e30f, 0.1f, 2})});
  EXPECT_FALSE(e.bounds[0].has_value());
}

TEST(ErrorBound, AUnitInTheLastPlaceOfAFunction) {
  const Expectation e = Expected("ENTRY f { x = f32[2] parameter(0) ROOT y = f32[2] exponential(x) }", {F32({1, 0})});
  const float want = e.values[0].data<float>()[0];
  const auto judged = [&](float got) { return Compare({F32({got, 1})}, e).outcome; };
  EXPECT_EQ(judged(want), Outcome::kSame);
  EXPECT_EQ(judged(std::nextafter(want, 9.f)), Outcome::kSame);
  EXPECT_EQ(judged(std::nextafter(std::nextafter(want, 9.f), 9.f)), Outcome::kDifferent);
}

// A sum that may lie on either side of a function's domain, or in it, has no certain NaN; one that lies beyond it for certain has.
TEST(ErrorBound, BetweenTwoNansThereMayBeNumbers) {
  for (const std::string name : {"asin", "acos", "atanh"}) {
    const std::string text = R"(
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
ENTRY f { x = f32[4] parameter(0) z = f32[] constant(0) r = f32[] reduce(x, z), dimensions={0}, to_apply=add ROOT y = f32[] )" + name + "(r) }";
    EXPECT_TRUE(std::isinf(Expected(text, {F32({-9999220736.f, 0, 127.5f, 9999220736.f})}).bounds[0]->GetAsDouble(0))) << name;
    const Expectation beyond = Expected(text, {F32({0.1f, 127.5f, 2, 0.3f})});
    EXPECT_FALSE(beyond.bounds[0] && beyond.bounds[0]->GetAsDouble(0) > 0) << name;
  }
}

TEST(ErrorBound, ErrorsAreMovedAndCarried) {
  const Expectation e = Expected(R"(ENTRY f {
    x = f32[2] parameter(0)
    y = f32[2] exponential(x)
    c = f32[1] constant({5})
    k = f32[3] concatenate(y, c), dimensions={0}
    r = f32[3] reverse(k), dimensions={0}
    n = f32[3] negate(r)
    d = f32[3] add(n, n)
    s = s32[3] convert(d)
    ROOT t = (f32[3], s32[3]) tuple(d, s) })", {F32({1, 0})});
  ASSERT_TRUE(e.bounds[0].has_value());
  EXPECT_EQ(e.bounds[0]->GetAsDouble(0), 0) << "the constant is exact wherever it is moved";
  EXPECT_GT(e.bounds[0]->GetAsDouble(1), 0);
  EXPECT_LT(e.bounds[0]->GetAsDouble(1), 1e-4);
  EXPECT_EQ(e.bounds[1]->GetAsDouble(0), 0);
  EXPECT_EQ(e.bounds[1]->GetAsDouble(2), 0) << "both ends are truncated to 5";
  EXPECT_TRUE(std::isinf(e.bounds[1]->GetAsDouble(1))) << "a truncated inexact value may jump";
}

TEST(ErrorBound, FollowsLoopsAndBranches) {
  const Expectation e = Expected(R"(
cond { s = (s32[], f32[2]) parameter(0) i = s32[] get-tuple-element(s), index=0 n = s32[] constant(3) ROOT l = pred[] compare(i, n), direction=LT }
body {
  s = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[2] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[2] tanh(x)
  ROOT t = (s32[], f32[2]) tuple(j, y)
}
ENTRY f { x = f32[2] parameter(0) z = s32[] constant(0) s = (s32[], f32[2]) tuple(z, x) ROOT w = (s32[], f32[2]) while(s), condition=cond, body=body })",
                                 {F32({0.5f, 0})});
  EXPECT_FALSE(e.bounds[0].has_value());
  EXPECT_GT(e.bounds[1]->GetAsDouble(0), 0x1p-25);
  EXPECT_LT(e.bounds[1]->GetAsDouble(0), 0x1p-20);
}

TEST(ErrorBound, DotsOfSmallIntegersAreExactAndOthersBounded) {
  const std::string dot =
      "ENTRY f { x = f32[4] parameter(0) y = f32[4] parameter(1) ROOT d = f32[] dot(x, y), lhs_contracting_dims={0}, "
      "rhs_contracting_dims={0} }";
  EXPECT_FALSE(Expected(dot, {F32({1, 2, 3, 4}), F32({5, -6, 7, 8})}).bounds[0].has_value());
  EXPECT_TRUE(Expected(dot, {F32({0.1f, 2, 3, 4}), F32({5, -6, 0.7f, 8})}).bounds[0].has_value());
}

// Without: 1 + 1/256 is 1 in bf16. With: it may have stayed what it is, and 256 times the rest is 0 or 1.
TEST(ErrorBound, HalvesMayKeepMore) {
  auto module = ParseModule(R"(ENTRY f {
    x = bf16[1] parameter(0)
    y = bf16[1] parameter(1)
    s = bf16[1] add(x, y)
    d = bf16[1] subtract(s, x)
    w = f32[1] convert(d)
    ROOT t = (f32[1], bf16[1]) tuple(w, s) })");
  ASSERT_TRUE(module.ok()) << module.status();
  const auto half = [](double v) { return Literal::Full(PrimitiveType::kBF16, {1}, v); };
  const std::vector<Literal> arguments = {half(1), half(0x1p-8)};
  const auto judged = [&](bool excess, double got) {
    return Compare({F32({static_cast<float>(got)}), half(1)}, *Expect(**module, arguments, excess)).outcome;
  };
  EXPECT_EQ(judged(false, 0), Outcome::kSame);
  EXPECT_EQ(judged(false, 0x1p-8), Outcome::kDifferent);
  EXPECT_EQ(judged(true, 0), Outcome::kSame);
  EXPECT_EQ(judged(true, 0x1p-8), Outcome::kSame);
  EXPECT_EQ(judged(true, 0x1p-6), Outcome::kDifferent);
}

TEST(ErrorBound, InfinitiesAndNansOfSumsAndFunctionsAreCertain) {
  const auto sum = [](std::vector<float> x) { return Expected(kSum, {F32(std::move(x))}); };
  EXPECT_FALSE(sum({-INFINITY, 0.1f, 1e7f, 3}).bounds[0].has_value());
  EXPECT_TRUE(std::isnan(sum({-INFINITY, INFINITY, 1e7f, 3}).values[0].GetAsDouble(0)));
  const Expectation e =
      Expected(R"(ENTRY f { x = f32[2] parameter(0) y = f32[2] exponential(x) z = f32[2] tanh(y) ROOT s = f32[2] add(z, y) })",
               {F32({NAN, INFINITY})});
  EXPECT_EQ(Compare({F32({0, INFINITY})}, e).outcome, Outcome::kDifferent) << "NaN is lost";
  EXPECT_EQ(Compare({F32({NAN, INFINITY})}, e).outcome, Outcome::kSame);
  EXPECT_EQ(Compare({F32({NAN, INFINITY})}, e).unjudged, 0);
}

TEST(ErrorBound, AMissingTermOfAHalfSumShows) {
  auto module = ParseModule(R"(
add { a = bf16[] parameter(0) b = bf16[] parameter(1) ROOT s = bf16[] add(a, b) }
ENTRY f { x = bf16[512] parameter(0) z = bf16[] constant(0) ROOT r = bf16[] reduce(x, z), dimensions={0}, to_apply=add })");
  ASSERT_TRUE(module.ok()) << module.status();
  Literal x(Shape::Array(PrimitiveType::kBF16, {512}));
  double all = 0;
  for (int64_t i = 0; i < 512; ++i) x.SetFromDouble(i, 0.7), all += x.GetAsDouble(i);
  const Expectation e = *Expect(**module, {x}, /*excess_precision=*/true);
  const auto judged = [&](double got) { return Compare({Literal::Scalar(PrimitiveType::kBF16, got)}, e).outcome; };
  EXPECT_EQ(judged(all), Outcome::kSame);
  EXPECT_EQ(judged(all - 4), Outcome::kDifferent);
}

// x[2,2], whose columns are the features; scale and offset 1.
std::vector<double> TrainingBounds(std::vector<float> x) {
  const Expectation e = Expected(
      "ENTRY f { x = f32[4] parameter(0) m = f32[2,2] reshape(x) one = f32[] constant(1) s = f32[2] broadcast(one), dimensions={} "
      "ROOT n = (f32[2,2], f32[2], f32[2]) batch-norm-training(m, s, s), epsilon=0.001, feature_index=1 }",
      {F32(std::move(x))});
  std::vector<double> bounds;
  for (size_t leaf = 0; leaf < e.bounds.size(); ++leaf) {
    for (int64_t k = 0; k < e.values[leaf].num_elements(); ++k) bounds.push_back(e.bounds[leaf] ? e.bounds[leaf]->GetAsDouble(k) : 0);
  }
  return bounds;
}

TEST(ErrorBound, AFeaturesNanIsNotTheOthers) {
  const std::vector<double> b = TrainingBounds({NAN, 1, 2, 3});
  ASSERT_EQ(b.size(), 8);
  EXPECT_EQ(b[0], 0) << "NaN for certain";
  EXPECT_EQ(b[2], 0);
  EXPECT_GT(b[1], 0);
  EXPECT_LT(b[1], 1e-3) << "the other feature is judged";
  EXPECT_LT(b[3], 1e-3);
  EXPECT_EQ(b[4], 0) << "its mean";
  EXPECT_LT(b[5], 1e-3);
  const std::vector<double> large = TrainingBounds({1e30f, 1, 2, 3});
  EXPECT_TRUE(std::isinf(large[0])) << "the square overflows in one order or the other";
  EXPECT_LT(large[1], 1e-3);
}

TEST(ErrorBound, ZerosHaveASignWhereTheTermsSaySo) {
  const auto signs = [](std::vector<float> x) { return Expected(kSum, {F32(std::move(x))}); };
  const Expectation negative = Expected(R"(
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
ENTRY f { x = f32[2] parameter(0) z = f32[] constant(-0) ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=add })",
                                        {F32({-0.0f, -0.0f})});
  EXPECT_EQ(Compare({Literal::Scalar(PrimitiveType::kF32, 0.0)}, negative).outcome, Outcome::kDifferent);
  EXPECT_EQ(Compare({Literal::Scalar(PrimitiveType::kF32, -0.0)}, negative).outcome, Outcome::kSame);
  EXPECT_EQ(Compare({Literal::Scalar(PrimitiveType::kF32, -0.0)}, signs({1, -1, 0, 0})).outcome, Outcome::kDifferent);
}

TEST(ErrorBound, AnExtremumOfNarrowFloatsMayKeepEitherZero) {
  const Literal zeros = Literal::FromSpan<float>(PrimitiveType::kF32, {2}, std::vector<float>{0.0f, -0.0f});
  const Expectation e = Expected(R"(
low { a = f8e5m2[] parameter(0) b = f8e5m2[] parameter(1) ROOT s = f8e5m2[] minimum(a, b) }
ENTRY f { w = f32[2] parameter(0) x = f8e5m2[2] convert(w) z = f8e5m2[] constant(1)
  ROOT r = f8e5m2[] reduce(x, z), dimensions={0}, to_apply=low })",
                                 {zeros});
  ASSERT_TRUE(e.bounds[0].has_value());
  EXPECT_EQ(e.bounds[0]->GetAsDouble(0), 5e-324) << "its sign alone is open";
}

TEST(ErrorBound, AMapIsItsRegionOnArrays) {
  const Expectation e = Expected(R"(
region { a = f32[] parameter(0) b = f32[] parameter(1) two = f32[] constant(2) p = f32[] multiply(b, two) ROOT t = f32[] tanh(p) }
ENTRY f { x = f32[3] parameter(0) y = f32[3] parameter(1) z = f32[3] exponential(x)
  m = f32[3] map(x, z), dimensions={0}, to_apply=region
  n = f32[3] map(x, y), dimensions={0}, to_apply=region ROOT r = (f32[3], f32[3]) tuple(m, n) })",
                                 {F32({0.5, -1, 0}), F32({0, 0.25, 1})});
  ASSERT_TRUE(e.bounds[0].has_value() && e.bounds[1].has_value());
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_GT(e.bounds[0]->GetAsDouble(i), 0);
    EXPECT_LT(e.bounds[0]->GetAsDouble(i), 1e-5);
    EXPECT_LT(e.bounds[1]->GetAsDouble(i), 1e-6);
  }
  EXPECT_EQ(e.bounds[1]->GetAsDouble(0), 0) << "tanh(0)";
}

TEST(ErrorBound, ABatchNormScaledByZeroIsItsOffset) {
  const Expectation e = Expected(R"(
ENTRY f { x = f32[3,2] parameter(0) s = f32[2] parameter(1) o = f32[2] parameter(2) m = f32[2] parameter(3) v = f32[2] parameter(4)
  y = f32[3,2] batch-norm-inference(x, s, o, m, v), epsilon=0.001, feature_index=1
  t = f32[3,2] tanh(y) ROOT r = (f32[3,2], f32[3,2]) tuple(y, t) })",
                                 {Literal::FromSpan<float>(PrimitiveType::kF32, {3, 2}, std::vector<float>{1, 2, 3, 4, 5, 6}), F32({0, 0}),
                                  F32({0, 7}), F32({1, 1}), F32({2, 2})});
  ASSERT_TRUE(e.bounds[0].has_value() && e.bounds[1].has_value());
  EXPECT_EQ(e.bounds[0]->GetAsDouble(0), 5e-324) << "zero, of either sign";
  EXPECT_EQ(e.bounds[0]->GetAsDouble(1), 0) << "the offset";
  EXPECT_EQ(e.bounds[1]->GetAsDouble(0), 5e-324) << "tanh of such a zero";
}

TEST(ErrorBound, AProductOfWhatWasNotRoundedIsRoundedItself) {
  const Expectation e = Expected(R"(
m { a = bf16[] parameter(0) b = bf16[] parameter(1) ROOT p = bf16[] multiply(a, b) }
ENTRY f { x = s32[3] parameter(0) h = bf16[3] convert(x) one = bf16[] constant(1) ROOT r = bf16[] reduce(h, one), dimensions={0}, to_apply=m })",
                                 {Literal::FromSpan<int32_t>(PrimitiveType::kS32, {3}, std::vector<int32_t>{(1 << 20) - 1, 129, 3})}, true);
  ASSERT_TRUE(e.bounds[0].has_value());
  EXPECT_GE(e.bounds[0]->GetAsDouble(0), 1 << 21) << "2^20 * 387 lies between two numbers, and goes up; a little less goes down";
}

TEST(ErrorBound, ADistanceOfTheSmallestDoubleIsNoOpenSign) {
  const Expectation e = Expected("ENTRY f { x = f64[1] parameter(0) h = f16[1] convert(x) ROOT c = f16[1] ceil(h) }",
                                 {Literal::FromSpan<double>(PrimitiveType::kF64, {1}, std::vector<double>{5e-324})}, true);
  ASSERT_TRUE(e.bounds[0].has_value());
  EXPECT_GE(e.bounds[0]->GetAsDouble(0), 1) << "of what was not rounded, 1";
}

// Sums along a scan may be grouped in any way: -1e8 + (1e8 + 0.1) has lost the last. Nothing is open where all partial sums are exact.
TEST(ErrorBound, SumsAlongAScanMayBeGrouped) {
  const std::string text = R"(
step { a = f32[] parameter(0) c = f32[] parameter(1) s = f32[] add(a, c) ROOT t = (f32[], f32[]) tuple(s, s) }
last { a = f32[] parameter(0) c = f32[] parameter(1) s = f32[] subtract(a, c) ROOT t = (f32[], f32[]) tuple(s, s) }
ENTRY f { x = f32[3] parameter(0) z = f32[] constant(0)
  s = (f32[3], f32[]) scan(x, z), dimensions={0}, to_apply=step, num_carries=1
  d = (f32[3], f32[]) scan(x, z), dimensions={0}, to_apply=last, num_carries=1
  ROOT r = ((f32[3], f32[]), (f32[3], f32[])) tuple(s, d) })";
  const Expectation far = Expected(text, {F32({-1e8f, 1e8f, 0.1f})}), whole = Expected(text, {F32({1, 2, 3})});
  ASSERT_TRUE(far.bounds[0].has_value() && far.bounds[1].has_value());
  EXPECT_GE(far.bounds[0]->GetAsDouble(2), 0.1);
  EXPECT_GE(far.bounds[1]->GetAsDouble(0), 0.1);
  EXPECT_LT(far.bounds[0]->GetAsDouble(2), 200);
  EXPECT_FALSE(far.bounds[2].has_value() || far.bounds[3].has_value()) << "differences go step by step";
  EXPECT_FALSE(whole.bounds[0].has_value() || whole.bounds[1].has_value());
}

// What the scanned numbers are off by grows from step to step.
TEST(ErrorBound, AScanCarriesErrorsInItsOrder) {
  const std::string text = R"(
step { a = f32[2] parameter(0) c = f32[2] parameter(1) s = f32[2] add(a, c) ROOT t = (f32[2], f32[2]) tuple(s, s) }
ENTRY f { x = f32[3,2] parameter(0) e = f32[3,2] exponential(x) z = f32[2] parameter(1)
  forth = (f32[3,2], f32[2]) scan(e, z), dimensions={0}, to_apply=step, num_carries=1
  back = (f32[3,2], f32[2]) scan(e, z), dimensions={0}, to_apply=step, num_carries=1, is_reverse=true
  plain = (f32[3,2], f32[2]) scan(x, z), dimensions={0}, to_apply=step, num_carries=1
  ROOT r = ((f32[3,2], f32[2]), (f32[3,2], f32[2]), (f32[3,2], f32[2])) tuple(forth, back, plain) })";
  const Literal x = Literal::FromSpan<float>(PrimitiveType::kF32, {3, 2}, std::vector<float>{1, 2, 3, 4, 5, 6});
  const Expectation e = Expected(text, {x, F32({0, 0})});
  ASSERT_TRUE(e.bounds[0].has_value() && e.bounds[1].has_value() && e.bounds[2].has_value());
  const auto at = [&](int leaf, int64_t k) { return e.bounds[leaf]->GetAsDouble(k); };
  EXPECT_GT(at(0, 0), 0);
  EXPECT_GT(at(0, 2), at(0, 0));
  EXPECT_GT(at(0, 4), at(0, 2));
  EXPECT_EQ(at(1, 0), at(0, 4));
  EXPECT_GT(at(2, 4), at(0, 0)) << "backwards: e^5 comes first";
  EXPECT_GE(at(2, 0), at(2, 4));
  EXPECT_LT(at(0, 5), 1e-3);
  EXPECT_FALSE(e.bounds[4].has_value() || e.bounds[5].has_value());
}

TEST(ErrorBound, AScanDrawsOnce) {
  const std::string text = R"(
step { a = f32[2] parameter(0) b = f32[2] parameter(1) z = f32[] constant(0) o = f32[] constant(1) r = f32[2] rng(z, o), distribution=rng_uniform
  e = f32[2] exponential(a) ROOT t = (f32[2], f32[2]) tuple(r, e) }
ENTRY f { x = f32[3,2] parameter(0) s = (f32[3,2], f32[3,2]) scan(x, x), dimensions={0}, to_apply=step, num_carries=0
  d = f32[3,2] get-tuple-element(s), index=0 z = f32[] constant(0) o = f32[] constant(1)
  g = f32[2] rng(z, o), distribution=rng_uniform ROOT r = (f32[3,2], f32[2]) tuple(d, g) })";
  const Literal x = Literal::FromSpan<float>(PrimitiveType::kF32, {3, 2}, std::vector<float>{1, 2, 3, 4, 5, 6});
  auto module = ParseModule(text);
  ASSERT_TRUE(module.ok()) << module.status();
  auto value = Evaluate(**module, {x});
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(Expected(text, {x}).values[0], value->elements()[0]);
}

TEST(ErrorBound, TheMeanOfOneNumberIsItself) {
  const Expectation e = Expected(R"(
ENTRY f { x = f32[2] parameter(0) ROOT n = (f32[2], f32[2], f32[2]) batch-norm-training(x, x, x), epsilon=0.001, feature_index=0 })",
                                 {F32({0.3f, 1e5f})});
  EXPECT_FALSE(e.bounds[1].has_value()) << "mean";
  EXPECT_FALSE(e.bounds[2].has_value()) << "variance";
}

TEST(ErrorBound, AScatterThatReplacesMovesErrors) {
  const Expectation e = Expected(R"(
second { a = f32[] parameter(0) ROOT b = f32[] parameter(1) }
most { a = f32[] parameter(0) b = f32[] parameter(1) ROOT m = f32[] maximum(a, b) }
ENTRY f { x = f32[3] parameter(0) i = s64[1] constant({1}) u = f32[1] parameter(1) e = f32[1] exponential(u)
  r = f32[3] scatter(x, i, e), to_apply=second, index_vector_dim=1, update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}
  m = f32[3] scatter(x, i, e), to_apply=most, index_vector_dim=1, update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}
  n = s32[] get-dimension-size(e), dimensions={0}
  ROOT t = (f32[3], f32[3], s32[]) tuple(r, m, n) })",
                                 {F32({1, 2, 3}), F32({5})});
  ASSERT_TRUE(e.bounds[0].has_value() && e.bounds[1].has_value());
  for (int leaf : {0, 1}) {
    EXPECT_EQ(e.bounds[leaf]->GetAsDouble(0), 0);
    EXPECT_GT(e.bounds[leaf]->GetAsDouble(1), 0);
    EXPECT_LT(e.bounds[leaf]->GetAsDouble(1), 1e-4);
  }
  EXPECT_FALSE(e.bounds[2].has_value()) << "a size is the same whatever the values";
}

TEST(ErrorBound, ARealPartThatIsNotRoundedToAHalfIsRoundedToItsRegister) {
  const std::vector<std::complex<double>> tiny = {{-1e-187, 0}};
  const Expectation e = Expected("ENTRY f { x = c128[1] parameter(0) h = f16[1] convert(x) ROOT w = f32[1] convert(h) }",
                                 {Literal::FromSpan<std::complex<double>>(PrimitiveType::kC128, {1}, tiny)}, true);
  ASSERT_TRUE(e.bounds[0].has_value());
  EXPECT_GE(e.bounds[0]->GetAsDouble(0), 0x1p-149) << "to the odd neighbour of zero";
  EXPECT_LT(e.bounds[0]->GetAsDouble(0), 0x1p-146);
}

TEST(ErrorBound, BitsOfAComputedNanAreNotJudged) {
  const std::string text = "ENTRY f { x = f32[2] parameter(0) y = f32[2] divide(x, x) ROOT b = u32[2] bitcast-convert(y) }";
  EXPECT_TRUE(std::isinf(Expected(text, {F32({0, 1})}).bounds[0]->GetAsDouble(0)));
  EXPECT_FALSE(Expected(text, {F32({2, 1})}).bounds[0].has_value());
}

// 587.5 * 587.5 is an infinity in f16, not where more bits are kept: an array that is as long as the product says may be longer or shorter.
TEST(ErrorBound, WhatHasASizeThatIsNotKnownIsNotJudged) {
  constexpr char kText[] = R"(
ENTRY f {
  x = f16[] parameter(0)
  y = f32[31] parameter(1)
  p = f16[] multiply(x, x)
  i = s32[] convert(p)
  n = s32[] count-leading-zeros(i)
  d = f32[<=31] set-dimension-size(y, n), dimensions={0}
  m = f32[<=31] negate(d)
  s = s32[] get-dimension-size(m), dimensions={0}
  ROOT t = (f32[<=31], s32[]) tuple(m, s)
})";
  const auto expected = [&](double x, bool excess) {
    return Expected(kText, {Literal::Scalar(PrimitiveType::kF16, x), F32(std::vector<float>(31, 1.5f))}, excess);
  };
  const Expectation longer = expected(100, false), overflows = expected(587.5, true), rounds = expected(587.5, false);
  EXPECT_EQ(overflows.open_sizes, std::vector<bool>({true, true}));
  const Verdict open = Compare(longer.values, overflows);
  EXPECT_EQ(open.outcome, Outcome::kSame) << open.text;
  EXPECT_EQ(open.unjudged, open.elements);
  EXPECT_EQ(open.bounded, open.elements);
  EXPECT_EQ(Compare(longer.values, rounds).outcome, Outcome::kDifferent);
  EXPECT_EQ(Compare(longer.values, expected(2, true)).outcome, Outcome::kDifferent);
  EXPECT_EQ(Compare(longer.values, expected(100, true)).outcome, Outcome::kSame);
  EXPECT_EQ(expected(100, true).open_sizes, std::vector<bool>({false, false}));
}

}  // namespace
}  // namespace tenon::lab
