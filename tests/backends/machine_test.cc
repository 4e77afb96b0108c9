// MachineModel: its file, its key, the times that it says; what is planned by it and what is not.
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "backends/codegen/plan/kernel_plan.h"
#include "backends/cpu/emit/codegen.h"
#include "backends/cpu/plan/machine.h"
#include "backends/cpu/plan/work.h"
#include "hlo/check.h"
#include "hlo/text/text.h"
#include "tests/backends/kernel_runner.h"

namespace tenon {
namespace {

MachineModel Some() {
  MachineModel model = MachineOf(kAmx, "avx512");
  model.name = "tuned";
  return model;
}

TEST(Machine, FileReadsBack) {
  for (std::string_view processor : {std::string_view("nobody"), std::string_view("znver5"), kAmx}) {
    for (std::string_view isa : {"avx512", "avx2", "sse4"}) {
      MachineModel model = MachineOf(processor, isa);
      const absl::StatusOr<MachineModel> read = ParseMachine(PrintMachine(model));
      ASSERT_TRUE(read.ok()) << read.status();
      model.matmul_share = 1;  // of the table alone
      EXPECT_EQ(*read, model);
      EXPECT_EQ(read->Key(), model.Key());
    }
  }
}

struct Refusal {
  std::string what, from, to, message;
};

TEST(Machine, FilesThatAreRefused) {
  const Refusal refusals[] = {
      {"no JSON", "{\"tenon_machine\"", "\"tenon_machine\"", "not JSON"},
      {"another object", "tenon_machine", "machine", "not a machine file"},
      {"another version", "\"tenon_machine\":1", "\"tenon_machine\":7", "version 7, wanted 1"},
      {"a field of nobody", "\"threads\"", "\"thread\"", "no \"threads\""},
      {"one too many", "\"threads\"", "\"matmul_share\":0.5,\"threads\"", "unknown \"matmul_share\""},
      {"of another type", "\"fork_join_ns\":6500.0", "\"fork_join_ns\":\"6500\"", "wanted a number"},
      {"negative", "\"fork_join_ns\":6500", "\"fork_join_ns\":-1", "fork_join_ns: wanted a number from"},
      {"nothing", "\"multiply_adds_per_ns\":88", "\"multiply_adds_per_ns\":0", "multiply_adds_per_ns: wanted a number from"},
      {"beyond any machine", "\"bytes_per_ns\":410.0", "\"bytes_per_ns\":1e30", "bytes_per_ns: wanted a number from"},
      {"L2 smaller than L1", "\"bytes\":2097152", "\"bytes\":1024", "L2: not larger"},
      {"memory that ends", "\"bytes\":null", "\"bytes\":99999999999", "memory: wanted null"},
      {"levels by other names", "\"L3\"", "\"L4\"", "wanted L3"},
      {"no threads", "\"threads\":2", "\"threads\":0", "threads: 0"},
  };
  const std::string good = PrintMachine(Some());
  for (const Refusal& r : refusals) {
    const std::string text = absl::StrReplaceAll(good, {{r.from, r.to}});
    ASSERT_NE(text, good) << r.what;
    const absl::StatusOr<MachineModel> read = ParseMachine(text);
    ASSERT_FALSE(read.ok()) << r.what;
    EXPECT_TRUE(absl::StrContains(read.status().message(), r.message)) << r.what << ": " << read.status();
  }
}

TEST(Machine, EveryFieldIsInTheKey) {
  const std::string key = Some().Key();
  std::vector<MachineModel> changed(9, Some());
  changed[0].name = "other";
  changed[1].isa = "avx2";
  changed[2].threads = 3;
  changed[3].levels[2].bytes *= 2;
  changed[4].levels[1].bytes_per_ns += 0.1;
  changed[5].levels[3].all_bytes_per_ns += 0.1;
  changed[6].multiply_adds_per_ns += 0.1;
  changed[7].fork_join_ns += 0.1;
  changed[8].matmul_share = 0.5;
  for (size_t k = 0; k < changed.size(); ++k) EXPECT_NE(changed[k].Key(), key) << k;
  CpuTarget target = *MakeCpuTarget("avx2", /*compile_only=*/true), other = target;
  other.machine.fork_join_ns += 1;
  EXPECT_NE(target.Key(), other.Key());
}

// Who computes a product decides about bits: no file says it, nor anything of another instruction set.
TEST(Machine, AFileLeavesTheLibrarysShareToTheTable) {
  const absl::StatusOr<MachineModel> model = MachineFrom(PrintMachine(Some()), "znver5", "avx512");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->name, "tuned");
  EXPECT_EQ(model->matmul_share, 0.5);
  EXPECT_EQ(*MachineFrom(PrintMachine(Some()), "znver5", "avx2"), MachineOf("znver5", "avx2"));
}

TEST(Machine, ProcessorsThatNobodyMeasuredAreTheGenericOne) {
  for (std::string_view isa : {"avx512", "avx2", "sse4"}) {
    const MachineModel generic = MachineOf("nobody", isa);
    EXPECT_EQ(generic.name, "generic");
    EXPECT_EQ(generic.matmul_share, 1);
    EXPECT_NEAR(generic.SlotNs(isa == "avx512" ? 64 : isa == "avx2" ? 32 : 16), 0.3, 1e-12);
    EXPECT_EQ(generic.StreamNs(4000), 100);
    EXPECT_EQ(generic.StreamNs(48e6), 4e6);
  }
}

TEST(Machine, ALevelHoldsWhatFitsIntoIt) {
  const MachineModel m = Some();
  EXPECT_DOUBLE_EQ(m.StreamNs(48 << 10), (48 << 10) / m.levels[0].bytes_per_ns);
  EXPECT_DOUBLE_EQ(m.StreamNs((48 << 10) + 1), ((48 << 10) + 1) / m.levels[1].bytes_per_ns);
  EXPECT_DOUBLE_EQ(m.StreamNs(3 << 20), (3 << 20) / m.levels[2].bytes_per_ns);
  EXPECT_DOUBLE_EQ(m.StreamNs(1e9), 1e9 / m.levels[3].bytes_per_ns);
  EXPECT_DOUBLE_EQ(m.StreamNs(3 << 20, 2), (3 << 20) / (2 * m.levels[1].bytes_per_ns)) << "each has half of it in a cache of its own";
  EXPECT_DOUBLE_EQ(m.StreamNs(1e9, 64), 1e9 / m.levels[3].all_bytes_per_ns) << "memory is shared";
}

std::unique_ptr<Module> Parsed(const std::string& text) {
  absl::StatusOr<std::unique_ptr<Module>> module = ParseModule(text);
  TENON_CHECK(module.ok(), module.status().ToString());
  return *std::move(module);
}

constexpr char kTanh[] = "HloModule m\nENTRY e {\n x = f32[64,4096] parameter(0)\n ROOT t = f32[64,4096] tanh(x)\n}\n";
constexpr char kAdd[] = "HloModule m\nENTRY e {\n x = f32[64,4096] parameter(0)\n ROOT t = f32[64,4096] add(x, x)\n}\n";
constexpr char kNorm[] = R"(HloModule m
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
ENTRY e {
  x = f32[64,4096] parameter(0)
  zero = f32[] constant(0)
  r = f32[64] reduce(x, zero), dimensions={1}, to_apply=sum
  b = f32[64,4096] broadcast(r), dimensions={0}
  ROOT n = f32[64,4096] divide(x, b)
}
)";

std::unique_ptr<CpuPlannedKernel> Planned(const char* text, const MachineModel& machine, const char* isa = "avx2") {
  const std::unique_ptr<Module> module = Parsed(text);
  const Instruction* fusion = WrapEntryAsFusion(*module);
  CpuTarget target = *MakeCpuTarget(isa, /*compile_only=*/true);
  target.machine = machine;
  absl::StatusOr<std::unique_ptr<CpuPlannedKernel>> kernel = PlanCpuKernel(DenseRequest(fusion), target, true);
  TENON_CHECK(kernel.ok(), kernel.status().ToString());
  return *std::move(kernel);
}

// The plan, and with it the order in which a kernel adds, is the same on every machine; how finely its work is cut is not.
TEST(Machine, DecidesNoPlan) {
  MachineModel quick = MachineOf("nobody", "avx2"), slow = quick;
  quick.fork_join_ns = 100;
  slow.multiply_adds_per_ns = 0.5;
  for (MemoryLevel& level : slow.levels) level.bytes_per_ns = level.all_bytes_per_ns = 0.1;
  slow.fork_join_ns = 1e7;
  for (const char* text : {kTanh, kAdd, kNorm}) {
    const auto a = Planned(text, quick), b = Planned(text, slow);
    EXPECT_EQ(a->info().plan_text, b->info().plan_text);
    EXPECT_EQ(a->info().end, b->info().end);
    EXPECT_LT(a->info().grain.constant(), b->info().grain.constant());
    EXPECT_LT(a->info().estimated_ns, b->info().estimated_ns);
    EXPECT_NE(a->fingerprint(), b->fingerprint()) << "the machine is in the key";
  }
}

// Each thread packs the blocks that are its own, so what is split costs nothing twice but the block where a piece ends.
TEST(Machine, PackedContractionsOfFewRowsAreShared) {
  const char* kSmallImage = R"(
HloModule small_image
ENTRY e {
  x = f32[1,3,3,512] parameter(0)
  k = f32[512,512,3,3] parameter(1)
  ROOT c = f32[1,3,3,512] convolution(x, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_oi01->b01f
})";
  const auto kernel = Planned(kSmallImage, MachineOf("nobody", "avx2"));
  ASSERT_TRUE(absl::StrContains(kernel->info().plan_text, "packed")) << kernel->info().plan_text;
  EXPECT_GE(kernel->info().end.constant() / kernel->info().grain.constant(), 4) << kernel->info().plan_text;
  EXPECT_GE(kernel->info().grain.constant(), 3) << "rows of a block";
}

// Rows of a block on more pages than the processor remembers, or in few sets of its cache, are copied for many rows of the result, not for
// few; what lies close is read where it lies.
TEST(Machine, RowsFarApartAreCopied) {
  auto packed = [](int64_t images, int64_t pixels, int64_t features) {
    const std::string image = absl::StrCat("f32[", images, ",", pixels, ",", pixels, ",", features, "]");
    const std::string text = absl::StrCat("HloModule m\nENTRY e {\n  x = ", image, " parameter(0)\n  k = f32[3,3,", features, ",", features,
                                          "] parameter(1)\n  ROOT c = ", image,
                                          " convolution(x, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f\n}\n");
    return absl::StrContains(Planned(text.c_str(), MachineOf("nobody", "avx2"))->info().plan_text, " packed ");
  };
  EXPECT_TRUE(packed(4, 7, 512));
  EXPECT_TRUE(packed(4, 14, 624)) << "no power of two, many pages";
  EXPECT_FALSE(packed(1, 7, 512)) << "few rows";
  EXPECT_FALSE(packed(4, 56, 64)) << "they lie close";
}

// Tiles of 5 by 5 sums take 0.9 % fewer steps of 14 rows by 144 columns than those of 7 by 3, which leave nothing: one tile is compiled,
// not four.
TEST(Machine, TilesThatLeaveNothingAreLessToCompile) {
  auto tile = [](int64_t rows, int64_t columns) {
    const std::string text = absl::StrCat("HloModule m\nENTRY e {\n  x = f32[", rows, ",96] parameter(0)\n  y = f32[96,", columns,
                                          "] parameter(1)\n  ROOT d = f32[", rows, ",", columns,
                                          "] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n");
    const std::string plan = Planned(text.c_str(), MachineOf("nobody", "avx512"), "avx512")->info().plan_text;
    const auto number = [&](const std::string& name) { return std::atoi(plan.c_str() + plan.find(name) + name.size()); };
    return std::pair(number(" unroll="), number(" block=") / 16);
  };
  EXPECT_EQ(tile(14, 144), std::pair(7, 3));
  EXPECT_EQ(tile(14, 288), std::pair(7, 3));
  EXPECT_EQ(tile(14, 240), std::pair(5, 5)) << "all columns are whole blocks of either, fewer steps";
  EXPECT_EQ(tile(56, 64), std::pair(6, 4)) << "2 % more steps would not pay";
}

TEST(Machine, WhatTakesLongerIsSaidToTakeLonger) {
  const MachineModel machine = MachineOf("nobody", "avx2");
  const double add = Planned(kAdd, machine)->info().estimated_ns, tanh = Planned(kTanh, machine)->info().estimated_ns;
  EXPECT_GT(tanh, 2 * add);
  MachineModel wide = machine;
  for (MemoryLevel& level : wide.levels) level.bytes_per_ns *= 2;
  EXPECT_LT(Planned(kAdd, wide)->info().estimated_ns, add);
  EXPECT_EQ(Planned(kAdd, machine)->info().flops, 64 * 4096);
  EXPECT_EQ(Planned(kNorm, machine)->info().flops, 2 * 64 * 4096 - 64) << "one less per sum";
}

// Windows side by side, and the same windows where a vector's elements are gathered at each tap.
TEST(Machine, WindowsThatStandApartTakeLonger) {
  const auto windows = [](int width, int stride) {
    const std::string text = absl::StrCat(R"(HloModule m
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
ENTRY e {
  x = f32[64,)", width, R"(] parameter(0)
  zero = f32[] constant(0)
  ROOT r = f32[64,64] reduce-window(x, zero), window={size=1x7 stride=1x)", stride, R"(}, to_apply=sum
})");
    return Planned(text.c_str(), MachineOf("nobody", "avx2"))->info().estimated_ns;
  };
  EXPECT_GT(windows(448, 7), 3 * windows(70, 1));
}

TEST(Machine, ThreadsShareTheWorkAndCostTheirFork) {
  CpuTarget target = *MakeCpuTarget("avx2", /*compile_only=*/true);
  const KernelWork little{.bytes = 4096, .streamed = 4096, .resident = 4096, .slots = 1000},
      much{.bytes = 4096, .streamed = 4096, .resident = 4096, .slots = 1e7};
  EXPECT_GT(NanosecondsOf(little, target, 2), NanosecondsOf(little, target));
  EXPECT_NEAR(NanosecondsOf(much, target, 2), NanosecondsOf(much, target) / 2, 2 * target.machine.fork_join_ns);
}

}  // namespace
}  // namespace tenon
