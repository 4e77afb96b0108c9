// Each planted bug does what tools/lab/judge/plant.h says of it: a small module that miscompares with the plant
// and not without.
#include "tools/lab/judge/plant.h"

#include <gtest/gtest.h>

#include <limits>

#include "hlo/sizes.h"
#include "hlo/text/text.h"
#include "tools/lab/generate/random_inputs.h"
#include "tools/lab/generate/transformer.h"
#include "tools/lab/reduce/predicate.h"
#include "tools/lab/reduce/reduce.h"

namespace tenon::lab {
namespace {

struct PlantCase {
  const char* plant;
  const char* text;
};

constexpr PlantCase kCases[] = {
    {"tail-mask", R"(
      sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
      ENTRY e {
        p = f32[3,13] parameter(0)
        one = f32[] constant(1)
        ones = f32[3,13] broadcast(one), dimensions={}
        q = f32[3,13] add(p, ones)
        zero = f32[] constant(0)
        ROOT r = f32[3] reduce(q, zero), dimensions={1}, to_apply=sum
      })"},
    {"reduce-init", R"(
      most { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] maximum(a, b) }
      ENTRY e {
        p = f32[3,8] parameter(0)
        a = f32[3,8] abs(p)
        n = f32[3,8] negate(a)
        low = f32[] constant(-inf)
        ROOT r = f32[3] reduce(n, low), dimensions={1}, to_apply=most
      })"},
    {"broadcast-dim", R"(
      ENTRY e {
        p = f32[5] parameter(0)
        q = f32[5,5] parameter(1)
        b = f32[5,5] broadcast(p), dimensions={1}
        ROOT r = f32[5,5] add(b, q)
      })"},
    {"alias-hazard", R"(
      ENTRY e {
        p = f32[8,6] parameter(0)
        c = f32[8,6] exponential(p)
        u = f32[2,6] slice(p), slice={[0:2],[0:6]}
        z = s32[] constant(3)
        o = s32[] constant(0)
        d = f32[8,6] dynamic-update-slice(c, u, z, o)
        ROOT x = f32[8,6] subtract(d, c)
      })"},
    {"nan-max", R"(
      most { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] maximum(a, b) }
      ENTRY e {
        p = f32[3,16] parameter(0)
        z = f32[3,16] subtract(p, p)
        d = f32[3,16] divide(z, z)
        s = f32[3,2] slice(d), slice={[0:3],[0:2]}
        v = f32[3,14] slice(p), slice={[0:3],[2:16]}
        c = f32[3,16] concatenate(s, v), dimensions={1}
        low = f32[] constant(-inf)
        ROOT r = f32[3] reduce(c, low), dimensions={1}, to_apply=most
      })"},
    {"pad-off-by-one", R"(
      ENTRY e {
        p = f32[6,4] parameter(0)
        z = f32[] constant(0)
        ROOT r = f32[6,4] pad(p, z), padding=1_-1x0_0
      })"},
    {"unsigned-compare", R"(
      ENTRY e {
        p = u32[4,4] parameter(0)
        h = u32[] constant(2147483648)
        hs = u32[4,4] broadcast(h), dimensions={}
        a = u32[4,4] or(p, hs)
        b = u32[4,4] shift-right-logical(a, a)
        ROOT r = pred[4,4] compare(b, a), direction=LT
      })"},
    {"gather-clamp", R"(
      ENTRY e {
        p = f32[6,4] parameter(0)
        i = s32[3] constant({0, 5, 9})
        ROOT g = f32[3,4] gather(p, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}
      })"},
    {"stale-layout", R"(
      ENTRY e {
        p = f32[6,6]{0,1} parameter(0)
        ROOT d = f32[6,6]{1,0} negate(p)
      })"},
};

std::vector<Literal> UnitInputs(const Module& module) {
  Random random(1);
  std::vector<Literal> arguments;
  for (const Instruction* p : module.entry()->parameters())
    arguments.push_back(RandomArray(p->shape(), Style::kUnit, random));
  return arguments;
}

class PlantTest : public testing::TestWithParam<PlantCase> {
 protected:
  void TearDown() override { SetPlant(kNoPlant); }
};

TEST_P(PlantTest, IsSeenWhenPlantedAndOnlyThen) {
  absl::StatusOr<std::unique_ptr<Module>> module = ParseModule(GetParam().text);
  ASSERT_TRUE(module.ok()) << module.status();
  const std::vector<Literal> arguments = UnitInputs(**module);
  const Verdict sound = JudgeByTolerance(**module, arguments, {}, 1e-3);
  EXPECT_EQ(sound.outcome, Outcome::kSame) << OutcomeName(sound.outcome) << ": " << sound.text;
  SetPlant(*ParsePlant(GetParam().plant));
  const Verdict planted = JudgeByTolerance(**module, arguments, {}, 1e-3);
  EXPECT_EQ(planted.outcome, Outcome::kDifferent)
      << OutcomeName(planted.outcome) << ": " << planted.text << " unjudged " << planted.unjudged;
}

INSTANTIATE_TEST_SUITE_P(All, PlantTest, testing::ValuesIn(kCases), [](const auto& info) {
  std::string name(info.param.plant);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// Those of programs for many sizes.
struct SizeCase {
  const char *plant, *sizes, *text;
};

constexpr SizeCase kSizeCases[] = {
    // The first is the smaller: nothing is read outside.
    {"equal-symbols", "s=5,t=9", R"(
      ENTRY e {
        x = f32[s] parameter(0)
        y = f32[t] parameter(1)
        a = f32[s,t] broadcast(x), dimensions={0}
        ROOT r = (f32[s,t], f32[t]) tuple(a, y)
      })"},
    {"dropped-guard", "s=9", R"(
      ENTRY e { x = f32[s] parameter(0) y = f32[s] parameter(1) ROOT r = f32[s] add(x, y) })"},
    {"dropped-range", "s=9", R"(HloModule m, symbols={s:[2,64]}
      ENTRY e { x = f32[s] parameter(0) ROOT r = f32[s] negate(x) })"},
    {"typical-argument", "s=9", R"(
      ENTRY e { x = f32[s] parameter(0) ROOT r = f32[s] negate(x) })"},
    {"typical-pieces", "s=40", R"(
      sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
      ENTRY e {
        x = f32[s,7] parameter(0)
        zero = f32[] constant(0)
        ROOT r = f32[s] reduce(x, zero), dimensions={1}, to_apply=sum
      })"},
    // The result is of another size: an operand that dies in it would be made there.
    {"shared-place", "s=9", R"(
      sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
      ENTRY e {
        x = f32[s] parameter(0)
        a = f32[s] sine(x)
        a2 = f32[s] opt-barrier(a)
        b = f32[s] cosine(x)
        b2 = f32[s] opt-barrier(b)
        c = f32[s] subtract(a2, b2)
        zero = f32[] constant(0)
        ROOT r = f32[] reduce(c, zero), dimensions={0}, to_apply=sum
      })"},
};

class SizePlant : public testing::TestWithParam<SizeCase> {
 protected:
  void TearDown() override { SetPlant(kNoPlant); }
};

TEST_P(SizePlant, IsSeenWhenPlantedAndOnlyThen) {
  absl::StatusOr<std::unique_ptr<Module>> module = ParseModule(GetParam().text);
  ASSERT_TRUE(module.ok()) << module.status();
  const auto numbers = WithSizes(**module, *ParseSizes(GetParam().sizes));
  ASSERT_TRUE(numbers.ok()) << numbers.status();
  const std::vector<Literal> arguments = UnitInputs(**numbers);
  const Verdict sound = Judge(**module, arguments);
  EXPECT_EQ(sound.outcome, Outcome::kSame) << OutcomeName(sound.outcome) << ": " << sound.text;
  SetPlant(*ParsePlant(GetParam().plant));
  const Verdict planted = Judge(**module, arguments);
  EXPECT_EQ(planted.outcome, Outcome::kDifferent) << OutcomeName(planted.outcome) << ": " << planted.text;
}

INSTANTIATE_TEST_SUITE_P(All, SizePlant, testing::ValuesIn(kSizeCases), [](const auto& info) {
  std::string name(info.param.plant);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// Plants cut out of the optimised transformer step. The first ten with figures:
// tools/dev/planted_bugs.py.
class PlantInTransformer : public testing::TestWithParam<const char*> {
 protected:
  void TearDown() override { SetPlant(kNoPlant); }
};

TEST_P(PlantInTransformer, IsCutToTenInstructions) {
  absl::StatusOr<Case> step = OptimizedTransformer();
  ASSERT_TRUE(step.ok()) << step.status();
  ASSERT_GE(step->module->instruction_count(), 500);
  const Verdict sound = JudgeByTolerance(*step->module, step->arguments, {}, 1e-3);
  ASSERT_EQ(sound.outcome, Outcome::kSame) << OutcomeName(sound.outcome) << ": " << sound.text;
  SetPlant(*ParsePlant(GetParam()));
  absl::StatusOr<ReduceResult> r =
      Reduce(*step->module, step->arguments, Miscompares({.tolerance = 1e-3}));
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_LE(r->module->instruction_count(), 10) << r->module->ToString();
  EXPECT_EQ(JudgeByTolerance(*r->module, r->arguments, {}, 1e-3).outcome, Outcome::kDifferent);
  SetPlant(kNoPlant);
  EXPECT_EQ(Judge(*r->module, r->arguments).outcome, Outcome::kSame) << "it is the plant's doing";
}

INSTANTIATE_TEST_SUITE_P(Some, PlantInTransformer,
                         testing::Values("reduce-init", "pad-off-by-one",
                                         "gather-clamp"),
                         [](const auto& info) {
                           std::string name(info.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Plant, NamesAndNumbers) {
  EXPECT_GE(AllPlants().size(), 20u);
  for (Plant k = 1; k <= static_cast<Plant>(AllPlants().size()); ++k) {
    EXPECT_EQ(ParsePlant(std::to_string(k)), k);
    EXPECT_EQ(ParsePlant(PlantName(k)), k);
    EXPECT_FALSE(AllPlants()[k - 1].doc.empty());
    EXPECT_NE(AllPlants()[k - 1].module == nullptr, AllPlants()[k - 1].program == nullptr);
  }
  EXPECT_FALSE(ParsePlant("0").has_value());
  EXPECT_FALSE(ParsePlant("111").has_value());
  EXPECT_FALSE(ParsePlant("tail").has_value());
}

}  // namespace
}  // namespace tenon::lab
