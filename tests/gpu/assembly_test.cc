// What ptxas makes of our PTX, for four architectures: it takes all of it, nothing spills, nothing lies in local memory. Registers and
// shared memory of the models' kernels and of tiled contractions are goldens (tests/gpu/models/resources.txt, UPDATE_GOLDEN=1 rewrites), of
// the ptxas that made them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "backends/driver/compile.h"
#include "backends/driver/given_plans.h"
#include "backends/gpu/gpu.h"
#include "hlo/check.h"
#include "hlo/eval/evaluator.h"
#include "hlo/text/text.h"
#include "passes/spaces/spaces.h"
#include "runtime/program/binding.h"
#include "tests/backends/hlo_cases.h"
#include "tools/lab/gpu/attention_text.h"
#include "tools/lab/gpu/ptxas.h"
#include "torch_plugin/aten/lower.h"
#include "torch_plugin/aten/retarget.h"

namespace tenon::gpu {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::Not;

constexpr const char* kArchitectures[] = {"sm_80", "sm_90", "sm_100", "sm_120"};
const std::string kModels = std::string(TENON_SOURCE_DIR) + "/tests/gpu/models";

TEST(GpuAssembly, ReadsWhatPtxasTells) {
  const std::vector<PtxasKernel> kernels = ParsePtxas(R"(ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k1' for 'sm_90'
ptxas info    : Function properties for k1
    40 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 40 bytes cumulative stack size, 4064 bytes smem, 16 bytes cmem[2]
ptxas info    : Compile time = 11.303 ms
ptxas info    : Compiling entry function 'k0' for 'sm_90'
ptxas info    : Function properties for k0
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 16 registers, used 0 barriers
)");
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0].name, "k0");
  EXPECT_EQ(kernels[0].registers, 16);
  EXPECT_EQ(kernels[0].shared + kernels[0].stack + kernels[0].spill_stores + kernels[0].spill_loads, 0);
  EXPECT_EQ(kernels[1].registers, 255);
  EXPECT_EQ(kernels[1].barriers, 1);
  EXPECT_EQ(kernels[1].shared, 4064);
  EXPECT_EQ(kernels[1].stack, 40);
  EXPECT_EQ(kernels[1].spill_stores, 16);
  EXPECT_EQ(kernels[1].spill_loads, 24);
}

// A kernel that cannot but spill is seen to: the test below can fail.
TEST(GpuAssembly, SeesSpills) {
  if (!HasPtxas()) GTEST_SKIP() << kNoPtxas;
  std::string ptx = ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p)\n.maxntid 1024\n{\n"
                    ".reg .u64 %a;\n.reg .f32 %f<200>;\nld.param.u64 %a, [p];\n";
  for (int i = 0; i < 200; ++i) absl::StrAppend(&ptx, "ld.volatile.global.f32 %f", i, ", [%a+", 4 * i, "];\n");
  for (int i = 0; i < 200; ++i) absl::StrAppend(&ptx, "st.volatile.global.f32 [%a+", 4 * (199 - i) + 4096, "], %f", i, ";\n");
  const absl::StatusOr<Assembled> assembled = Assemble(ptx + "ret;\n}\n", "sm_90");
  ASSERT_TRUE(assembled.ok()) << assembled.status();
  ASSERT_EQ(assembled->kernels.size(), 1u);
  EXPECT_GT(assembled->kernels[0].spill_stores, 0);
  const absl::Status refused = Assemble("no PTX", "sm_90").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInternal) << refused;
}

// What spills nevertheless, in bytes: ptxas 13 does, where the division's rare path lies beside a row in 64 registers a thread.
struct KnownSpill {
  std::string_view what, architecture;
  int64_t spills, stack;
};
constexpr KnownSpill kKnownSpills[] = {{"row, long_variance_and_maximum", "sm_100", 24, 8}};

// Fails for a kernel that spills or has a stack, unless that is known; gives what each needs.
std::vector<PtxasKernel> Check(const std::string& what, const Program& program, const std::string& architecture) {
  const absl::StatusOr<PtxModules> ptx = PtxOf(program);
  EXPECT_TRUE(ptx.ok()) << what << ": " << ptx.status();
  if (!ptx.ok()) return {};
  EXPECT_TRUE(ptx->modules.empty() || ptx->architecture == architecture) << what;
  std::vector<PtxasKernel> all;
  KnownSpill known = {what, architecture, 0, 0};
  for (const KnownSpill& k : kKnownSpills) {
    if (k.what == what && k.architecture == architecture) known = k;
  }
  for (const std::string& module : ptx->modules) {
    // backends/gpu/emit/ptx_repair.h, whatever NVPTX calls the stores' types.
    EXPECT_THAT(module, Not(ContainsRegex(R"(st\.[a-z0-9.]*[.][bsuf](8|16|32)[[:space:]]+\[[^]]*\], [^;]*%rd[0-9])"))) << what;
    EXPECT_THAT(module, Not(ContainsRegex(R"(st\.[a-z0-9.]*[.][bsuf](8|16)[[:space:]]+\[[^]]*\], [^;]*%r[0-9])"))) << what;
    EXPECT_THAT(module, Not(ContainsRegex(R"((abs|neg)\.s16|sub\.s16[[:space:]]+%rs[0-9]+, 0,)"))) << what;
    const absl::StatusOr<Assembled> assembled = Assemble(module, architecture);
    EXPECT_TRUE(assembled.ok()) << what << ", " << architecture << ": " << assembled.status();
    if (!assembled.ok()) continue;
    for (const PtxasKernel& k : assembled->kernels) {
      EXPECT_EQ(k.spill_stores + k.spill_loads, known.spills) << what << ", " << architecture << ": " << k.name << " spills";
      EXPECT_EQ(k.stack, known.stack) << what << ", " << architecture << ": " << k.name << " has a stack";
      all.push_back(k);
    }
  }
  return all;
}

CompileOptions OptionsFor(const std::string& architecture, bool libraries) {
  CompileOptions options;
  options.compile_threads = 1;  // one module: the kernels in the order of their names
  options.evaluate = ConstantFolder();
  options.targets.push_back(MakeGpu({.model = *FindGpuModel(architecture), .libraries = libraries}));
  return options;
}

// Every module of tests/backends, each for one of the architectures `first`, `first` + 1, ...
void CheckModules(size_t first) {
  size_t number = first;
  int64_t kernels = 0;
  for (const std::string folder : {"/tests/backends", "/tests/backends/control"}) {
    for (const HloCase& c : LoadCases(std::string(TENON_SOURCE_DIR) + folder)) {
      const auto module = ParseModule(c.text);
      ASSERT_TRUE(module.ok()) << module.status();
      MoveSignature(**module, kSpace);
      const std::string architecture = kArchitectures[number++ % std::size(kArchitectures)];
      CompileOptions options = OptionsFor(architecture, false);
      options.excess_precision = !c.strict;
      const absl::StatusOr<Program> program = CompileToProgram((*module)->Clone(), BindingOf(**module), options);
      ASSERT_TRUE(program.ok()) << c.name << program.status();
      kernels += static_cast<int64_t>(Check(absl::StrCat(c.file, ", ", c.name), *program, architecture).size());
    }
  }
  EXPECT_GT(kernels, 200);
}

TEST(GpuAssembly, TakesEveryModule) {
  if (!HasPtxas()) GTEST_SKIP() << kNoPtxas;
  CheckModules(0);
}
TEST(GpuAssembly, SlowTakesEveryModuleForAllArchitectures) {
  if (!HasPtxas()) GTEST_SKIP() << kNoPtxas;
  for (size_t first = 1; first < std::size(kArchitectures); ++first) CheckModules(first);
}

absl::StatusOr<Program> CompileModel(const fs::path& path, const std::string& architecture) {
  std::ifstream in(path);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const absl::StatusOr<aten::Graph> graph = aten::ParseGraph(text);
  if (!graph.ok()) return graph.status();
  const absl::StatusOr<aten::Graph> moved = aten::Retarget(*graph);
  if (!moved.ok()) return moved.status();
  absl::StatusOr<aten::Lowered> lowered = aten::Lower(*moved, {.disable = {}, .device = "cuda:0", .space = kSpace});
  if (!lowered.ok()) return lowered.status();
  return CompileToProgram(std::move(lowered->module), std::move(lowered->binding), OptionsFor(architecture, true));
}

std::map<std::string, fs::path> Models() {
  std::map<std::string, fs::path> models;
  for (const auto& entry : fs::directory_iterator(kModels)) {
    if (entry.path().extension() == ".aten") models[entry.path().stem()] = entry.path();
  }
  return models;
}

// No kernel was refused: what the host computes was its own before (checks of indices).
TEST(GpuModels, ArePlannedToTheLastKernel) {
  ASSERT_GE(Models().size(), 6u);
  for (const auto& [model, path] : Models()) {
    const absl::StatusOr<Program> program = CompileModel(path, "sm_90");
    ASSERT_TRUE(program.ok()) << model << ": " << program.status();
    for (const std::string& remark : program->remarks) {
      if (!absl::StrContains(remark, "\"kind\":\"host\"")) continue;
      EXPECT_TRUE(absl::StrContains(remark, "no code for custom-call in memory space 1")) << model << ": " << remark;
    }
  }
}

// Contractions of blocks, with the largest tiles: of whole ones and of sizes that meet none; attention.
std::map<std::string, std::string> Products() {
  std::map<std::string, std::string> products;
  for (const auto& [type, m, n, k] : {std::tuple{"f32", 256, 512, 1024}, {"f32", 257, 331, 1101}, {"f64", 257, 331, 101},
                                      {"s64", 257, 331, 101}, {"s8", 257, 331, 101}, {"f16", 256, 512, 1024}, {"bf16", 257, 331, 1101}}) {
    const std::string result = absl::StrCat(type, "[3,", m, ",", n, "]");
    products[absl::StrCat(type, ".", m, ".", n, ".", k)] = absl::StrCat(
        "HloModule m\nENTRY e {\n x = ", type, "[3,", m, ",", k, "] parameter(0)\n y = ", type, "[3,", k, ",", n, "] parameter(1)\n b = ",
        type, "[", n, "] parameter(2)\n c = ", result, " broadcast(b), dimensions={2}\n d = ", result,
        " dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}\n ROOT r = ", result,
        " add(d, c)\n}\n");
  }
  for (const char* type : {"f32", "f16"}) {
    products[absl::StrCat(type, ".symbols")] =
        absl::StrCat("HloModule m, symbols={s:[1,inf],t:[1,inf],u:[1,inf]}\nENTRY e {\n x = ", type, "[s,t] parameter(0)\n y = ", type,
                     "[t,u] parameter(1)\n ROOT d = f32[s,u] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n");
  }
  for (const AttentionSizes& s : {AttentionSizes{}, {.type = "f32", .queries = 257, .keys = 331, .terms = 128, .columns = 128},
                                  {.type = "f32", .queries = 257, .keys = 331, .terms = 33, .columns = 200},
                                  {.type = "f16", .mask = AttentionMask::kCausal}, {.type = "f16", .terms = 256, .columns = 256},
                                  {.type = "bf16", .queries = 257, .keys = 331, .terms = 128, .columns = 128,
                                   .mask = AttentionMask::kGuarded}}) {
    products[absl::StrCat("attention.", s.type, ".", s.queries, ".", s.keys, ".", s.terms, ".", s.columns)] = AttentionText(s);
  }
  return products;
}

// Attention whose scores stay in registers, with each mask.
TEST(GpuAssembly, AttentionSpillsNothing) {
  if (!HasPtxas()) GTEST_SKIP() << kNoPtxas;
  size_t number = 0;
  for (int mask = 0; mask <= static_cast<int>(AttentionMask::kShiftGuarded); ++mask) {
    for (const char* type : {"f16", "bf16"}) {
      for (const int64_t head : {64, 80, 128, 192}) {
        AttentionSizes sizes{.type = type, .queries = 257, .keys = 331, .terms = head, .columns = std::min<int64_t>(head, 128)};
        sizes.mask = static_cast<AttentionMask>(mask);
        if (mask % 2 == 0) sizes.queries = sizes.keys = 256;
        const auto module = ParseModule(AttentionText(sizes));
        ASSERT_TRUE(module.ok()) << module.status();
        MoveSignature(**module, kSpace);
        const Binding binding = BindingOf(**module);
        const std::string architecture = kArchitectures[number++ % std::size(kArchitectures)];
        const absl::StatusOr<Program> program = CompileToProgram((*module)->Clone(), binding, OptionsFor(architecture + ",sms=1", false));
        ASSERT_TRUE(program.ok()) << program.status();
        EXPECT_THAT(PlansOf(*program), testing::HasSubstr(" stages=2 "));
        Check(absl::StrCat(type, " ", head, " mask ", mask), *program, architecture);
      }
      ++number;  // so that each size is met on each
    }
  }
}

std::string PtxasVersion() {
  std::FILE* pipe = popen("ptxas --version", "r");
  char line[256];
  std::string version = "unknown";
  while (pipe != nullptr && std::fgets(line, sizeof line, pipe) != nullptr) {
    if (absl::StartsWith(line, "Cuda compilation tools")) version = std::string(absl::StripAsciiWhitespace(line));
  }
  if (pipe != nullptr) pclose(pipe);
  return version;
}

TEST(GpuModels, NeedTheseRegisters) {
  if (!HasPtxas()) GTEST_SKIP() << kNoPtxas;
  std::string got = absl::StrCat(PtxasVersion(), "\narchitecture model: registers, +bytes of shared memory of k0, k1, ...\n");
  for (const char* architecture : kArchitectures) {
    for (const auto& [model, path] : Models()) {
      const absl::StatusOr<Program> program = CompileModel(path, architecture);
      ASSERT_TRUE(program.ok()) << model << ": " << program.status();
      std::map<int, std::string> needs;
      for (const PtxasKernel& k : Check(model, *program, architecture)) {
        needs[std::atoi(k.name.c_str() + 1)] = k.shared == 0 ? absl::StrCat(k.registers) : absl::StrCat(k.registers, "+", k.shared);
      }
      absl::StrAppend(&got, architecture, " ", model, ":");
      for (const auto& [number, need] : needs) absl::StrAppend(&got, " ", need);
      absl::StrAppend(&got, "\n");
    }
  }
  for (const char* architecture : kArchitectures) {
    for (const auto& [name, text] : Products()) {
      const auto module = ParseModule(text);
      ASSERT_TRUE(module.ok()) << module.status() << text;
      MoveSignature(**module, kSpace);
      const Binding binding = BindingOf(**module);
      const absl::StatusOr<Program> program =
          CompileToProgram((*module)->Clone(), binding, OptionsFor(absl::StrCat(architecture, ",sms=1"), false));
      ASSERT_TRUE(program.ok()) << name << ": " << program.status();
      for (const PtxasKernel& k : Check(name, *program, architecture)) {
        absl::StrAppend(&got, architecture, " ", name, ": ", k.registers, "+", k.shared, "\n");
      }
    }
  }
  const std::string path = kModels + "/resources.txt";
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << got;
    return;
  }
  std::ifstream in(path);
  const std::string want{std::istreambuf_iterator<char>(in), {}};
  const std::string version = want.substr(0, want.find('\n'));
  if (version != PtxasVersion()) GTEST_SKIP() << "the goldens are of " << version << ", this is " << PtxasVersion() << "; nothing spills";
  EXPECT_EQ(got, want) << "UPDATE_GOLDEN=1 rewrites " << path;
}

}  // namespace
}  // namespace tenon::gpu
