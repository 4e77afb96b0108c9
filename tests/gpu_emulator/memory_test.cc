#include <thread>

#include "tests/gpu_emulator/launcher.h"

namespace tenon::gpu {
namespace {

TEST(EmulatedMemory, Allocations) {
  EmulatedMemory& memory = TheEmulatedMemory();
  const int64_t live = memory.live_bytes(), made = memory.allocations();
  void *a = memory.Allocate(100), *b = memory.Allocate(0), *c = memory.AllocateMisaligned(64, 12);
  ASSERT_TRUE(a != nullptr && b != nullptr && c != nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 256, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(c) % 256, 12u);
  EXPECT_GE(static_cast<char*>(b) - static_cast<char*>(a), 100 + 256);
  EXPECT_EQ(memory.live_bytes(), live + 164);
  EXPECT_EQ(memory.allocations(), made + 3);
  int host = 0;
  EXPECT_TRUE(memory.Owns(a) && memory.Owns(static_cast<char*>(c) + 63) && !memory.Owns(&host));
  memory.Free(a);
  memory.Free(b);
  memory.Free(c);
  memory.Free(nullptr);
  EXPECT_EQ(memory.live_bytes(), live);
  EXPECT_NE(memory.Allocate(100), a);  // no address is used twice
  EXPECT_THROW(memory.Free(&host), InternalError);
  EXPECT_THROW(memory.Free(a), InternalError);
}

TEST(EmulatedMemory, FailsWhenTold) {
  EmulatedMemory& memory = TheEmulatedMemory();
  memory.FailAllocation(1);
  void* first = memory.Allocate(8);
  EXPECT_NE(first, nullptr);
  EXPECT_EQ(memory.Allocate(8), nullptr);
  void* third = memory.Allocate(8);
  EXPECT_NE(third, nullptr);
  EXPECT_EQ(memory.Allocate(size_t{1} << 41), nullptr);
  memory.Free(first);
  memory.Free(third);
}

TEST(EmulatedMemory, ReadsAndWrites) {
  EmulatedMemory& memory = TheEmulatedMemory();
  Array<int32_t> a(4), b(4);
  std::vector<int32_t> got(4);
  EXPECT_FALSE(*memory.Initialised(a.data(), 4));
  EXPECT_EQ(a.Get()[0], static_cast<int32_t>(0xa5a5a5a5));
  const int32_t two[] = {1, 2};
  char* second = static_cast<char*>(a.data()) + 4;
  ASSERT_THAT(memory.Write(second, two, 8), Ok());
  EXPECT_TRUE(*memory.Initialised(second, 8));
  EXPECT_FALSE(*memory.Initialised(second, 9));
  ASSERT_THAT(memory.Copy(b.data(), a.data(), 16), Ok());
  EXPECT_TRUE(*memory.Initialised(static_cast<char*>(b.data()) + 4, 8));
  EXPECT_FALSE(*memory.Initialised(b.data(), 4));
  EXPECT_EQ(b.Get()[2], 2);
  EXPECT_THAT(memory.Write(second, two, 16),
              Fails(absl::StatusCode::kOutOfRange, {"16 bytes at 0x", "byte 4 of an allocation of 16 bytes"}));
  EXPECT_THAT(memory.Read(got.data(), second + 12, 4), Fails(absl::StatusCode::kOutOfRange, {"0 bytes behind the end"}));
  EXPECT_THAT(memory.Read(got.data(), got.data(), 4), Fails(absl::StatusCode::kOutOfRange, {"in no memory of the device"}));
  EXPECT_THAT(memory.Read(got.data(), second + 12, 0), Ok());
}

// Launches of several threads of the host wait for one another.
TEST(EmulatedMemory, LaunchesFromManyThreads) {
  constexpr char kText[] = R"(
@s = internal addrspace(3) global [64 x i32] undef, align 4
define ptx_kernel void @reverse(ptr addrspace(1) %x) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %p = getelementptr i32, ptr addrspace(1) %x, i32 %t
  %v = load i32, ptr addrspace(1) %p
  %s = getelementptr i32, ptr addrspace(3) @s, i32 %t
  store i32 %v, ptr addrspace(3) %s
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %r = sub i32 63, %t
  %q = getelementptr i32, ptr addrspace(3) @s, i32 %r
  %w = load i32, ptr addrspace(3) %q
  store i32 %w, ptr addrspace(1) %p
  ret void
}
)";
  std::vector<std::thread> threads;
  std::vector<int> right(4);
  for (int k = 0; k < 4; ++k) {
    threads.emplace_back([&right, k, kText] {
      const auto module = MustLoad(kText);
      std::vector<int32_t> values(64);
      for (int i = 0; i < 64; ++i) values[i] = 100 * k + i;
      Array<int32_t> x(values);
      bool ok = true;
      for (int launch = 0; launch < 21; ++launch) {
        ok &=
            LaunchKernel(*module, "reverse", {.block = {64, 1, 1}}, {.order_seed = static_cast<uint64_t>(launch)}, nullptr, x.data()).ok();
      }
      std::reverse(values.begin(), values.end());
      right[k] = ok && x.Get() == values ? 1 : 0;
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_THAT(right, testing::Each(1));
}

}  // namespace
}  // namespace tenon::gpu
