#include "tools/lab/gpu/host_functions.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tools/lab/gpu/host_math.h"
#include "tools/lab/gpu/machine.h"

namespace tenon::gpu {
namespace {

constexpr const char* kRegisters[] = {"tid.x",       "tid.y",       "tid.z",       "ntid.x",           "ntid.y",      "ntid.z",
                                      "ctaid.x",     "ctaid.y",     "ctaid.z",     "nctaid.x",         "nctaid.y",    "nctaid.z",
                                      "laneid",      "warpid",      "nwarpid",     "warpsize",         "lanemask.eq", "lanemask.le",
                                      "lanemask.lt", "lanemask.ge", "lanemask.gt", "dynamic_smem_size"};

uint32_t HostRegister(uint32_t index) {
  const Machine& m = TheMachine();
  const Thread& t = m.current();
  const LaunchConfig& c = m.config();
  if (index < 12) {
    const uint32_t d = index % 3;
    switch (index / 3) {
      case 0:
        return t.id[d];
      case 1:
        return static_cast<uint32_t>(c.block[d]);
      case 2:
        return m.block()[d];
      default:
        return static_cast<uint32_t>(c.grid[d]);
    }
  }
  const uint32_t lane = 1u << t.lane;
  switch (index) {
    case 12:
      return t.lane;
    case 13:
      return t.warp;
    case 14:
      return (m.threads() + 31) / 32;
    case 15:
      return 32;
    case 16:
      return lane;
    case 17:
      return lane | (lane - 1);
    case 18:
      return lane - 1;
    case 19:
      return ~(lane - 1);
    case 20:
      return ~(lane | (lane - 1));
    default:
      return static_cast<uint32_t>(c.dynamic_shared_bytes);
  }
}

void HostAccess(const void* address, uint32_t site) {
  Machine& m = TheMachine();
  m.Access(reinterpret_cast<uintptr_t>(address), m.site(site).size, site);
}
void HostAccessRange(const void* address, uint64_t bytes, uint32_t site) {
  TheMachine().Access(reinterpret_cast<uintptr_t>(address), bytes, site);
}
void HostStep(uint32_t site) { TheMachine().Step(site); }
void HostEnter(uint32_t site) { TheMachine().EnterFunction(__builtin_frame_address(0), site); }
void HostLocal(const void* address, uint64_t bytes) { TheMachine().AddLocal(reinterpret_cast<uintptr_t>(address), bytes); }
void HostLocalsGone(uint32_t n) { TheMachine().DropLocals(n); }
void HostDivide(bool undefined, uint32_t site) {
  if (undefined) {
    TheMachine().Fail(absl::StatusCode::kFailedPrecondition, "undefined division: by zero, or of the least integer by -1", site);
  }
}
void HostTrap(uint32_t site) { TheMachine().Fail(absl::StatusCode::kFailedPrecondition, "trap", site); }
uint32_t HostBarrier(uint32_t id, uint32_t count, uint32_t kind, uint32_t predicate, bool aligned, uint32_t site) {
  return TheMachine().Barrier(id, count, static_cast<BarrierKind>(kind), predicate, aligned, site);
}
uint64_t HostWarp(uint32_t op, uint32_t mask, uint64_t a, uint32_t b, uint32_t c, uint32_t site) {
  WarpArgs args;
  args.a = a;
  args.b = b;
  args.c = c;
  return TheMachine().Collective(static_cast<WarpOp>(op), mask, args, site);
}
// What is ".sync.aligned": of the whole warp.
void HostFragments(uint32_t op, uint32_t b, uint32_t c, const void* in, void* out, uint32_t site) {
  Machine& m = TheMachine();
  const auto which = static_cast<WarpOp>(op);
  if (which == WarpOp::kLoadMatrix && m.current().lane < 8 * b) m.Access(reinterpret_cast<uintptr_t>(in), 16, site);
  WarpArgs args;
  args.b = b;
  args.c = c;
  args.in = in;
  args.out = out;
  m.Collective(which, ~uint32_t{0}, args, site);
}

void HostCopy(const void* to, const void* from, uint32_t bytes, uint32_t from_bytes, uint32_t site) {
  const AsyncCopy copy = {reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from), bytes, std::min(bytes, from_bytes), site};
  TheMachine().BeginCopy(copy);
}
void HostCopiesCommit() { TheMachine().CommitCopies(); }
void HostCopiesWait(uint32_t groups) {
  if (groups == ~uint32_t{0}) {
    TheMachine().WaitForAllCopies();
  } else {
    TheMachine().WaitForCopies(groups);
  }
}

uint32_t PackHalves(float high, float low) { return uint32_t{DoubleToHalf(high)} << 16 | DoubleToHalf(low); }
uint32_t PackBfloats(float high, float low) { return uint32_t{DoubleToBfloat(high)} << 16 | DoubleToBfloat(low); }
// To 10 bits of mantissa: to nearest, ties away from zero, or to even.
uint32_t ToTf32Away(float x) { return std::isfinite(x) ? (std::bit_cast<uint32_t>(x) + 0x1000) & ~0x1fffu : std::bit_cast<uint32_t>(x); }
uint32_t ToTf32Even(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return std::isfinite(x) ? (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu : bits;
}

// What LLVM calls to round to 16 bits, where the host has no instruction: results are the low 16 bits of xmm0.
float AsResult(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits}); }
float FloatToHalf(float x) { return AsResult(DoubleToHalf(x)); }
float DoubleToHalfResult(double x) { return AsResult(DoubleToHalf(x)); }
float FloatToBfloat(float x) { return AsResult(DoubleToBfloat(x)); }
float DoubleToBfloatResult(double x) { return AsResult(DoubleToBfloat(x)); }
float HalfArgumentToFloat(float x) { return HalfToFloat(static_cast<uint16_t>(std::bit_cast<uint32_t>(x))); }

float Fmodf(float x, float y) { return std::fmod(x, y); }
double Fmod(double x, double y) { return std::fmod(x, y); }
float Fmaf(float x, float y, float z) { return std::fma(x, y, z); }
double Fma(double x, double y, double z) { return std::fma(x, y, z); }

template <typename F>
void* Pointer(F* f) {
  return reinterpret_cast<void*>(f);
}

}  // namespace

int RegisterIndex(const std::string& name) {
  for (size_t i = 0; i < std::size(kRegisters); ++i) {
    if (name == kRegisters[i]) return static_cast<int>(i);
  }
  return -1;
}

std::vector<std::pair<std::string, void*>> HostFunctions() {
  std::vector<std::pair<std::string, void*>> functions = {
      {"tenon_access", Pointer(HostAccess)},
      {"tenon_access_range", Pointer(HostAccessRange)},
      {"tenon_step", Pointer(HostStep)},
      {"tenon_enter", Pointer(HostEnter)},
      {"tenon_local", Pointer(HostLocal)},
      {"tenon_locals_gone", Pointer(HostLocalsGone)},
      {"tenon_divide", Pointer(HostDivide)},
      {"tenon_trap", Pointer(HostTrap)},
      {"tenon_register", Pointer(HostRegister)},
      {"tenon_barrier", Pointer(HostBarrier)},
      {"tenon_warp", Pointer(HostWarp)},
      {"tenon_fragments", Pointer(HostFragments)},
      {"tenon_copy", Pointer(HostCopy)},
      {"tenon_copies_commit", Pointer(HostCopiesCommit)},
      {"tenon_copies_wait", Pointer(HostCopiesWait)},
      {"tenon_math_fma.rn.ftz.f", Pointer(FmaFlushed)},
      {"tenon_math_ff2f16x2.rn", Pointer(PackHalves)},
      {"tenon_math_ff2bf16x2.rn", Pointer(PackBfloats)},
      {"tenon_math_f2tf32.rna", Pointer(ToTf32Away)},
      {"tenon_math_f2tf32.rn", Pointer(ToTf32Even)},
      // What code for x86-64 calls by itself.
      {"memcpy", Pointer(static_cast<void* (*)(void*, const void*, size_t)>(std::memcpy))},
      {"memmove", Pointer(static_cast<void* (*)(void*, const void*, size_t)>(std::memmove))},
      {"memset", Pointer(static_cast<void* (*)(void*, int, size_t)>(std::memset))},
      {"fmodf", Pointer(Fmodf)},
      {"fmod", Pointer(Fmod)},
      {"fmaf", Pointer(Fmaf)},
      {"fma", Pointer(Fma)},
      {"__truncsfhf2", Pointer(FloatToHalf)},
      {"__truncdfhf2", Pointer(DoubleToHalfResult)},
      {"__truncsfbf2", Pointer(FloatToBfloat)},
      {"__truncdfbf2", Pointer(DoubleToBfloatResult)},
      {"__extendhfsf2", Pointer(HalfArgumentToFloat)},
  };
  for (const UnaryMath& f : UnaryMathTable()) {
    functions.emplace_back(absl::StrCat("tenon_math_", f.intrinsic), f.f32 != nullptr ? Pointer(f.f32) : Pointer(f.f64));
  }
  return functions;
}

}  // namespace tenon::gpu
