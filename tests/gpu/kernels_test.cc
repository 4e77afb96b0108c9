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
#include "passes/spaces/spaces.h"
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
  MoveSignature(*moved, 1);
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
  MoveSignature(*moved, 1);
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

TEST(GpuLaunches, MakeMoreOfScansInTheirKernels) {
  for (const char* kind : {"sums_narrowed", "differences_along"}) {
    const auto program = Compiled(KindText(FindKernelKind(kind), "bf16", 300, 1000));
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_EQ(program->regions[0].steps.size(), 1u) << PlansOf(*program);
  }
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

// Squares of narrow types are of vectors where all rows are whole ones, and wider: whole squares, some that are not, and batches.
TEST(GpuTransposes, OfNarrowTypesAreWide) {
  constexpr char kOneSm[] = "sm_80,sms=1,threads_per_sm=8";
  const KernelKind& kind = FindKernelKind("transposed");
  uint64_t seed = 300;
  constexpr std::pair<const char*, int> kTypes[] = {{"bf16", 2}, {"f16", 2}, {"s8", 4}, {"u4", 4}, {"f8e5m2", 4}};
  for (const auto& [type, lanes] : kTypes) {
    for (const auto& [rows, columns] : {std::pair(256, 128), std::pair(132, 36), std::pair(16, 516), std::pair(68, 260)}) {
      const std::string text = KindText(kind, type, rows, columns);
      const std::string plans = PlansFor(**ParseModule(text), absl::StrCat("gpu-emulated:", kOneSm));
      EXPECT_THAT(plans, HasSubstr(absl::StrCat("lanes=", lanes, " "))) << type;
      ExpectRight(text, ++seed);
    }
    ExpectRight(KindText(kind, type, 66, 70), ++seed);  // bytes in pairs
    ExpectRight(KindText(kind, type, 67, 132), ++seed);
    const std::string batch = R"(
  x = TYPE[3,COLUMNS,5,ROWS] parameter(0)
  y = TYPE[ROWS] parameter(1)
  t = TYPE[3,5,ROWS,COLUMNS] transpose(x), dimensions={0,2,3,1}
  yb = TYPE[3,5,ROWS,COLUMNS] broadcast(y), dimensions={2}
  d = TYPE[3,5,ROWS,COLUMNS] subtract(t, yb)
  ROOT r = (TYPE[3,5,ROWS,COLUMNS]{3,2,1,0}, f32[3,5,ROWS,COLUMNS]{3,2,1,0}) tuple(d, w)
)";
    const std::string wide = absl::StrReplaceAll(batch, {{"  ROOT", "  w = f32[3,5,ROWS,COLUMNS] convert(t)\n  ROOT"}});
    ExpectRight(KindText({"", wide.c_str(), ""}, type, 64, 36), ++seed);
    const std::string alone = absl::StrReplaceAll(batch, {{"(TYPE[3,5,ROWS,COLUMNS]{3,2,1,0}, f32[3,5,ROWS,COLUMNS]{3,2,1,0}) tuple(d, w)",
                                                           "TYPE[3,5,ROWS,COLUMNS]{3,2,1,0} negate(d)"}});
    ExpectRight(KindText({"", alone.c_str(), ""}, type, 64, 36), ++seed);
  }
}

// Tiles that blocks compute: every way that operands may lie, with a batch, several summed dims, and something done with the sums.
struct Product {
  const char* name;
  std::string body;
};
std::vector<Product> Products() {
  const std::string epilogue = R"(
  c = TYPE[COLUMNS] parameter(2)
  cb = TYPE[ROWS,COLUMNS] broadcast(c), dimensions={1}
  s = TYPE[ROWS,COLUMNS] add(d, cb)
  ROOT r = (TYPE[ROWS,COLUMNS], TYPE[ROWS,COLUMNS]) tuple(s, d)
)";
  return {
      {"plain", "x = TYPE[ROWS,TERMS] parameter(0)\n y = TYPE[TERMS,COLUMNS] parameter(1)\n"
                " d = TYPE[ROWS,COLUMNS] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}" + epilogue},
      {"both_turned", "x = TYPE[TERMS,ROWS] parameter(0)\n y = TYPE[COLUMNS,TERMS] parameter(1)\n"
                      " d = TYPE[ROWS,COLUMNS] dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={1}" + epilogue},
      {"result_turned", "x = TYPE[ROWS,TERMS] parameter(0)\n y = TYPE[COLUMNS,TERMS] parameter(1)\n"
                        " ROOT d = TYPE[ROWS,COLUMNS]{0,1} dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n"},
      {"batch", "x = TYPE[3,ROWS,TERMS] parameter(0)\n y = TYPE[3,TERMS,COLUMNS] parameter(1)\n"
                " ROOT d = TYPE[3,ROWS,COLUMNS] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, "
                "rhs_contracting_dims={1}\n"},
      {"batch_inside", "x = TYPE[ROWS,3,TERMS] parameter(0)\n y = TYPE[COLUMNS,3,TERMS] parameter(1)\n"
                       " ROOT d = TYPE[3,ROWS,COLUMNS] dot(x, y), lhs_batch_dims={1}, rhs_batch_dims={1}, lhs_contracting_dims={2}, "
                       "rhs_contracting_dims={2}\n"},
      {"two_summed", "x = TYPE[5,ROWS,TERMS] parameter(0)\n y = TYPE[5,TERMS,COLUMNS] parameter(1)\n"
                     " ROOT d = TYPE[ROWS,COLUMNS] dot(x, y), lhs_contracting_dims={0,2}, rhs_contracting_dims={0,1}\n"},
      {"picture", "x = TYPE[2,3,ROWS,TERMS] parameter(0)\n y = TYPE[2,1,TERMS,COLUMNS] parameter(1)\n"
                  " ROOT d = TYPE[2,2,ROWS,COLUMNS] convolution(x, y), window={size=2x1}, dim_labels=b01f_01io->b01f\n"},
  };
}

class GpuProducts : public testing::TestWithParam<Product> {
 protected:
  void Check(const char* type, int64_t m, int64_t n, int64_t k) {
    const std::string text = absl::StrReplaceAll(KindText({"", GetParam().body.c_str(), ""}, type, m, n), {{"TERMS", absl::StrCat(k)}});
    ExpectRight(text, static_cast<uint64_t>(m * 1000 + n * 10 + k));
  }
};

TEST_P(GpuProducts, EveryEdge) {
  for (const char* type : {"f32", "f16", "bf16"}) {
    for (const auto& [m, n, k] :
         {std::tuple{1, 17, 33}, {7, 65, 40}, {17, 17, 16}, {33, 130, 65}, {65, 33, 130}, {130, 65, 17}, {64, 64, 64}}) {
      Check(type, m, n, k);
    }
  }
}

TEST_P(GpuProducts, EveryType) {
  for (const char* type : {"f64", "c64", "s32", "s8", "u4", "s64", "f8e5m2"}) Check(type, 33, 34, 40);
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuProducts, testing::ValuesIn(Products()), [](const auto& info) { return std::string(info.param.name); });

constexpr char kStaged[] = R"(
  x = TYPE[ROWS,TERMS] parameter(0)
  y = TYPE[TERMS,COLUMNS] parameter(1)
  ROOT d = f32[ROWS,COLUMNS] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
)";

std::string ProductText(const char* type, int64_t terms) {
  return absl::StrReplaceAll(KindText(FindKernelKind("product"), type, 128, 256), {{"40", absl::StrCat(terms)}});
}

// More terms than one part of a sum has, and a remainder.
TEST(GpuTiles, LongSums) {
  for (const char* type : {"f32", "bf16"}) {
    ExpectRight(absl::StrReplaceAll(KindText(FindKernelKind("product"), type, 33, 50), {{",40]", ",1100]"}, {"[40,", "[1100,"}}), 9);
  }
}

// Products of products: what is made in between is a half in memory, which two kernels widen.
TEST(GpuTiles, HalvesInBetween) {
  ExpectRight(R"(HloModule m
ENTRY e {
  a = f16[32,48] parameter(0)
  b = f16[32,48] parameter(1)
  c = f16[32,48] multiply(a, b)
  d = f16[32,32] dot(c, b), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  t = f16[32,32] tanh(d)
  e = f16[32,48] dot(t, c), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT r = f16[32,48] add(e, c)
})", 3);
}

TEST(GpuTiles, TensorCoresTakeHalves) {
  auto plans = [](const char* type, const char* model) { return PlansFor(**ParseModule(ProductText(type, 64)), model); };
  for (const char* model : {"gpu-emulated:sm_80", "gpu-emulated:sm_90", "gpu-emulated:sm_120"}) {
    EXPECT_THAT(plans("f16", model), HasSubstr("slice=32 mma "));
    EXPECT_THAT(plans("bf16", model), HasSubstr("slice=32 mma "));
    EXPECT_THAT(plans("f32", model), HasSubstr("slice=16 contraction "));  // no TF32
    EXPECT_THAT(plans("f64", model), HasSubstr("slice=16 contraction "));
  }
  EXPECT_THAT(plans("f16", "gpu-emulated:sm_75"), HasSubstr("slice=16 contraction "));
  EXPECT_THAT(PlansFor(**ParseModule(ProductText("f16", 8)), kModels[0]), testing::Not(HasSubstr("slice=")));  // few terms
}

// More slices than stages, sums in parts, sides that are no whole tiles. However many stages there are, the sums are the same, bit by bit.
TEST(GpuTiles, OfStages) {
  uint64_t seed = 900;
  for (const char* type : {"f16", "bf16"}) {
    for (const auto& [m, n, k] : {std::tuple(136, 72, 592), std::tuple(40, 264, 1080), std::tuple(131, 64, 600), std::tuple(16, 48, 288)}) {
      ExpectRight(absl::StrReplaceAll(KindText({"", kStaged, ""}, type, m, n), {{"TERMS", absl::StrCat(k)}}), ++seed);
    }
  }
  const std::string text = absl::StrReplaceAll(KindText({"", kStaged, ""}, "bf16", 136, 72), {{"TERMS", "592"}});
  const auto module = ParseModule(text);
  const std::vector<Literal> arguments = lab::RandomInputs(**module, 7);
  std::unique_ptr<Module> moved = (*module)->Clone();
  lab::MoveInside(*moved, 1);
  std::vector<Literal> sums;
  for (const char* stages : {"stages=4 ", "stages=3 ", "stages=2 "}) {
    const std::string plans = PlansFor(**module, kModels[1]);
    ASSERT_THAT(plans, HasSubstr("stages=4 "));
    const auto executable = LiteralExecutable::Compile(*moved, {.targets = {*MakeEmulatedGpu(kModels[1])},
                                                                .plans = absl::StrReplaceAll(plans, {{"stages=4 ", stages}})},
                                                       EmulatedHost(PlainHost()));
    ASSERT_TRUE(executable.ok()) << executable.status();
    const auto got = (*executable)->Run(arguments);
    ASSERT_TRUE(got.ok()) << got.status();
    sums.push_back(got->front());
  }
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(sums[0], sums[2]);
}

TEST(GpuTiles, AreChecked) {
  for (const char* type : {"f32", "bf16"}) {
    const auto module = ParseModule(KindText(FindKernelKind("product"), type, 70, 140));
    const std::string plans = PlansFor(**module, kModels[1]);
    auto compile = [&](const std::string& given, const char* model) {
      CompileOptions options{.targets = {*MakeEmulatedGpu(model)}, .plans = given};
      std::unique_ptr<Module> moved = (*module)->Clone();
      MoveSignature(*moved, 1);
      const Binding binding = BindingOf(*moved);
      return std::string(CompileToProgram(std::move(moved), binding, options).status().message());
    };
    EXPECT_EQ(compile(plans, kModels[1]), "");
    auto refused = [&](const std::string& from, const std::string& to) {
      const std::string changed = absl::StrReplaceAll(plans, {{from, to}});
      EXPECT_NE(changed, plans) << from;
      return compile(changed, kModels[1]);
    };
    EXPECT_THAT(refused("slice=", "slice=9"), HasSubstr("a slice that is not 16 or 32 terms"));
    EXPECT_THAT(refused(" block=64", " block=96"), HasSubstr("a tile whose sides are not 32 to 256"));
    EXPECT_THAT(refused(" block=64", " block=32"), HasSubstr("not a thread for each 32 elements"));
    EXPECT_THAT(refused(" lanes=4", " lanes=2"), HasSubstr("not a thread's part"));
    EXPECT_THAT(compile(plans, "gpu-emulated:sm_80,sms=1,shared_per_block=4096"), HasSubstr("bytes of shared memory"));
    if (std::string(type) == "bf16") {
      EXPECT_THAT(compile(plans, "gpu-emulated:sm_75,sms=1"), HasSubstr("no tensor cores that sum halves in f32"));
      EXPECT_THAT(refused("slice=32 ", ""), HasSubstr("tensor cores without slices"));
      EXPECT_THAT(refused(" mma ", " mma stages=9 "), HasSubstr("more stages than 8"));
    } else {
      EXPECT_THAT(refused("slice=16 ", "slice=16 mma "), HasSubstr("what are no halves in memory"));
      EXPECT_THAT(refused("slice=16 ", "slice=16 stages=2 "), HasSubstr("stages of what no tensor cores multiply"));
    }
  }
}

// A plan of the user's: refused, or right.
TEST(GpuPlans, AreParsedAndChecked) {
  const auto module = ParseModule(KindText(FindKernelKind("softmax"), "f32", 10, 300));
  const std::string plans = PlansFor(**module, kModels[0]);
  ASSERT_THAT(plans, HasSubstr("team="));
  auto compile = [&](const std::string& given) {
    CompileOptions options{.targets = {*MakeEmulatedGpu(kModels[0])}, .plans = given};
    std::unique_ptr<Module> moved = (*module)->Clone();
    MoveSignature(*moved, 1);
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
