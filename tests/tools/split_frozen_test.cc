// SplitFrozen on modules of every kind: two modules that verify and that together compute what the one did, bit for bit.
#include "passes/freeze/split_frozen.h"

#include <gtest/gtest.h>

#include "hlo/eval/evaluator.h"
#include "hlo/text/text.h"
#include "hlo/tolerance.h"
#include "hlo/verifier.h"
#include "tools/lab/generate/random_inputs.h"
#include "tools/lab/generate/random_module.h"

namespace tenon::lab {
namespace {

std::optional<KernelPacking> Generated(const Instruction&) { return KernelPacking{"generated", {}}; }

// Op for op the same, but for draws: those are of no split module's state.
TEST(SplitFrozen, ComputesWhatTheModuleDid) {
  int split = 0, values = 0;
  for (uint64_t seed = 0; seed < 250; ++seed) {
    const std::unique_ptr<Module> module =
        RandomModule(seed, {.size = 12, .without = {"rng", "rng-bit-generator", "rng-get-and-update-state"}});
    std::vector<Literal> args = RandomInputs(*module, seed);
    const absl::StatusOr<Literal> want = Evaluate(*module, args);
    if (!want.ok()) continue;
    const std::string text = Print(*module);
    std::vector<bool> frozen;
    for (size_t i = 0; i < args.size(); ++i) frozen.push_back((seed >> (i % 7)) % 2 == 0);
    const FrozenSplit parts = SplitFrozen(*module, frozen, [&](const Instruction& op) -> std::optional<KernelPacking> {
      if (!op.shape().is_static()) return std::nullopt;
      return KernelPacking{seed % 2 == 0 ? "generated" : op.opcode() == Opcode::kDot ? "host.linear_packed" : "host.conv_packed", {}};
    });
    ASSERT_TRUE(Verify(*module).ok()) << "seed " << seed << ": " << Verify(*module) << text << Print(*module);
    if (parts.once != nullptr) {
      ++split;
      ASSERT_TRUE(Verify(*parts.once).ok()) << "seed " << seed << ": " << Verify(*parts.once) << text << Print(*parts.once);
      const absl::StatusOr<Literal> once = Evaluate(*parts.once, args);
      ASSERT_TRUE(once.ok()) << "seed " << seed << ": " << once.status() << Print(*parts.once);
      for (const Literal& value : once->elements()) args.push_back(value);
      values += static_cast<int>(parts.values.size());
    }
    const absl::StatusOr<Literal> got = Evaluate(*module, args);
    ASSERT_TRUE(got.ok()) << "seed " << seed << ": " << got.status() << text << Print(*module);
    const LiteralDifference d = CompareLiterals(*got, *want);
    EXPECT_TRUE(d.within) << "seed " << seed << ": " << d.what << "\n" << text << Print(*module);
  }
  EXPECT_GT(split, 60);
  EXPECT_GT(values, 100);
}

// Values on the border are row-major, while a bitcast means the layout that its operand had.
TEST(SplitFrozen, KeepsWhatABitcastMeans) {
  const auto module = ParseModule(R"(HloModule m
ENTRY main {
  x = s32[2,3] parameter(0)
  c = f32[2,3]{0,1} convert(x)
  ROOT b = f32[6] bitcast(c)
})");
  ASSERT_TRUE(module.ok()) << module.status();
  std::vector<Literal> args = RandomInputs(**module, 1);
  const absl::StatusOr<Literal> want = Evaluate(**module, args);
  ASSERT_TRUE(want.ok()) << want.status();
  const FrozenSplit parts = SplitFrozen(**module, {true}, Generated);
  ASSERT_NE(parts.once, nullptr);
  const absl::StatusOr<Literal> once = Evaluate(*parts.once, args);
  ASSERT_TRUE(once.ok()) << once.status();
  for (const Literal& value : once->elements()) args.push_back(value);
  const absl::StatusOr<Literal> got = Evaluate(**module, args);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_TRUE(CompareLiterals(*got, *want).within) << Print(**module);
}

TEST(SplitFrozen, LeavesViewsAndBroadcastsBehind) {
  const auto module = ParseModule(R"(HloModule m
ENTRY main {
  x = f32[4,8] parameter(0)
  w = f32[8] parameter(1)
  v = f32[8,4] parameter(2)
  r = f32[8] rsqrt(w)
  b = f32[4,8] broadcast(r), dimensions={1}
  t = f32[4,8] transpose(v), dimensions={1,0}
  p = f32[4,8] multiply(x, b)
  ROOT s = f32[4,8] add(p, t)
})");
  ASSERT_TRUE(module.ok()) << module.status();
  const FrozenSplit parts = SplitFrozen(**module, {false, true, true}, Generated);
  ASSERT_NE(parts.once, nullptr);
  ASSERT_EQ(parts.values.size(), 1);
  EXPECT_EQ(parts.values[0].shape.ToString(), "f32[8]");
  EXPECT_EQ((*module)->entry()->parameters().size(), 4);
}

TEST(SplitFrozen, PacksWithRowsThatDoNotCompete) {
  const auto module = ParseModule(R"(HloModule m
ENTRY main {
  x = f32[4,8] parameter(0)
  w = f32[256,8] parameter(1)
  ROOT d = f32[4,256] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}
})");
  ASSERT_TRUE(module.ok()) << module.status();
  const FrozenSplit parts = SplitFrozen(**module, {false, true}, Generated);
  EXPECT_EQ(parts.packed, 1);
  ASSERT_EQ(parts.values.size(), 1);
  EXPECT_EQ(parts.values[0].shape.ToString(), "f32[8,272]");
}

TEST(SplitFrozen, ChangesNothingWhereNothingIsFrozen) {
  const auto module = ParseModule("HloModule m\nENTRY main {\n  x = f32[4] parameter(0)\n  ROOT y = f32[4] tanh(x)\n}");
  ASSERT_TRUE(module.ok()) << module.status();
  const std::string before = Print(**module);
  EXPECT_EQ(SplitFrozen(**module, {false}, Generated).once, nullptr);
  EXPECT_EQ(Print(**module), before);
}

}  // namespace
}  // namespace tenon::lab
