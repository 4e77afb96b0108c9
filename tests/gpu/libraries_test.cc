// A GPU with libraries (GpuOptions::libraries): contractions are calls of cuBLASLt and cuDNN, decided to the end, operators of the
// framework stay in its memory. Such programs are compiled and not run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "backends/driver/compile.h"
#include "backends/driver/targets.h"
#include "backends/gpu/gpu.h"
#include "hlo/text/text.h"
#include "passes/spaces/spaces.h"
#include "runtime/program/binding.h"
#include "tools/lab/gpu/emulated_target.h"

namespace tenon::gpu {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<const Target> Libraries(const char* architecture) {
  return MakeGpu({.model = *FindGpuModel(architecture), .libraries = true});
}

absl::StatusOr<Program> CompileFor(const std::string& text, std::shared_ptr<const Target> target, bool excess_precision = true) {
  const auto module = ParseModule(text);
  if (!module.ok()) return module.status();
  MoveSignature(**module, 1);
  CompileOptions options{.excess_precision = excess_precision};
  options.verify_passes = true;
  options.targets.push_back(std::move(target));
  return CompileToProgram((*module)->Clone(), BindingOf(**module), options);
}

// Each step: what it is, of a call its arguments, and the memory that it works on.
std::vector<std::string> Steps(const Program& program) {
  std::vector<std::string> steps;
  const auto space = [&](const View& v) { return v.value < 0 ? 0 : program.values[static_cast<size_t>(v.value)].space; };
  for (const Step& step : program.regions[0].steps) {
    if (const auto* kernel = std::get_if<KernelStep>(&step.body)) {
      steps.push_back(absl::StrCat("kernel in ", program.code[program.kernels[kernel->kernel].code].space));
    } else if (const auto* call = std::get_if<FrameworkStep>(&step.body)) {
      steps.push_back(absl::StrCat(call->overload, ToString(call->args), " in ", space(call->results[0])));
    } else if (const auto* copy = std::get_if<CopyStep>(&step.body)) {
      steps.push_back(absl::StrCat("copy ", space(copy->from), " to ", space(copy->to)));
    } else {
      steps.push_back("other");
    }
  }
  return steps;
}

std::vector<std::string> StepsOf(const std::string& text, std::shared_ptr<const Target> target = Libraries("sm_90")) {
  const absl::StatusOr<Program> program = CompileFor(text, std::move(target));
  if (!program.ok()) return {std::string(program.status().message())};
  return Steps(*program);
}

constexpr char kBiased[] = R"(HloModule m
ENTRY f {
  a = bf16[64,96] parameter(0)
  b = bf16[96,32]{0,1} parameter(1)
  c = bf16[32] parameter(2)
  d = bf16[64,32] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = bf16[64,32] broadcast(c), dimensions={1}
  ROOT r = bf16[64,32] add(d, s)
})";

TEST(GpuLibraries, CublasLtReadsMatricesAsTheyLieAndAddsTheBias) {
  EXPECT_THAT(StepsOf(kBiased), ElementsAre("cublaslt.matmul(%0, %1, %2, \"ntn\", \"bias\", \"32f\", 33554432) in 1"));
  EXPECT_THAT(StepsOf(kBiased, Libraries("sm_80")), ElementsAre("cublaslt.matmul(%0, %1, %2, \"ntn\", \"bias\", \"32f\", 4194304) in 1"));
}

TEST(GpuLibraries, CublasLtTakesBatchesOfEveryFloat) {
  for (const char* type : {"f16", "bf16", "f32", "f64"}) {
    const std::string text = absl::StrCat("HloModule m\nENTRY f {\n a = ", type, "[4,8,16] parameter(0)\n b = ", type,
                                          "[4,24,16] parameter(1)\n ROOT d = ", type,
                                          "[4,8,24] dot(a, b), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, "
                                          "rhs_contracting_dims={2}\n}");
    const char* sums = type == std::string("f64") ? "64f" : "32f";
    const std::string call = absl::StrCat("cublaslt.matmul(%0, %1, none, \"ntn\", \"default\", \"", sums, "\", 33554432) in 1");
    EXPECT_THAT(StepsOf(text), ElementsAre(call));
  }
}

// act(a * b + bias), or of the product alone; x is what it is of. `type`: of all, `work`: of the activation.
std::string Activated(const std::string& type, const std::string& work, bool bias, const std::string& activation) {
  std::string text = absl::StrCat(R"(HloModule m
ENTRY f {
  a = TYPE[64,96] parameter(0)
  b = TYPE[96,32] parameter(1)
  c = TYPE[32] parameter(2)
  )", bias ? "d" : "v", R"( = TYPE[64,32] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
)");
  if (bias) absl::StrAppend(&text, "  s = TYPE[64,32] broadcast(c), dimensions={1}\n  v = TYPE[64,32] add(d, s)\n");
  if (type != work) absl::StrAppend(&text, "  x = WORK[64,32] convert(v)\n");
  absl::StrAppend(&text, activation, type != work ? "  ROOT z = TYPE[64,32] convert(r)\n}" : "}");
  const bool same = type == work;
  return absl::StrReplaceAll(text, {{"TYPE", type}, {"WORK", work}, {"VALUE", same ? "v" : "x"}, {"LAST", same ? "ROOT r" : "r"}});
}
constexpr char kRelu[] = R"(
  n = WORK[] constant(0)
  z0 = WORK[64,32] broadcast(n), dimensions={}
  LAST = WORK[64,32] maximum(z0, VALUE)
)";
// As PyTorch's gelu is lowered, with `KAPPA`.
constexpr char kGelu[] = R"(
  k = WORK[] constant(KAPPA)
  kb = WORK[64,32] broadcast(k), dimensions={}
  p = WORK[64,32] multiply(VALUE, VALUE)
  q = WORK[64,32] multiply(p, VALUE)
  w = WORK[64,32] multiply(q, kb)
  i = WORK[64,32] add(VALUE, w)
  e = WORK[] constant(0.7978845608028654)
  eb = WORK[64,32] broadcast(e), dimensions={}
  j = WORK[64,32] multiply(i, eb)
  t = WORK[64,32] tanh(j)
  one = WORK[] constant(1)
  ob = WORK[64,32] broadcast(one), dimensions={}
  u = WORK[64,32] add(t, ob)
  h = WORK[] constant(0.5)
  hb = WORK[64,32] broadcast(h), dimensions={}
  y = WORK[64,32] multiply(VALUE, hb)
  LAST = WORK[64,32] multiply(y, u)
)";
const std::string kTanhGelu = absl::StrReplaceAll(kGelu, {{"KAPPA", "0.044715"}});

std::string Call(const char* layouts, const char* bias, const char* epilogue) {
  return absl::StrCat("cublaslt.matmul(%0, %1, ", bias, ", \"", layouts, "\", \"", epilogue, "\", \"32f\", 33554432) in 1");
}

TEST(GpuLibraries, CublasLtAppliesActivations) {
  EXPECT_THAT(StepsOf(Activated("f32", "f32", false, kRelu)), ElementsAre(Call("nnn", "none", "relu")));
  EXPECT_THAT(StepsOf(Activated("f32", "f32", true, kRelu)), ElementsAre(Call("nnn", "%2", "relu_bias")));
  EXPECT_THAT(StepsOf(Activated("bf16", "bf16", true, kRelu)), ElementsAre(Call("nnn", "%2", "relu_bias")));
  EXPECT_THAT(StepsOf(Activated("f32", "f32", false, kTanhGelu)), ElementsAre(Call("nnn", "none", "gelu")));
  EXPECT_THAT(StepsOf(Activated("f32", "f32", true, kTanhGelu)), ElementsAre(Call("nnn", "%2", "gelu_bias")));
  EXPECT_THAT(StepsOf(Activated("bf16", "f32", true, kTanhGelu)), ElementsAre(Call("nnn", "%2", "gelu_bias")));
  EXPECT_THAT(StepsOf(Activated("f16", "f32", false, kTanhGelu)), ElementsAre(Call("nnn", "none", "gelu")));
}

// What would be something else, or rounded elsewhere, stays a kernel.
TEST(GpuLibraries, CublasLtAppliesNoOtherActivations) {
  const std::vector<std::string> biased = {Call("nnn", "%2", "bias"), "kernel in 1"};
  const std::vector<std::string> alone = {Call("nnn", "none", "default"), "kernel in 1"};
  auto replaced = [](const std::string& text, const char* from, const char* to) { return absl::StrReplaceAll(text, {{from, to}}); };
  EXPECT_EQ(StepsOf(replaced(Activated("f32", "f32", true, kTanhGelu), "0.044715", "0.0447")), biased);
  EXPECT_EQ(StepsOf(replaced(Activated("f32", "f32", true, kTanhGelu), "0.79788", "0.79789")), biased);
  EXPECT_EQ(StepsOf(replaced(Activated("f32", "f32", true, kTanhGelu), "constant(0.5)", "constant(0.25)")), biased);
  EXPECT_EQ(StepsOf(replaced(Activated("f32", "f32", true, kTanhGelu), "tanh(", "sine(")), biased);
  EXPECT_EQ(StepsOf(replaced(Activated("f32", "f32", true, kTanhGelu), "multiply(p, v)", "multiply(p, p)")), biased);
  EXPECT_EQ(StepsOf(replaced(Activated("f32", "f32", true, kRelu), "constant(0)", "constant(1)")), biased);
  EXPECT_EQ(StepsOf(replaced(Activated("f32", "f32", true, kRelu), "maximum(", "minimum(")), biased);
  // The product, or what lies between, is read by others too.
  EXPECT_EQ(StepsOf(replaced(Activated("f32", "f32", true, kRelu), "ROOT r = f32[64,32] maximum(z0, v)",
                             "r = f32[64,32] maximum(z0, v)\n  ROOT o = (f32[64,32], f32[64,32]) tuple(v, r)")), biased);
  EXPECT_EQ(StepsOf(replaced(Activated("f32", "f32", true, kTanhGelu), "ROOT r = f32[64,32] multiply(y, u)",
                             "r = f32[64,32] multiply(y, u)\n  ROOT o = (f32[64,32], f32[64,32]) tuple(t, r)")), biased);
  const std::vector<std::string> f64 = StepsOf(Activated("f64", "f64", false, kRelu));
  EXPECT_EQ(f64, (std::vector<std::string>{replaced(alone[0], "32f", "64f"), "kernel in 1"}));
  // Rounded to bf16 before.
  const auto strict = CompileFor(Activated("bf16", "bf16", false, kRelu), Libraries("sm_90"), /*excess_precision=*/false);
  ASSERT_TRUE(strict.ok()) << strict.status();
  EXPECT_EQ(Steps(*strict), alone);
}

// Integers, and one sum, are kernels.
TEST(GpuLibraries, TheRestIsGenerated) {
  EXPECT_THAT(StepsOf(R"(HloModule m
ENTRY f {
  a = s32[8,16] parameter(0)
  b = s32[16,8] parameter(1)
  ROOT d = s32[8,8] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
})"), ElementsAre("kernel in 1"));
  EXPECT_THAT(StepsOf(R"(HloModule m
ENTRY f {
  a = bf16[512] parameter(0)
  b = bf16[512] parameter(1)
  ROOT d = bf16[] dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims={0}
})"), Each("kernel in 1"));
}

std::string Convolution(const char* type, const char* layout) {
  return absl::StrCat("HloModule m\nENTRY f {\n x = ", type, "[2,16,12,12]", layout, " parameter(0)\n k = ", type,
                      "[32,16,3,3] parameter(1)\n c = ", type, "[32] parameter(2)\n d = ", type, "[2,32,12,12]", layout,
                      " convolution(x, k), window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01\n s = ", type, "[2,32,12,12]", layout,
                      " broadcast(c), dimensions={1}\n ROOT r = ", type, "[2,32,12,12]", layout, " add(d, s)\n}");
}

TEST(GpuLibraries, CudnnReadsImagesAsTheyLie) {
  const std::string geometry = "cudnn.convolution(%0, %1, %2, [1, 1], [1, 1], [1, 1], false, [0, 0], 1, ";
  EXPECT_THAT(StepsOf(Convolution("f32", "")), ElementsAre(geometry + "\"nchw\", \"32f\", 33554432) in 1"));
  EXPECT_THAT(StepsOf(Convolution("bf16", "{1,3,2,0}")), ElementsAre(geometry + "\"nhwc\", \"32f\", 33554432) in 1"));
  // Halves that lie otherwise: room for copies of image, kernel and result.
  const int64_t copies = 2 * (2 * 16 * 144 + 32 * 16 * 9 + 2 * 32 * 144);
  EXPECT_THAT(StepsOf(Convolution("bf16", "")), ElementsAre(absl::StrCat(geometry, "\"nchw\", \"32f\", ", 33554432 + copies, ") in 1")));
}

TEST(GpuLibraries, AreAskedForByName) {
  EXPECT_THAT(StepsOf(kBiased, MakeGpu({.model = *FindGpuModel("sm_90")})), Each("kernel in 1"));
  EXPECT_THAT(StepsOf(kBiased, *MakeEmulatedGpu("gpu-emulated")), Each("kernel in 1"));
  const auto plain = MakeTarget(kTargetName, "sm_90", true), libraries = MakeTarget(kTargetName, "sm_90,libraries", true);
  ASSERT_TRUE(plain.ok() && libraries.ok()) << plain.status() << libraries.status();
  EXPECT_NE((*plain)->facts().key, (*libraries)->facts().key);
  EXPECT_THAT(StepsOf(kBiased, *libraries), ElementsAre(HasSubstr("cublaslt.matmul")));
}

// A call of the framework between kernels, and one that makes its result of nothing.
constexpr char kFramework[] = R"hlo(HloModule m
ENTRY f {
  a = f32[8,16] parameter(0)
  n = f32[8,16]{1,0:S(1)} custom-call(), custom_call_target="aten.rand.default", custom_call_has_side_effect=true,
      backend_config={"args":"([8, 16], none, none, device:cuda:0, none)","rule":"owned","effect":"random","reason":"random"}
  s = f32[8,16] add(a, n)
  c = f32[8,16] custom-call(s), custom_call_target="aten.frac.default",
      backend_config={"args":"(%0)","rule":"owned","reason":"no lowering"}
  ROOT r = f32[8,16] multiply(c, s)
})hlo";

TEST(GpuLibraries, OperatorsOfTheFrameworkStayOnTheDevice) {
  EXPECT_THAT(StepsOf(kFramework), ElementsAre("aten.rand.default([8, 16], none, none, device:cuda:0, none) in 1", "kernel in 1",
                                               "aten.frac.default(%0) in 1", "kernel in 1"));
  // Without, they are the host's.
  const std::vector<std::string> host = StepsOf(kFramework, MakeGpu({.model = *FindGpuModel("sm_90")}));
  EXPECT_TRUE(std::count(host.begin(), host.end(), "aten.frac.default(%0) in 0")) << absl::StrJoin(host, "\n");
  EXPECT_TRUE(std::count(host.begin(), host.end(), "copy 1 to 0")) << absl::StrJoin(host, "\n");
}

// What really runs is validated as ever.
TEST(GpuLibraries, NoSuchProgramRuns) {
  for (const char* text : {kBiased, kFramework}) {
    const absl::StatusOr<Program> program = CompileFor(text, Libraries("sm_90"));
    ASSERT_TRUE(program.ok()) << program.status();
    const absl::Status valid = program->Validate();
    EXPECT_FALSE(valid.ok());
    EXPECT_THAT(std::string(valid.message()), HasSubstr("memory space 1"));
  }
  const absl::StatusOr<Program> generated = CompileFor(kBiased, MakeGpu({.model = *FindGpuModel("sm_90")}));
  ASSERT_TRUE(generated.ok()) << generated.status();
  EXPECT_TRUE(generated->Validate().ok()) << generated->Validate();
}

}  // namespace
}  // namespace tenon::gpu
