// Each detector: a kernel with a planted bug that it tells of by name, and the kernel's mended twin, which runs.
#include <algorithm>
#include <numeric>

#include "absl/strings/str_replace.h"
#include "tests/gpu_emulator/launcher.h"

namespace tenon::gpu {
namespace {

using absl::StatusCode;
using testing::ElementsAreArray;

// Texts with a hole, @@, that is filled in two ways.
std::shared_ptr<EmulatedModule> Filled(const char* text, const std::string& with) {
  return MustLoad(absl::StrReplaceAll(text, {{"@@", with}}));
}

constexpr LaunchConfig kWarp = {.block = {32, 1, 1}}, kBlock = {.block = {128, 1, 1}};

// thread t writes word t, reads the word of its neighbour in the next warp.
constexpr char kNeighbour[] = R"(
@s = internal addrspace(3) global [128 x i32] undef, align 4
define ptx_kernel void @neighbour(ptr addrspace(1) %out) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %p = getelementptr i32, ptr addrspace(3) @s, i32 %t
  store i32 %t, ptr addrspace(3) %p
  @@
  %n = add i32 %t, 32
  %m = and i32 %n, 127
  %q = getelementptr i32, ptr addrspace(3) @s, i32 %m
  %v = load i32, ptr addrspace(3) %q
  %o = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %v, ptr addrspace(1) %o
  ret void
}
)";
// Between the store and the load: nothing is missing but a barrier, so only detectors know.
constexpr char kBarrier[] = "call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)";
constexpr char kWarpBarrier[] = "call void @llvm.nvvm.bar.warp.sync(i32 -1)";

TEST(Detects, MissingBarrier) {
  std::vector<int32_t> want(128);
  for (int t = 0; t < 128; ++t) want[t] = (t + 32) % 128;
  for (uint64_t seed : kSeeds) {
    Array<int32_t> out(128);
    const auto missing = Filled(kNeighbour, "");
    // With all detectors it is whichever comes first: in ascending order a word that nobody has written yet.
    const absl::Status any = LaunchKernel(*missing, "neighbour", kBlock, {.order_seed = seed}, nullptr, out.data());
    EXPECT_TRUE(any.code() == StatusCode::kAborted || any.code() == StatusCode::kFailedPrecondition) << any;
    EXPECT_THAT(LaunchKernel(*missing, "neighbour", kBlock, {.order_seed = seed, .uninitialised = false}, nullptr, out.data()),
                Fails(StatusCode::kAborted, {"race: ", "of @s (512 bytes of shared memory)", "not ordered with the ", "kernel neighbour",
                                             "block (0,0,0)", "%v = load i32, ptr addrspace(3) %q"}));
    // A barrier of the warp is no help for what another warp wrote.
    EXPECT_THAT(LaunchKernel(*Filled(kNeighbour, kWarpBarrier), "neighbour", kBlock, {.order_seed = seed, .uninitialised = false}, nullptr,
                             out.data()),
                Fails(StatusCode::kAborted, {"race: "}));
    ASSERT_THAT(LaunchKernel(*Filled(kNeighbour, kBarrier), "neighbour", kBlock, {.order_seed = seed}, nullptr, out.data()), Ok());
    EXPECT_THAT(out.Get(), ElementsAreArray(want));
    EXPECT_THAT(
        LaunchKernel(*missing, "neighbour", kBlock, {.order_seed = seed, .races = false, .uninitialised = false}, nullptr, out.data()),
        Ok());
  }
}

// Each lane reads what the next one of its warp wrote, in a block of four warps.
constexpr char kNextLane[] = R"(
@s = internal addrspace(3) global [128 x i32] undef, align 4
define ptx_kernel void @next(ptr addrspace(1) %out) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %p = getelementptr i32, ptr addrspace(3) @s, i32 %t
  store i32 %t, ptr addrspace(3) %p
  @@
  %n = add i32 %t, 1
  %l = and i32 %n, 31
  %w = and i32 %t, -32
  %m = or i32 %l, %w
  %q = getelementptr i32, ptr addrspace(3) @s, i32 %m
  %v = load i32, ptr addrspace(3) %q
  %o = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %v, ptr addrspace(1) %o
  ret void
}
)";

TEST(Detects, MissingBarrierOfAWarp) {
  for (uint64_t seed : kSeeds) {
    Array<int32_t> out(128);
    const EmulatorOptions races{.order_seed = seed, .uninitialised = false};
    EXPECT_THAT(LaunchKernel(*Filled(kNextLane, ""), "next", kBlock, races, nullptr, out.data()), Fails(StatusCode::kAborted, {"race: "}));
    // A shuffle makes lanes meet, and orders no memory (PTX ISA, shfl.sync).
    EXPECT_THAT(LaunchKernel(*Filled(kNextLane, "%x = call i32 @llvm.nvvm.shfl.sync.idx.i32(i32 -1, i32 %t, i32 0, i32 31)"), "next",
                             kBlock, races, nullptr, out.data()),
                Fails(StatusCode::kAborted, {"race: "}));
    ASSERT_THAT(LaunchKernel(*Filled(kNextLane, kWarpBarrier), "next", kBlock, {.order_seed = seed}, nullptr, out.data()), Ok());
    EXPECT_EQ(out.Get()[62], 63);
    EXPECT_EQ(out.Get()[63], 32);
  }
}

// Halves of a warp each with a barrier of their own: enough for neighbours within the half, not across.
TEST(Detects, BarrierOfTooFewLanes) {
  constexpr char kHalves[] = R"(
@s = internal addrspace(3) global [32 x i32] undef, align 4
define ptx_kernel void @halves(ptr addrspace(1) %out) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %p = getelementptr i32, ptr addrspace(3) @s, i32 %t
  store i32 %t, ptr addrspace(3) %p
  %low = icmp ult i32 %t, 16
  %mask = select i1 %low, i32 65535, i32 -65536
  call void @llvm.nvvm.bar.warp.sync(i32 %mask)
  %m = xor i32 %t, @@
  %q = getelementptr i32, ptr addrspace(3) @s, i32 %m
  %v = load i32, ptr addrspace(3) %q
  %o = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %v, ptr addrspace(1) %o
  ret void
}
)";
  for (uint64_t seed : kSeeds) {
    Array<int32_t> out(32);
    const EmulatorOptions races{.order_seed = seed, .uninitialised = false};
    EXPECT_THAT(LaunchKernel(*Filled(kHalves, "16"), "halves", kWarp, races, nullptr, out.data()), Fails(StatusCode::kAborted, {"race: "}));
    ASSERT_THAT(LaunchKernel(*Filled(kHalves, "8"), "halves", kWarp, races, nullptr, out.data()), Ok());
    EXPECT_EQ(out.Get()[3], 11);
  }
}

// Two groups of 64 threads, each with a named barrier for 64.
TEST(Detects, NamedBarrierOfTheWrongWarps) {
  constexpr char kGroups[] = R"(
@s = internal addrspace(3) global [128 x i32] undef, align 4
define ptx_kernel void @groups(ptr addrspace(1) %out) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %p = getelementptr i32, ptr addrspace(3) @s, i32 %t
  store i32 %t, ptr addrspace(3) %p
  %g = lshr i32 %t, 6
  %id = add i32 %g, 1
  call void @llvm.nvvm.barrier.cta.sync.aligned.count(i32 %id, i32 64)
  %m = xor i32 %t, @@
  %q = getelementptr i32, ptr addrspace(3) @s, i32 %m
  %v = load i32, ptr addrspace(3) %q
  %o = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %v, ptr addrspace(1) %o
  ret void
}
)";
  for (uint64_t seed : kSeeds) {
    Array<int32_t> out(128);
    const EmulatorOptions races{.order_seed = seed, .uninitialised = false};
    EXPECT_THAT(LaunchKernel(*Filled(kGroups, "64"), "groups", kBlock, races, nullptr, out.data()),
                Fails(StatusCode::kAborted, {"race: "}));
    ASSERT_THAT(LaunchKernel(*Filled(kGroups, "32"), "groups", kBlock, races, nullptr, out.data()), Ok());
    EXPECT_EQ(out.Get()[70], 102);
  }
}

// Single bytes of one word by different threads are no race; the same byte is.
TEST(Detects, RacesByByte) {
  constexpr char kBytes[] = R"(
@s = internal addrspace(3) global [128 x i8] undef, align 4
define ptx_kernel void @bytes() {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %i = lshr i32 %t, @@
  %p = getelementptr i8, ptr addrspace(3) @s, i32 %i
  store i8 1, ptr addrspace(3) %p
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %w = lshr i32 %t, 2
  %q = getelementptr i32, ptr addrspace(3) @s, i32 %w
  %v = load i32, ptr addrspace(3) %q
  ret void
}
)";
  EXPECT_THAT(LaunchKernel(*Filled(kBytes, "0"), "bytes", kBlock, {}, nullptr), Ok());
  EXPECT_THAT(LaunchKernel(*Filled(kBytes, "1"), "bytes", kBlock, {}, nullptr),
              Fails(StatusCode::kAborted, {"race: write of 1 bytes", "byte 0 of @s", "the write by thread (0,0,0)", "thread (1,0,0)"}));
}

// What a barrier ordered stays ordered: all read, barrier, one writes; without it, one of the readers is still reading.
TEST(Detects, WriteBehindReads) {
  constexpr char kReaders[] = R"(
@s = internal addrspace(3) global [1 x i32] undef, align 4
define ptx_kernel void @readers() {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %zero = icmp eq i32 %t, 0
  br i1 %zero, label %init, label %start
init:
  store i32 1, ptr addrspace(3) @s
  br label %start
start:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %v = load i32, ptr addrspace(3) @s
  @@
  %last = icmp eq i32 %t, 127
  br i1 %last, label %write, label %done
write:
  store i32 2, ptr addrspace(3) @s
  br label %done
done:
  ret void
}
)";
  for (uint64_t seed : kSeeds) {
    EXPECT_THAT(LaunchKernel(*Filled(kReaders, ""), "readers", kBlock, {.order_seed = seed}, nullptr),
                Fails(StatusCode::kAborted, {"race: "}));
    EXPECT_THAT(LaunchKernel(*Filled(kReaders, kBarrier), "readers", kBlock, {.order_seed = seed}, nullptr), Ok());
  }
}

// Blocks write one word of global memory each, or all the same one.
TEST(Detects, RaceBetweenBlocks) {
  constexpr char kBlocks[] = R"(
define ptx_kernel void @blocks(ptr addrspace(1) %out) {
  %b = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %i = and i32 %b, @@
  %p = getelementptr i32, ptr addrspace(1) %out, i32 %i
  store i32 %b, ptr addrspace(1) %p
  ret void
}
)";
  for (uint64_t seed : kSeeds) {
    Array<int32_t> out(16);
    const LaunchConfig config{.grid = {16, 1, 1}};
    EXPECT_THAT(
        LaunchKernel(*Filled(kBlocks, "7"), "blocks", config, {.order_seed = seed}, nullptr, out.data()),
        Fails(StatusCode::kAborted, {"race: write of 4 bytes", "of an allocation of 64 bytes", "the write by thread (0,0,0) of block ("}));
    for (int launch = 0; launch < 2; ++launch) {  // launches are ordered
      ASSERT_THAT(LaunchKernel(*Filled(kBlocks, "15"), "blocks", config, {.order_seed = seed}, nullptr, out.data()), Ok());
    }
    EXPECT_EQ(out.Get()[9], 9);
  }
}

// In place: each block reads the word before its own, which the block before writes.
TEST(Detects, RaceOfAReadWithAnotherBlocksWrite) {
  constexpr char kShift[] = R"(
define ptx_kernel void @shift(ptr addrspace(1) %in, ptr addrspace(1) %out) {
  %b = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %p = getelementptr i32, ptr addrspace(1) %in, i32 %b
  %q = getelementptr i32, ptr addrspace(1) %out, i32 %b
  %o = getelementptr i32, ptr addrspace(1) %q, i32 1
  %v = load i32, ptr addrspace(1) %p
  store i32 %v, ptr addrspace(1) %o
  ret void
}
)";
  const auto module = MustLoad(kShift);
  for (uint64_t seed : kSeeds) {
    Array<int32_t> x(std::vector<int32_t>(9, 7)), y(9);
    const LaunchConfig config{.grid = {8, 1, 1}};
    EXPECT_THAT(LaunchKernel(*module, "shift", config, {.order_seed = seed}, nullptr, x.data(), x.data()),
                Fails(StatusCode::kAborted, {"race: "}));
    EXPECT_THAT(LaunchKernel(*module, "shift", config, {.order_seed = seed}, nullptr, x.data(), y.data()), Ok());
  }
}

TEST(Detects, PlainAddWhereAnAtomicOneIsNeeded) {
  const auto text = [](const std::string& add) {
    return "define ptx_kernel void @count(ptr addrspace(1) %x) {\n" + add + "\n  ret void\n}\n";
  };
  const auto atomic = MustLoad(text("%o = atomicrmw add ptr addrspace(1) %x, i32 1 monotonic"));
  const auto plain = MustLoad(text("%o = load i32, ptr addrspace(1) %x\n %p = add i32 %o, 1\n store i32 %p, ptr addrspace(1) %x"));
  const LaunchConfig config{.grid = {3, 1, 1}, .block = {64, 1, 1}};
  Array<int32_t> x(std::vector<int32_t>{0});
  ASSERT_THAT(LaunchKernel(*atomic, "count", config, {}, nullptr, x.data()), Ok());
  EXPECT_EQ(x.Get()[0], 192);
  EXPECT_THAT(LaunchKernel(*plain, "count", config, {}, nullptr, x.data()), Fails(StatusCode::kAborted, {"race: "}));
}

// Atomics are none to who doesn't use them.
TEST(Detects, PlainAccessBesideAtomicOnes) {
  constexpr char kMixed[] = R"(
define ptx_kernel void @mixed(ptr addrspace(1) %x) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %mine = icmp eq i32 %t, @@
  br i1 %mine, label %plain, label %atomic
atomic:
  %o = atomicrmw add ptr addrspace(1) %x, i32 1 monotonic
  ret void
plain:
  %v = load i32, ptr addrspace(1) %x
  ret void
}
)";
  Array<int32_t> x(std::vector<int32_t>{0});
  for (const char* plain : {"0", "5", "63"}) {
    EXPECT_THAT(LaunchKernel(*Filled(kMixed, plain), "mixed", {.block = {64, 1, 1}}, {}, nullptr, x.data()),
                Fails(StatusCode::kAborted, {"race: "}));
  }
  EXPECT_THAT(LaunchKernel(*Filled(kMixed, "64"), "mixed", {.block = {64, 1, 1}}, {}, nullptr, x.data()), Ok());
}

// A vector of 16 bytes, at an address that is aligned to 4.
TEST(Detects, MisalignedVector) {
  constexpr char kVector[] = R"(
define ptx_kernel void @vector(ptr addrspace(1) %x, ptr addrspace(1) %y) {
  %v = load <4 x float>, ptr addrspace(1) %x, align @@
  store <4 x float> %v, ptr addrspace(1) %y, align @@
  ret void
}
)";
  EmulatedMemory& memory = TheEmulatedMemory();
  const std::vector<float> values = {1, 2, 3, 4};
  Array<float> x(values);
  void* off = memory.AllocateMisaligned(16, 4);
  ASSERT_EQ(reinterpret_cast<uintptr_t>(off) % 256, 4u);
  EXPECT_THAT(
      LaunchKernel(*Filled(kVector, "16"), "vector", {}, {}, nullptr, x.data(), off),
      Fails(StatusCode::kFailedPrecondition, {"misaligned: write of 16 bytes", "byte 0 of an allocation of 16 bytes", "aligned to 16"}));
  ASSERT_THAT(LaunchKernel(*Filled(kVector, "4"), "vector", {}, {}, nullptr, x.data(), off), Ok());
  EXPECT_THAT(LaunchKernel(*Filled(kVector, "16"), "vector", {}, {}, nullptr, off, x.data()),
              Fails(StatusCode::kFailedPrecondition, {"misaligned: read of 16 bytes"}));
  std::vector<float> got(4);
  ASSERT_THAT(memory.Read(got.data(), off, 16), Ok());
  EXPECT_THAT(got, ElementsAreArray(values));
  memory.Free(off);
}

// A shared array that asks for 4 bytes of alignment gets no more, so that vectors of 16 show.
TEST(Detects, MisalignedSharedVector) {
  constexpr char kVector[] = R"(
@s = internal addrspace(3) global [64 x float] undef, align @@
define ptx_kernel void @vector() {
  store <4 x float> zeroinitializer, ptr addrspace(3) @s, align 16
  ret void
}
)";
  EXPECT_THAT(LaunchKernel(*Filled(kVector, "4"), "vector", {}, {}, nullptr),
              Fails(StatusCode::kFailedPrecondition, {"misaligned: ", "@s"}));
  EXPECT_THAT(LaunchKernel(*Filled(kVector, "16"), "vector", {}, {}, nullptr), Ok());
}

constexpr char kFill[] = R"(
define ptx_kernel void @fill(ptr addrspace(1) %x, i32 %n) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %b = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %b32 = mul i32 %b, 32
  %i = add i32 %b32, %t
  %in = icmp @@ i32 %i, %n
  br i1 %in, label %put, label %done
put:
  %p = getelementptr i32, ptr addrspace(1) %x, i32 %i
  store i32 %i, ptr addrspace(1) %p
  br label %done
done:
  ret void
}
)";

TEST(Detects, OffByOne) {
  Array<int32_t> x(100);
  const LaunchConfig config{.grid = {4, 1, 1}, .block = {32, 1, 1}};
  EXPECT_THAT(LaunchKernel(*Filled(kFill, "sle"), "fill", config, {}, nullptr, x.data(), 100),
              Fails(StatusCode::kOutOfRange, {"out of bounds: write of 4 bytes", "0 bytes behind the end of an allocation of 400 bytes",
                                              "kernel fill, block (3,0,0), thread (4,0,0)", "store i32 %i, ptr addrspace(1) %p"}));
  // What was written before stands, and the next launch is none the worse.
  EXPECT_EQ(x.Get()[99], 99);
  EXPECT_THAT(LaunchKernel(*Filled(kFill, "slt"), "fill", config, {}, nullptr, x.data(), 100), Ok());
}

TEST(Detects, UseAfterFree) {
  const auto module = Filled(kFill, "slt");
  Array<int32_t> x(100), y(100);
  ASSERT_THAT(LaunchKernel(*module, "fill", {}, {}, nullptr, x.data(), 100), Ok());
  x.Free();
  EXPECT_THAT(LaunchKernel(*module, "fill", {}, {}, nullptr, x.data(), 100),
              Fails(StatusCode::kOutOfRange, {"use after free: write of 4 bytes", "byte 0 of a freed allocation of 400 bytes"}));
  EXPECT_THAT(LaunchKernel(*module, "fill", {}, {}, nullptr, y.data(), 100), Ok());
}

TEST(Detects, PointersToNowhere) {
  const auto module = Filled(kFill, "slt");
  int32_t host = 0;
  EXPECT_THAT(LaunchKernel(*module, "fill", {}, {}, nullptr, static_cast<void*>(&host), 1),
              Fails(StatusCode::kOutOfRange, {"out of bounds", "in no memory of the device"}));
  EXPECT_EQ(host, 0);
  EXPECT_THAT(LaunchKernel(*module, "fill", {}, {}, nullptr, static_cast<void*>(nullptr), 1), Fails(StatusCode::kOutOfRange, {"at 0x0"}));
}

TEST(Detects, UninitialisedMemory) {
  constexpr char kCopy[] = R"(
@s = internal addrspace(3) global [32 x i32] undef, align 4
define ptx_kernel void @copy(ptr addrspace(1) %x, ptr addrspace(1) %y) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %w = xor i32 %t, @@
  %p = getelementptr i32, ptr addrspace(1) %x, i32 %t
  %v = load i32, ptr addrspace(1) %p
  %s = getelementptr i32, ptr addrspace(3) @s, i32 %t
  %r = getelementptr i32, ptr addrspace(3) @s, i32 %w
  store i32 %v, ptr addrspace(3) %s
  %l = load i32, ptr addrspace(3) %r
  %q = getelementptr i32, ptr addrspace(1) %y, i32 %t
  store i32 %l, ptr addrspace(1) %q
  ret void
}
)";
  std::vector<int32_t> values(32);
  std::iota(values.begin(), values.end(), 0);
  Array<int32_t> x(values), y(32), z(32);
  const auto own = Filled(kCopy, "0");
  EXPECT_THAT(LaunchKernel(*own, "copy", kWarp, {}, nullptr, y.data(), z.data()),
              Fails(StatusCode::kFailedPrecondition, {"uninitialised: read of 4 bytes", "byte 0 of an allocation of 128 bytes"}));
  EXPECT_THAT(LaunchKernel(*Filled(kCopy, "1"), "copy", kWarp, {.races = false}, nullptr, x.data(), y.data()),
              Fails(StatusCode::kFailedPrecondition, {"uninitialised: ", "byte 4 of @s", "no thread of this block"}));
  ASSERT_THAT(LaunchKernel(*own, "copy", kWarp, {}, nullptr, x.data(), y.data()), Ok());
  ASSERT_THAT(LaunchKernel(*own, "copy", kWarp, {}, nullptr, y.data(), z.data()), Ok());
  EXPECT_THAT(z.Get(), ElementsAreArray(values));
}

// What one block leaves in shared memory is nothing to the next.
TEST(Detects, SharedMemoryOfTheBlockBefore) {
  constexpr char kLeft[] = R"(
@s = internal addrspace(3) global i32 undef, align 4
define ptx_kernel void @left() {
  %b = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %zero = icmp @@ i32 %b, 0
  br i1 %zero, label %put, label %get
put:
  store i32 1, ptr addrspace(3) @s
  br label %get
get:
  %v = load i32, ptr addrspace(3) @s
  ret void
}
)";
  EXPECT_THAT(LaunchKernel(*Filled(kLeft, "eq"), "left", {.grid = {2, 1, 1}}, {}, nullptr),
              Fails(StatusCode::kFailedPrecondition, {"uninitialised: ", "block (1,0,0)"}));
  EXPECT_THAT(LaunchKernel(*Filled(kLeft, "sge"), "left", {.grid = {2, 1, 1}}, {}, nullptr), Ok());
}

TEST(Detects, SharedMemoryOutOfBounds) {
  constexpr char kOver[] = R"(
@a = internal addrspace(3) global [32 x i32] undef, align 4
@b = internal addrspace(3) global [32 x i32] undef, align 4
define ptx_kernel void @over() {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %i = add i32 %t, @@
  %p = getelementptr i32, ptr addrspace(3) @a, i32 %i
  store i32 0, ptr addrspace(3) %p
  %q = getelementptr i32, ptr addrspace(3) @b, i32 %t
  store i32 0, ptr addrspace(3) %q
  ret void
}
)";
  EXPECT_THAT(LaunchKernel(*Filled(kOver, "1"), "over", kWarp, {}, nullptr),
              Fails(StatusCode::kOutOfRange, {"out of bounds: ", "0 bytes behind the end of @a", "thread (31,0,0)"}));
  EXPECT_THAT(LaunchKernel(*Filled(kOver, "-1"), "over", kWarp, {}, nullptr), Fails(StatusCode::kOutOfRange, {"4 bytes before @a"}));
  EXPECT_THAT(LaunchKernel(*Filled(kOver, "0"), "over", kWarp, {}, nullptr), Ok());
}

TEST(Detects, DynamicSharedMemoryThatWasNotAskedFor) {
  const auto module = MustLoad(R"(
@d = external addrspace(3) global [0 x i32], align 4
define ptx_kernel void @dynamic() {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %p = getelementptr i32, ptr addrspace(3) @d, i32 %t
  store i32 0, ptr addrspace(3) %p
  ret void
})");
  EXPECT_THAT(LaunchKernel(*module, "dynamic", {.block = {32, 1, 1}, .dynamic_shared_bytes = 124}, {}, nullptr),
              Fails(StatusCode::kOutOfRange, {"the dynamic array (124 bytes"}));
  EXPECT_THAT(LaunchKernel(*module, "dynamic", {.block = {32, 1, 1}, .dynamic_shared_bytes = 128}, {}, nullptr), Ok());
}

TEST(Detects, TooMuchSharedMemory) {
  constexpr char kMuch[] = R"(
@s = internal addrspace(3) global [@@ x i8] undef, align 4
define ptx_kernel void @much() {
  store i8 0, ptr addrspace(3) @s
  ret void
}
)";
  EXPECT_THAT(LaunchKernel(*Filled(kMuch, "49153"), "much", {}, {}, nullptr),
              Fails(StatusCode::kResourceExhausted, {"too much shared memory: kernel much wants 49153 bytes"}));
  const auto module = Filled(kMuch, "49152");
  EXPECT_THAT(LaunchKernel(*module, "much", {}, {}, nullptr), Ok());
  EXPECT_THAT(LaunchKernel(*module, "much", {.dynamic_shared_bytes = (227 << 10) - 49152}, {}, nullptr), Ok());
  EXPECT_THAT(LaunchKernel(*module, "much", {.dynamic_shared_bytes = (227 << 10) - 49151}, {}, nullptr),
              Fails(StatusCode::kResourceExhausted, {"too much shared memory"}));
}

TEST(Detects, LocalArrayOutOfBounds) {
  constexpr char kLocal[] = R"(
define ptx_kernel void @local(i32 %i) {
  %a = alloca [4 x i32], align 4, addrspace(5)
  %b = alloca [4 x i32], align 4
  %p = getelementptr i32, ptr addrspace(5) %a, i32 %i
  store i32 1, ptr addrspace(5) %p
  %q = getelementptr i32, ptr %b, i32 %i
  store i32 1, ptr %q
  ret void
}
)";
  const auto module = MustLoad(kLocal);
  EXPECT_THAT(LaunchKernel(*module, "local", {}, {}, nullptr, 4),
              Fails(StatusCode::kOutOfRange, {"out of bounds: ", "of a local array of 16 bytes"}));
  LaunchCounts counts;
  EXPECT_THAT(LaunchKernel(*module, "local", {}, {}, &counts, 3), Ok());
  EXPECT_EQ(counts.local_bytes, 8);
}

TEST(Detects, WrongSpace) {
  constexpr char kSpace[] = R"(
@s = internal addrspace(3) global i32 undef, align 4
@c = internal addrspace(4) constant i32 5, align 4
define ptx_kernel void @shared() {
  %g = addrspacecast ptr addrspace(3) @s to ptr
  %w = addrspacecast ptr %g to ptr addrspace(@@)
  store i32 1, ptr addrspace(@@) %w
  ret void
}
define ptx_kernel void @constant() {
  %g = addrspacecast ptr addrspace(4) @c to ptr
  store i32 1, ptr %g
  ret void
}
)";
  EXPECT_THAT(LaunchKernel(*Filled(kSpace, "1"), "shared", {}, {}, nullptr),
              Fails(StatusCode::kFailedPrecondition, {"wrong space: ", ": shared memory"}));
  EXPECT_THAT(LaunchKernel(*Filled(kSpace, "3"), "shared", {}, {}, nullptr), Ok());
  EXPECT_THAT(LaunchKernel(*Filled(kSpace, "3"), "constant", {}, {}, nullptr),
              Fails(StatusCode::kFailedPrecondition, {"wrong space: write of 4 bytes", ": constant memory", "@c"}));
}

// Threads past the end leave before the barrier, or behind it.
TEST(Detects, DivergentBarrier) {
  constexpr char kEarly[] = R"(
define ptx_kernel void @early(i32 %n) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %in = icmp slt i32 %t, %n
  br i1 %in, label %body, label %@@
body:
  br label %sync
sync:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  br label %done
done:
  ret void
}
)";
  for (uint64_t seed : kSeeds) {
    EXPECT_THAT(LaunchKernel(*Filled(kEarly, "done"), "early", kBlock, {.order_seed = seed}, nullptr, 100),
                Fails(StatusCode::kFailedPrecondition, {"divergent barrier: ", "have exited", "(100,0,0)", "kernel early, block (0,0,0)"}));
    EXPECT_THAT(LaunchKernel(*Filled(kEarly, "done"), "early", kBlock, {.order_seed = seed}, nullptr, 128), Ok());
    EXPECT_THAT(LaunchKernel(*Filled(kEarly, "sync"), "early", kBlock, {.order_seed = seed}, nullptr, 100), Ok());
  }
}

// Two barriers in two branches: in one warp that is an error of aligned barriers; by whole warps it is none.
TEST(Detects, AlignedBarriersInTwoBranches) {
  constexpr char kBranches[] = R"(
define ptx_kernel void @branches() {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %low = icmp slt i32 %t, @@
  br i1 %low, label %a, label %b
a:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  br label %done
b:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  br label %done
done:
  ret void
}
)";
  EXPECT_THAT(LaunchKernel(*Filled(kBranches, "16"), "branches", kBlock, {}, nullptr),
              Fails(StatusCode::kFailedPrecondition, {"divergent barrier: threads of warp 0 are at two aligned barriers"}));
  EXPECT_THAT(LaunchKernel(*Filled(kBranches, "64"), "branches", kBlock, {}, nullptr), Ok());
}

TEST(Detects, BarriersOfDifferentNames) {
  constexpr char kNames[] = R"(
define ptx_kernel void @names() {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %w = lshr i32 %t, 5
  %id = and i32 %w, @@
  call void @llvm.nvvm.barrier.cta.sync.all(i32 %id)
  ret void
}
)";
  EXPECT_THAT(LaunchKernel(*Filled(kNames, "1"), "names", kBlock, {}, nullptr),
              Fails(StatusCode::kFailedPrecondition, {"divergent barrier: "}));
  EXPECT_THAT(LaunchKernel(*Filled(kNames, "0"), "names", kBlock, {}, nullptr), Ok());
}

// Copies that run beside the program, read before they have arrived: without a wait, or with a wait for the wrong group.
TEST(Detects, AsynchronousCopyReadTooEarly) {
  constexpr char kCopy[] = R"(
@s = internal addrspace(3) global [256 x i32] undef, align 16
define ptx_kernel void @copy(ptr addrspace(1) %x, ptr addrspace(1) %y) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %p = getelementptr i32, ptr addrspace(1) %x, i32 %t
  %q = getelementptr i32, ptr addrspace(3) @s, i32 %t
  %p2 = getelementptr i32, ptr addrspace(1) %p, i32 128
  %q2 = getelementptr i32, ptr addrspace(3) %q, i32 128
  call void @llvm.nvvm.cp.async.ca.shared.global.4(ptr addrspace(3) %q, ptr addrspace(1) %p)
  call void @llvm.nvvm.cp.async.commit.group()
  call void @llvm.nvvm.cp.async.ca.shared.global.4.s(ptr addrspace(3) %q2, ptr addrspace(1) %p2, i32 2)
  call void @llvm.nvvm.cp.async.commit.group()
  @@
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %n = xor i32 %t, 64
  %r = getelementptr i32, ptr addrspace(3) @s, i32 %n
  %v = load i32, ptr addrspace(3) %r
  call void @llvm.nvvm.cp.async.wait.all()
  %w = load i32, ptr addrspace(3) %q2
  %z = mul i32 %w, 1000
  %sum = add i32 %v, %z
  %o = getelementptr i32, ptr addrspace(1) %y, i32 %t
  store i32 %sum, ptr addrspace(1) %o
  ret void
}
declare void @llvm.nvvm.cp.async.ca.shared.global.4(ptr addrspace(3), ptr addrspace(1))
declare void @llvm.nvvm.cp.async.ca.shared.global.4.s(ptr addrspace(3), ptr addrspace(1), i32)
declare void @llvm.nvvm.cp.async.commit.group()
declare void @llvm.nvvm.cp.async.wait.group(i32)
declare void @llvm.nvvm.cp.async.wait.all()
)";
  std::vector<int32_t> values(256), want(128);
  for (int i = 0; i < 256; ++i) values[i] = i < 128 ? i : (i | 7 << 16);
  for (int i = 0; i < 128; ++i) want[i] = (i ^ 64) + 1000 * (i + 128);  // of the second copy two bytes are read, zeros follow
  Array<int32_t> x(values), y(128);
  for (const char* wait : {"", "call void @llvm.nvvm.cp.async.wait.group(i32 2)"}) {
    EXPECT_THAT(LaunchKernel(*Filled(kCopy, wait), "copy", kBlock, {}, nullptr, x.data(), y.data()),
                Fails(StatusCode::kFailedPrecondition, {"uninitialised: read of 4 bytes", "of @s", "%v = load i32"}));
  }
  for (uint64_t seed : kSeeds) {
    ASSERT_THAT(LaunchKernel(*Filled(kCopy, "call void @llvm.nvvm.cp.async.wait.group(i32 1)"), "copy", kBlock, {.order_seed = seed},
                             nullptr, x.data(), y.data()),
                Ok());
    EXPECT_THAT(y.Get(), ElementsAreArray(want));
  }
}

// A shuffle of the lower half of a warp by the mask MASK.
TEST(Detects, WrongMask) {
  constexpr char kMask[] = R"(
define ptx_kernel void @mask(ptr addrspace(1) %out) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %low = icmp slt i32 %t, 16
  br i1 %low, label %shuffle, label %done
shuffle:
  %v = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 @@, i32 %t, i32 8, i32 31)
  %p = getelementptr i32, ptr addrspace(1) %out, i32 %t
  store i32 %v, ptr addrspace(1) %p
  br label %done
done:
  ret void
}
)";
  for (uint64_t seed : kSeeds) {
    Array<int32_t> out(16);
    const EmulatorOptions options{.order_seed = seed};
    EXPECT_THAT(LaunchKernel(*Filled(kMask, "-1"), "mask", kWarp, options, nullptr, out.data()),
                Fails(StatusCode::kFailedPrecondition, {"bad mask: shuffle bfly", "exited"}));
    EXPECT_THAT(LaunchKernel(*Filled(kMask, "-65536"), "mask", kWarp, options, nullptr, out.data()),
                Fails(StatusCode::kFailedPrecondition, {"bad mask: ", "doesn't name the lane itself"}));
    ASSERT_THAT(LaunchKernel(*Filled(kMask, "65535"), "mask", kWarp, options, nullptr, out.data()), Ok());
    EXPECT_EQ(out.Get()[3], 11);
  }
  Array<int32_t> out(16);
  EXPECT_THAT(LaunchKernel(*Filled(kMask, "-1"), "mask", {.block = {16, 1, 1}}, {}, nullptr, out.data()),
              Fails(StatusCode::kFailedPrecondition, {"bad mask: ", "names lanes that the block doesn't have (0xffff0000)"}));
  EXPECT_THAT(LaunchKernel(*Filled(kMask, "65535"), "mask", {.block = {16, 1, 1}}, {}, nullptr, out.data()), Ok());
}

// Half of the warp shuffles, the other half waits at a barrier of the block first.
TEST(Detects, LanesThatWaitElsewhere) {
  constexpr char kElsewhere[] = R"(
define ptx_kernel void @elsewhere() {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %low = icmp slt i32 %t, @@
  br i1 %low, label %a, label %b
a:
  %v = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %t, i32 8, i32 31)
  call void @llvm.nvvm.barrier.cta.sync.all(i32 0)
  br label %done
b:
  call void @llvm.nvvm.barrier.cta.sync.all(i32 0)
  br label %done
done:
  ret void
}
)";
  for (uint64_t seed : kSeeds) {
    EXPECT_THAT(
        LaunchKernel(*Filled(kElsewhere, "16"), "elsewhere", kBlock, {.order_seed = seed}, nullptr),
        Fails(StatusCode::kFailedPrecondition, {"divergent warp: shuffle bfly of lane ", "which waits at `call void @llvm.nvvm.barrier"}));
    EXPECT_THAT(LaunchKernel(*Filled(kElsewhere, "32"), "elsewhere", kBlock, {.order_seed = seed}, nullptr), Ok());
  }
}

// The same shuffle twice, in two branches: lanes of one mask wait at two instructions.
TEST(Detects, ShufflesInTwoBranches) {
  constexpr char kBranches[] = R"(
define ptx_kernel void @branches() {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %low = icmp slt i32 %t, @@
  br i1 %low, label %a, label %b
a:
  %v = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %t, i32 8, i32 31)
  ret void
b:
  %w = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %t, i32 8, i32 31)
  ret void
}
)";
  EXPECT_THAT(LaunchKernel(*Filled(kBranches, "16"), "branches", kBlock, {}, nullptr),
              Fails(StatusCode::kFailedPrecondition, {"divergent warp: shuffle bfly of lane ", "%v = call", "%w = call"}));
  EXPECT_THAT(LaunchKernel(*Filled(kBranches, "32"), "branches", kBlock, {}, nullptr), Ok());
}

TEST(Detects, SourceLaneOutsideOfTheMask) {
  constexpr char kSource[] = R"(
define ptx_kernel void @source() {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %low = icmp slt i32 %t, 16
  br i1 %low, label %shuffle, label %done
shuffle:
  %v = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 65535, i32 %t, i32 @@, i32 31)
  br label %done
done:
  ret void
}
)";
  EXPECT_THAT(LaunchKernel(*Filled(kSource, "16"), "source", kWarp, {}, nullptr),
              Fails(StatusCode::kFailedPrecondition, {"bad source lane: lane 0 reads lane 16"}));
  EXPECT_THAT(LaunchKernel(*Filled(kSource, "8"), "source", kWarp, {}, nullptr), Ok());
}

// The sum of a warp with the segments of a half: no detector's business, but the wrong number.
TEST(Detects, WrongWidthOfAShuffle) {
  constexpr char kSum[] = R"(
define ptx_kernel void @sum(ptr addrspace(1) %out) {
entry:
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  br label %loop
loop:
  %d = phi i32 [ 16, %entry ], [ %half, %loop ]
  %a = phi i32 [ %t, %entry ], [ %b, %loop ]
  %s = call i32 @llvm.nvvm.shfl.sync.down.i32(i32 -1, i32 %a, i32 %d, i32 @@)
  %b = add i32 %a, %s
  %half = lshr i32 %d, 1
  %more = icmp ne i32 %half, 0
  br i1 %more, label %loop, label %done
done:
  %first = icmp eq i32 %t, 0
  br i1 %first, label %put, label %out1
put:
  store i32 %b, ptr addrspace(1) %out
  br label %out1
out1:
  ret void
}
)";
  Array<int32_t> out(1);
  ASSERT_THAT(LaunchKernel(*Filled(kSum, "31"), "sum", kWarp, {}, nullptr, out.data()), Ok());
  EXPECT_EQ(out.Get()[0], 496);
  ASSERT_THAT(LaunchKernel(*Filled(kSum, "4127"), "sum", kWarp, {}, nullptr, out.data()), Ok());  // 0x101f
  EXPECT_NE(out.Get()[0], 496);
}

TEST(Detects, Runaway) {
  constexpr char kLoop[] = R"(
define ptx_kernel void @spin(i32 %n) {
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %j, %loop ]
  %j = add i32 %i, 1
  %more = icmp ne i32 %j, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}
)";
  const auto module = MustLoad(kLoop);
  EXPECT_THAT(LaunchKernel(*module, "spin", {}, {.max_steps = 1000}, nullptr, 0),
              Fails(StatusCode::kDeadlineExceeded, {"runaway: more than 1000 turns", "the loop of %loop"}));
  EXPECT_THAT(LaunchKernel(*module, "spin", {}, {.max_steps = 1000}, nullptr, 1000), Ok());
}

TEST(Detects, EndlessRecursion) {
  constexpr char kDeep[] = R"(
define ptx_kernel void @deep(i32 %n) {
  %r = call i32 @down(i32 %n)
  ret void
}
define internal i32 @down(i32 %n) {
  %a = alloca [64 x i32], align 4
  store i32 %n, ptr %a
  %end = icmp eq i32 %n, 0
  br i1 %end, label %done, label %more
more:
  %m = sub i32 %n, 1
  %r = call i32 @down(i32 %m)
  %v = load i32, ptr %a
  %s = add i32 %r, %v
  ret i32 %s
done:
  ret i32 0
}
)";
  const auto module = MustLoad(kDeep);
  EXPECT_THAT(LaunchKernel(*module, "deep", {}, {}, nullptr, -1), Fails(StatusCode::kResourceExhausted, {"stack overflow", "in down"}));
  EXPECT_THAT(LaunchKernel(*module, "deep", {}, {}, nullptr, 20), Ok());
}

TEST(Detects, Division) {
  const auto module = MustLoad(R"(
define ptx_kernel void @divide(i32 %a, i32 %b) {
  %q = sdiv i32 %a, %b
  ret void
})");
  EXPECT_THAT(LaunchKernel(*module, "divide", {}, {}, nullptr, 1, 0), Fails(StatusCode::kFailedPrecondition, {"undefined division"}));
  EXPECT_THAT(LaunchKernel(*module, "divide", {}, {}, nullptr, INT32_MIN, -1),
              Fails(StatusCode::kFailedPrecondition, {"undefined division"}));
  EXPECT_THAT(LaunchKernel(*module, "divide", {}, {}, nullptr, INT32_MIN, 1), Ok());
}

TEST(Detects, Trap) {
  const auto module = MustLoad(R"(
define ptx_kernel void @trap(i1 %on) {
  br i1 %on, label %bad, label %good
bad:
  call void @llvm.trap()
  unreachable
good:
  ret void
}
declare void @llvm.trap()
)");
  EXPECT_THAT(LaunchKernel(*module, "trap", {}, {}, nullptr, true), Fails(StatusCode::kFailedPrecondition, {"trap; kernel trap"}));
  EXPECT_THAT(LaunchKernel(*module, "trap", {}, {}, nullptr, false), Ok());
}

// What is refused when it is loaded, by name.
TEST(Refuses, WhatNoGpuHas) {
  const auto load = [](const std::string& body, const std::string& outside) {
    return EmulatedModule::Load(
               ModuleOf("define ptx_kernel void @k(ptr addrspace(1) %p, float %x) {\n" + body + "\n ret void\n}\n" + outside))
        .status();
  };
  EXPECT_THAT(load("%y = call float @llvm.exp2.f32(float %x)", "declare float @llvm.exp2.f32(float)"),
              Fails(StatusCode::kUnimplemented, {"k: call of llvm.exp2.f32, which NVPTX has no instruction for"}));
  EXPECT_THAT(load("%y = call float @llvm.sin.f32(float %x)", "declare float @llvm.sin.f32(float)"),
              Fails(StatusCode::kUnimplemented, {"llvm.sin.f32"}));
  EXPECT_THAT(load("%y = call float @expf(float %x)", "declare float @expf(float)"),
              Fails(StatusCode::kUnimplemented, {"k: call of expf, a function from outside"}));
  EXPECT_THAT(load("%y = call i64 @llvm.nvvm.read.ptx.sreg.globaltimer()", "declare i64 @llvm.nvvm.read.ptx.sreg.globaltimer()"),
              Fails(StatusCode::kUnimplemented, {"llvm.nvvm.read.ptx.sreg.globaltimer, which the emulator doesn't know"}));
  EXPECT_THAT(load("%y = call i32 asm \"mov.u32 $0, 1;\", \"=r\"()", ""), Fails(StatusCode::kUnimplemented, {"inline assembly"}));
  EXPECT_THAT(load("store i32 1, ptr addrspace(1) @g", "@g = internal addrspace(1) global i32 0"),
              Fails(StatusCode::kUnimplemented, {"@g: a global that kernels may write"}));
  EXPECT_THAT(load("%y = call float @llvm.sqrt.f32(float %x)", "declare float @llvm.sqrt.f32(float)"), Ok());
  EXPECT_THAT(EmulatedModule::Load("target triple = \"x86_64-pc-linux-gnu\"").status(),
              Fails(StatusCode::kInvalidArgument, {"not for nvptx64"}));
  EXPECT_THAT(EmulatedModule::Load("define void @f() { ret i32 1 }").status(), Fails(StatusCode::kInvalidArgument, {"no LLVM module"}));
}

TEST(Refuses, LaunchesThatNoGpuTakes) {
  const auto module = MustLoad(R"(
define ptx_kernel void @k(ptr addrspace(1) align 16 %p) "nvvm.maxntid"="64" {
  ret void
})");
  Array<int32_t> x(4);
  const auto launch = [&](const LaunchConfig& config, void* p) { return LaunchKernel(*module, "k", config, {}, nullptr, p); };
  EXPECT_THAT(launch({.block = {64, 1, 1}}, x.data()), Ok());
  EXPECT_THAT(launch({.block = {65, 1, 1}}, x.data()),
              Fails(StatusCode::kInvalidArgument, {"a block of 65 threads; the kernel is for at most 64"}));
  EXPECT_THAT(launch({.block = {0, 1, 1}}, x.data()), Fails(StatusCode::kInvalidArgument, {"a block of 0 in dim 0"}));
  EXPECT_THAT(launch({.grid = {1, 65536, 1}}, x.data()), Fails(StatusCode::kInvalidArgument, {"a grid of 65536 blocks in dim 1"}));
  EXPECT_THAT(launch({}, static_cast<char*>(x.data()) + 4), Fails(StatusCode::kInvalidArgument, {"parameter 0", "aligned to 16"}));
  EXPECT_THAT(module->Launch("k", {}, {}), Fails(StatusCode::kInvalidArgument, {"0 values for 1 parameters"}));
  EXPECT_THAT(module->Launch("l", {}, {}), Fails(StatusCode::kNotFound, {"no kernel l"}));
}

}  // namespace
}  // namespace tenon::gpu
