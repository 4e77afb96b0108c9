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

// One value for two products by one matrix, another for a third that is told otherwise; the matrix itself is read as well, where it lies.
TEST(SplitFrozen, GivesTheHostValuesOfItsOwn) {
  const auto module = ParseModule(R"(
HloModule m
ENTRY e {
  x = f32[3,8] parameter(0)
  w = f32[5,8] parameter(1)
  t = f32[8,5] transpose(w), dimensions={1,0}
  d = f32[3,5] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  e = f32[3,5] dot(x, t), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  y = f32[7,8] parameter(2)
  f = f32[7,5] dot(y, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT r = (f32[3,5], f32[3,5], f32[7,5], f32[5,8]) tuple(d, e, f, w)
})");
  ASSERT_TRUE(module.ok()) << module.status();
  const FrozenSplit parts = SplitFrozen(**module, {false, true, false}, [](const Instruction& op) {
    return KernelPacking{"host.linear_packed", {op.shape().constant_dim(0)}};
  });
  ASSERT_TRUE(Verify(**module).ok()) << Verify(**module) << Print(**module);
  ASSERT_EQ(parts.values.size(), 2);
  for (const FrozenSplit::Value& value : parts.values) {
    EXPECT_EQ(value.shape.ToString(), "f32[5,8]");
    EXPECT_EQ(value.packing.provider, "host.linear_packed");
  }
  EXPECT_EQ(parts.values[0].packing.numbers[0] + parts.values[1].packing.numbers[0], 10);
  EXPECT_EQ((*module)->entry()->root()->operand(3), (*module)->entry()->parameter(1));
}

// (c + bias) * scale + shift = convolution by w * scale, + (bias * scale + shift): no more than a bias is left behind the convolution.
TEST(SplitFrozen, PutsBatchNormIntoTheHostsKernel) {
  const auto parse = [] {
    auto module = ParseModule(R"(
HloModule m
ENTRY e {
  x = bf16[2,3,6,5] parameter(0)
  w = bf16[4,3,3,3] parameter(1)
  bias = bf16[4] parameter(2)
  scale = f32[4] parameter(3)
  shift = f32[4] parameter(4)
  c = bf16[2,4,6,5] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01
  b = bf16[2,4,6,5] broadcast(bias), dimensions={1}
  a = bf16[2,4,6,5] add(c, b)
  f = f32[2,4,6,5] convert(a)
  s = f32[2,4,6,5] broadcast(scale), dimensions={1}
  h = f32[2,4,6,5] broadcast(shift), dimensions={1}
  n = f32[2,4,6,5] custom-call(f, s, h), custom_call_target="tenon.fma"
  ROOT r = bf16[2,4,6,5] convert(n)
})");
    TENON_CHECK(module.ok(), module.status().ToString());
    return *std::move(module);
  };
  const std::unique_ptr<Module> whole = parse(), module = parse();
  std::vector<Literal> args = RandomInputs(*whole, 7);
  const FrozenSplit parts = SplitFrozen(*module, {false, true, true, true, true},
                                        [](const Instruction&) { return KernelPacking{"host.conv_packed", {}}; });
  ASSERT_NE(parts.once, nullptr);
  ASSERT_TRUE(Verify(*module).ok()) << Verify(*module) << Print(*module);
  ASSERT_EQ(parts.values.size(), 2) << Print(*parts.once);
  const Instruction* root = module->entry()->root();
  ASSERT_EQ(root->opcode(), Opcode::kAdd) << Print(*module);
  EXPECT_EQ(root->operand(0)->opcode(), Opcode::kConvolution);
  EXPECT_EQ(root->operand(1)->opcode(), Opcode::kBroadcast);
  const auto once = Evaluate(*parts.once, args);
  const auto want = Evaluate(*whole, args);
  ASSERT_TRUE(once.ok() && want.ok()) << once.status() << want.status();
  for (const Literal& value : once->elements()) args.push_back(value);
  const auto got = Evaluate(*module, args);
  ASSERT_TRUE(got.ok()) << got.status();
  double squares = 0, differences = 0;
  for (int64_t i = 0; i < want->shape().num_elements().constant(); ++i) {
    const double w = want->GetAsDouble(i), g = got->GetAsDouble(i);
    squares += w * w, differences += (g - w) * (g - w);
  }
  EXPECT_GT(squares, 1);
  EXPECT_LT(differences, 4e-4 * squares);  // two roundings of bf16, elsewhere
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
