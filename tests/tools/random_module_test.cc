// The generator: every opcode that the evaluator runs, the same module everywhere, nothing that the evaluator refuses.
#include <gtest/gtest.h>

#include "absl/container/flat_hash_set.h"
#include "hlo/eval/internal.h"
#include "hlo/text/text.h"
#include "tools/lab/generate/random_inputs.h"
#include "tools/lab/generate/random_module.h"
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
