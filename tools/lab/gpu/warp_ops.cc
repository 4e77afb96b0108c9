// Operations of several lanes: they wait for their mask, then all are done at once.
#include <array>
#include <bit>
#include <cstring>

#include "absl/strings/str_format.h"
#include "tools/lab/gpu/machine.h"
#include "tools/lab/gpu/mma.h"

namespace tenon::gpu {
namespace {

using Lanes = std::array<WarpArgs*, 32>;  // null: not in the mask
constexpr uint64_t kPredicate = uint64_t{1} << 32;

template <typename F>
void ForEach(uint32_t mask, F&& f) {
  for (; mask != 0; mask &= mask - 1) f(static_cast<uint32_t>(std::countr_zero(mask)));
}

// PTX ISA, shfl.sync: the lane that `lane` reads, and whether that lies within its segment.
std::pair<uint32_t, bool> Source(WarpOp op, uint32_t lane, uint32_t b, uint32_t c) {
  const uint32_t value = b & 31, clamp = c & 31, segment = c >> 8 & 31;
  const uint32_t last = (lane & segment) | (clamp & ~segment), first = lane & segment;
  const int32_t from = op == WarpOp::kShuffleUp     ? static_cast<int32_t>(lane) - static_cast<int32_t>(value)
                       : op == WarpOp::kShuffleDown ? static_cast<int32_t>(lane + value)
                       : op == WarpOp::kShuffleXor  ? static_cast<int32_t>(lane ^ value)
                                                    : static_cast<int32_t>(first | (value & ~segment));
  const auto limit = static_cast<int32_t>(last);
  const bool within = op == WarpOp::kShuffleUp ? from >= limit : from <= limit;
  return {within ? static_cast<uint32_t>(from) : lane, within};
}

uint32_t Combine(WarpOp op, uint32_t x, uint32_t y) {
  const auto sx = static_cast<int32_t>(x), sy = static_cast<int32_t>(y);
  switch (op) {
    case WarpOp::kReduceAdd:
      return x + y;
    case WarpOp::kReduceMin:
      return sx < sy ? x : y;
    case WarpOp::kReduceMax:
      return sx > sy ? x : y;
    case WarpOp::kReduceUMin:
      return x < y ? x : y;
    case WarpOp::kReduceUMax:
      return x > y ? x : y;
    case WarpOp::kReduceAnd:
      return x & y;
    case WarpOp::kReduceOr:
      return x | y;
    default:
      return x ^ y;
  }
}

void Vote(WarpOp op, uint32_t mask, const Lanes& lanes) {
  uint32_t ballot = 0;
  ForEach(mask, [&](uint32_t lane) { ballot |= lanes[lane]->a != 0 ? 1u << lane : 0; });
  const uint32_t result = op == WarpOp::kVoteAll   ? ballot == mask
                          : op == WarpOp::kVoteAny ? ballot != 0
                          : op == WarpOp::kBallot  ? ballot
                                                   : ballot == mask || ballot == 0;
  ForEach(mask, [&](uint32_t lane) { lanes[lane]->result = result; });
}

void Match(WarpOp op, uint32_t mask, const Lanes& lanes) {
  ForEach(mask, [&](uint32_t lane) {
    uint32_t equal = 0;
    ForEach(mask, [&](uint32_t other) { equal |= lanes[other]->a == lanes[lane]->a ? 1u << other : 0; });
    const bool all = equal == mask;
    lanes[lane]->result = op == WarpOp::kMatchAny ? equal : all ? mask | kPredicate : 0;
  });
}

void Reduce(WarpOp op, uint32_t mask, const Lanes& lanes) {
  const auto first = static_cast<uint32_t>(std::countr_zero(mask));
  auto result = static_cast<uint32_t>(lanes[first]->a);
  ForEach(mask & (mask - 1), [&](uint32_t lane) { result = Combine(op, result, static_cast<uint32_t>(lanes[lane]->a)); });
  ForEach(mask, [&](uint32_t lane) { lanes[lane]->result = result; });
}

void Multiply(const Lanes& lanes) {
  std::array<const uint32_t*, 32> in;
  std::array<uint32_t*, 32> out;
  for (int lane = 0; lane < 32; ++lane) {
    in[lane] = static_cast<const uint32_t*>(lanes[lane]->in);
    out[lane] = static_cast<uint32_t*>(lanes[lane]->out);
  }
  MultiplyFragments(MmaShape::Decode(lanes[0]->b), in, out);
}

// ldmatrix: lane 8 m + r has the address of row r (16 bytes) of matrix m; lane i gets two elements of row i / 4, or of column i / 4.
void LoadMatrices(const Lanes& lanes) {
  const uint32_t matrices = lanes[0]->b;
  const bool transposed = lanes[0]->c != 0;
  for (uint32_t m = 0; m < matrices; ++m) {
    for (uint32_t lane = 0; lane < 32; ++lane) {
      std::array<uint16_t, 2> pair;
      for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t along = lane % 4 * 2 + i, across = lane / 4;
        const uint32_t row = transposed ? along : across, column = transposed ? across : along;
        std::memcpy(&pair[i], static_cast<const char*>(lanes[8 * m + row]->in) + 2 * column, 2);
      }
      std::memcpy(static_cast<uint32_t*>(lanes[lane]->out) + m, pair.data(), 4);
    }
  }
}

}  // namespace

const char* WarpOpName(WarpOp op) {
  static constexpr const char* kNames[] = {
#define TENON_WARP_OP(name, text) text,
#include "tools/lab/gpu/warp_ops.def"
  };
  return kNames[static_cast<uint32_t>(op)];
}

uint64_t Machine::Collective(WarpOp op, uint32_t mask, WarpArgs& args, uint32_t site) {
  Thread& t = *current_;
  Warp& w = warps_[t.warp];
  const auto bad = [&](const char* what, uint32_t lanes) {
    Fail(absl::StatusCode::kFailedPrecondition,
         absl::StrFormat("bad mask: %s of lane %d with mask 0x%08x %s (0x%08x)", WarpOpName(op), t.lane, mask, what, lanes), site);
  };
  if ((mask >> t.lane & 1) == 0) bad("doesn't name the lane itself", 1u << t.lane);
  if ((mask & ~w.lanes) != 0) bad("names lanes that the block doesn't have", mask & ~w.lanes);
  if ((mask & w.exited) != 0) bad("names lanes that have exited", mask & w.exited);
  size_t g = 0;
  while (g < w.groups.size() && !(w.groups[g].op == op && w.groups[g].mask == mask && w.groups[g].site == site)) ++g;
  if (g == w.groups.size()) w.groups.push_back({op, mask, site, 0});
  w.groups[g].arrived |= 1u << t.lane;
  t.state = Thread::State::kAtWarpOp;
  t.site = site;
  t.mask = mask;
  t.op = op;
  t.args = &args;
  if (w.groups[g].arrived == mask) {
    w.groups.erase(w.groups.begin() + static_cast<ptrdiff_t>(g));
    Complete(op, mask, t.warp, site);
  }
  SwitchToNext();
  return args.result;
}

void Machine::Complete(WarpOp op, uint32_t mask, uint32_t warp, uint32_t site) {
  Lanes lanes{};
  std::array<uint32_t, 32> threads;
  size_t n = 0;
  ForEach(mask, [&](uint32_t lane) {
    threads[n++] = warp * 32 + lane;
    lanes[lane] = threads_[warp * 32 + lane].args;
  });
  switch (op) {
    case WarpOp::kSync:
      Synchronize({threads.data(), n});
      break;
    case WarpOp::kShuffleUp:
    case WarpOp::kShuffleDown:
    case WarpOp::kShuffleXor:
    case WarpOp::kShuffleIndex:
      ForEach(mask, [&](uint32_t lane) {
        const auto [from, within] = Source(op, lane, lanes[lane]->b, lanes[lane]->c);
        if (lanes[from] == nullptr) {
          Fail(absl::StatusCode::kFailedPrecondition,
               absl::StrFormat("bad source lane: lane %d reads lane %d by %s, which mask 0x%08x doesn't name", lane, from, WarpOpName(op),
                               mask),
               site);
        }
        lanes[lane]->result = (lanes[from]->a & 0xffffffff) | (within ? kPredicate : 0);
      });
      break;
    case WarpOp::kVoteAll:
    case WarpOp::kVoteAny:
    case WarpOp::kVoteUniform:
    case WarpOp::kBallot:
      Vote(op, mask, lanes);
      break;
    case WarpOp::kMatchAny:
    case WarpOp::kMatchAll:
      Match(op, mask, lanes);
      break;
    case WarpOp::kMma:
      Multiply(lanes);
      break;
    case WarpOp::kLoadMatrix:
      LoadMatrices(lanes);
      break;
    default:
      Reduce(op, mask, lanes);
  }
  Enqueue(absl::MakeSpan(threads.data(), n));
}

}  // namespace tenon::gpu
