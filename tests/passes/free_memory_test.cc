// Memory that holds nothing while an instruction runs: of drawn plans the longest run, by looking at every 64 bytes.
#include "passes/memory/free_memory.h"

#include <gtest/gtest.h>

#include <random>

#include "hlo/arena.h"
#include "passes/memory/pack_arena.h"

namespace tenon {
namespace {

// A module of so many parameters, whose positions a drawn plan makes up.
struct Positions {
  Module module{"positions"};
  explicit Positions(BufferPlan* plan, int64_t count) {
    Computation* entry = module.AddComputation("main");
    for (int64_t k = 0; k < count; ++k) {
      ops.push_back(entry->AddParameter(k, Shape::Array(PrimitiveType::kF32, {1}), "p"));
      plan->positions.emplace(ops.back(), k);
    }
  }
  std::vector<const Instruction*> ops;
};

// By 64 bytes of the memory of `lender` (-1: the arena): is anything there at position `at`?
std::vector<bool> TakenAt(const BufferPlan& plan, int32_t lender, int64_t bytes, int64_t at) {
  std::vector<bool> taken(static_cast<size_t>(bytes / kArenaAlignment));
  for (const Allocation& a : plan.allocations) {
    if (a.kind != Allocation::Kind::kArena || a.lender != lender || a.space != 0 || at < a.first || at > a.last) continue;
    const int64_t end = std::min<int64_t>(AlignedUp(a.offset + a.bytes.constant()), bytes) / kArenaAlignment;
    for (int64_t k = a.offset / kArenaAlignment; k < end; ++k) taken[static_cast<size_t>(k)] = true;
  }
  return taken;
}

int64_t LongestRun(const std::vector<bool>& taken) {
  int64_t longest = 0, run = 0;
  for (bool t : taken) longest = std::max(longest, run = t ? 0 : run + 1);
  return longest * kArenaAlignment;
}

TEST(FreeMemory, IsTheLongestRunOfDrawnPlans) {
  int in_arena = 0, in_outputs = 0, none = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    auto below = [&](uint32_t n) { return static_cast<int64_t>(random() % n); };
    BufferPlan plan;
    const int64_t length = 2 + below(20), count = below(24);
    const Positions positions(&plan, length);
    for (int64_t k = 0; k < count; ++k) {
      const int64_t first = below(static_cast<uint32_t>(length)), last = first + below(static_cast<uint32_t>(length - first));
      const bool output = k % 8 == 5;
      const int64_t bytes = output ? below(200) * 64 : below(40) * (k % 3 == 0 ? 64 : 20);
      plan.allocations.push_back({.kind = output ? Allocation::Kind::kOutput : Allocation::Kind::kArena,
                                  .bytes = bytes, .first = first, .last = output ? length : last,
                                  .space = k % 11 == 10 ? 1 : 0});
    }
    PackArena(&plan);
    for (int64_t at = 0; at < length; ++at) {
      const MemoryRun found = FreeMemoryAt(plan, positions.ops[static_cast<size_t>(at)]);
      int64_t longest = LongestRun(TakenAt(plan, -1, plan.arena_bytes, at));
      for (size_t k = 0; k < plan.allocations.size(); ++k) {
        const Allocation& a = plan.allocations[k];
        if (a.kind != Allocation::Kind::kOutput || a.first <= at || a.space != 0) continue;
        longest = std::max(longest, LongestRun(TakenAt(plan, static_cast<int32_t>(k), a.bytes.constant(), at)));
      }
      EXPECT_EQ(found.bytes, longest) << "seed " << seed << " at " << at << "\n" << plan.ToString();
      none += found.bytes == 0;
      if (found.bytes == 0) continue;
      (found.lender < 0 ? in_arena : in_outputs) += 1;
      const int64_t size = found.lender < 0 ? plan.arena_bytes : plan.allocations[static_cast<size_t>(found.lender)].bytes.constant();
      ASSERT_LE(found.offset + found.bytes, size) << seed;
      const std::vector<bool> taken = TakenAt(plan, found.lender, size, at);
      for (int64_t b = found.offset; b < found.offset + found.bytes; b += kArenaAlignment) {
        ASSERT_FALSE(taken[static_cast<size_t>(b / kArenaAlignment)]) << "seed " << seed << " at " << at << "\n" << plan.ToString();
      }
    }
  }
  EXPECT_GT(in_arena, 300);
  EXPECT_GT(in_outputs, 300);
  EXPECT_GT(none, 100);
}

TEST(FreeMemory, NoneWhereCallsPlaceTheBuffers) {
  BufferPlan plan;
  const Positions positions(&plan, 3);
  plan.allocations = {{.bytes = 640, .first = 0, .last = 0}, {.bytes = 64, .first = 1, .last = 1}};
  PackArena(&plan);
  EXPECT_EQ(FreeMemoryAt(plan, positions.ops[0]).bytes, 0);
  EXPECT_EQ(FreeMemoryAt(plan, positions.ops[1]).bytes, 576);
  EXPECT_EQ(FreeMemoryAt(plan, positions.ops[2]).bytes, 640);
  plan.symbolic_arenas.insert(0);
  EXPECT_EQ(FreeMemoryAt(plan, positions.ops[2]).bytes, 0);
}

}  // namespace
}  // namespace tenon
