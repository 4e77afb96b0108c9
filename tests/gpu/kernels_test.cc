// Each kind of GPU kernel at sizes that meet its edges: what is planned, and that it computes what the evaluator does, in three orders of
// threads and blocks, under the emulator's detectors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "backends/driver/compile.h"
#include "hlo/text/text.h"
#include "runtime/program/binding.h"
#include "tools/lab/generate/random_inputs.h"
#include "tools/lab/gpu/emulated_target.h"
#include "tools/lab/judge/miscompare.h"
#include "tools/lab/spaces.h"

namespace tenon::gpu {
namespace {

using testing::HasSubstr;

constexpr char kRegions[] = R"(
add { a = TYPE[] parameter(0) b = TYPE[] parameter(1) ROOT r = TYPE[] add(a, b) }
max { a = TYPE[] parameter(0) b = TYPE[] parameter(1) ROOT r = TYPE[] maximum(a, b) }
)";

std::string Text(const std::string& body, const std::string& type, int64_t rows, int64_t columns) {
  const std::string text = absl::StrCat("HloModule m\n", kRegions, "ENTRY e {\n", body, "}\n");
  return absl::StrReplaceAll(text, {{"TYPE", type}, {"ROWS", absl::StrCat(rows)}, {"COLUMNS", absl::StrCat(columns)}});
}

// Softmax, and what is left of the row.
constexpr char kSoftmax[] = R"(
  x = TYPE[ROWS,COLUMNS] parameter(0)
  low = TYPE[] constant(-inf)
  m = TYPE[ROWS] reduce(x, low), dimensions={1}, to_apply=max
  mb = TYPE[ROWS,COLUMNS] broadcast(m), dimensions={0}
  d = TYPE[ROWS,COLUMNS] subtract(x, mb)
  e = TYPE[ROWS,COLUMNS] exponential(d)
  zero = TYPE[] constant(0)
  s = TYPE[ROWS] reduce(e, zero), dimensions={1}, to_apply=add
  sb = TYPE[ROWS,COLUMNS] broadcast(s), dimensions={0}
  ROOT r = TYPE[ROWS,COLUMNS] divide(e, sb)
)";
constexpr char kColumnSums[] = R"(
  x = TYPE[ROWS,COLUMNS] parameter(0)
  zero = TYPE[] constant(0)
  s = TYPE[COLUMNS] reduce(x, zero), dimensions={0}, to_apply=add
  sb = TYPE[ROWS,COLUMNS] broadcast(s), dimensions={1}
  r = TYPE[ROWS,COLUMNS] subtract(x, sb)
  ROOT t = (TYPE[COLUMNS], TYPE[ROWS,COLUMNS]) tuple(s, r)
)";
constexpr char kTransposed[] = R"(
  x = TYPE[COLUMNS,ROWS] parameter(0)
  y = TYPE[ROWS,COLUMNS] parameter(1)
  t = TYPE[ROWS,COLUMNS] transpose(x), dimensions={1,0}
  ROOT r = TYPE[ROWS,COLUMNS]{1,0} subtract(y, t)
)";
constexpr char kPointwise[] = R"(
  x = TYPE[ROWS,COLUMNS] parameter(0)
  y = TYPE[COLUMNS] parameter(1)
  yb = TYPE[ROWS,COLUMNS] broadcast(y), dimensions={1}
  a = TYPE[ROWS,COLUMNS] subtract(x, yb)
  ROOT r = TYPE[ROWS,COLUMNS] maximum(a, x)
)";
constexpr char kProduct[] = R"(
  x = TYPE[ROWS,40] parameter(0)
  y = TYPE[40,COLUMNS] parameter(1)
  ROOT d = TYPE[ROWS,COLUMNS] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
)";
constexpr char kUpdated[] = R"(
  x = TYPE[ROWS,COLUMNS] parameter(0)
  i = s32[7,1] parameter(1)
  u = TYPE[7,COLUMNS] parameter(2)
  ROOT r = TYPE[ROWS,COLUMNS] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
)";

struct Kind {
  const char* name;
  const char* body;
  const char* plan;  // of some size: a piece of its text
};
constexpr Kind kKinds[] = {
    {"softmax", kSoftmax, " row "},      {"columns", kColumnSums, " column "},   {"transposed", kTransposed, " transpose "},
    {"pointwise", kPointwise, " loop "}, {"product", kProduct, " contraction "}, {"updated", kUpdated, " scatter "},
};
// The second's plans think that a few elements keep it busy.
constexpr const char* kModels[] = {"gpu-emulated", "gpu-emulated:sm_80,sms=1,threads_per_sm=8"};

std::string PlansOf(const Module& module, const char* model) {
  std::string plans;
  CompileOptions options{.targets = {*MakeEmulatedGpu(model)}};
  options.stages.wanted = 1u << static_cast<int>(StageKind::kPlans);
  options.stages.take = [&](const Stage& stage) { plans += stage.text; };
  std::unique_ptr<Module> moved = module.Clone();
  lab::MoveSignature(*moved, 1);
  const Binding binding = BindingOf(*moved);
  const absl::Status status = CompileStages(std::move(moved), binding, options);
  EXPECT_TRUE(status.ok()) << status;
  return plans;
}

void ExpectRight(const std::string& text, uint64_t seed) {
  const auto module = ParseModule(text);
  ASSERT_TRUE(module.ok()) << module.status() << text;
  const std::vector<Literal> arguments = lab::RandomInputs(**module, seed);
  const auto expected = lab::Expect(**module, arguments, /*excess_precision=*/true);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const char* model : kModels) {
    const lab::Verdict v = lab::Judge(**module, arguments, *expected, {.target = model, .excess_precision = true});
    EXPECT_EQ(v.outcome, lab::Outcome::kSame) << model << ": " << v.text << "\n" << PlansOf(**module, model) << text;
  }
}

class GpuKinds : public testing::TestWithParam<Kind> {};

TEST_P(GpuKinds, IsPlannedSo) {
  const auto module = ParseModule(Text(GetParam().body, "f32", 300, 1000));
  for (const char* model : kModels) EXPECT_THAT(PlansOf(**module, model), HasSubstr(GetParam().plan));
}

TEST_P(GpuKinds, EveryEdge) {
  uint64_t seed = 1;
  for (const int64_t rows : {1, 2, 33}) {
    for (const int64_t columns : {1, 3, 32, 37, 256, 515}) ExpectRight(Text(GetParam().body, "f32", rows, columns), ++seed);
  }
  ExpectRight(Text(GetParam().body, "f32", 260, 5), ++seed);
  ExpectRight(Text(GetParam().body, "f32", 5, 3000), ++seed);
  ExpectRight(Text(GetParam().body, "f32", 0, 5), ++seed);
}

TEST_P(GpuKinds, EveryType) {
  uint64_t seed = 50;
  for (const char* type : {"f64", "bf16", "f16", "f8e5m2", "c64", "s32", "s8", "u4", "s64"}) {
    const bool floats = std::string(type)[0] != 's' && std::string(type)[0] != 'u', complex = std::string(type) == "c64";
    const std::string body = GetParam().body;
    if (body == kSoftmax && (!floats || complex)) continue;
    if (body == kPointwise && complex) continue;  // no maximum
    ExpectRight(Text(body, type, 33, 70), ++seed);
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuKinds, testing::ValuesIn(kKinds), [](const auto& info) { return std::string(info.param.name); });

// A plan of the user's: refused, or right.
TEST(GpuPlans, AreParsedAndChecked) {
  const auto module = ParseModule(Text(kSoftmax, "f32", 10, 300));
  const std::string plans = PlansOf(**module, kModels[0]);
  ASSERT_THAT(plans, HasSubstr("team="));
  auto compile = [&](const std::string& given) {
    CompileOptions options{.targets = {*MakeEmulatedGpu(kModels[0])}, .plans = given};
    std::unique_ptr<Module> moved = (*module)->Clone();
    lab::MoveSignature(*moved, 1);
    const Binding binding = BindingOf(*moved);
    return CompileToProgram(std::move(moved), binding, options).status();
  };
  EXPECT_TRUE(compile(plans).ok()) << compile(plans) << plans;
  const std::string lanes = absl::StrReplaceAll(plans, {{"lanes=4", "lanes=2"}, {"lanes=1", "lanes=2"}});
  EXPECT_TRUE(compile(lanes).ok()) << compile(lanes) << lanes;
  auto refused = [&](const std::string& from, const std::string& to) {
    const std::string changed = absl::StrReplaceAll(plans, {{from, to}});
    EXPECT_NE(changed, plans) << from;
    return std::string(compile(changed).message());
  };
  EXPECT_THAT(refused("threads=", "threads=7"), HasSubstr("no block of 32 to 1024 threads"));
  EXPECT_THAT(refused("team=", "team=3"), HasSubstr("team"));
  EXPECT_THAT(refused("tail=scalar", "tail=mask"), HasSubstr("masks"));
  EXPECT_THAT(refused("split=1", "split=0"), HasSubstr("a row is a unit"));
  EXPECT_THAT(refused("threads=", "blocks="), HasSubstr("wanted \"threads=<number>\""));
}

TEST(GpuModels, AreFoundByName) {
  EXPECT_TRUE(FindGpuModel("sm_90").ok());
  EXPECT_EQ(FindGpuModel("120")->name, "sm_120");
  EXPECT_EQ(FindGpuModel("sm_80,sms=3")->sms, 3);
  EXPECT_THAT(std::string(FindGpuModel("sm_42").status().message()), HasSubstr("wanted one of sm_75, sm_80"));
  EXPECT_THAT(std::string(FindGpuModel("sm_80,sms=no").status().message()), HasSubstr("positive number"));
  EXPECT_THAT(std::string(FindGpuModel("sm_80,cats=3").status().message()), HasSubstr("wanted sms"));
  // 2048 threads of 32 registers; half of them where each wants 64; shared memory.
  const GpuModel a100 = *FindGpuModel("sm_80");
  EXPECT_EQ(BlocksPerSm(a100, 256, 32, 0), 8);
  EXPECT_EQ(BlocksPerSm(a100, 256, 64, 0), 4);
  EXPECT_EQ(BlocksPerSm(a100, 256, 32, 80 << 10), 2);
}

}  // namespace
}  // namespace tenon::gpu
