// The generator: every opcode that the evaluator runs, the same module everywhere, nothing that the evaluator refuses.
#include <gtest/gtest.h>

#include "absl/container/flat_hash_set.h"
#include "hlo/eval/internal.h"
#include "hlo/text/text.h"
#include "tools/lab/generate/random_inputs.h"
#include "tools/lab/generate/random_module.h"
#include "tools/lab/generate/random_sizes.h"
#include "tools/lab/judge/miscompare.h"

namespace tenon::lab {
namespace {

TEST(RandomModule, HasARowForEachOpcodeThatTheEvaluatorRuns) {
  absl::flat_hash_set<Opcode> rows;
  for (Opcode op : GeneratedOpcodes()) rows.insert(op);
  for (int n = 0; n < kNumOpcodes; ++n) {
    const auto op = static_cast<Opcode>(n);
    const bool leaf = op == Opcode::kParameter || op == Opcode::kConstant;
    EXPECT_EQ(rows.contains(op), leaf || eval::HandlerOf(op) != nullptr) << OpcodeName(op);
  }
}

TEST(RandomModule, IsTheSameForASeed) {
  for (uint64_t seed = 0; seed < 20; ++seed) EXPECT_EQ(RandomModule(seed)->ToString(), RandomModule(seed)->ToString());
  EXPECT_NE(RandomModule(1)->ToString(), RandomModule(2)->ToString());
}

TEST(RandomModule, PrintsParsesAndEvaluates) {
  int judged = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    const std::unique_ptr<Module> module = RandomModule(seed, {.size = 8});
    const auto parsed = ParseModule(module->ToString());
    ASSERT_TRUE(parsed.ok()) << "seed " << seed << ": " << parsed.status();
    std::string why;
    EXPECT_TRUE(StructurallyEqual(*module, **parsed, &why)) << "seed " << seed << ": " << why;
    const auto expected = Expect(*module, RandomInputs(*module, seed));
    ASSERT_TRUE(expected.ok()) << "seed " << seed << ": " << expected.status();
    for (const auto& bound : expected->bounds) judged += !bound.has_value();
  }
  EXPECT_GT(judged, 300) << "results that are compared bit by bit";
}

TEST(RandomModule, WithSymbolsHoldsForAllTheirSizes) {
  int symbolic = 0, judged = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const std::unique_ptr<Module> module = RandomModule(seed, {.size = 8, .symbols = true});
    EXPECT_EQ(module->ToString(), RandomModule(seed, {.size = 8, .symbols = true})->ToString());
    const auto parsed = ParseModule(module->ToString());
    ASSERT_TRUE(parsed.ok()) << "seed " << seed << ": " << parsed.status();
    std::string why;
    EXPECT_TRUE(StructurallyEqual(*module, **parsed, &why)) << "seed " << seed << ": " << why;
    for (const Instruction* i : module->entry()->instructions()) symbolic += i->shape().is_array() && !i->shape().is_static();
    Random random(seed);
    const std::vector<Sizes> all = RandomSizes(*module, random, 4, 1 << 14);
    EXPECT_GE(all.size(), 1u);
    for (const Sizes& sizes : all) {
      const auto numbers = WithSizes(*module, sizes);
      ASSERT_TRUE(numbers.ok()) << "seed " << seed << ": " << numbers.status();
      const auto expected = Expect(**numbers, RandomInputs(**numbers, seed));
      ASSERT_TRUE(expected.ok()) << "seed " << seed << ", " << SizesText(sizes) << ": " << expected.status();
      judged += static_cast<int>(expected->bounds.size());
    }
  }
  EXPECT_GT(symbolic, 500) << "arrays of symbolic size";
  EXPECT_GT(judged, 500);
}

TEST(RandomModule, SizesLieWithinTheirRanges) {
  const auto module = ParseModule(R"(HloModule m, symbols={s:[3,64]%3,t:[0,1]}
    ENTRY e { x = f32[s] parameter(0) ROOT y = f32[t] parameter(1) })");
  ASSERT_TRUE(module.ok()) << module.status();
  Random random(1);
  const std::vector<Sizes> all = RandomSizes(**module, random, 8, 1 << 14);
  EXPECT_GT(all.size(), 4u);
  for (const Sizes& sizes : all) EXPECT_TRUE(WithSizes(**module, sizes).ok()) << SizesText(sizes);
  for (const Sizes& sizes : OtherSizes(**module, all[0])) {
    EXPECT_TRUE(WithSizes(**module, sizes).ok() && sizes != all[0]) << SizesText(sizes);
  }
}

// Arrays of nothing take no room, but a shape's other dims are bounded, too.
TEST(RandomModule, SizesMakeShapesThatThereAre) {
  const auto module = ParseModule(R"(HloModule m, symbols={s:[0,inf]~7}
    ENTRY e { x = f32[s] parameter(0) c = f32[] constant(1) ROOT y = f32[s*s,0,s*s,s*s] broadcast(c), dimensions={} })");
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_FALSE(WithSizes(**module, {{"s", 1000}}).ok());
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    for (const Sizes& sizes : RandomSizes(**module, random, 4, 1 << 17)) EXPECT_TRUE(WithSizes(**module, sizes).ok()) << SizesText(sizes);
  }
}

TEST(RandomModule, DrawsFromWhatItIsTold) {
  const std::unique_ptr<Module> module = RandomModule(3, {.size = 30, .only = {"sort"}, .types = {PrimitiveType::kS8}});
  int sorts = 0;
  for (const Instruction* i : module->entry()->instructions()) {
    sorts += i->opcode() == Opcode::kSort;
    EXPECT_NE(i->opcode(), Opcode::kGather);
  }
  EXPECT_GT(sorts, 5);
  EXPECT_EQ(UnknownNames({.only = {"sort", "elementwise"}}), "");
  EXPECT_NE(UnknownNames({.without = {"sorted"}}), "");
}

}  // namespace
}  // namespace tenon::lab
