// Each kind of GPU kernel at sizes that meet its edges: what is planned, and that it computes what the evaluator does, in three orders of
// threads and blocks, under the emulator's detectors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "backends/driver/compile.h"
#include "backends/driver/given_plans.h"
#include "backends/driver/literal_executable.h"
#include "hlo/text/text.h"
#include "runtime/host/plain_host.h"
#include "runtime/program/binding.h"
#include "tools/lab/generate/random_inputs.h"
#include "tools/lab/gpu/emulated_target.h"
#include "tools/lab/gpu/kernel_kinds.h"
#include "tools/lab/judge/miscompare.h"
#include "tools/lab/spaces.h"

namespace tenon::gpu {
namespace {

using testing::HasSubstr;

// The second's plans think that a few elements keep it busy.
constexpr const char* kModels[] = {"gpu-emulated", "gpu-emulated:sm_80,sms=1,threads_per_sm=8"};

std::string PlansFor(const Module& module, const std::string& model) {
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

void ExpectRight(const std::string& text, uint64_t seed, const char* small = nullptr) {
  const auto module = ParseModule(text);
  ASSERT_TRUE(module.ok()) << module.status() << text;
  const std::vector<Literal> arguments = lab::RandomInputs(**module, seed);
  const auto expected = lab::Expect(**module, arguments, /*excess_precision=*/true);
  ASSERT_TRUE(expected.ok()) << expected.status();
  std::vector<std::string> models(std::begin(kModels), std::end(kModels));
  if (small != nullptr) models.push_back(absl::StrCat("gpu-emulated:", small));
  for (const std::string& model : models) {
    const lab::Verdict v = lab::Judge(**module, arguments, *expected, {.target = model, .excess_precision = true});
    EXPECT_EQ(v.outcome, lab::Outcome::kSame) << model << ": " << v.text << "\n" << PlansFor(**module, model) << text;
  }
}

class GpuKinds : public testing::TestWithParam<KernelKind> {};

TEST_P(GpuKinds, IsPlannedSo) {
  const auto module = ParseModule(KindText(GetParam(), "f32", 300, 1000));
  for (const char* model : kModels) EXPECT_THAT(PlansFor(**module, model), HasSubstr(GetParam().plan));
}

TEST_P(GpuKinds, EveryEdge) {
  uint64_t seed = 1;
  for (const int64_t rows : {1, 2, 33}) {
    for (const int64_t columns : {1, 3, 32, 37, 256, 515}) {
      ExpectRight(KindText(GetParam(), "f32", rows, columns), ++seed, GetParam().small);
    }
  }
  ExpectRight(KindText(GetParam(), "f32", 260, 5), ++seed, GetParam().small);
  ExpectRight(KindText(GetParam(), "f32", 5, 3000), ++seed, GetParam().small);
  ExpectRight(KindText(GetParam(), "f32", 0, 5), ++seed);
}

TEST_P(GpuKinds, EveryType) {
  uint64_t seed = 50;
  for (const char* type : {"f64", "bf16", "f16", "f8e5m2", "c64", "s32", "s8", "u4", "s64"}) {
    if (!TakesType(GetParam(), type)) continue;
    ExpectRight(KindText(GetParam(), type, 33, 70), ++seed, GetParam().small);
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuKinds, testing::ValuesIn(KernelKinds()), [](const auto& info) { return std::string(info.param.name); });

// Several launches: their plans, one line each, and where they lie between them.
std::string LongSort() { return KindText(FindKernelKind("sorted"), "f32", 1, 5000); }
std::string LongScan() { return KindText(FindKernelKind("sums_along"), "f32", 2, 40000); }

absl::StatusOr<Program> Compiled(const std::string& text, const std::string& plans = "") {
  const auto module = ParseModule(text);
  CompileOptions options{.targets = {*MakeEmulatedGpu(kModels[0])}, .plans = plans};
  std::unique_ptr<Module> moved = (*module)->Clone();
  lab::MoveSignature(*moved, 1);
  const Binding binding = BindingOf(*moved);
  return CompileToProgram(std::move(moved), binding, options);
}

TEST(GpuLaunches, OfLongRowsAreSeveral) {
  const auto sort = Compiled(LongSort()), scan = Compiled(LongScan());
  ASSERT_TRUE(sort.ok() && scan.ok()) << sort.status() << scan.status();
  const std::string sorted = PlansOf(*sort), scanned = PlansOf(*scan);
  // 2048 elements a piece: three of them are merged twice.
  for (const char* pass : {"pass=runs", "pass=merge", "pass=last"}) EXPECT_THAT(sorted, HasSubstr(pass));
  for (const char* pass : {"pass=totals", "pass=carries", "pass=carried"}) EXPECT_THAT(scanned, HasSubstr(pass));
  EXPECT_EQ(sort->regions[0].steps.size(), 3u) << sorted;
  EXPECT_EQ(scan->regions[0].steps.size(), 3u) << scanned;
  ExpectRight(LongSort(), 70);
  ExpectRight(LongScan(), 71);
}

// Merges of one kernel, by runs of different length.
TEST(GpuLaunches, ShareKernels) {
  const auto sort = Compiled(KindText(FindKernelKind("sorted"), "f32", 1, 20000));
  ASSERT_TRUE(sort.ok()) << sort.status();
  EXPECT_EQ(sort->regions[0].steps.size(), 5u);
  EXPECT_EQ(sort->kernels.size(), 3u);
}

TEST(GpuLaunches, AreParsedAndChecked) {
  for (const std::string& text : {LongSort(), LongScan()}) {
    const std::string plans = PlansOf(*Compiled(text));
    const auto again = Compiled(text, plans);
    ASSERT_TRUE(again.ok()) << again.status() << plans;
    EXPECT_EQ(PlansOf(*again), plans);
    auto refused = [&](const std::string& changed) {
      EXPECT_NE(changed, plans);
      return std::string(Compiled(text, changed).status().message());
    };
    const std::string last = plans.substr(0, plans.rfind("  threads"));
    EXPECT_THAT(refused(last), testing::AnyOf(HasSubstr("runs that are not merged"), HasSubstr("launches that are not totals")));
    EXPECT_THAT(refused(plans + plans.substr(plans.rfind("  threads"))),
                testing::AnyOf(HasSubstr("merges of what is one run"), HasSubstr("launches that are not totals")));
    EXPECT_THAT(refused(absl::StrReplaceAll(plans, {{"pass=merge", "pass=last"}, {"pass=carried", "pass=totals"}})),
                testing::AnyOf(HasSubstr("not the merge that is next"), HasSubstr("launches that are not totals")));
    EXPECT_THAT(refused(absl::StrReplaceAll(plans, {{"pass=runs ", ""}, {"pass=totals ", ""}})), HasSubstr("GPU plan"));
  }
}

// A comparator that is no order, of equal and of NaN: any of them makes a permutation.
TEST(GpuLaunches, AnyComparatorMakesAPermutation) {
  const std::string text = absl::StrReplaceAll(LongSort(), {{", type=TOTALORDER", ""}, {"maximum(x, yb)", "sqrt(x)"}});
  const auto module = ParseModule(text);
  ASSERT_TRUE(module.ok()) << module.status();
  const std::vector<Literal> arguments = lab::RandomInputs(**module, 5);
  std::unique_ptr<Module> moved = (*module)->Clone();
  lab::MoveInside(*moved, 1);
  const auto executable = LiteralExecutable::Compile(*moved, {.targets = {*MakeEmulatedGpu(kModels[0])}}, EmulatedHost(PlainHost()));
  ASSERT_TRUE(executable.ok()) << executable.status();
  const auto got = (*executable)->Run(arguments);
  ASSERT_TRUE(got.ok()) << got.status();
  std::vector<int32_t> places(got->front().data<int32_t>().begin(), got->front().data<int32_t>().end());
  std::sort(places.begin(), places.end());
  for (size_t i = 0; i < places.size(); ++i) ASSERT_EQ(places[i], static_cast<int32_t>(i));
}

// A plan of the user's: refused, or right.
TEST(GpuPlans, AreParsedAndChecked) {
<<<<<<< HEAD
  const auto module = ParseModule(Text(kSoftmax, "f32", 10, 300));
  const std::string plans = PlansFor(**module, kModels[0]);
=======
  const auto module = ParseModule(KindText(KernelKinds()[0], "f32", 10, 300));
  const std::string plans = PlansOf(**module, kModels[0]);
>>>>>>> runner
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
