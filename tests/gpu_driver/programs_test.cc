// Programs on the GPU of this machine, by the driver's path, with the fake libcuda.so.1 in the driver's place: right, and where a call
// fails, an error that says which, after which the process is as usable as the device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "backends/driver/literal_executable.h"
#include "backends/driver/targets.h"
#include "backends/gpu/driver/cuda_loader.h"
#include "hlo/eval/evaluator.h"
#include "hlo/text/text.h"
#include "runtime/host/plain_host.h"
#include "tests/backends/hlo_cases.h"
#include "tests/gpu_driver/fake_cuda.h"
#include "tools/lab/generate/random_inputs.h"
#include "tools/lab/gpu/devices.h"
#include "tools/lab/gpu/kernel_kinds.h"
#include "tools/lab/judge/miscompare.h"
#include "tools/lab/spaces.h"

namespace tenon::gpu {
namespace {

using testing::HasSubstr;

constexpr char kDevice[] = "gpu-rehearsed";

// Before the first test that uses TheCudaDevice.
class Rehearsal : public testing::Test {
 public:
  static void SetUpTestSuite() {
    static const bool once = [] { return UseCuda(TENON_FAKE_LIBCUDA), true; }();
    (void)once;
  }
};
using Cuda = Rehearsal;

lab::Verdict JudgeText(const std::string& text, uint64_t seed, const std::string& device = kDevice) {
  const auto module = ParseModule(text);
  TENON_CHECK(module.ok(), text);
  return lab::Judge(**module, lab::RandomInputs(**module, seed), {.target = device, .excess_precision = true});
}

TEST_F(Cuda, KernelsAreRight) {
  uint64_t seed = 0;
  for (const KernelKind& kind : KernelKinds()) {
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{33, 70}, {3, 515}}) {
      const Environment order("TENON_FAKE_CUDA_SEED", absl::StrCat(seed));
      const lab::Verdict v = JudgeText(KindText(kind, "f32", rows, columns), ++seed);
      EXPECT_EQ(v.outcome, lab::Outcome::kSame) << kind.name << ": " << v.text;
    }
  }
  const lab::Verdict other = JudgeText(KindText(KernelKinds()[0], "bf16", 9, 300), 5, "gpu-rehearsed:sm_80,sms=1");
  EXPECT_EQ(other.outcome, lab::Outcome::kSame) << other.text;
}

// One in eight; tools/gpu-runner --rehearse runs them all.
TEST_F(Cuda, ModulesOfTheBackendsAreRight) {
  const std::vector<HloCase> cases = DeviceCases();
  int64_t same = 0;
  const Live before = LiveOfFake();
  for (size_t n = 0; n < cases.size(); n += 8) {
    const auto module = ParseModule(cases[n].text);
    ASSERT_TRUE(module.ok());
    const lab::Verdict v =
        lab::Judge(**module, ArgumentsOf(**module, cases[n], 9000), {.target = kDevice, .excess_precision = !cases[n].strict});
    if (v.outcome == lab::Outcome::kEvaluatorError) continue;  // checks that fail
    EXPECT_EQ(v.outcome, lab::Outcome::kSame) << cases[n].name << ": " << v.text;
    ++same;
  }
  EXPECT_GE(same, static_cast<int64_t>(cases.size()) / 8 * 9 / 10);
  EXPECT_EQ(LiveOfFake(), before);  // memory, modules and events are given back
}

TEST_F(Cuda, IsABuiltInTarget) {
  for (const BuiltInTarget& built_in : BuiltInTargets()) {
    if (built_in.name != "gpu") continue;
    const auto target = built_in.make("", /*compile_only=*/false);
    ASSERT_TRUE(target.ok()) << target.status();
    EXPECT_EQ((*target)->facts().variant, "sm_90");
    EXPECT_EQ((*target)->loader(), built_in.loader());
    return;
  }
  FAIL() << "no target \"gpu\"";
}

struct Prepared {
  std::unique_ptr<LiteralExecutable> executable;
  std::vector<Literal> arguments;
  absl::StatusOr<std::vector<Literal>> Run() const { return executable->Run(arguments); }
};
absl::StatusOr<Prepared> Prepare(bool bitcode = true) {
  const auto module = ParseModule(KindText(KernelKinds()[0], "f32", 5, 100));
  Prepared p{.arguments = lab::RandomInputs(**module, 3)};
  lab::MoveInside(**module, 1);
  CompileOptions options;
  TENON_ASSIGN_OR_RETURN(std::shared_ptr<const Target> target, ThisGpu("", bitcode));
  options.targets.push_back(std::move(target));
  TENON_ASSIGN_OR_RETURN(p.executable, LiteralExecutable::Compile(**module, options, CudaHost(PlainHost())));
  return p;
}

// More launches than a stream's tables have room for, none of which the fake has run before somebody waits.
TEST_F(Cuda, TablesOfManyLaunches) {
  const lab::Verdict v = JudgeText(R"(HloModule m
condition { s = (s32[], f32[64], f32[64]) parameter(0) i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(2600) ROOT r = pred[] compare(i, n), direction=LT }
body { s = (s32[], f32[64], f32[64]) parameter(0) i = s32[] get-tuple-element(s), index=0
  x = f32[64] get-tuple-element(s), index=1 y = f32[64] get-tuple-element(s), index=2 one = s32[] constant(1) j = s32[] add(i, one)
  f = f32[] convert(i) b = f32[64] broadcast(f), dimensions={} u = f32[64] add(y, b) v = f32[64] subtract(x, y)
  w = f32[64] maximum(v, b)
  ROOT t = (s32[], f32[64], f32[64]) tuple(j, w, u) }
ENTRY e { x = f32[64] parameter(0) zero = s32[] constant(0) t = (s32[], f32[64], f32[64]) tuple(zero, x, x)
  ROOT r = (s32[], f32[64], f32[64]) while(t), condition=condition, body=body })", 1);
  EXPECT_EQ(v.outcome, lab::Outcome::kSame) << v.text;
}

TEST_F(Cuda, ThreadsShareIt) {
  const absl::StatusOr<Prepared> p = Prepare();
  ASSERT_TRUE(p.ok()) << p.status();
  const absl::StatusOr<std::vector<Literal>> want = p->Run();
  ASSERT_TRUE(want.ok()) << want.status();
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int n = 0; n < 5; ++n) {
        const absl::StatusOr<std::vector<Literal>> got = p->Run();
        right += got.ok() && std::memcmp((*got)[0].bytes(), (*want)[0].bytes(), (*want)[0].size_bytes()) == 0;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(right, 20);
}

// What fails while it is compiled or loaded, or run, and what the message has. Then all is well again.
TEST_F(Cuda, FailingCalls) {
  ASSERT_TRUE(Prepare().ok());
  const Live before = LiveOfFake();
  const struct {
    const char* call;
    bool loads;
    const char* says;
  } kCalls[] = {
      {"cuModuleLoadDataEx:218", true, "CUDA: loading a module: CUDA_ERROR_INVALID_PTX (218)"},
      {"cuModuleGetFunction:500", true, "CUDA: finding kernel "},
      {"cuFuncGetAttribute:400", true, "asking for a kernel's registers"},
      {"cuLaunchKernel:701", false, "CUDA: launching "},
      {"cuMemcpyHtoDAsync_v2:1", false, "CUDA: copying 2000 bytes to the device: CUDA_ERROR_INVALID_VALUE (1)"},
      {"cuMemcpyHtoDAsync_v2:1:1", false, "CUDA: copying a kernel's table: CUDA_ERROR_INVALID_VALUE (1)"},
      {"cuMemcpyDtoHAsync_v2:1", false, "CUDA: copying 2000 bytes from the device: CUDA_ERROR_INVALID_VALUE (1)"},
      {"cuStreamSynchronize:999", false, "CUDA: copying to the device: an error without a name (999)"},
      {"cuCtxPushCurrent_v2:201:1", false, "CUDA: making the context current: CUDA_ERROR_INVALID_CONTEXT (201)"},
  };
  for (const auto& [call, loads, says] : kCalls) {
    const absl::StatusOr<Prepared> prepared = Prepare();
    ASSERT_TRUE(prepared.ok()) << prepared.status();
    absl::Status status;
    {
      const Fail fail(call);
      status = loads ? Prepare().status() : prepared->Run().status();
    }
    EXPECT_THAT(std::string(status.message()), HasSubstr(says)) << call;
    const auto again = prepared->Run();
    EXPECT_TRUE(again.ok()) << call << ", afterwards: " << again.status();
  }
  EXPECT_EQ(LiveOfFake(), before);
}

TEST_F(Cuda, NoMemory) {
  const absl::StatusOr<Prepared> p = Prepare();
  ASSERT_TRUE(p.ok());
  const Fail fail("cuMemAlloc_v2:2");
  const absl::Status status = p->Run().status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("out of memory: wanted 2048 bytes for intermediate results in memory space 1"));
}

TEST_F(Cuda, PtxIsRefusedByTheFake) {
  const absl::Status status = Prepare(/*bitcode=*/false).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("CUDA_ERROR_INVALID_PTX (218)"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("fake libcuda takes LLVM bitcode, got \"//\n// Generated by LLVM NVPTX"));
}

// A kernel fails when it runs: the copy home says so, every later call fails, the host's programs run.
TEST_F(Cuda, AKernelThatFailsTakesTheDeviceAlong) {
  const absl::StatusOr<Prepared> p = Prepare();
  ASSERT_TRUE(p.ok());
  absl::Status status;
  {
    const Fail fail("kernel:719");
    status = p->Run().status();
  }
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("CUDA_ERROR_LAUNCH_FAILED (719)"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("a kernel that was launched before this call failed, and this process can use the "
                                                       "GPU no more"));
  EXPECT_FALSE(p->Run().ok());
  EXPECT_TRUE(absl::IsUnavailable(Prepare().status())) << Prepare().status();
  EXPECT_EQ(JudgeText(KindText(KernelKinds()[0], "f32", 5, 100), 1, "").outcome, lab::Outcome::kSame);  // the CPU
  ResetFake();
  EXPECT_TRUE(Prepare().ok());
}

// Said by the launch itself where launches wait, and by its name.
TEST_F(Cuda, LaunchBlockingNamesTheKernel) {
  const absl::StatusOr<Prepared> p = Prepare();
  ASSERT_TRUE(p.ok());
  const Environment blocking("CUDA_LAUNCH_BLOCKING", "1");
  absl::Status status;
  {
    const Fail fail("kernel:719");
    status = p->Run().status();
  }
  ResetFake();
  const std::string& symbol = p->executable->executable()->program().kernels[0].symbol;
  EXPECT_THAT(std::string(status.message()), HasSubstr("CUDA: launching " + symbol));
}

}  // namespace
}  // namespace tenon::gpu
