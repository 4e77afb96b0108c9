// How fast the emulator is, with every detector on. Prints figures; passes where the kernels' results are right.
#include <ctime>
#include <functional>
#include <iostream>

#include "absl/strings/str_format.h"
#include "tests/gpu_emulator/launcher.h"

namespace tenon::gpu {
namespace {

// Each turn is a shuffle, and a word of shared memory that goes to a neighbour by way of two barriers.
constexpr char kText[] = R"(
@s = internal addrspace(3) global [256 x i32] undef, align 4
define ptx_kernel void @turns(ptr addrspace(1) %out, i32 %n) {
entry:
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %b = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %p = getelementptr i32, ptr addrspace(3) @s, i32 %t
  %m = xor i32 %t, 32
  %q = getelementptr i32, ptr addrspace(3) @s, i32 %m
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %j, %loop ]
  %v = phi i32 [ %t, %entry ], [ %w, %loop ]
  %x = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %v, i32 1, i32 31)
  store i32 %x, ptr addrspace(3) %p
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %w = load i32, ptr addrspace(3) %q
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %j = add i32 %i, 1
  %more = icmp slt i32 %j, %n
  br i1 %more, label %loop, label %done
done:
  %b256 = mul i32 %b, 256
  %k = add i32 %b256, %t
  %o = getelementptr i32, ptr addrspace(1) %out, i32 %k
  store i32 %w, ptr addrspace(1) %o
  ret void
}
define ptx_kernel void @copy(ptr addrspace(1) %x, ptr addrspace(1) %y) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %b = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %b256 = mul i32 %b, 256
  %k = add i32 %b256, %t
  %p = getelementptr <4 x float>, ptr addrspace(1) %x, i32 %k
  %q = getelementptr <4 x float>, ptr addrspace(1) %y, i32 %k
  %v = load <4 x float>, ptr addrspace(1) %p, align 16
  store <4 x float> %v, ptr addrspace(1) %q, align 16
  ret void
}
)";

// Of the processor: tests run beside others.
double Seconds(const std::function<void()>& f) {
  const std::clock_t start = std::clock();
  f();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

TEST(Speed, SwitchesAndAccesses) {
  std::shared_ptr<EmulatedModule> module;
  const double load = Seconds([&] { module = MustLoad(kText); });
  constexpr int kBlocks = 8, kTurns = 200;
  for (const bool detectors : {true, false}) {
    Array<int32_t> out(kBlocks * 256);
    LaunchCounts counts;
    const EmulatorOptions options{.races = detectors, .uninitialised = detectors};
    const double seconds = Seconds([&] {
      ASSERT_THAT(LaunchKernel(*module, "turns", {.grid = {kBlocks, 1, 1}, .block = {256, 1, 1}}, options, &counts, out.data(), kTurns),
                  Ok());
    });
    EXPECT_EQ(out.Get()[5], 5);  // an even number of exchanges
    EXPECT_GE(counts.fibre_switches, kBlocks * kTurns * 256 * 2);
    std::cout << absl::StrFormat("[ figures  ] detectors %s: %.1f million fibre switches a second, %.1f ns each\n",
                                 detectors ? "on" : "off", counts.fibre_switches / seconds * 1e-6, seconds / counts.fibre_switches * 1e9);
    constexpr int kVectors = 1 << 16;
    Array<float> x(std::vector<float>(4 * kVectors, 1.5f)), y(4 * kVectors);
    const double copy = Seconds([&] {
      ASSERT_THAT(
          LaunchKernel(*module, "copy", {.grid = {kVectors / 256, 1, 1}, .block = {256, 1, 1}}, options, &counts, x.data(), y.data()),
          Ok());
    });
    EXPECT_EQ(y.Get()[4 * kVectors - 1], 1.5f);
    std::cout << absl::StrFormat("[ figures  ] detectors %s: %.1f ns for each access of 16 bytes\n", detectors ? "on" : "off",
                                 copy / (2 * kVectors) * 1e9);
  }
  std::cout << absl::StrFormat("[ figures  ] a module of two kernels loads in %.0f ms\n", load * 1e3);
}

}  // namespace
}  // namespace tenon::gpu
