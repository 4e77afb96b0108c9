// Right kernels give right results, in every order, and no detector complains.
#include <bit>
#include <cmath>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/gpu_emulator/launcher.h"

namespace tenon::gpu {
namespace {

using testing::Each;
using testing::ElementsAreArray;

constexpr char kAdd[] = R"(
define ptx_kernel void @add(ptr addrspace(1) %x, ptr addrspace(1) %y, ptr addrspace(1) %z, i32 %n) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %b = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %d = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %o = mul i32 %b, %d
  %i = add i32 %o, %t
  %in = icmp slt i32 %i, %n
  br i1 %in, label %body, label %done
body:
  %px = getelementptr float, ptr addrspace(1) %x, i32 %i
  %py = getelementptr float, ptr addrspace(1) %y, i32 %i
  %pz = getelementptr float, ptr addrspace(1) %z, i32 %i
  %a = load float, ptr addrspace(1) %px
  %c = load float, ptr addrspace(1) %py
  %s = fadd float %a, %c
  store float %s, ptr addrspace(1) %pz
  br label %done
done:
  ret void
}
)";

TEST(Results, VectorAddWithTail) {
  const auto module = MustLoad(kAdd);
  EXPECT_THAT(module->kernels(), testing::ElementsAre("add"));
  for (uint64_t seed : kSeeds) {
    constexpr int kN = 1000;
    std::vector<float> x(kN), y(kN), want(kN);
    for (int i = 0; i < kN; ++i) want[i] = (x[i] = static_cast<float>(i)) + (y[i] = 0.5f * static_cast<float>(i % 7));
    Array<float> dx(x), dy(y), dz(kN);
    LaunchCounts counts;
    ASSERT_THAT(LaunchKernel(*module, "add", {.grid = {8, 1, 1}, .block = {128, 1, 1}}, {.order_seed = seed}, &counts, dx.data(), dy.data(),
                             dz.data(), kN),
                Ok());
    EXPECT_THAT(dz.Get(), ElementsAreArray(want));
    EXPECT_EQ(counts.loads, 2 * kN);
    EXPECT_EQ(counts.stores, kN);
    EXPECT_EQ(counts.global_bytes, 12 * kN);
    EXPECT_EQ(counts.fibre_switches, 0);  // no thread waits
  }
}

// Each block sums `per` elements: threads stride, then warps by shuffles, then the first warp over the warps' sums.
constexpr char kReduce[] = R"(
@sums = internal addrspace(3) global [32 x float] undef, align 4
define ptx_kernel void @reduce(ptr addrspace(1) %x, ptr addrspace(1) %out, i32 %per) {
entry:
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %b = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %d = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %first = mul i32 %b, %per
  br label %loop
loop:
  %i = phi i32 [ %t, %entry ], [ %i.next, %body ]
  %acc = phi float [ 0.0, %entry ], [ %acc.next, %body ]
  %in = icmp slt i32 %i, %per
  br i1 %in, label %body, label %warp
body:
  %j = add i32 %first, %i
  %p = getelementptr float, ptr addrspace(1) %x, i32 %j
  %v = load float, ptr addrspace(1) %p
  %acc.next = fadd float %acc, %v
  %i.next = add i32 %i, %d
  br label %loop
warp:
  %w = call float @sum_of_warp(float %acc)
  %lane = and i32 %t, 31
  %id = lshr i32 %t, 5
  %leader = icmp eq i32 %lane, 0
  br i1 %leader, label %put, label %join
put:
  %ps = getelementptr float, ptr addrspace(3) @sums, i32 %id
  store float %w, ptr addrspace(3) %ps
  br label %join
join:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  %is0 = icmp eq i32 %id, 0
  br i1 %is0, label %last, label %done
last:
  %warps = lshr i32 %d, 5
  %has = icmp slt i32 %lane, %warps
  br i1 %has, label %get, label %sum
get:
  %pl = getelementptr float, ptr addrspace(3) @sums, i32 %lane
  %l = load float, ptr addrspace(3) %pl
  br label %sum
sum:
  %part = phi float [ %l, %get ], [ 0.0, %last ]
  %all = call float @sum_of_warp(float %part)
  br i1 %leader, label %write, label %done
write:
  %po = getelementptr float, ptr addrspace(1) %out, i32 %b
  store float %all, ptr addrspace(1) %po
  br label %done
done:
  ret void
}
define internal float @sum_of_warp(float %a) {
  %a16 = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %a, i32 16, i32 31)
  %b = fadd float %a, %a16
  %b8 = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %b, i32 8, i32 31)
  %c = fadd float %b, %b8
  %c4 = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %c, i32 4, i32 31)
  %d = fadd float %c, %c4
  %d2 = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %d, i32 2, i32 31)
  %e = fadd float %d, %d2
  %e1 = call float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %e, i32 1, i32 31)
  %f = fadd float %e, %e1
  ret float %f
}
)";

TEST(Results, ReductionOfManyBlocks) {
  const auto module = MustLoad(kReduce);
  for (uint64_t seed : kSeeds) {
    constexpr int kBlocks = 48, kPer = 777;
    std::vector<float> x(kBlocks * kPer), want(kBlocks);
    for (size_t i = 0; i < x.size(); ++i) want[i / kPer] += x[i] = static_cast<float>(i % 13);
    Array<float> dx(x), out(kBlocks);
    LaunchCounts counts;
    ASSERT_THAT(LaunchKernel(*module, "reduce", {.grid = {kBlocks, 1, 1}, .block = {256, 1, 1}}, {.order_seed = seed}, &counts, dx.data(),
                             out.data(), kPer),
                Ok());
    EXPECT_THAT(out.Get(), ElementsAreArray(want));
    EXPECT_GT(counts.fibre_switches, kBlocks * 256 * 6);
  }
}

// C = A B of n x n, tiles of 16 x 16 in dynamic shared memory: A's, then B's.
constexpr char kMatmul[] = R"(
@tiles = external addrspace(3) global [0 x float], align 16
define ptx_kernel void @matmul(ptr addrspace(1) %a, ptr addrspace(1) %b, ptr addrspace(1) %c, i32 %n) {
entry:
  %tx = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ty = call i32 @llvm.nvvm.read.ptx.sreg.tid.y()
  %bx = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %by = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()
  %r0 = mul i32 %by, 16
  %row = add i32 %r0, %ty
  %c0 = mul i32 %bx, 16
  %col = add i32 %c0, %tx
  %own = mul i32 %ty, 16
  %mine = add i32 %own, %tx
  %pa = getelementptr float, ptr addrspace(3) @tiles, i32 %mine
  %pb = getelementptr float, ptr addrspace(3) %pa, i32 256
  br label %tile
tile:
  %k0 = phi i32 [ 0, %entry ], [ %k.next, %next ]
  %acc0 = phi float [ 0.0, %entry ], [ %acc.next, %next ]
  %rn = mul i32 %row, %n
  %ka = add i32 %k0, %tx
  %ia = add i32 %rn, %ka
  %ga = getelementptr float, ptr addrspace(1) %a, i32 %ia
  %va = load float, ptr addrspace(1) %ga
  store float %va, ptr addrspace(3) %pa
  %kb = add i32 %k0, %ty
  %kn = mul i32 %kb, %n
  %ib = add i32 %kn, %col
  %gb = getelementptr float, ptr addrspace(1) %b, i32 %ib
  %vb = load float, ptr addrspace(1) %gb
  store float %vb, ptr addrspace(3) %pb
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  br label %inner
inner:
  %k = phi i32 [ 0, %tile ], [ %k1, %inner ]
  %acc = phi float [ %acc0, %tile ], [ %acc.next, %inner ]
  %sa = add i32 %own, %k
  %qa = getelementptr float, ptr addrspace(3) @tiles, i32 %sa
  %xa = load float, ptr addrspace(3) %qa
  %kb16 = mul i32 %k, 16
  %sb = add i32 %kb16, %tx
  %qb0 = getelementptr float, ptr addrspace(3) @tiles, i32 %sb
  %qb = getelementptr float, ptr addrspace(3) %qb0, i32 256
  %xb = load float, ptr addrspace(3) %qb
  %acc.next = call float @llvm.fma.f32(float %xa, float %xb, float %acc)
  %k1 = add i32 %k, 1
  %more = icmp slt i32 %k1, 16
  br i1 %more, label %inner, label %next
next:
  SYNC
  %k.next = add i32 %k0, 16
  %again = icmp slt i32 %k.next, %n
  br i1 %again, label %tile, label %out
out:
  %ic = add i32 %rn, %col
  %gc = getelementptr float, ptr addrspace(1) %c, i32 %ic
  store float %acc.next, ptr addrspace(1) %gc
  ret void
}
declare float @llvm.fma.f32(float, float, float)
)";

std::string Replace(std::string text, const std::string& what, const std::string& with) {
  const size_t at = text.find(what);
  TENON_CHECK(at != std::string::npos, what);
  return text.replace(at, what.size(), with);
}

absl::Status RunMatmul(const EmulatedModule& module, uint64_t seed, std::vector<float>* got, std::vector<float>* want) {
  constexpr int kN = 48;
  std::vector<float> a(kN * kN), b(kN * kN);
  want->assign(kN * kN, 0);
  for (int i = 0; i < kN * kN; ++i) {
    a[i] = static_cast<float>(i % 5 - 2);
    b[i] = static_cast<float>(i % 7 - 3);
  }
  for (int i = 0; i < kN; ++i) {
    for (int k = 0; k < kN; ++k) {
      for (int j = 0; j < kN; ++j) (*want)[i * kN + j] += a[i * kN + k] * b[k * kN + j];
    }
  }
  Array<float> da(a), db(b), dc(kN * kN);
  const absl::Status status =
      LaunchKernel(module, "matmul", {.grid = {kN / 16, kN / 16, 1}, .block = {16, 16, 1}, .dynamic_shared_bytes = 2 * 256 * 4},
                   {.order_seed = seed}, nullptr, da.data(), db.data(), dc.data(), kN);
  *got = dc.Get();
  return status;
}

TEST(Results, TiledMatmul) {
  const auto module = MustLoad(Replace(kMatmul, "SYNC", "call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)"));
  for (uint64_t seed : kSeeds) {
    std::vector<float> got, want;
    ASSERT_THAT(RunMatmul(*module, seed, &got, &want), Ok());
    EXPECT_THAT(got, ElementsAreArray(want));
  }
}

// Without the second barrier a fast warp fills the next tile while a slow one still reads this one.
TEST(Results, TiledMatmulWithoutItsSecondBarrier) {
  const auto module = MustLoad(Replace(kMatmul, "SYNC", ""));
  for (uint64_t seed : kSeeds) {
    std::vector<float> got, want;
    EXPECT_THAT(RunMatmul(*module, seed, &got, &want), Fails(absl::StatusCode::kAborted, {"race: ", "the dynamic array", "kernel matmul"}));
  }
}

// 32 x 32 by way of a tile whose rows are WIDTH long; threads are 32 x 8.
constexpr char kTranspose[] = R"(
@tile = internal addrspace(3) global [32 x [WIDTH x float]] undef, align 4
define ptx_kernel void @transpose(ptr addrspace(1) noalias %x, ptr addrspace(1) noalias %y) {
entry:
  %tx = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ty = call i32 @llvm.nvvm.read.ptx.sreg.tid.y()
  br label %in
in:
  %r = phi i32 [ %ty, %entry ], [ %r.next, %in ]
  %r32 = mul i32 %r, 32
  %i = add i32 %r32, %tx
  %p = getelementptr float, ptr addrspace(1) %x, i32 %i
  %v = load float, ptr addrspace(1) %p
  %s = getelementptr [WIDTH x float], ptr addrspace(3) @tile, i32 %r, i32 %tx
  store float %v, ptr addrspace(3) %s
  %r.next = add i32 %r, 8
  %more = icmp slt i32 %r.next, 32
  br i1 %more, label %in, label %sync
sync:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  br label %out
out:
  %q = phi i32 [ %ty, %sync ], [ %q.next, %out ]
  %t = getelementptr [WIDTH x float], ptr addrspace(3) @tile, i32 %tx, i32 %q
  %w = load float, ptr addrspace(3) %t
  %q32 = mul i32 %q, 32
  %o = add i32 %q32, %tx
  %z = getelementptr float, ptr addrspace(1) %y, i32 %o
  store float %w, ptr addrspace(1) %z
  %q.next = add i32 %q, 8
  %again = icmp slt i32 %q.next, 32
  br i1 %again, label %out, label %done
done:
  ret void
}
)";

LaunchCounts RunTranspose(int width, uint64_t seed) {
  std::string text = kTranspose;
  for (size_t at; (at = text.find("WIDTH")) != std::string::npos;) text.replace(at, 5, std::to_string(width));
  const auto module = MustLoad(text);
  std::vector<float> x(1024), want(1024);
  std::iota(x.begin(), x.end(), 0.0f);
  for (int i = 0; i < 1024; ++i) want[i % 32 * 32 + i / 32] = x[i];
  Array<float> dx(x), dy(1024);
  LaunchCounts counts;
  EXPECT_THAT(
      LaunchKernel(*module, "transpose", {.block = {32, 8, 1}}, {.order_seed = seed, .count_memory = true}, &counts, dx.data(), dy.data()),
      Ok());
  EXPECT_THAT(dy.Get(), ElementsAreArray(want));
  return counts;
}

const SiteCounts& SiteOf(const LaunchCounts& counts, const std::string& start) {
  for (const SiteCounts& s : counts.sites) {
    if (s.instruction.rfind(start, 0) == 0) return s;
  }
  TENON_CHECK(false, "no site " + start);
  __builtin_unreachable();
}

// A column of 32 words in one bank is given in 32 turns; of rows that are one longer, in one.
TEST(Counts, BankConflictsOfATransposition) {
  for (uint64_t seed : kSeeds) {
    const LaunchCounts plain = RunTranspose(32, seed), padded = RunTranspose(33, seed);
    const SiteCounts &column = SiteOf(plain, "%w = load"), &padded_column = SiteOf(padded, "%w = load");
    EXPECT_EQ(column.warp_accesses, 32);
    EXPECT_EQ(column.extra_wavefronts, 32 * 31);
    EXPECT_EQ(padded_column.warp_accesses, 32);
    EXPECT_EQ(padded_column.extra_wavefronts, 0);
    EXPECT_EQ(SiteOf(plain, "store float %v").extra_wavefronts, 0);
    EXPECT_EQ(plain.extra_wavefronts, 32 * 31);
    EXPECT_EQ(plain.sectors, 2 * 32 * 4);  // 128 bytes a warp, in and out
    EXPECT_EQ(plain.sectors_needed, 2 * 32 * 4);
    EXPECT_EQ(plain.shared_bytes, 2 * 4096);
  }
}

// Words 8 bytes apart: half of each sector is for nothing. Bytes of 8 each: two turns are what they take anyway.
TEST(Counts, SectorsAndWideAccesses) {
  const auto module = MustLoad(R"(
@s = internal addrspace(3) global [64 x i64] undef, align 8
define ptx_kernel void @f(ptr addrspace(1) %x, i32 %stride) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %i = mul i32 %t, %stride
  %p = getelementptr float, ptr addrspace(1) %x, i32 %i
  store float 1.0, ptr addrspace(1) %p
  %q = getelementptr i64, ptr addrspace(3) @s, i32 %t
  store i64 1, ptr addrspace(3) %q
  ret void
})");
  Array<float> x(64);
  for (int stride : {1, 2}) {
    LaunchCounts counts;
    ASSERT_THAT(LaunchKernel(*module, "f", {.block = {32, 1, 1}}, {.count_memory = true}, &counts, x.data(), stride), Ok());
    EXPECT_EQ(counts.sectors, 4 * stride);
    EXPECT_EQ(counts.sectors_needed, 4);
    EXPECT_EQ(counts.extra_wavefronts, 0);
  }
}

// Lane operations against what the PTX ISA says, computed here.
TEST(Results, OperationsOfLanes) {
  const auto module = MustLoad(R"(
define ptx_kernel void @f(ptr addrspace(1) %out) {
  %lane = call i32 @llvm.nvvm.read.ptx.sreg.laneid()
  %v = mul i32 %lane, 10
  %down = call i32 @llvm.nvvm.shfl.sync.down.i32(i32 -1, i32 %v, i32 3, i32 31)
  %seg = call i32 @llvm.nvvm.shfl.sync.down.i32(i32 -1, i32 %v, i32 3, i32 6175)
  %up = call {i32, i1} @llvm.nvvm.shfl.sync.up.i32p(i32 -1, i32 %v, i32 2, i32 0)
  %upv = extractvalue {i32, i1} %up, 0
  %upp1 = extractvalue {i32, i1} %up, 1
  %upp = zext i1 %upp1 to i32
  %idx = call i32 @llvm.nvvm.shfl.sync.idx.i32(i32 -1, i32 %v, i32 5, i32 31)
  %odd = and i32 %lane, 1
  %isodd = icmp eq i32 %odd, 1
  %ballot = call i32 @llvm.nvvm.vote.ballot.sync(i32 -1, i1 %isodd)
  %match = call i32 @llvm.nvvm.match.any.sync.i32(i32 -1, i32 %odd)
  %sum = call i32 @llvm.nvvm.redux.sync.add(i32 %lane, i32 -1)
  %ones = call i32 @llvm.nvvm.barrier.cta.red.popc.aligned.all(i32 0, i1 %isodd)
  %all1 = call i1 @llvm.nvvm.vote.all.sync(i32 -1, i1 %isodd)
  %any1 = call i1 @llvm.nvvm.vote.any.sync(i32 -1, i1 %isodd)
  %all = zext i1 %all1 to i32
  %any = zext i1 %any1 to i32
  %p = getelementptr [10 x i32], ptr addrspace(1) %out, i32 %lane
  %p1 = getelementptr i32, ptr addrspace(1) %p, i32 1
  %p2 = getelementptr i32, ptr addrspace(1) %p, i32 2
  %p3 = getelementptr i32, ptr addrspace(1) %p, i32 3
  %p4 = getelementptr i32, ptr addrspace(1) %p, i32 4
  %p5 = getelementptr i32, ptr addrspace(1) %p, i32 5
  %p6 = getelementptr i32, ptr addrspace(1) %p, i32 6
  %p7 = getelementptr i32, ptr addrspace(1) %p, i32 7
  %p8 = getelementptr i32, ptr addrspace(1) %p, i32 8
  %p9 = getelementptr i32, ptr addrspace(1) %p, i32 9
  store i32 %down, ptr addrspace(1) %p
  store i32 %seg, ptr addrspace(1) %p1
  store i32 %upv, ptr addrspace(1) %p2
  store i32 %upp, ptr addrspace(1) %p3
  store i32 %idx, ptr addrspace(1) %p4
  store i32 %ballot, ptr addrspace(1) %p5
  store i32 %match, ptr addrspace(1) %p6
  store i32 %sum, ptr addrspace(1) %p7
  store i32 %ones, ptr addrspace(1) %p8
  %aa = shl i32 %all, 1
  %votes = or i32 %aa, %any
  store i32 %votes, ptr addrspace(1) %p9
  ret void
})");
  std::vector<int32_t> want;
  for (int lane = 0; lane < 32; ++lane) {
    const bool odd = lane % 2 == 1;
    want.push_back(10 * (lane + 3 < 32 ? lane + 3 : lane));
    want.push_back(10 * (lane % 8 + 3 < 8 ? lane + 3 : lane));  // 6175: segments of 8 lanes
    want.push_back(10 * (lane >= 2 ? lane - 2 : lane));
    want.push_back(lane >= 2);
    want.push_back(50);
    want.push_back(static_cast<int32_t>(0xaaaaaaaa));
    want.push_back(static_cast<int32_t>(odd ? 0xaaaaaaaa : 0x55555555));
    want.push_back(31 * 32 / 2);
    want.push_back(16);
    want.push_back(1);
  }
  for (uint64_t seed : kSeeds) {
    Array<int32_t> out(320);
    ASSERT_THAT(LaunchKernel(*module, "f", {.block = {32, 1, 1}}, {.order_seed = seed}, nullptr, out.data()), Ok());
    EXPECT_THAT(out.Get(), ElementsAreArray(want));
  }
}

// An index of more than 32 bits into 12 GiB, of which one page is touched.
TEST(Results, WideIndices) {
  const auto module = MustLoad(R"(
define ptx_kernel void @f(ptr addrspace(1) %x, i64 %i) {
  %p = getelementptr i32, ptr addrspace(1) %x, i64 %i
  store i32 42, ptr addrspace(1) %p
  ret void
}
define ptx_kernel void @narrow(ptr addrspace(1) %x, i64 %i) {
  %n = trunc i64 %i to i32
  %p = getelementptr i32, ptr addrspace(1) %x, i32 %n
  store i32 42, ptr addrspace(1) %p
  ret void
})");
  EmulatedMemory& memory = TheEmulatedMemory();
  void* x = memory.Allocate(size_t{12} << 30);
  ASSERT_NE(x, nullptr);
  const int64_t i = (int64_t{1} << 31) + 12345;
  ASSERT_THAT(LaunchKernel(*module, "f", {}, {}, nullptr, x, i), Ok());
  int32_t got = 0;
  ASSERT_THAT(memory.Read(&got, static_cast<int32_t*>(x) + i, 4), Ok());
  EXPECT_EQ(got, 42);
  EXPECT_THAT(LaunchKernel(*module, "narrow", {}, {}, nullptr, x, i),
              Fails(absl::StatusCode::kOutOfRange, {"out of bounds: write of 4 bytes"}));
  memory.Free(x);
}

// Lanes of a mask that are off neither read nor write: the array ends behind the fifth.
TEST(Results, MaskedAccesses) {
  const auto module = MustLoad(R"(
define ptx_kernel void @f(ptr addrspace(1) %x, ptr addrspace(1) %y, i32 %n) {
  %b = insertelement <8 x i32> poison, i32 %n, i32 0
  %all = shufflevector <8 x i32> %b, <8 x i32> poison, <8 x i32> zeroinitializer
  %m = icmp slt <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>, %all
  %v = call <8 x float> @llvm.masked.load.v8f32.p1(ptr addrspace(1) align 4 %x, <8 x i1> %m, <8 x float> zeroinitializer)
  %w = fadd <8 x float> %v, splat (float 1.0)
  call void @llvm.masked.store.v8f32.p1(<8 x float> %w, ptr addrspace(1) align 4 %y, <8 x i1> %m)
  ret void
}
declare <8 x float> @llvm.masked.load.v8f32.p1(ptr addrspace(1), <8 x i1>, <8 x float>)
declare void @llvm.masked.store.v8f32.p1(<8 x float>, ptr addrspace(1), <8 x i1>)
)");
  Array<float> x(std::vector<float>{1, 2, 3, 4, 5}), y(5);
  ASSERT_THAT(LaunchKernel(*module, "f", {}, {}, nullptr, x.data(), y.data(), 5), Ok());
  EXPECT_THAT(y.Get(), ElementsAreArray({2.0f, 3.0f, 4.0f, 5.0f, 6.0f}));
  EXPECT_THAT(
      LaunchKernel(*module, "f", {}, {}, nullptr, x.data(), y.data(), 6),
      Fails(absl::StatusCode::kOutOfRange, {"out of bounds: read of 4 bytes", "0 bytes behind the end of an allocation of 20 bytes"}));
}

// A table in constant memory, a local array, memcpy, 16-bit arithmetic, atomics from all blocks.
TEST(Results, OtherMemories) {
  const auto module = MustLoad(R"(
@table = internal unnamed_addr addrspace(4) constant [4 x i32] [i32 3, i32 1, i32 4, i32 1], align 4
define ptx_kernel void @f(ptr addrspace(1) %out, ptr addrspace(1) %count) {
  %local = alloca [4 x i32], align 4
  %g = addrspacecast ptr addrspace(4) @table to ptr
  call void @llvm.memcpy.p0.p0.i64(ptr align 4 %local, ptr align 4 %g, i64 16, i1 false)
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %k = and i32 %t, 3
  %p = getelementptr i32, ptr %local, i32 %k
  %v = load i32, ptr %p
  %vf = sitofp i32 %v to bfloat
  %wf = fmul bfloat %vf, 2.5
  %w = fptosi bfloat %wf to i32
  %q = getelementptr i32, ptr addrspace(1) %out, i32 %t
  %b = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %first = icmp eq i32 %b, 0
  br i1 %first, label %put, label %add
put:
  store i32 %w, ptr addrspace(1) %q
  br label %add
add:
  %old = atomicrmw add ptr addrspace(1) %count, i32 1 syncscope("device") monotonic
  ret void
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
)");
  for (uint64_t seed : kSeeds) {
    Array<int32_t> out(4), count(std::vector<int32_t>{0});
    LaunchCounts counts;
    ASSERT_THAT(
        LaunchKernel(*module, "f", {.grid = {5, 1, 1}, .block = {4, 1, 1}}, {.order_seed = seed}, &counts, out.data(), count.data()), Ok());
    EXPECT_THAT(out.Get(), ElementsAreArray({7, 2, 10, 2}));
    EXPECT_THAT(count.Get(), ElementsAreArray({20}));
    EXPECT_EQ(counts.atomics, 20);
    EXPECT_EQ(counts.constant_bytes, 20 * 16);
  }
}

// Blocks, or threads, that overwrite one word (by atomics): the last one differs with the seed, and not between equal seeds.
class Orders : public testing::TestWithParam<std::string> {};

TEST_P(Orders, DependOnTheSeedAlone) {
  const bool threads = GetParam() == "tid";
  const LaunchConfig config{.grid = {threads ? 1 : 100, 1, 1}, .block = {threads ? 100 : 1, 1, 1}};
  const auto module = MustLoad(Replace(R"(
define ptx_kernel void @f(ptr addrspace(1) %out) {
  %b = call i32 @llvm.nvvm.read.ptx.sreg.REGISTER.x()
  %old = atomicrmw xchg ptr addrspace(1) %out, i32 %b monotonic
  ret void
})",
                                       "REGISTER", GetParam()));
  std::vector<int32_t> last;
  for (uint64_t seed : {0, 1, 2, 3, 4, 5, 1}) {
    Array<int32_t> out(std::vector<int32_t>{-1});
    ASSERT_THAT(LaunchKernel(*module, "f", config, {.order_seed = seed}, nullptr, out.data()), Ok());
    last.push_back(out.Get()[0]);
  }
  EXPECT_EQ(last[0], 99);
  EXPECT_EQ(last[1], last[6]);
  EXPECT_GT(std::set<int32_t>(last.begin(), last.end()).size(), 3u);
}
INSTANTIATE_TEST_SUITE_P(Of, Orders, testing::Values("ctaid", "tid"), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tenon::gpu
