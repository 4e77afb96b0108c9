// A module with symbols on literals: one executable for all sizes, and calls that it refuses.
#include "backends/driver/literal_executable.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hlo/eval/evaluator.h"
#include "hlo/sizes.h"
#include "hlo/text/text.h"
#include "hlo/tolerance.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Module> Parse(std::string_view text) {
  auto module = ParseModule(text);
  EXPECT_TRUE(module.ok()) << module.status();
  return *std::move(module);
}

Literal Counts(std::vector<int64_t> dims) {
  Literal l(Shape::Array(PrimitiveType::kF32, dims));
  for (int64_t i = 0; i < l.num_elements(); ++i) l.SetFromDouble(i, static_cast<double>(i % 13) - 3);
  return l;
}

// Against the evaluator on the module of numbers.
void ExpectSame(const Module& module, LiteralExecutable& executable, const std::vector<Literal>& arguments) {
  const auto sizes = SizesOfArguments(module, arguments);
  ASSERT_TRUE(sizes.ok()) << sizes.status();
  const auto numbers = WithSizes(module, *sizes);
  ASSERT_TRUE(numbers.ok()) << numbers.status();
  const auto want = Evaluate(**numbers, arguments);
  ASSERT_TRUE(want.ok()) << want.status();
  const auto got = executable.Run(arguments);
  ASSERT_TRUE(got.ok()) << SizesText(*sizes) << ": " << got.status();
  ASSERT_EQ(got->size(), want->elements().size());
  for (size_t i = 0; i < got->size(); ++i) {
    const LiteralDifference difference = CompareLiterals((*got)[i], want->elements()[i]);
    EXPECT_TRUE(difference.within) << SizesText(*sizes) << ", output " << i << ": " << difference.what;
  }
}

constexpr char kRows[] = R"(HloModule rows, symbols={s:[0,inf],t:[2,300]}
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[s,t]{0,1} parameter(0)
  y = f32[t] parameter(1)
  ys = f32[s,t] broadcast(y), dimensions={1}
  p = f32[s,t] multiply(x, ys)
  z = f32[] constant(0)
  r = f32[s] reduce(p, z), dimensions={1}, to_apply=sum
  q = f32[t,s]{0,1} transpose(x), dimensions={1,0}
  f = f32[s*t] reshape(p)
  k = s32[] get-dimension-size(x), dimensions={0}
  ROOT o = (f32[s], f32[t,s]{0,1}, f32[s*t], s32[]) tuple(r, q, f, k)
}
)";

TEST(LiteralSizes, OneExecutableInAnyOrderOfSizes) {
  const auto module = Parse(kRows);
  const auto executable = LiteralExecutable::Compile(*module, {.verify_passes = true});
  ASSERT_TRUE(executable.ok()) << executable.status();
  const std::pair<int64_t, int64_t> kSizes[] = {{7, 5}, {300, 2}, {0, 9}, {1, 300}, {7, 5}, {64, 64}};
  for (const auto& [s, t] : kSizes) ExpectSame(*module, **executable, {Counts({s, t}), Counts({t})});
}

TEST(LiteralSizes, RefusedCalls) {
  const auto module = Parse(kRows);
  const auto executable = LiteralExecutable::Compile(*module, {});
  ASSERT_TRUE(executable.ok()) << executable.status();
  const auto refused = [&](std::vector<Literal> arguments) { return (*executable)->Run(arguments).status(); };
  const absl::Status other = refused({Counts({7, 5}), Counts({4})});
  EXPECT_TRUE(absl::IsFailedPrecondition(other)) << other;
  EXPECT_THAT(std::string(other.message()), HasSubstr("input 1's size along dim 0: wanted t = 5, got 4"));
  EXPECT_THAT(std::string(refused({Counts({7, 301}), Counts({301})}).message()), HasSubstr("wanted t in [2, 300], got 301"));
  EXPECT_THAT(std::string(refused({Counts({7}), Counts({7})}).message()), HasSubstr("argument 0: wanted f32[s,t], got f32[7]"));
  ExpectSame(*module, **executable, {Counts({7, 5}), Counts({5})});
}

// What static modules of the same ops always could.
TEST(LiteralSizes, StatisticsOverSymbols) {
  const auto module = Parse(R"(HloModule norm, symbols={s:[1,inf],t:[1,inf]}
ENTRY main {
  x = f32[s,3,t] parameter(0)
  scale = f32[3] parameter(1)
  ROOT n = (f32[s,3,t], f32[3], f32[3]) batch-norm-training(x, scale, scale), epsilon=1, feature_index=1
}
)");
  const auto executable = LiteralExecutable::Compile(*module, {.excess_precision = false, .verify_passes = true});
  ASSERT_TRUE(executable.ok()) << executable.status();
  // Means and variances of so many small integers are exact where the count is a power of two.
  for (int64_t s : {4, 1, 16}) ExpectSame(*module, **executable, {Literal::Full(PrimitiveType::kF32, {s, 3, 2}, 3), Counts({3})});
}

}  // namespace
}  // namespace tenon
