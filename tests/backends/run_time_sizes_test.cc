// Bounded dimensions whose sizes the arguments bring or the program computes, against the evaluator.
#include "backends/driver/literal_executable.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hlo/eval/evaluator.h"
#include "hlo/text/text.h"
#include "hlo/tolerance.h"

namespace tenon {
namespace {

// Three stages: x's size, then n, then a size made from that of t.
constexpr char kStages[] = R"(HloModule stages
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
halves { y = f32[8] parameter(0)  n = s32[] parameter(1)  ROOT s = f32[<=8] set-dimension-size(y, n), dimensions={0} }
ENTRY main {
  x = f32[<=6,3] parameter(0)
  n = s32[] parameter(1)
  z = f32[] constant(0)
  r = f32[3] reduce(x, z), dimensions={0}, to_apply=add
  y = f32[8] parameter(2)
  s = f32[<=8] call(y, n), to_apply=halves
  t = f32[<=8] negate(s)
  k = s32[] get-dimension-size(t), dimensions={0}
  one = s32[] constant(1)
  k1 = s32[] subtract(k, one)
  u = f32[<=8] set-dimension-size(t, k1), dimensions={0}
  q = f32[] reduce(u, z), dimensions={0}, to_apply=add
  ROOT o = (f32[3], f32[<=8], s32[], f32[]) tuple(r, t, k1, q)
}
)";

Literal Iota(std::vector<int64_t> dims) {
  Literal l(Shape::Array(PrimitiveType::kF32, dims));
  for (int64_t i = 0; i < l.num_elements(); ++i) l.SetFromDouble(i, static_cast<double>(i + 1));
  return l;
}
Literal Int(int64_t value) {
  Literal l(Shape::Array(PrimitiveType::kS32, {}));
  l.SetFromInt64(0, value);
  return l;
}

TEST(RunTimeSizes, EachSetOfSizesIsCompiledWhenItComes) {
  const auto module = ParseModule(kStages);
  ASSERT_TRUE(module.ok()) << module.status();
  const auto executable = LiteralExecutable::Compile(**module, {.verify_passes = true});
  ASSERT_TRUE(executable.ok()) << executable.status();
  const std::pair<int64_t, int64_t> kSizes[] = {{4, 5}, {6, 3}, {1, 8}, {0, 1}, {4, 5}};
  for (const auto& [rows, n] : kSizes) {
    const std::vector<Literal> args = {Iota({rows, 3}), Int(n), Iota({8})};
    const auto got = (*executable)->Run(args);
    ASSERT_TRUE(got.ok()) << got.status();
    const auto want = Evaluate(**module, args);
    ASSERT_TRUE(want.ok()) << want.status();
    ASSERT_EQ(got->size(), want->elements().size());
    EXPECT_EQ((*got)[1].num_elements(), n);
    for (size_t i = 0; i < got->size(); ++i) {
      const LiteralDifference difference = CompareLiterals((*got)[i], want->elements()[i]);
      EXPECT_TRUE(difference.within) << rows << " rows, n = " << n << ", output " << i << ": " << difference.what;
    }
  }
}

// The sized array is only in a computation that is called.
TEST(RunTimeSizes, InACalledComputation) {
  const auto module = ParseModule(R"(HloModule called
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
first { y = f32[8] parameter(0)  n = s32[] parameter(1)  z = f32[] constant(0)
  s = f32[<=8] set-dimension-size(y, n), dimensions={0}
  ROOT r = f32[] reduce(s, z), dimensions={0}, to_apply=add }
ENTRY main { y = f32[8] parameter(0)  n = s32[] parameter(1)  ROOT r = f32[] call(y, n), to_apply=first })");
  ASSERT_TRUE(module.ok()) << module.status();
  const auto executable = LiteralExecutable::Compile(**module, {});
  ASSERT_TRUE(executable.ok()) << executable.status();
  for (const auto& [n, sum] : {std::pair{0, 0.0}, {3, 6.0}, {8, 36.0}}) {
    const auto got = (*executable)->Run({Iota({8}), Int(n)});
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ((*got)[0].GetAsDouble(0), sum);
  }
}

TEST(RunTimeSizes, ASizeAboveItsBoundIsTheCallersError) {
  const auto executable = LiteralExecutable::Compile(**ParseModule(kStages), {});
  ASSERT_TRUE(executable.ok());
  for (int64_t n : {9, -1, 0}) {  // 0: u's size is -1 then
    const auto got = (*executable)->Run({Iota({4, 3}), Int(n), Iota({8})});
    EXPECT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument) << got.status();
  }
  EXPECT_TRUE((*executable)->Run({Iota({4, 3}), Int(2), Iota({8})}).ok());  // and nothing is lost
}

void ExpectRefused(const char* text, const char* because) {
  const auto module = ParseModule(text);
  ASSERT_TRUE(module.ok()) << module.status();
  const auto executable = LiteralExecutable::Compile(**module, {});
  EXPECT_EQ(executable.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(executable.status().message()), testing::HasSubstr(because));
}

TEST(RunTimeSizes, RefusedByName) {
  // Computing the size apart would draw once more.
  ExpectRefused(R"(ENTRY e {
  low = s32[] constant(0)
  high = s32[] constant(4)
  n = s32[] rng(low, high), distribution=rng_uniform
  x = f32[4] parameter(0)
  ROOT y = f32[<=4] set-dimension-size(x, n), dimensions={0}
})",
                "rng");
  ExpectRefused(R"(HloModule symbolic, symbols={s:[1,inf]}
ENTRY e {
  x = f32[s] parameter(0)
  n = s32[] parameter(1)
  y = f32[4] parameter(2)
  z = f32[<=4] set-dimension-size(y, n), dimensions={0}
  ROOT t = tuple(x, z)
})",
                "static arrays");
}

}  // namespace
}  // namespace tenon
