// Attention in one kernel: what is planned so and what is not, that it computes what the evaluator does whatever the sizes, types and
// masks, and what rows of -inf, infinities and NaN come to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "backends/driver/compile.h"
#include "backends/driver/given_plans.h"
#include "backends/driver/literal_executable.h"
#include "hlo/eval/evaluator.h"
#include "hlo/text/text.h"
#include "passes/spaces/spaces.h"
#include "runtime/host/plain_host.h"
#include "runtime/program/binding.h"
#include "tools/lab/gpu/attention_text.h"
#include "tools/lab/gpu/emulated_target.h"
#include "tools/lab/gpu/plant.h"
#include "tools/lab/judge/miscompare.h"
#include "tools/lab/spaces.h"

namespace tenon::gpu {
namespace {

using testing::HasSubstr;
using testing::Not;

// The second's plans think that a few queries keep it busy.
constexpr const char* kModels[] = {"gpu-emulated", "gpu-emulated:sm_80,sms=1,threads_per_sm=8"};

absl::StatusOr<Program> Compiled(const std::string& text, const std::string& model, const std::string& plans = "", bool excess = true) {
  auto module = ParseModule(text);
  if (!module.ok()) return module.status();
  CompileOptions options{.targets = {*MakeEmulatedGpu(model)}, .excess_precision = excess, .plans = plans};
  MoveSignature(**module, 1);
  const Binding binding = BindingOf(**module);
  return CompileToProgram(std::move(*module), binding, options);
}
std::string PlansFor(const std::string& text, const char* model, bool excess = true) {
  const absl::StatusOr<Program> program = Compiled(text, model, "", excess);
  return program.ok() ? PlansOf(*program) : std::string(program.status().message());
}

// By the lab's judge; at least half of the elements must be judged.
void ExpectRight(const std::string& text, uint64_t seed, bool excess = true) {
  const auto module = ParseModule(text);
  ASSERT_TRUE(module.ok()) << module.status() << text;
  const std::vector<Literal> arguments = AttentionInputs(**module, seed);
  const auto expected = lab::Expect(**module, arguments, excess);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const char* model : kModels) {
    const lab::Verdict v = lab::Judge(**module, arguments, *expected, {.target = model, .excess_precision = excess});
    EXPECT_EQ(v.outcome, lab::Outcome::kSame) << model << ": " << v.text << "\n" << PlansFor(text, model, excess) << text;
    EXPECT_LE(2 * v.unjudged, v.elements) << text;
  }
}

TEST(GpuAttention, IsOneKernel) {
  for (const char* type : {"f32", "f16", "bf16"}) {
    for (const AttentionMask mask : {AttentionMask::kNone, AttentionMask::kBias, AttentionMask::kCausal, AttentionMask::kPredicate}) {
      const absl::StatusOr<Program> program = Compiled(AttentionText({.type = type, .mask = mask}), kModels[0]);
      ASSERT_TRUE(program.ok()) << program.status();
      EXPECT_EQ(program->kernels.size(), 1u) << PlansOf(*program);
      EXPECT_THAT(PlansOf(*program), HasSubstr(" attention "));
      EXPECT_EQ(PlansOf(*program).find(" mma ") != std::string::npos, std::string(type) != "f32");
    }
  }
  EXPECT_THAT(PlansFor(AttentionText({.type = "bf16"}), "gpu-emulated:sm_75"), AllOf(HasSubstr(" attention "), Not(HasSubstr(" mma "))));
}

TEST(GpuAttention, IsAsItWasWhereNoTileFits) {
  for (const AttentionSizes& sizes :
       {AttentionSizes{.queries = 15}, {.keys = 15}, {.terms = 300}, {.columns = 300}, {.terms = 256, .columns = 256}}) {
    EXPECT_THAT(PlansFor(AttentionText(sizes), kModels[0]), Not(HasSubstr(" attention ")));
  }
  EXPECT_THAT(PlansFor(AttentionText({.type = "f64"}), kModels[0]), Not(HasSubstr(" attention ")));
  // Weights are rounded where each op rounds.
  EXPECT_THAT(PlansFor(AttentionText({.type = "bf16"}), kModels[0], /*excess=*/false), Not(HasSubstr(" attention ")));
  EXPECT_THAT(PlansFor(AttentionText({}), kModels[0], /*excess=*/false), HasSubstr(" attention "));
  // Something else reads the weights.
  const std::string read = absl::StrReplaceAll(
      AttentionText({.batch = 0}), {{"ROOT r = f32[128,64] dot", "v1 = (f32[128,64], f32[128,96]) tuple(r, p)\n  r = f32[128,64] dot"}});
  EXPECT_THAT(PlansFor(read, kModels[0]), Not(HasSubstr(" attention "))) << read;
}

// Tensor cores keep scores in registers where keys and values lie as whole vectors, and heads leave registers for it.
TEST(GpuAttention, StaysInRegisters) {
  const auto stays = [](const AttentionSizes& sizes, const char* model = kModels[0]) {
    const std::string plans = PlansFor(AttentionText(sizes), model);
    EXPECT_THAT(plans, AllOf(HasSubstr(" mma "), HasSubstr(" attention "))) << plans;
    return plans.find(" stages=2 ") != std::string::npos;
  };
  for (const char* type : {"f16", "bf16"}) {
    EXPECT_TRUE(stays({.type = type}));
    EXPECT_TRUE(stays({.type = type, .terms = 24, .columns = 40, .mask = AttentionMask::kGuarded}));
    EXPECT_TRUE(stays({.type = type, .terms = 128, .columns = 128, .mask = AttentionMask::kCausal}));
    EXPECT_TRUE(stays({.type = type, .terms = 192, .columns = 128}));
    EXPECT_FALSE(stays({.type = type, .terms = 256, .columns = 256}));
    EXPECT_FALSE(stays({.type = type, .terms = 60}));
    EXPECT_FALSE(stays({.type = type, .columns = 60}));
    EXPECT_FALSE(stays({.type = type, .turned = true}));
    EXPECT_FALSE(stays({.type = type}, "gpu-emulated:sm_80,shared_per_block=16000"));
  }
}

class GpuAttentionSizes : public testing::TestWithParam<const char*> {};

TEST_P(GpuAttentionSizes, HeadDims) {
  uint64_t seed = 1;
  for (const int64_t head : {1, 7, 17, 33, 64, 65, 130}) {
    ExpectRight(AttentionText({.type = GetParam(), .queries = 17, .keys = 33, .terms = head, .columns = head}), ++seed);
  }
  ExpectRight(AttentionText({.type = GetParam(), .queries = 33, .keys = 65, .terms = 24, .columns = 80}), ++seed);
  ExpectRight(AttentionText({.type = GetParam(), .queries = 33, .keys = 65, .terms = 80, .columns = 24}), ++seed);
  ExpectRight(AttentionText({.type = GetParam(), .queries = 150, .keys = 200, .terms = 128, .columns = 128}), ++seed);
  ExpectRight(AttentionText({.type = GetParam(), .queries = 18, .keys = 130, .terms = 200, .columns = 72}), ++seed);
}
TEST_P(GpuAttentionSizes, QueriesAndKeys) {
  uint64_t seed = 50;
  for (const int64_t queries : {1, 7, 17, 33, 64, 65, 130}) {
    for (const int64_t keys : {1, 17, 33, 64, 65, 130}) {
      ExpectRight(AttentionText({.type = GetParam(), .batch = 1, .queries = queries, .keys = keys, .terms = 16, .columns = 16}), ++seed);
    }
  }
}
TEST_P(GpuAttentionSizes, MasksAndBatches) {
  uint64_t seed = 100;
  for (const AttentionMask mask : {AttentionMask::kBias, AttentionMask::kCausal, AttentionMask::kPredicate, AttentionMask::kGuarded,
                                   AttentionMask::kShiftGuarded}) {
    for (const int64_t batch : {0, 1, 3}) {
      const AttentionSizes sizes{.type = GetParam(), .batch = batch, .queries = 33, .keys = 70, .terms = 24, .columns = 40, .mask = mask};
      ExpectRight(AttentionText(sizes), ++seed);
    }
    // By way of shared memory, and whole tiles alone.
    for (const int64_t odd : {1, 0}) {
      const AttentionSizes sizes{.type = GetParam(), .queries = 33, .keys = 128 - 59 * odd, .terms = 24, .columns = 40 + odd, .mask = mask};
      ExpectRight(AttentionText(sizes), ++seed);
    }
  }
}
// However the operands lie.
TEST_P(GpuAttentionSizes, Layouts) {
  ExpectRight(AttentionText({.type = GetParam(), .queries = 40, .keys = 48, .terms = 32, .columns = 32, .turned = true}), 200);
  ExpectRight(AttentionText({.type = GetParam(), .queries = 37, .keys = 41, .terms = 33, .columns = 31, .turned = true}), 201);
}
INSTANTIATE_TEST_SUITE_P(Types, GpuAttentionSizes, testing::Values("f32", "f16", "bf16"),
                         [](const auto& info) { return std::string(info.param); });

TEST(GpuAttention, RoundsNothingThatHloDoesNot) { ExpectRight(AttentionText({.queries = 40, .keys = 70}), 300, /*excess=*/false); }

// A shift that leaves exponentials of 160,000 is no matter in f32 and bf16; tensor cores of f16, to which weights are halves, take it not.
TEST(GpuAttention, ShiftsByLessThanTheMaximum) {
  for (const char* type : {"f32", "f16", "bf16"}) {
    const AttentionSizes sizes{.type = type, .queries = 40, .keys = 70, .terms = 24, .columns = 40, .mask = AttentionMask::kShiftGuarded};
    const std::string guarded = AttentionText(sizes);
    const std::string text = absl::StrReplaceAll(
        guarded, {{"  shift = f32[2,40] select(empty, zeros, m)\n", "  few = f32[] constant(12)\n  less = f32[2,40] broadcast(few), "
                                                                    "dimensions={}\n  shift = f32[2,40] subtract(m, less)\n"}});
    ASSERT_NE(text, guarded);
    EXPECT_EQ(PlansFor(guarded, kModels[0]).find(" mma ") != std::string::npos, std::string(type) != "f32");
    EXPECT_THAT(PlansFor(text, kModels[0]), HasSubstr(" attention "));
    EXPECT_EQ(PlansFor(text, kModels[0]).find(" mma ") != std::string::npos, std::string(type) == "bf16");
    ExpectRight(text, 350);
  }
}

// One program for all sizes of the batch, the queries and the keys.
TEST(GpuAttention, SymbolicSizes) {
  const AttentionSizes named{.batch = 7001, .queries = 7002, .keys = 7003, .terms = 24, .columns = 40, .mask = AttentionMask::kCausal};
  const std::string text =
      absl::StrReplaceAll(AttentionText(named), {{"HloModule attention", "HloModule attention, symbols={b:[1,inf],s:[1,inf],t:[1,inf]}"},
                                                 {"7001", "b"}, {"7002", "s"}, {"7003", "t"}});
  EXPECT_THAT(PlansFor(text, kModels[0]), HasSubstr(" attention "));
  const auto module = ParseModule(text);
  ASSERT_TRUE(module.ok()) << module.status() << text;
  uint64_t seed = 400;
  for (const auto& [batch, queries, keys] : {std::tuple{2, 37, 70}, {1, 1, 1}, {3, 65, 33}}) {
    AttentionSizes sizes = named;
    sizes.batch = batch, sizes.queries = queries, sizes.keys = keys;
    const auto numbers = ParseModule(AttentionText(sizes));
    const std::vector<Literal> arguments = AttentionInputs(**numbers, ++seed);
    const lab::Verdict v = lab::Judge(**module, arguments, {.target = kModels[0], .excess_precision = true});
    EXPECT_EQ(v.outcome, lab::Outcome::kSame) << v.text;
    EXPECT_LE(2 * v.unjudged, v.elements);
  }
}

// Rows of -inf alone, and rows with +inf or NaN: NaN where HLO has NaN, and numbers elsewhere.
TEST(GpuAttention, SpecialScores) {
  for (const AttentionMask mask : {AttentionMask::kBias, AttentionMask::kGuarded, AttentionMask::kShiftGuarded}) {
    for (const char* type : {"f32", "bf16"}) {
      const std::string text =
          AttentionText({.type = type, .batch = 1, .queries = 20, .keys = 70, .terms = 16, .columns = 16, .mask = mask});
      const auto module = ParseModule(text);
      ASSERT_TRUE(module.ok()) << module.status();
      std::vector<Literal> arguments = AttentionInputs(**module, 5);
      Literal& bias = arguments[3];
      constexpr int64_t kKeys = 70;
      const auto set = [&](int64_t row, int64_t from, int64_t to, double v) {
        for (int64_t k = from; k < to; ++k) bias.SetFromDouble(row * kKeys + k, v);
      };
      set(0, 0, kKeys, -INFINITY);      // nothing
      set(1, 0, kKeys - 1, -INFINITY);  // the last tile's last key
      set(2, 1, kKeys, -INFINITY);      // the first key
      set(3, 40, 41, INFINITY);
      set(4, 69, 70, NAN);
      set(5, 0, 1, NAN);
      set(6, 0, 64, -INFINITY);  // a whole tile
      set(7, 0, 1, 200), set(7, 1, kKeys, -200);
      set(8, 0, kKeys - 1, -200), set(8, kKeys - 1, kKeys, 200);
      const Literal want = *Evaluate(**module, arguments);
      for (const char* model : kModels) {
        std::unique_ptr<Module> moved = (*module)->Clone();
        lab::MoveInside(*moved, 1);
        const auto executable = LiteralExecutable::Compile(*moved, {.targets = {*MakeEmulatedGpu(model)}}, EmulatedHost(PlainHost()));
        ASSERT_TRUE(executable.ok()) << executable.status();
        const auto got = (*executable)->Run(arguments);
        ASSERT_TRUE(got.ok()) << got.status();
        for (int64_t i = 0; i < want.num_elements(); ++i) {
          const double g = got->front().GetAsDouble(i), w = want.GetAsDouble(i);
          EXPECT_TRUE((std::isnan(g) && std::isnan(w)) || std::fabs(g - w) < 0.02)
              << "row " << i / 16 << ": got " << g << ", want " << w << "\n" << text;
        }
      }
    }
  }
}

// Whatever the tile and however many stages are on their way.
TEST(GpuAttention, TakesOtherTilesAndStages) {
  for (const char* type : {"f16", "bf16"}) {
    const std::string text = AttentionText({.type = type, .queries = 70, .keys = 290, .terms = 48, .columns = 32});
    const auto module = ParseModule(text);
    ASSERT_TRUE(module.ok()) << module.status();
    const std::vector<Literal> arguments = AttentionInputs(**module, 11);
    const auto expected = lab::Expect(**module, arguments, /*excess_precision=*/true);
    ASSERT_TRUE(expected.ok()) << expected.status();
    const std::string plans = PlansFor(text, kModels[0]);
    ASSERT_THAT(plans, AllOf(HasSubstr("threads=32 team=32 mma stages=2 "), HasSubstr(" rows=16 "), HasSubstr(" block=32 "))) << plans;
    for (const int rows : {16, 64, 128}) {
      for (const int keys : {32, 64}) {
        for (const int stages : {2, 3, 5}) {
          const std::string block = absl::StrCat("threads=", 2 * rows, " team=", 2 * rows, " mma stages=", stages, " ");
          const std::string given = absl::StrReplaceAll(plans, {{"threads=32 team=32 mma stages=2 ", block},
                                                                {" rows=16 ", absl::StrCat(" rows=", rows, " ")},
                                                                {" block=32 ", absl::StrCat(" block=", keys, " ")}});
          std::unique_ptr<Module> moved = (*module)->Clone();
          lab::MoveInside(*moved, 1);
          const CompileOptions options{.targets = {*MakeEmulatedGpu(kModels[0])}, .plans = given};
          const auto executable = LiteralExecutable::Compile(*moved, options, EmulatedHost(PlainHost()));
          ASSERT_TRUE(executable.ok()) << executable.status() << given;
          const auto got = (*executable)->Run(arguments);
          ASSERT_TRUE(got.ok()) << got.status() << given;
          const lab::Verdict v = lab::Compare(*got, *expected);
          EXPECT_EQ(v.outcome, lab::Outcome::kSame) << v.text << given;
        }
      }
    }
  }
}

// The judge's bounds let the kernel pass (above), and none without its rescaling, or that takes zeros behind the last key for keys.
TEST(GpuAttention, TheJudgeFindsWrongOnes) {
  for (const char* type : {"f32", "f16", "bf16"}) {
    const auto module = ParseModule(AttentionText({.type = type, .queries = 40, .keys = 150, .terms = 24, .columns = 40}));
    const std::vector<Literal> arguments = AttentionInputs(**module, 9);
    const auto expected = lab::Expect(**module, arguments, /*excess_precision=*/true);
    ASSERT_TRUE(expected.ok()) << expected.status();
    for (const char* name : {"", "no-rescaling", "no-key-mask"}) {
      int places = 0;
      std::function<void(llvm::Function&)> sabotage;
      if (*name != 0) sabotage = [&](llvm::Function& f) { places += FindGpuPlant(name).kernel(f); };
      std::unique_ptr<Module> moved = (*module)->Clone();
      lab::MoveInside(*moved, 1);
      const CompileOptions options{.targets = {*MakeEmulatedGpu(kModels[0], sabotage)}, .compile_threads = 1};
      const auto executable = LiteralExecutable::Compile(*moved, options, EmulatedHost(PlainHost()));
      ASSERT_TRUE(executable.ok()) << executable.status();
      const auto got = (*executable)->Run(arguments);
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(lab::Compare(*got, *expected).outcome, *name == 0 ? lab::Outcome::kSame : lab::Outcome::kDifferent) << type << " " << name;
      EXPECT_EQ(places, *name != 0);
    }
  }
}

TEST(GpuAttention, PlansAreParsedAndChecked) {
  for (const char* type : {"f32", "bf16"}) {
    const std::string text = AttentionText({.type = type}), plans = PlansFor(text, kModels[1]);
    const auto again = Compiled(text, kModels[1], plans);
    ASSERT_TRUE(again.ok()) << again.status() << plans;
    EXPECT_EQ(PlansOf(*again), plans);
    const auto refused = [&](const std::string& from, const std::string& to) {
      const std::string changed = absl::StrReplaceAll(plans, {{from, to}});
      EXPECT_NE(changed, plans) << from;
      return std::string(Compiled(text, kModels[1], changed).status().message());
    };
    const bool halves = std::string(type) == "bf16";
    const std::string rows = halves ? "rows=128" : "rows=64";
    EXPECT_THAT(refused(rows, "rows=8"), HasSubstr(halves ? "a tile of no 16 to 128 queries" : "a tile of no 16 to 64 queries")) << plans;
    EXPECT_THAT(refused(rows, "rows=32"), HasSubstr("a block that has not the tile's threads"));
    EXPECT_THAT(refused("lanes=1", "lanes=4"), HasSubstr("not a thread's part"));
    if (halves) {
      EXPECT_THAT(refused(" mma", ""), HasSubstr("stages of what no tensor cores multiply"));
      EXPECT_THAT(refused(" stages=2", ""), HasSubstr("a tile of no 16 to 64 queries"));
      EXPECT_THAT(refused(" stages=2", " stages=9"), HasSubstr("more stages than 8"));
      const std::string turned = AttentionText({.type = type, .turned = true});
      EXPECT_THAT(std::string(Compiled(turned, kModels[1], plans).status().message()), HasSubstr("keys and values that are no vectors"));
    } else {
      EXPECT_THAT(refused(" attention", " mma attention"), testing::Not(""));
      EXPECT_THAT(refused(" attention", " stages=2 attention"), testing::Not(""));
    }
    EXPECT_THAT(std::string(Compiled(text, "gpu-emulated:sm_80,sms=1,shared_per_block=20000", plans).status().message()),
                HasSubstr("bytes of shared memory"));
  }
}

}  // namespace
}  // namespace tenon::gpu
