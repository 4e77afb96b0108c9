// f32 sums that are wanted in f64 (passes/wide_sum.h): not rounded to f32 between where excess precision is allowed, rounded where it
// isn't, in rows, columns and pieces. All elements are 2^24 + 2, so that a tree of two, four or eight is exact in f32 and the total
// isn't.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "backends/cpu/plan/target.h"
#include "backends/driver/literal_executable.h"
#include "hlo/text/text.h"

namespace tenon {
namespace {

constexpr double kElement = (1 << 23) + 1;

struct Sum {
  const char *name, *operand, *dims, *result;
  int64_t count;  // elements of one sum
};

std::string Text(const Sum& sum, const char* after) {
  return absl::StrReplaceAll(R"(HloModule wide
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
ENTRY main {
  x = f32[$OPERAND] parameter(0)
  two = f32[] constant(2)
  twos = f32[$OPERAND] broadcast(two), dimensions={}
  t = f32[$OPERAND] multiply(x, twos)
  zero = f32[] constant(0)
  s = f32[$RESULT] reduce(t, zero), dimensions={$DIMS}, to_apply=add
  w = f64[$RESULT] convert(s)
  $AFTER
})",
                             {{"$OPERAND", sum.operand}, {"$DIMS", sum.dims}, {"$RESULT", sum.result}, {"$AFTER", after}});
}

class WideSums : public testing::TestWithParam<std::tuple<Sum, std::string>> {
 protected:
  std::vector<Literal> Run(const char* after, bool excess_precision) {
    const auto& [sum, isa] = GetParam();
    absl::StatusOr<std::unique_ptr<Module>> module = ParseModule(Text(sum, after), {});
    TENON_CHECK(module.ok(), module.status().ToString());
    Literal x((*module)->entry()->parameter(0)->shape());
    for (int64_t i = 0; i < x.num_elements(); ++i) x.SetFromDouble(i, kElement);
    auto executable =
        LiteralExecutable::Compile(**module, {.isa = isa, .excess_precision = excess_precision, .verify_passes = true});
    TENON_CHECK(executable.ok(), executable.status().ToString());
    absl::StatusOr<std::vector<Literal>> results = (*executable)->Run({x});
    TENON_CHECK(results.ok(), results.status().ToString());
    return *std::move(results);
  }
  double total() const { return 2 * kElement * static_cast<double>(std::get<0>(GetParam()).count); }
  static void ExpectAll(const Literal& found, double wanted) {
    for (int64_t i = 0; i < found.num_elements(); ++i) ASSERT_EQ(found.GetAsDouble(i), wanted) << "element " << i;
  }
};

constexpr char kWide[] = "d = f64[$RESULT] add(w, w)\n  ROOT r = (f64[$RESULT], f32[$RESULT]) tuple(d, s)";
std::string Both(const Sum& sum) { return absl::StrReplaceAll(kWide, {{"$RESULT", sum.result}}); }

TEST_P(WideSums, AreNotRoundedBetween) {
  const std::vector<Literal> found = Run(Both(std::get<0>(GetParam())).c_str(), true);
  ExpectAll(found[0], 2 * total());
  ExpectAll(found[1], static_cast<float>(total()));  // the f32 result is
}

TEST_P(WideSums, AreRoundedWithoutTheLeave) {
  const std::vector<Literal> found = Run(Both(std::get<0>(GetParam())).c_str(), false);
  const double once = found[0].GetAsDouble(0) / 2;
  EXPECT_EQ(once, static_cast<float>(once));
  EXPECT_NEAR(once, total(), 1e-6 * total());
  ExpectAll(found[0], 2 * once);
  ExpectAll(found[1], once);
}

TEST_P(WideSums, AlsoWhereNothingElseReadsTheSum) {
  const std::string root = absl::StrCat("ROOT d = f64[", std::get<0>(GetParam()).result, "] negate(w)");
  ExpectAll(Run(root.c_str(), true)[0], -total());
}

constexpr Sum kSums[] = {
    {"rows", "5,1003", "1", "5", 1003},
    {"short_rows", "5,7", "1", "5", 7},
    {"rows_of_two_loops", "6,5,40", "0,2", "5", 240},
    {"columns", "1001,37", "0", "37", 1001},
    {"few_rows_of_columns", "11,200", "0", "200", 11},
    {"pieces", "150000", "0", "", 150000},
    {"pieces_and_a_rest", "131101", "0", "", 131101},
    {"columns_in_pieces", "50001,3", "0", "3", 50001},
};
std::string NameOf(const testing::TestParamInfo<std::tuple<Sum, std::string>>& info) {
  return absl::StrCat(std::get<0>(info.param).name, "_", absl::StrReplaceAll(std::get<1>(info.param), {{"-", "_"}, {".", "_"}}));
}
INSTANTIATE_TEST_SUITE_P(Kernels, WideSums, testing::Combine(testing::ValuesIn(kSums), testing::ValuesIn(HostIsas())), NameOf);

// Rows of a length that is a symbol: short ones have the exact program's bits, which has no stretches for them; long ones are added up in
// stretches like any long sum. Of tenths, a partial result that took up all its terms would be off by a hundred times what is allowed here.
TEST(WideSumsOfSymbols, StretchesBeginWhereTheyAreNeeded) {
  const char* text = R"(HloModule rows$SYMBOLS
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
ENTRY main {
  x = f32[2,$N] parameter(0)
  zero = f32[] constant(0)
  ROOT s = f32[2] reduce(x, zero), dimensions={1}, to_apply=add
})";
  for (const std::string& isa : HostIsas()) {
    auto compile = [&](const std::string& symbols, const std::string& n) {
      const std::string filled = absl::StrReplaceAll(text, {{"$SYMBOLS", symbols.c_str()}, {"$N", n.c_str()}});
      absl::StatusOr<std::unique_ptr<Module>> module = ParseModule(filled, {});
      TENON_CHECK(module.ok(), module.status().ToString());
      auto executable = LiteralExecutable::Compile(**module, {.isa = isa, .verify_passes = true});
      TENON_CHECK(executable.ok(), executable.status().ToString());
      return *std::move(executable);
    };
    const auto all = compile(", symbols={s0:[0,100000000]~1000}", "s0");
    for (const int64_t n : {0, 1, 777, 1000, 4096, 40'000, 8'000'000}) {
      Literal x(Shape(PrimitiveType::kF32, {2, n}));
      for (int64_t i = 0; i < x.num_elements(); ++i) x.SetFromDouble(i, 0.1f);
      absl::StatusOr<std::vector<Literal>> found = all->Run({x});
      ASSERT_TRUE(found.ok()) << found.status();
      const double want = static_cast<double>(0.1f) * static_cast<double>(n);
      EXPECT_NEAR((*found)[0].GetAsDouble(1), want, 1e-6 * want) << isa << ", " << n;
      if (n > 4096) continue;
      absl::StatusOr<std::vector<Literal>> exact = compile("", absl::StrCat(n))->Run({x});
      ASSERT_TRUE(exact.ok()) << exact.status();
      EXPECT_EQ((*found)[0].GetAsDouble(1), (*exact)[0].GetAsDouble(1)) << isa << ", " << n;
    }
  }
}

}  // namespace
}  // namespace tenon
