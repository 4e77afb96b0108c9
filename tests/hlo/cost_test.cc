// Costs counted by hand.
#include "hlo/cost.h"

#include <gtest/gtest.h>

#include "hlo/cost_ops.h"
#include "hlo/text/text.h"

namespace tenon {
namespace {

struct Analysed {
  std::unique_ptr<Module> module;
  ModuleCost cost;

  const InstructionCost& operator[](const std::string& name) const {
    for (const InstructionCost& i : cost.instructions) {
      if (i.instruction->name() == name) return i;
    }
    throw std::out_of_range(name);
  }
};

Analysed Analyse(const std::string& text) {
  absl::StatusOr<std::unique_ptr<Module>> module = ParseModule(text);
  EXPECT_TRUE(module.ok()) << module.status();
  absl::StatusOr<ModuleCost> cost = AnalyzeCost(**module);
  EXPECT_TRUE(cost.ok()) << cost.status();
  return {*std::move(module), *std::move(cost)};
}

TEST(Cost, ElementwiseAndTranscendentals) {
  const Analysed a = Analyse(R"(ENTRY e {
    x = f32[4,8] parameter(0)
    s = f32[4,8] add(x, x)
    ROOT t = f32[4,8] exponential(s)
  })");
  EXPECT_EQ(a.cost.total.flops, 32);
  EXPECT_EQ(a.cost.total.transcendentals, 32);
  EXPECT_EQ(a["s"].cost.bytes, 3 * 128);
  EXPECT_EQ(a["t"].cost.bytes, 2 * 128);
  EXPECT_EQ(a.cost.argument_bytes, 128);
  EXPECT_EQ(a.cost.output_bytes, 128);
  EXPECT_EQ(a.cost.peak_bytes, 3 * 128);  // x, s, t
}

TEST(Cost, EveryOpHasOne) {
  int dear = 0;
  for (int o = 0; o < kNumOpcodes; ++o) {
    const auto opcode = static_cast<Opcode>(o);
    const OpCost& cost = OpCostOf(opcode);
    const bool free = opcode == Opcode::kReal || opcode == Opcode::kImag || opcode == Opcode::kComplex;  // parts of registers
    EXPECT_EQ(cost.instructions > 0, !free) << OpcodeName(opcode);
    EXPECT_EQ(cost.slots > 0, !free) << OpcodeName(opcode);
    dear += cost.transcendental;
    EXPECT_TRUE(!cost.transcendental || InfoOf(opcode).family == Family::kElementwise) << OpcodeName(opcode);
  }
  EXPECT_EQ(OpCostOf(Opcode::kMultiply).slots, 1);
  EXPECT_EQ(dear, 23);
}

TEST(Cost, ConvolutionCountsNoPadding) {
  // 3 taps over 4 positions padded by one on each side: 3 * 4 - 2 pairs meet the input.
  const Analysed a = Analyse(R"(ENTRY e {
    x = f32[2,3,4] parameter(0)
    k = f32[5,3,3] parameter(1)
    ROOT c = f32[2,5,4] convolution(x, k), window={size=3 pad=1_1}, dim_labels=bf0_oi0->bf0
  })");
  EXPECT_EQ(a.cost.total.flops, 2 * 10 * 2 * 5 * 3);
}

TEST(Cost, GroupedAndDilatedConvolution) {
  // Base dilation 2 of 4 elements spans 7; a window of 2 leaves 6 positions, and of each one tap meets an element.
  const Analysed a = Analyse(R"(ENTRY e {
    x = f32[1,4,4] parameter(0)
    k = f32[4,2,2] parameter(1)
    ROOT c = f32[1,4,6] convolution(x, k), window={size=2 lhs_dilate=2}, dim_labels=bf0_oi0->bf0, feature_group_count=2
  })");
  EXPECT_EQ(a.cost.total.flops, 2 * 6 * 4 * 2);
}

TEST(Cost, DotOfBatches) {
  const Analysed a = Analyse(R"(ENTRY e {
    x = bf16[7,2,3] parameter(0)
    y = bf16[7,3,5] parameter(1)
    ROOT d = bf16[7,2,5] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}
  })");
  EXPECT_EQ(a.cost.total.flops, 2 * 7 * 2 * 3 * 5);
  EXPECT_EQ(a.cost.total.bytes, 2 * (42 + 105 + 70));
}

TEST(Cost, ReductionsApplyTheirRegion) {
  const Analysed a = Analyse(R"(
  f { a = f32[] parameter(0)
      b = f32[] parameter(1)
      m = f32[] multiply(a, b)
      ROOT r = f32[] add(m, a) }
  ENTRY e {
    x = f32[10,4] parameter(0)
    z = f32[] constant(0)
    sum = f32[4] reduce(x, z), dimensions={0}, to_apply=f
    w = f32[9,4] reduce-window(x, z), window={size=2x1}, to_apply=f
    ROOT t = (f32[4], f32[9,4]) tuple(sum, w)
  })");
  EXPECT_EQ(a["sum"].cost.flops, (40 - 4) * 2);
  EXPECT_EQ(a["w"].cost.flops, 36 * 1 * 2);
  EXPECT_EQ(a["t"].cost.bytes, 0);
}

TEST(Cost, SlicesCountWhatTheyTouch) {
  const Analysed a = Analyse(R"(ENTRY e {
    x = f32[1000] parameter(0)
    u = f32[10] parameter(1)
    i = s32[] constant(3)
    s = f32[10] slice(x), slice={[5:15]}
    d = f32[1000] dynamic-update-slice(x, u, i)
    ROOT t = (f32[10], f32[1000]) tuple(s, d)
  })");
  EXPECT_EQ(a["s"].cost.bytes, 80);
  EXPECT_EQ(a["d"].cost.bytes, 80);
}

TEST(Cost, FusionIsItsOutside) {
  const Analysed a = Analyse(R"(
  f { p = f32[100] parameter(0)
      n = f32[100] negate(p)
      ROOT t = f32[100] tanh(n) }
  ENTRY e {
    x = f32[100] parameter(0)
    ROOT r = f32[100] fusion(x), kind=kLoop, calls=f
  })");
  EXPECT_EQ(a.cost.total.flops, 100);
  EXPECT_EQ(a.cost.total.transcendentals, 100);
  EXPECT_EQ(a.cost.total.bytes, 800);
  EXPECT_EQ(a.cost.peak_bytes, 800);
}

constexpr const char kLoop[] = R"(
  body { s = (s32[], f32[8]) parameter(0)
    i = s32[] get-tuple-element(s), index=0
    x = f32[8] get-tuple-element(s), index=1
    one = s32[] constant(1)
    next = s32[] add(i, one)
    y = f32[8] multiply(x, x)
    ROOT r = (s32[], f32[8]) tuple(next, y) }
  test { s = (s32[], f32[8]) parameter(0)
    i = s32[] get-tuple-element(s), index=0
    n = s32[] constant(10)
    ROOT c = pred[] compare(i, n), direction=LT }
  ENTRY e { x = f32[8] parameter(0)
    START
    t = (s32[], f32[8]) tuple(zero, x)
    w = (s32[], f32[8]) while(t), condition=test, body=body CONFIG
    ROOT r = f32[8] get-tuple-element(w), index=1 })";

Analysed Loop(const std::string& start, const std::string& config) {
  std::string text = kLoop;
  text.replace(text.find("START"), 5, start);
  text.replace(text.find("CONFIG"), 6, config);
  return Analyse(text);
}

TEST(Cost, LoopsRunAsOftenAsTheirCounterSays) {
  const Analysed a = Loop("zero = s32[] constant(4)", "");
  EXPECT_EQ(a.cost.unknown_trips, 0);
  EXPECT_EQ(a["y"].executions, 6);
  EXPECT_EQ(a["c"].executions, 7);
  EXPECT_EQ(a.cost.total.flops, 6 * (8 + 1) + 7);
  // x, the state's own counter, then y and next in a trip: the state is updated in place.
  EXPECT_GE(a.cost.peak_bytes, 32 + 32);
  EXPECT_LE(a.cost.peak_bytes, 3 * 32 + 4 * 8);
}

TEST(Cost, LoopsOfUnknownLength) {
  const std::string start = "b = f32[] constant(1)\n zero = s32[] convert(b)";
  EXPECT_EQ(Loop(start, "").cost.unknown_trips, 1);
  const Analysed told = Loop(start, R"(, backend_config={"known_trip_count":{"n":"3"}})");
  EXPECT_EQ(told.cost.unknown_trips, 0);
  EXPECT_EQ(told["y"].executions, 3);
}

TEST(Cost, CallsCountEachTimeAndAreVisitedOnce) {
  // 2^60 executions: each computation calls the one before twice.
  std::string text = "c0 { x = f32[] parameter(0)\n ROOT r = f32[] add(x, x) }\n";
  for (int i = 1; i <= 60; ++i) {
    const std::string before = std::to_string(i - 1);
    text += "c" + std::to_string(i) + " { x = f32[] parameter(0)\n y = f32[] call(x), to_apply=c" + before +
            "\n ROOT r = f32[] call(y), to_apply=c" + before + " }\n";
  }
  const Analysed a = Analyse(text + "ENTRY e { x = f32[] parameter(0)\n ROOT r = f32[] call(x), to_apply=c60 }");
  EXPECT_EQ(a.cost.total.flops, 0x1p60);
}

TEST(Cost, ConditionalCountsItsCostliestBranch) {
  const Analysed a = Analyse(R"(
  t { x = f32[50] parameter(0)
      ROOT r = f32[50] negate(x) }
  f { x = f32[50] parameter(0)
      y = f32[50] negate(x)
      ROOT r = f32[50] negate(y) }
  ENTRY e { p = pred[] parameter(0)
    x = f32[50] parameter(1)
    ROOT r = f32[50] conditional(p, x, x), true_computation=t, false_computation=f })");
  EXPECT_EQ(a.cost.total.flops, 100);
}

TEST(Cost, MemoryIsGivenBackAfterTheLastUse) {
  const Analysed a = Analyse(R"(ENTRY e {
    x = f32[] parameter(0)
    a = f32[1000] broadcast(x), dimensions={}
    b = f32[1000] negate(a)
    c = f32[1000] negate(b)
    v = f32[10,100] reshape(c)
    ROOT r = f32[10,100] negate(v)
  })");
  EXPECT_EQ(a.cost.peak_bytes, 4 + 2 * 4000);  // at any time two of a, b, c, r; v is c
}

TEST(Cost, EveryNumberIsInTheJson) {
  const Analysed a = Analyse("ENTRY e { x = f32[2] parameter(0)\n ROOT r = f32[2] negate(x) }");
  EXPECT_EQ(ToJson(a.cost),
            R"({"total": {"flops": 2, "transcendentals": 0, "bytes": 16, "peak_bytes": 16, "argument_bytes": 8, )"
            R"("output_bytes": 8, "unknown_trips": 0}, "instructions": [{"name": "x", "computation": "e", )"
            R"("opcode": "parameter", "flops": 0, "transcendentals": 0, "bytes": 0, "output_bytes": 8, "executions": 1}, )"
            R"({"name": "r", "computation": "e", "opcode": "negate", "flops": 2, "transcendentals": 0, "bytes": 16, )"
            R"("output_bytes": 8, "executions": 1}]})");
}

TEST(Cost, SymbolicDimensionsAreRefused) {
  absl::StatusOr<std::unique_ptr<Module>> module =
      ParseModule("ENTRY e { x = f32[s0] parameter(0)\n ROOT r = f32[s0] negate(x) }");
  ASSERT_TRUE(module.ok()) << module.status();
  const absl::StatusOr<ModuleCost> cost = AnalyzeCost(**module);
  EXPECT_EQ(cost.status().code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace tenon
