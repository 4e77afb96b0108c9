// Planted bugs of the GPU's code (tools/lab/gpu/plant.h): each is found, and how: by a detector of the emulator, by a result that is not
// the evaluator's, by a check of plans. Without its plant the same module is right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "backends/driver/compile.h"
#include "backends/driver/given_plans.h"
#include "hlo/check.h"
#include "hlo/eval/evaluator.h"
#include "hlo/text/text.h"
#include "passes/spaces/spaces.h"
#include "runtime/execute/executable.h"
#include "runtime/host/plain_host.h"
#include "runtime/program/binding.h"
#include "tests/backends/hlo_cases.h"
#include "tools/lab/gpu/attention_text.h"
#include "tools/lab/gpu/emulated_memory.h"
#include "tools/lab/gpu/emulated_target.h"
#include "tools/lab/gpu/plant.h"

namespace tenon::gpu {
namespace {

constexpr char kSmall[] = "gpu-emulated:sm_80,sms=1,threads_per_sm=8";  // a few elements keep it busy: plans take vectors
constexpr char kUsual[] = "gpu-emulated";

constexpr char kSum[] = "add { a = @@[] parameter(0) b = @@[] parameter(1) ROOT s = @@[] add(a, b) }\n";
std::string WithSum(std::string_view type, std::string_view entry) {
  std::string add(kSum);
  for (size_t at; (at = add.find("@@")) != std::string::npos;) add.replace(at, 2, type);
  return absl::StrCat("HloModule m\n", add, "ENTRY e {\n", std::string(entry), "}\n");
}
std::string Entry(std::string_view entry) { return absl::StrCat("HloModule m\nENTRY e {\n", std::string(entry), "}\n"); }

// A row for each block, whose warps exchange their sums once.
std::string Rows() {
  return WithSum("f32",
                 "p = f32[3,2100] parameter(0)\n z = f32[] constant(0)\n ROOT r = f32[3] reduce(p, z), dimensions={1}, to_apply=add\n");
}
// Twice: of the values, and of what is left of them.
std::string TwoSums() {
  return WithSum("f32", R"(p = f32[3,2100] parameter(0)
    z = f32[] constant(0)
    r = f32[3] reduce(p, z), dimensions={1}, to_apply=add
    b = f32[3,2100] broadcast(r), dimensions={0}
    d = f32[3,2100] subtract(p, b)
    q = f32[3,2100] multiply(d, d)
    ROOT v = f32[3] reduce(q, z), dimensions={1}, to_apply=add
)");
}
// Rows for parts of a warp.
std::string ShortRows() {
  return WithSum("f32",
                 "p = f32[9,128] parameter(0)\n z = f32[] constant(0)\n ROOT r = f32[9] reduce(p, z), dimensions={1}, to_apply=add\n");
}
std::string Columns() {
  return WithSum("f32",
                 "p = f32[200,41] parameter(0)\n z = f32[] constant(0)\n ROOT r = f32[41] reduce(p, z), dimensions={0}, to_apply=add\n");
}
std::string Elements() { return Entry("p = f32[1000] parameter(0)\n q = f32[1000] parameter(1)\n ROOT r = f32[1000] add(p, q)\n"); }
std::string OddRows() {
  return Entry("p = f32[64,13] parameter(0)\n s = f32[64,12] slice(p), slice={[0:64], [0:12]}\n ROOT r = f32[64,12] negate(s)\n");
}
std::string Transposed() {
  return Entry("p = f32[70,90] parameter(0)\n q = f32[90,70] parameter(1)\n t = f32[90,70] transpose(p), dimensions={1,0}\n"
               " ROOT r = f32[90,70]{1,0} add(q, t)\n");
}
// Squares of 64 by 64, in pairs.
std::string TransposedHalves() {
  return Entry("p = bf16[72,90] parameter(0)\n q = bf16[90,72] parameter(1)\n t = bf16[90,72] transpose(p), dimensions={1,0}\n"
               " ROOT r = bf16[90,72]{1,0} subtract(q, t)\n");
}
// A piece of two for a block, and of three, merged twice.
std::string SortOf(int64_t n) {
  return absl::StrCat("HloModule m\nless { a = s32[] parameter(0)\n b = s32[] parameter(1)\n",
                      " ROOT r = pred[] compare(a, b), direction=LT }\n",
                      "ENTRY e { p = s32[", n, "] parameter(0)\n ROOT s = s32[", n, "] sort(p), dimensions={0}, to_apply=less }\n");
}
std::string Sorted() { return SortOf(1000); }
std::string SortedInPieces() { return SortOf(5000); }
std::string ScanOf(int64_t n) {
  return absl::StrCat("HloModule m\nstep { a = s32[] parameter(0)\n b = s32[] parameter(1)\n s = s32[] add(a, b)\n",
                      " ROOT r = (s32[], s32[]) tuple(s, s) }\nENTRY e { p = s32[", n, "] parameter(0)\n z = s32[] constant(1)\n",
                      " s = (s32[", n, "], s32[]) scan(p, z), dimensions={0}, num_carries=1, to_apply=step\n",
                      " ROOT r = s32[", n, "] get-tuple-element(s), index=0 }\n");
}
std::string Scanned() { return ScanOf(2000); }
// In f32, and rounded in the same kernel: a warp has a row, four pieces of it at once.
std::string ScannedHalves() {
  return "HloModule m\nstep { a = f32[8] parameter(0)\n b = f32[8] parameter(1)\n s = f32[8] add(a, b)\n"
         " ROOT r = (f32[8], f32[8]) tuple(s, s) }\nENTRY e { p = bf16[8,1024] parameter(0)\n f = f32[8,1024] convert(p)\n"
         " zero = f32[] constant(0)\n z = f32[8] broadcast(zero), dimensions={}\n"
         " s = (f32[8,1024], f32[8]) scan(f, z), dimensions={1}, num_carries=1, to_apply=step\n"
         " g = f32[8,1024] get-tuple-element(s), index=0\n ROOT r = bf16[8,1024] convert(g) }\n";
}
std::string ScannedOddRows() {
  return "HloModule m\nstep { a = s32[8] parameter(0)\n b = s32[8] parameter(1)\n s = s32[8] add(a, b)\n"
         " ROOT r = (s32[8], s32[8]) tuple(s, s) }\nENTRY e { p = s32[8,65] parameter(0)\n f = s32[8,64] slice(p), slice={[0:8], [0:64]}\n"
         " z = s32[8] parameter(1)\n s = (s32[8,64], s32[8]) scan(f, z), dimensions={1}, num_carries=1, to_apply=step\n"
         " ROOT g = s32[8,64] get-tuple-element(s), index=0 }\n";
}
std::string ScannedInPieces() { return ScanOf(20000); }
// By tensor cores, and by threads.
std::string Halves() {
  return Entry("p = f16[40,48] parameter(0)\n q = f16[48,64] parameter(1)\n"
               " ROOT r = f32[40,64] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n");
}
// One slice, in whose place its sums lie; and more than there are stages.
std::string HalvesOfTerms(int64_t terms) {
  return Entry(absl::StrCat("p = f16[40,", terms, "] parameter(0)\n q = f16[", terms, ",64] parameter(1)\n",
                            " ROOT r = f32[40,64] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"));
}
std::string OneSlice() { return HalvesOfTerms(32); }
std::string ManySlices() { return HalvesOfTerms(600); }
std::string Brains() {
  return Entry("p = bf16[48,40] parameter(0)\n q = bf16[64,48] parameter(1)\n"
               " ROOT r = f32[40,64] dot(p, q), lhs_contracting_dims={0}, rhs_contracting_dims={1}\n");
}
std::string Tiles() {
  return Entry("p = f32[64,48] parameter(0)\n q = f32[48,64] parameter(1)\n"
               " ROOT r = f32[64,64] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n");
}
// Keys of three tiles, the last one not whole.
std::string AttentionOf(const char* type) {
  return AttentionText({.type = type, .batch = 2, .queries = 40, .keys = 150, .terms = 24, .columns = 40});
}
std::string Attention() { return AttentionOf("f32"); }
std::string AttentionOfHalves() { return AttentionOf("f16"); }  // scores stay in registers
std::string AttentionOfTurnedHalves() {
  return AttentionText({.type = "f16", .batch = 2, .queries = 40, .keys = 150, .terms = 24, .columns = 40, .turned = true});
}
std::string OddSize() { return Entry("p = f32[5,13] parameter(0)\n ROOT r = f32[5,13] negate(p)\n"); }

CompileOptions OptionsWith(const char* model, const GpuPlant* plant, int* places) {
  CompileOptions options;
  options.verify_passes = true;
  std::function<void(llvm::Function&)> sabotage;
  if (plant != nullptr && plant->kernel != nullptr) sabotage = [plant, places](llvm::Function& f) { *places += plant->kernel(f); };
  if (plant != nullptr && plant->program != nullptr)
    options.sabotage.program = [plant, places](Program& p) { *places += plant->program(p); };
  options.compile_threads = 1;  // `places` is one thread's
  const auto target = MakeEmulatedGpu(model, std::move(sabotage));
  TENON_CHECK(target.ok(), std::string(target.status().message()));
  options.targets.push_back(*target);
  return options;
}

// An array in the emulated memory, of its own size to the byte.
class OnDevice {
 public:
  explicit OnDevice(const Shape& shape) : shape_(shape), sizes_(shape.constant_dims()), strides_(sizes_.size(), 1) {
    for (size_t d = sizes_.size(); d-- > 1;) strides_[d - 1] = strides_[d] * sizes_[d];
    data_ = TheEmulatedMemory().Allocate(bytes());
    TENON_CHECK(data_ != nullptr, "out of memory");
  }
  explicit OnDevice(const Literal& l) : OnDevice(l.shape()) { Write(0, l.bytes(), bytes()); }
  ~OnDevice() { TheEmulatedMemory().Free(data_); }
  OnDevice(const OnDevice&) = delete;

  void Write(size_t offset, const void* from, size_t count) {
    const absl::Status s = TheEmulatedMemory().Write(static_cast<char*>(data_) + offset, from, count);
    TENON_CHECK(s.ok(), s.ToString());
  }
  Literal Read() const {
    Literal l(Shape::Array(shape_.element_type(), sizes_));
    const absl::Status s = TheEmulatedMemory().Read(l.mutable_bytes(), data_, bytes());
    TENON_CHECK(s.ok(), s.ToString());
    return l;
  }
  TenonTensor Tensor() const {
    return {.tensor = nullptr,
            .data = data_,
            .sizes = sizes_.data(),
            .strides = strides_.data(),
            .dtype = static_cast<int32_t>(shape_.element_type()),
            .ndim = static_cast<int32_t>(sizes_.size())};
  }
  size_t bytes() const { return static_cast<size_t>(shape_.byte_size().constant()); }

 private:
  Shape shape_;
  std::vector<int64_t> sizes_, strides_;
  void* data_;
};

std::unique_ptr<Module> Parsed(const std::string& text) {
  auto module = ParseModule(text);
  TENON_CHECK(module.ok(), std::string(module.status().message()));
  return std::move(*module);
}

// The module's result, all that it takes and gives in the device's memory. `places`: where the plant found one.
absl::StatusOr<Literal> RunThere(const Module& module, const std::vector<std::unique_ptr<OnDevice>>& args, const char* model,
                                 const GpuPlant* plant, int* places) {
  auto moved = module.Clone();
  MoveSignature(*moved, 1);
  CompileOptions options = OptionsWith(model, plant, places);
  if (plant != nullptr && plant->plan != nullptr) {
    TENON_ASSIGN_OR_RETURN(const Program program, CompileToProgram(moved->Clone(), BindingOf(*moved), options));
    options.plans = plant->plan(PlansOf(program));
    *places += !options.plans.empty();
  }
  TENON_ASSIGN_OR_RETURN(Program program, CompileToProgram(moved->Clone(), BindingOf(*moved), options));
  TENON_ASSIGN_OR_RETURN(const auto executable, Executable::Create(std::move(program), LoadersOf(options), EmulatedHost(PlainHost())));
  std::vector<TenonTensor> in;
  for (const auto& arg : args) in.push_back(arg->Tensor());
  const OnDevice result(moved->entry()->root()->shape());
  TenonTensor out = result.Tensor();
  const RunResult r = executable->Run(in.data(), &out);
  if (r.code != TENON_OK) return absl::Status(r.kind, r.error);
  return result.Read();
}

// "right", "different: ...", or what the compile or the launch says.
std::string Outcome(const std::string& text, const char* model, const GpuPlant* plant, const EmulatorOptions& emulation, int* places,
                    double tolerance = 1e-4) {
  const auto module = Parsed(text);
  std::vector<Literal> literals;
  std::vector<std::unique_ptr<OnDevice>> args;
  for (const Instruction* p : module->entry()->parameters()) {
    literals.push_back(RandomLiteral(p->shape(), HloCase(), 7000 + literals.size()));
    args.push_back(std::make_unique<OnDevice>(literals.back()));
  }
  SetEmulation(emulation);
  const auto got = RunThere(*module, args, model, plant, places);
  SetEmulation({});
  if (!got.ok()) return std::string(got.status().message());
  const LiteralDifference d = CompareLiterals(*got, *Evaluate(*module, literals), ToleranceRule::AbsRel(tolerance, tolerance));
  return d.within ? "right" : absl::StrCat("different: ", d.what);
}

struct Planting {
  const char* plant;
  const char* name;  // of the module
  std::string (*module)();
  const char* model;
  const char* found;          // in what the outcome says
  bool uninitialised = true;  // with that detector, which often is the first to see something
  double tolerance = 1e-4;
};

constexpr double kOfHalves = 3e-2;  // where HLO rounds scores and weights to halves

constexpr Planting kPlantings[] = {
    {"missing-barrier", "rows", Rows, kUsual, "race", false},
    {"missing-barrier", "rows_all", Rows, kUsual, "uninitialised"},
    {"missing-barrier", "columns", Columns, kUsual, "race", false},
    {"missing-barrier", "columns_all", Columns, kUsual, "uninitialised"},
    {"missing-first-barrier", "transposed", Transposed, kUsual, "race", false},
    {"missing-first-barrier", "two_sums", TwoSums, kUsual, "race"},
    {"wrong-shuffle-width", "rows", Rows, kUsual, "different"},
    {"wrong-shuffle-width", "short_rows", ShortRows, kUsual, "different"},
    {"shared-race", "rows", Rows, kUsual, "race"},
    {"shared-race", "columns", Columns, kUsual, "race"},
    {"misaligned-vector", "odd_rows", OddRows, kSmall, "misaligned"},
    {"grid-too-small", "elements", Elements, kUsual, "different"},
    {"grid-too-small", "rows", Rows, kUsual, "different"},
    {"grid-too-large", "rows", Rows, kUsual, "out of bounds"},
    {"no-guard", "elements", Elements, kUsual, "out of bounds"},
    {"wrong-tail-mask", "odd_size", OddSize, kSmall, "out of bounds"},
    {"uninitialised-shared", "rows", Rows, kUsual, "uninitialised"},
    {"uninitialised-shared", "transposed", Transposed, kUsual, "uninitialised"},
    {"uninitialised-shared", "columns", Columns, kUsual, "uninitialised"},
    {"divergent-barrier", "rows", Rows, kUsual, "divergent barrier"},
    {"divergent-barrier", "columns", Columns, kUsual, "divergent barrier"},
    {"missing-barrier", "sorted", Sorted, kUsual, "race", false},
    {"missing-barrier", "scanned", Scanned, kUsual, "race", false},
    {"missing-first-barrier", "sorted", Sorted, kUsual, "race", false},
    {"missing-launch", "sorted", SortedInPieces, kUsual, "different", false},
    {"missing-launch", "scanned", ScannedInPieces, kUsual, "different", false},
    {"one-temporary", "sorted", SortedInPieces, kUsual, "race", false},
    {"short-runs", "sorted", SortedInPieces, kUsual, "different"},
    {"wrong-shuffle-up", "scanned", Scanned, kUsual, "different"},
    {"wrong-shuffle-up", "scanned_halves", ScannedHalves, kSmall, "different", true, kOfHalves},
    {"misaligned-vector", "scanned_odd_rows", ScannedOddRows, kSmall, "misaligned"},
    {"missing-first-barrier", "transposed_halves", TransposedHalves, kSmall, "race", false, kOfHalves},
    {"wrong-tile-offset", "transposed_halves", TransposedHalves, kSmall, "different", true, kOfHalves},
    {"wrong-mma-layout", "halves", Halves, kUsual, "different"},
    {"wrong-mma-layout", "brains", Brains, kUsual, "different"},
    {"missing-barrier", "tiles", Tiles, kUsual, "race", false},
    {"missing-first-barrier", "tiles", Tiles, kUsual, "race", false},
    {"missing-barrier", "one_slice", OneSlice, kUsual, "race", false},
    {"missing-first-barrier", "halves", Halves, kUsual, "race", false},
    {"missing-first-barrier", "many_slices", ManySlices, kUsual, "race", false},
    {"wrong-wait", "halves", Halves, kUsual, "uninitialised"},
    {"wrong-wait", "many_slices", ManySlices, kUsual, "race", false},
    {"uninitialised-shared", "tiles", Tiles, kUsual, "uninitialised"},
    {"uninitialised-shared", "halves", Halves, kUsual, "uninitialised"},
    {"grid-too-small", "tiles", Tiles, kUsual, "different"},
    {"grid-too-large", "tiles", Tiles, kUsual, "out of bounds"},
    {"no-rescaling", "attention", Attention, kUsual, "different"},
    {"no-rescaling", "halves_attention", AttentionOfHalves, kUsual, "different", true, kOfHalves},
    {"no-key-mask", "attention", Attention, kUsual, "different"},
    {"missing-barrier", "attention", Attention, kUsual, "race", false},
    {"missing-first-barrier", "attention", Attention, kUsual, "race", false},
    {"missing-barrier", "halves_attention", AttentionOfHalves, kUsual, "race", false, kOfHalves},
    {"missing-first-barrier", "halves_attention", AttentionOfHalves, kUsual, "race", false, kOfHalves},
    {"wrong-wait", "halves_attention", AttentionOfHalves, kUsual, "uninitialised", true, kOfHalves},
    {"no-rescaling", "turned_halves_attention", AttentionOfTurnedHalves, kUsual, "different", true, kOfHalves},
    {"missing-barrier", "turned_halves_attention", AttentionOfTurnedHalves, kUsual, "race", false, kOfHalves},
    {"wrong-mma-layout", "halves_attention", AttentionOfHalves, kUsual, "different", true, kOfHalves},
    {"grid-too-small", "attention", Attention, kUsual, "different"},
    {"grid-too-large", "attention", Attention, kUsual, "out of bounds"},
    {"broken-columns", "columns", Columns, kUsual, "columns that are no whole vectors"},
    {"two-teams-at-one-barrier", "rows", Rows, kUsual, "a team of some warps that is not the block"},
};

class GpuPlants : public testing::TestWithParam<Planting> {};

TEST_P(GpuPlants, AreFound) {
  const Planting& p = GetParam();
  const GpuPlant& plant = FindGpuPlant(p.plant);
  for (const uint64_t seed : {0, 77}) {
    int places = 0;
    const EmulatorOptions emulation{.order_seed = seed, .uninitialised = p.uninitialised};
    const std::string without = Outcome(p.module(), p.model, nullptr, {.order_seed = seed}, &places, p.tolerance);
    EXPECT_EQ(without, "right") << "without a plant, order " << seed;
    const std::string outcome = Outcome(p.module(), p.model, &plant, emulation, &places, p.tolerance);
    EXPECT_THAT(outcome, testing::HasSubstr(p.found)) << "order " << seed;
    EXPECT_GE(places, 1) << "the plant found no place";
    if (seed == 0) std::cout << p.plant << " in " << p.name << ": " << outcome << "\n";
  }
}
INSTANTIATE_TEST_SUITE_P(All, GpuPlants, testing::ValuesIn(kPlantings), [](const testing::TestParamInfo<Planting>& info) {
  std::string name = absl::StrCat(info.param.plant, "_", info.param.name);
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
});

// Rounding depends on the order: equal rows have equal sums, wherever they are computed.
TEST(GpuPlants, TreeThatDependsOnTheGridIsFoundByEqualRows) {
  constexpr int64_t kRows = 8, kRow = 2100;
  const auto module = Parsed(WithSum(
      "f64", "p = f64[8,2100] parameter(0)\n z = f64[] constant(0)\n ROOT r = f64[8] reduce(p, z), dimensions={1}, to_apply=add\n"));
  const Literal row = RandomLiteral(Shape::Array(PrimitiveType::kF64, {kRow}), HloCase(), 7100);
  std::vector<std::unique_ptr<OnDevice>> args;
  args.push_back(std::make_unique<OnDevice>(Shape::Array(PrimitiveType::kF64, {kRows, kRow})));
  for (size_t i = 0; i < kRows; ++i) args[0]->Write(i * kRow * 8, row.bytes(), kRow * 8);
  for (const bool planted : {false, true}) {
    int places = 0;
    const auto got = RunThere(*module, args, kUsual, planted ? &FindGpuPlant("tree-by-grid") : nullptr, &places);
    ASSERT_TRUE(got.ok()) << got.status();
    std::set<std::string> different;
    for (int64_t i = 0; i < kRows; ++i) different.insert(std::string(reinterpret_cast<const char*>(got->bytes()) + i * 8, 8));
    EXPECT_EQ(planted, different.size() > 1) << different.size() << " sums of equal rows";
    EXPECT_EQ(planted, places > 0);
  }
}

// Right, and slow: the emulator counts.
TEST(GpuPlants, DroppedPaddingIsFoundByBankConflicts) {
  for (const bool planted : {false, true}) {
    int places = 0;
    const int64_t before = CountsOfEmulation().extra_wavefronts;
    const GpuPlant* plant = planted ? &FindGpuPlant("no-bank-padding") : nullptr;
    EXPECT_EQ(Outcome(Transposed(), kUsual, plant, {.count_memory = true}, &places), "right");
    const int64_t conflicts = CountsOfEmulation().extra_wavefronts - before;
    std::cout << (planted ? "without" : "with") << " padding: " << conflicts << " extra wavefronts\n";
    EXPECT_EQ(planted, conflicts > 0);
    EXPECT_EQ(planted, places > 0);
  }
}

// What a tile's threads read and write in shared memory at once lies in different banks, up to pairs: a row further in a slice is some
// banks further. Without the gaps between rows (SliceGap) these are 576, 768 and 768.
TEST(GpuPlants, TilesHaveFewBankConflicts) {
  for (std::string (*module)() : {Tiles, Halves, Brains}) {
    int places = 0;
    const int64_t before = CountsOfEmulation().extra_wavefronts;
    EXPECT_EQ(Outcome(module(), kUsual, nullptr, {.count_memory = true}, &places), "right");
    const int64_t conflicts = CountsOfEmulation().extra_wavefronts - before;
    std::cout << conflicts << " extra wavefronts\n";
    EXPECT_LE(conflicts, 256);
  }
}

// Element 2^31 + 17 of an operand whose untouched memory costs nothing.
TEST(GpuPlants, IndexOf32BitsIsFoundBeyondTwoGigabytes) {
  constexpr int64_t kFirst = (int64_t{1} << 31) + 17, kCount = 64;
  const auto module = Parsed(Entry(absl::StrCat("p = s8[", kFirst + kCount, "] parameter(0)\n s = s8[", kCount, "] slice(p), slice={[",
                                                kFirst, ":", kFirst + kCount, "]}\n ROOT r = s8[", kCount, "] negate(s)\n")));
  std::vector<std::unique_ptr<OnDevice>> args;
  args.push_back(std::make_unique<OnDevice>(module->entry()->parameters()[0]->shape()));
  std::vector<int8_t> values;
  for (int64_t i = 0; i < kCount; ++i) values.push_back(static_cast<int8_t>(i - 20));
  args[0]->Write(kFirst, values.data(), values.size());
  int places = 0;
  const auto right = RunThere(*module, args, kUsual, nullptr, &places);
  ASSERT_TRUE(right.ok()) << right.status();
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(static_cast<int8_t>(right->bytes()[i]), -values[i]) << i;
  const auto wrong = RunThere(*module, args, kUsual, &FindGpuPlant("index-overflow"), &places);
  EXPECT_THAT(std::string(wrong.status().message()), testing::HasSubstr("out of bounds"));
  EXPECT_GT(places, 0);
}

// None without a test.
TEST(GpuPlants, AreAllPlanted) {
  std::set<std::string_view> planted = {"tree-by-grid", "index-overflow", "no-bank-padding"};
  for (const Planting& p : kPlantings) planted.insert(p.plant);
  for (const GpuPlant& plant : AllGpuPlants()) EXPECT_TRUE(planted.contains(plant.name)) << plant.name;
}

}  // namespace
}  // namespace tenon::gpu
