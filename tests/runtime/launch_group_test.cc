// Launch groups: which kernels join, and that a run of them computes the same for any number of threads.
#include "runtime/execute/launch_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <numeric>

#include "runtime/execute/executable.h"
#include "runtime/guarded_memory.h"
#include "tests/runtime/fakes.h"

namespace tenon::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
constexpr PrimitiveType kF = PrimitiveType::kF32;
constexpr int64_t kGrain = 1000;

Program Empty() {
  Program p;
  p.name = "groups";
  p.regions.push_back({.name = "main"});
  return p;
}

// out = in + 1 per pair, each too small for a launch.
struct Pairs {
  Program program = Empty();
  std::vector<int64_t> sizes;
  std::vector<int32_t> ins, outs;

  explicit Pairs(std::vector<int64_t> n) : sizes(std::move(n)) {
    const int32_t add = AddKernel(program, "add_one");
    for (int64_t size : sizes) {
      ins.push_back(AddInput(program, kF, {size}));
      outs.push_back(AddOutput(program, kF, {size}));
      program.regions[0].steps.push_back(
          KernelCall(add, {MakeView(ins.back(), kF, {size}), MakeView(outs.back(), kF, {size})}, size, kGrain));
    }
  }
};

std::vector<LaunchGroup> GroupsOf(const Program& p) { return FindLaunchGroups(p, p.regions[0]); }

TEST(LaunchGroup, IndependentSmallKernelsJoin) {
  const Pairs pairs({900, 50, 1, 700, 1500});
  const std::vector<LaunchGroup> groups = GroupsOf(pairs.program);
  ASSERT_EQ(groups.size(), 1);
  EXPECT_EQ(groups[0].first, 0);
  EXPECT_EQ(groups[0].count, 5);
  EXPECT_THAT(groups[0].work, ElementsAre(230, 12, 1, 179, 384));
}

TEST(LaunchGroup, LittleWorkAndLargeKernelsStayAlone) {
  EXPECT_TRUE(GroupsOf(Pairs({900, 900}).program).empty()) << "less than two threads' worth";
  EXPECT_TRUE(GroupsOf(Pairs({5000}).program).empty());
  EXPECT_TRUE(GroupsOf(Pairs({1500, 50 * kGrain, 1500}).program).empty()) << "the large one parts the others";
  EXPECT_EQ(GroupsOf(Pairs({1500, 1500, 50 * kGrain}).program).size(), 1);
}

// Kernel 1 reads what 0 writes; 2 writes over what 1 reads; 3 writes what 2 writes.
TEST(LaunchGroup, WhatOneWritesParts) {
  constexpr int64_t n = 2 * kGrain;
  Program p = Empty();
  const int32_t in = AddInput(p, kF, {n}), out = AddOutput(p, kF, {n}), other = AddOutput(p, kF, {n});
  p.arena_bytes = 8 * n;
  const int32_t a = AddValue(p, ValueKind::kArena, 0, 4 * n), b = AddValue(p, ValueKind::kArena, 0, 4 * n, 4 * n);
  const int32_t half = AddValue(p, ValueKind::kArena, 0, 4 * n, 2 * n);
  const int32_t add = AddKernel(p, "add_one");
  auto call = [&](int32_t from, int32_t to) {
    p.regions[0].steps.push_back(KernelCall(add, {MakeView(from, kF, {n}), MakeView(to, kF, {n})}, n, kGrain));
  };
  auto grouped = [&](int32_t from0, int32_t to0, int32_t from1, int32_t to1) {
    p.regions[0].steps.clear();
    call(from0, to0), call(from1, to1);
    return !GroupsOf(p).empty();
  };
  EXPECT_TRUE(grouped(in, a, in, b)) << "both read the same";
  EXPECT_TRUE(grouped(in, a, b, out));
  EXPECT_FALSE(grouped(in, a, a, out)) << "read after write";
  EXPECT_FALSE(grouped(a, out, in, a)) << "write after read";
  EXPECT_FALSE(grouped(in, a, in, a)) << "write after write";
  EXPECT_FALSE(grouped(in, a, half, out)) << "part of it";
  EXPECT_FALSE(grouped(in, out, out, other));
  const int32_t lent = AddValue(p, ValueKind::kLent, 0, 2 * n), behind = AddValue(p, ValueKind::kLent, 0, 2 * n, 2 * n);
  EXPECT_TRUE(grouped(in, lent, in, behind)) << "two places of one output's memory";
  EXPECT_FALSE(grouped(lent, a, in, out)) << "written over by the output's own value";
  EXPECT_FALSE(grouped(behind, a, in, out));
  EXPECT_TRUE(grouped(lent, a, in, other));
}

// What the first kernel touches is cut out of the second one's room.
TEST(LaunchGroup, ScratchIsWhereNoneOfThemReadsOrWrites) {
  constexpr int64_t n = 2 * kGrain, kBytes = 4 * n;
  static_assert(kBytes % kArenaAlignment == 0);
  Program p = Empty();
  const int32_t in = AddInput(p, kF, {n}), out = AddOutput(p, kF, {n}), other = AddOutput(p, kF, {n});
  AddOutput(p, kF, {8 * n});  // output 2
  p.arena_bytes = 8 * kBytes;
  const int32_t third = AddValue(p, ValueKind::kArena, 0, kBytes, 2 * kBytes), lent = AddValue(p, ValueKind::kLent, 2, kBytes - 60);
  const int32_t add = AddKernel(p, "add_one", 64);
  auto room = [&](int32_t from, int32_t to, FreeMemory first, FreeMemory second) {
    p.regions[0].steps = {KernelCall(add, {MakeView(from, kF, {n}), MakeView(to, kF, {n})}, n, kGrain),
                          KernelCall(add, {MakeView(in, kF, {n}), MakeView(other, kF, {n})}, n, kGrain)};
    std::get<KernelStep>(p.regions[0].steps[0].body).room = first;
    std::get<KernelStep>(p.regions[0].steps[1].body).room = second;
    const std::vector<LaunchGroup> groups = GroupsOf(p);
    EXPECT_EQ(groups.size(), 1);
    const FreeMemory found = groups.empty() ? FreeMemory() : groups[0].room;
    return std::tuple(found.output, found.offset, found.bytes);
  };
  constexpr FreeMemory kNone, kArena = {-1, 0, 8 * kBytes};
  EXPECT_EQ(room(in, out, kNone, kNone), std::tuple(-1, 0, 0));
  EXPECT_EQ(room(in, out, kNone, kArena), std::tuple(-1, 0, 8 * kBytes));
  EXPECT_EQ(room(in, third, kNone, kArena), std::tuple(-1, 3 * kBytes, 5 * kBytes)) << "behind what is written";
  EXPECT_EQ(room(third, out, kNone, {-1, 64, 4 * kBytes}), std::tuple(-1, 64, 2 * kBytes - 64)) << "before what is read";
  EXPECT_EQ(room(third, out, kNone, {-1, 2 * kBytes + 64, 640}), std::tuple(-1, 0, 0)) << "all of it is taken";
  EXPECT_EQ(room(in, third, {-1, 0, kBytes}, {2, 0, 8 * kBytes}), std::tuple(2, 0, 8 * kBytes)) << "the longer one";
  EXPECT_EQ(room(in, lent, kNone, {2, 0, 8 * kBytes}), std::tuple(2, kBytes, 7 * kBytes));
  EXPECT_EQ(room(in, out, kNone, {0, 0, kBytes}), std::tuple(-1, 0, 0)) << "the first one writes that output";
}

TEST(LaunchGroup, AnUpdateIsItsInput) {
  constexpr int64_t n = 2 * kGrain;
  Program p = Empty();
  const int32_t x = AddInput(p, kF, {n}), y = AddInput(p, kF, {n}), out = AddOutput(p, kF, {n});
  const int32_t new_x = AddValue(p, ValueKind::kUpdate, 0, 4 * n), new_y = AddValue(p, ValueKind::kUpdate, 1, 4 * n);
  const int32_t add = AddKernel(p, "add_one");
  auto call = [&](int32_t from, int32_t to, Effect effect) {
    p.regions[0].steps.push_back(KernelCall(add, {MakeView(from, kF, {n}), MakeView(to, kF, {n})}, n, kGrain));
    p.regions[0].steps.back().effect = effect;
  };
  call(x, new_x, Effect::kMutates), call(y, new_y, Effect::kMutates);
  EXPECT_EQ(GroupsOf(p).size(), 1);
  p.regions[0].steps.pop_back();
  call(x, new_y, Effect::kMutates);
  EXPECT_TRUE(GroupsOf(p).empty()) << "x is read where it was written";
  p.regions[0].steps.clear();
  call(y, out, Effect::kPure), call(x, new_x, Effect::kMutates);
  EXPECT_TRUE(GroupsOf(p).empty()) << "what may fail has failed before the first update";
}

TEST(LaunchGroup, TensorsOfTheFrameworkAndTheErrorWordPart) {
  constexpr int64_t n = 2 * kGrain;
  for (const ValueKind kind : {ValueKind::kSlot, ValueKind::kErrorWord}) {
    Program p = Empty();
    const int32_t in = AddInput(p, kF, {n}), out = AddOutput(p, kF, {n}), other = AddOutput(p, kF, {n});
    p.num_slots = 1;
    const int32_t value = AddValue(p, kind, 0, 4 * n), add = AddKernel(p, "add_one");
    const View special = MakeView(value, kF, {n});
    p.regions[0].steps.push_back(KernelCall(add, {MakeView(in, kF, {n}), MakeView(out, kF, {n})}, n, kGrain));
    p.regions[0].steps.push_back(
        KernelCall(add, kind == ValueKind::kSlot ? std::vector<View>{special, MakeView(other, kF, {n})}
                                                 : std::vector<View>{MakeView(in, kF, {n}), MakeView(other, kF, {n}), special},
                   n, kGrain));
    EXPECT_TRUE(GroupsOf(p).empty());
  }
}

// A host that says how many threads it has, and runs the pieces it is given from last to first.
struct Backwards {
  static inline int threads = 1, launches = 0;
  explicit Backwards(const FakeHost& fake) : host(*fake.get()) {
    host.num_threads = [](void*) { return threads; };
    host.parallel_for = [](void*, int64_t begin, int64_t end, int64_t, void (*run)(void*, int64_t, int64_t), void* data) {
      ++launches;
      for (int64_t k = end - 1; k >= begin; --k) run(data, k, k + 1);
    };
  }
  TenonHost host;
};

TEST(LaunchGroup, AnyNumberOfThreadsComputesAllOfIt) {
  FakeHost fake;
  Backwards host(fake);
  std::vector<int64_t> sizes;
  for (int64_t k = 0; k < 50; ++k) sizes.push_back(1 + k * k % 397);
  Pairs pairs(sizes);
  auto made = Executable::Create(std::move(pairs.program), FakeLoader(), &host.host);
  ASSERT_TRUE(made.ok()) << made.status();
  for (const int threads : {1, 2, 3, 7, 64}) {
    Backwards::threads = threads;
    Backwards::launches = 0;
    std::vector<Array> in, out;
    std::vector<TenonTensor> inputs, outputs;
    for (size_t k = 0; k < sizes.size(); ++k) {
      in.emplace_back(std::vector<int64_t>{sizes[k]}), out.emplace_back(std::vector<int64_t>{sizes[k]});
      std::iota(in[k].data.begin(), in[k].data.end(), static_cast<float>(1000 * k));
    }
    for (size_t k = 0; k < sizes.size(); ++k) inputs.push_back(in[k].tensor()), outputs.push_back(out[k].tensor());
    ASSERT_EQ((*made)->Run(inputs.data(), outputs.data()).code, TENON_OK);
    EXPECT_EQ(Backwards::launches, threads == 1 ? 0 : 1);
    for (size_t k = 0; k < sizes.size(); ++k) {
      for (size_t i = 0; i < out[k].data.size(); ++i) ASSERT_EQ(out[k].data[i], in[k].data[i] + 1) << k << " " << i << " of " << threads;
    }
  }
}

// out = sums of x + 1's rows and other = those of y's: one launch, or two where the first has room in what is written later, and the second
// in what only the first reads.
TEST(LaunchGroup, KernelsWithScratchRunApartWhereThenThereIsRoomForIt) {
  if (GuardOfEnvironment() != MemoryGuard::kOff) GTEST_SKIP() << "TENON_GUARD: scratch is always memory of its own";
  constexpr int64_t kRows = 2 * kGrain, kColumns = 16, kScratch = 2048, kBytes = 4 * kRows;
  static_assert(kBytes % kArenaAlignment == 0 && 2 * kScratch <= kBytes);
  struct Case {
    int threads;
    int64_t more;  // bytes of the arena
    int launches;  // of both sums
    int64_t scratch;
  };
  for (const Case& c : {Case{2, 0, 2, 0}, Case{3, 0, 1, 3 * kScratch}, Case{2, kMuchScratch * 2 * kScratch, 1, 2 * kScratch}}) {
    FakeHost fake;
    Backwards host(fake);
    Program p = Empty();
    const int32_t x = AddInput(p, kF, {kRows, kColumns}), y = AddInput(p, kF, {kRows, kColumns});
    const int32_t out = AddOutput(p, kF, {kRows}), other = AddOutput(p, kF, {kRows});
    p.arena_bytes = (kColumns + 1) * kBytes + c.more;
    const int32_t more = AddValue(p, ValueKind::kArena, 0, kColumns * kBytes);
    const int32_t b = AddValue(p, ValueKind::kArena, 0, kBytes, kColumns * kBytes);
    const int32_t sum = AddKernel(p, "row_sum", kScratch), add = AddKernel(p, "add_one");
    const View all = MakeView(more, kF, {kRows * kColumns}), sums = MakeView(b, kF, {kRows});
    const auto sum_up = [&](int32_t from, View to, int64_t room) {
      Step step = KernelCall(sum, {MakeView(from, kF, {kRows, kColumns}), std::move(to)}, kRows, kGrain);
      std::get<KernelStep>(step.body).args = {kColumns};
      std::get<KernelStep>(step.body).room = {-1, room, 2 * kScratch};
      return step;
    };
    p.regions[0].steps = {KernelCall(add, {MakeView(x, kF, {kRows * kColumns}), all}, kRows * kColumns),
                          sum_up(more, MakeView(out, kF, {kRows}), kColumns * kBytes), sum_up(y, sums, 0),
                          KernelCall(add, {sums, MakeView(other, kF, {kRows})}, kRows)};
    const std::vector<LaunchGroup> groups = GroupsOf(p);
    ASSERT_EQ(groups.size(), 1);
    EXPECT_EQ(groups[0].count, 2);
    EXPECT_EQ(groups[0].room.bytes, 0);
    const int64_t arena = p.arena_bytes;
    auto made = Executable::Create(std::move(p), FakeLoader(), &host.host);
    ASSERT_TRUE(made.ok()) << made.status();
    Backwards::threads = c.threads;
    for (int run = 0; run < 2; ++run) {
      Backwards::launches = 0;
      Array in0({kRows, kColumns}, 1), in1({kRows, kColumns}, 2), out0({kRows}), out1({kRows});
      TenonTensor inputs[] = {in0.tensor(), in1.tensor()}, outputs[] = {out0.tensor(), out1.tensor()};
      ASSERT_EQ((*made)->Run(inputs, outputs).code, TENON_OK);
      EXPECT_THAT(out0.data, ::testing::Each(2.0f * kColumns));
      EXPECT_THAT(out1.data, ::testing::Each(2.0f * kColumns + 1));
      EXPECT_EQ(Backwards::launches, c.launches) << c.threads << " threads";
    }
    EXPECT_EQ(fake.live_bytes(), arena + c.scratch) << c.threads << " threads";
  }
}

// Behind a call two kernels share a launch; only the second one needs the arena, which is not there so far.
TEST(LaunchGroup, AnArenaThatComesLateComesBeforeTheGroup) {
  constexpr int64_t kFew = 2 * kGrain, kMany = 4 * kFew;
  FakeHost fake;
  Backwards host(fake);
  Program p = Empty();
  const int32_t in = AddInput(p, kF, {kMany}), y = AddInput(p, kF, {kFew}), out = AddOutput(p, kF, {kMany});
  const int32_t first = AddOutput(p, kF, {kFew}), second = AddOutput(p, kF, {kFew});
  p.num_slots = 1;
  p.arena_bytes = 4 * kFew;
  const int32_t slot = AddValue(p, ValueKind::kSlot, 0, 4 * kMany), mid = AddValue(p, ValueKind::kArena, 0, 4 * kFew);
  const View lent = MakeView(AddValue(p, ValueKind::kLent, 0, 4 * kMany), kF, {kMany}), few = MakeView(y, kF, {kFew});
  const int32_t add = AddKernel(p, "add_one");
  p.regions[0].steps = {KernelCall(add, {MakeView(in, kF, {kMany}), lent}, kMany, kGrain),
                        FrameworkCall("test.add", {lent, lent}, MakeView(slot, kF, {kMany}), ResultRule::kOwned),
                        KernelCall(add, {few, MakeView(first, kF, {kFew})}, kFew, kGrain),
                        KernelCall(add, {few, MakeView(mid, kF, {kFew})}, kFew, kGrain),
                        KernelCall(add, {MakeView(mid, kF, {kFew}), MakeView(second, kF, {kFew})}, kFew, kGrain),
                        KernelCall(add, {MakeView(slot, kF, {kMany}), MakeView(out, kF, {kMany})}, kMany, kGrain)};
  ASSERT_FALSE(GroupsOf(p).empty());
  EXPECT_EQ(GroupsOf(p)[0].first, 2);
  auto made = Executable::Create(std::move(p), FakeLoader(), &host.host);
  ASSERT_TRUE(made.ok()) << made.status();
  Backwards::threads = 2;
  for (int run = 0; run < 2; ++run) {
    Array x({kMany}, 1), z({kFew}, 3), a({kMany}), b({kFew}), c({kFew});
    TenonTensor inputs[] = {x.tensor(), z.tensor()}, outputs[] = {a.tensor(), b.tensor(), c.tensor()};
    ASSERT_EQ((*made)->Run(inputs, outputs).code, TENON_OK);
    EXPECT_THAT(a.data, ::testing::Each(5.0f));
    EXPECT_THAT(b.data, ::testing::Each(4.0f));
    EXPECT_THAT(c.data, ::testing::Each(5.0f));
    if (GuardOfEnvironment() == MemoryGuard::kOff) EXPECT_EQ(fake.live_bytes(), 0);
  }
}

// Each call's sizes say what is large: it runs alone, between the launches of the others.
TEST(LaunchGroup, SizesOfEachCallSayWhatIsLarge) {
  FakeHost fake;
  Backwards host(fake);
  constexpr int32_t kCount = 5;
  Pairs pairs(std::vector<int64_t>(kCount, 1));
  const int32_t scale = AddKernel(pairs.program, "scale");
  for (int32_t k = 0; k < kCount; ++k) {
    const SizeRef n = ~k;
    pairs.program.dim_program.push_back({DimOp::Kind::kInputDim, k, 0});
    pairs.program.inputs[k].dims = pairs.program.outputs[k].dims = {n};
    auto& kernel = std::get<KernelStep>(pairs.program.regions[0].steps[k].body);
    kernel.end = n;
    kernel.kernel = scale;
    kernel.literals = {std::bit_cast<uint32_t>(static_cast<float>(k + 1))};  // each kernel has its own arguments
    for (View& v : kernel.operands) v.dims = {n};
  }
  ASSERT_EQ(GroupsOf(pairs.program).size(), 1);
  EXPECT_THAT(GroupsOf(pairs.program)[0].work, ::testing::Each(LaunchGroup::kOfSizes));
  auto made = Executable::Create(std::move(pairs.program), FakeLoader(), &host.host);
  ASSERT_TRUE(made.ok()) << made.status();
  const struct {
    std::vector<int64_t> sizes;
    int launches;
  } calls[] = {{{1500, 900, 700, 1500, 1500}, 1},
               {{10, 20, 0, 30, 40}, 0},                            // too little for two threads
               {{1500, 1500, 50 * kGrain, 1500, 1500}, 3},          // one large: two, it, two
               {{50 * kGrain, 50 * kGrain, 900, 900, 900}, 3},      // two large, then three
               {{900, 50 * kGrain, 900, 50 * kGrain, 900}, 2},      // those that are left are single
               {{0, 0, 0, 0, 0}, 0}};
  for (const auto& call : calls) {
    for (const int threads : {3, 2}) {
      Backwards::threads = threads;
      Backwards::launches = 0;
      std::vector<Array> in, out;
      std::vector<TenonTensor> inputs, outputs;
      for (const int64_t n : call.sizes) in.emplace_back(std::vector<int64_t>{n}, n + 0.5f), out.emplace_back(std::vector<int64_t>{n});
      for (size_t k = 0; k < kCount; ++k) inputs.push_back(in[k].tensor()), outputs.push_back(out[k].tensor());
      ASSERT_EQ((*made)->Run(inputs.data(), outputs.data()).code, TENON_OK);
      EXPECT_EQ(Backwards::launches, call.launches);
      for (size_t k = 0; k < kCount; ++k) {
        const float want = (static_cast<float>(call.sizes[k]) + 0.5f) * static_cast<float>(k + 1);
        EXPECT_THAT(out[k].data, ::testing::Each(want)) << k;
      }
    }
  }
}

// Where each call places a, b and c: those that live together lie apart, and behind the arena's fixed part. Of others each call looks.
TEST(LaunchGroup, OfValuesThatCallsPlaceTheirLivesTell) {
  constexpr int64_t n = 2 * kGrain;
  Program p = Empty();
  const int32_t in = AddInput(p, kF, {n}), out = AddOutput(p, kF, {n});
  p.arena_bytes = 4 * n;
  const int32_t fixed = AddValue(p, ValueKind::kArena, 0, 4 * n);
  const auto placed = [&] { return AddValue(p, ValueKind::kArena, 0, ~0); };
  const int32_t a = placed(), b = placed(), c = placed();
  p.values[a].life = {0, 3}, p.values[b].life = {3, 5}, p.values[c].life = {4, 5};
  const int32_t add = AddKernel(p, "add_one");
  std::vector<std::pair<int32_t, int32_t>> pairs;
  auto grouped = [&](int32_t from0, int32_t to0, int32_t from1, int32_t to1) {
    p.regions[0].steps.clear();
    for (const auto& [from, to] : {std::pair{from0, to0}, {from1, to1}}) {
      p.regions[0].steps.push_back(KernelCall(add, {MakeView(from, kF, {n}), MakeView(to, kF, {n})}, n, kGrain));
    }
    const std::vector<LaunchGroup> groups = GroupsOf(p);
    if (groups.empty()) return false;
    for (const LaunchGroup::MayMeet& m : groups[0].may_meet) pairs.push_back({m.of_earlier, m.of_later});
    return true;
  };
  EXPECT_TRUE(grouped(a, out, in, b)) << "alive together";
  EXPECT_TRUE(grouped(a, out, in, fixed));
  EXPECT_TRUE(grouped(in, fixed, c, out));
  EXPECT_THAT(pairs, ::testing::IsEmpty());
  EXPECT_TRUE(grouped(a, out, in, c)) << "c may lie where a was";
  EXPECT_TRUE(grouped(in, a, c, out));
  EXPECT_TRUE(grouped(in, c, in, a));
  EXPECT_THAT(pairs, ElementsAre(Pair(a, c), Pair(a, c), Pair(c, a)));
  EXPECT_FALSE(grouped(in, a, a, out)) << "read after write";
  EXPECT_FALSE(grouped(b, out, in, b)) << "write after read";
}

// out = x + 2 by way of a, other = y + 2 by way of c, which lies where a was: the second kernel and the third are not one launch then.
TEST(LaunchGroup, ValuesThatShareMemoryInACallPart) {
  FakeHost fake;
  Backwards host(fake);
  constexpr SizeRef kN = ~0, kM = ~1, kBytesN = ~2, kBytesM = ~3;
  Program p = Empty();
  const auto row = [](int32_t value, SizeRef n) {
    View v = MakeView(value, kF, {1});
    v.dims = {n};
    return v;
  };
  const int32_t x = AddInput(p, kF, {1}), y = AddInput(p, kF, {1}), out = AddOutput(p, kF, {1}), other = AddOutput(p, kF, {1});
  p.inputs[0].dims = p.outputs[0].dims = {kN};
  p.inputs[1].dims = p.outputs[1].dims = {kM};
  p.dim_program = {{DimOp::Kind::kInputDim, 0, 0}, {DimOp::Kind::kInputDim, 1, 0}, {DimOp::Kind::kMul, kN, 4}, {DimOp::Kind::kMul, kM, 4}};
  const int32_t a = AddValue(p, ValueKind::kArena, 0, kBytesN), c = AddValue(p, ValueKind::kArena, 0, kBytesM);
  p.values[a].life = {0, 1}, p.values[c].life = {2, 3};
  const int32_t add = AddKernel(p, "add_one");
  const auto call = [&](int32_t from, int32_t to, SizeRef n) {
    p.regions[0].steps.push_back(KernelCall(add, {row(from, n), row(to, n)}, 0, kGrain));
    std::get<KernelStep>(p.regions[0].steps.back().body).end = n;
  };
  call(x, a, kN), call(a, out, kN), call(y, c, kM), call(c, other, kM);
  ASSERT_EQ(GroupsOf(p).size(), 1) << "the second and the third";
  auto made = Executable::Create(std::move(p), FakeLoader(), &host.host);
  ASSERT_TRUE(made.ok()) << made.status();
  Backwards::threads = 2;
  for (const int64_t m : {3 * kGrain, int64_t{1}}) {
    Array in0({3 * kGrain}, 10), in1({m}, 20), out0({3 * kGrain}), out1({m});
    TenonTensor inputs[] = {in0.tensor(), in1.tensor()}, outputs[] = {out0.tensor(), out1.tensor()};
    ASSERT_EQ((*made)->Run(inputs, outputs).code, TENON_OK);
    EXPECT_THAT(out0.data, ::testing::Each(12.0f));
    EXPECT_THAT(out1.data, ::testing::Each(22.0f));
  }
}

// x := x + 1 and y := y + 1 in one group, where y begins inside of x: both new values are of the old ones, whichever piece runs first.
TEST(LaunchGroup, UpdatesOfInputsThatOverlapAreOfTheOldValues) {
  constexpr int64_t n = 2 * kGrain, shift = n / 2;
  FakeHost fake;
  Backwards host(fake);
  Program p = Empty();
  p.regions.push_back({.name = "commit"});
  p.commit_region = 1;
  const int32_t add = AddKernel(p, "add_one"), inputs[] = {AddInput(p, kF, {n}), AddInput(p, kF, {n})};
  for (int64_t k = 0; k < 2; ++k) {
    const View old = MakeView(inputs[k], kF, {n}), made = MakeView(AddValue(p, ValueKind::kUpdate, k, 4 * n), kF, {n});
    p.regions[0].steps.push_back(KernelCall(add, {old, made}, n, kGrain));
    p.regions[0].steps.back().effect = Effect::kMutates;
    p.regions[1].steps.push_back({.body = CopyStep{made, old}, .name = "home", .effect = Effect::kMutates});
  }
  auto made = Executable::Create(std::move(p), FakeLoader(), &host.host);
  ASSERT_TRUE(made.ok()) << made.status();
  Backwards::threads = 3;
  Backwards::launches = 0;
  std::vector<float> flat(n + shift), want(n + shift);
  std::iota(flat.begin(), flat.end(), 0.0f);
  std::iota(want.begin(), want.end(), 1.0f);
  const int64_t dims[] = {n}, strides[] = {1};
  const int32_t type = static_cast<int32_t>(kF);
  const TenonTensor tensors[] = {{nullptr, flat.data(), dims, strides, type, 1}, {nullptr, flat.data() + shift, dims, strides, type, 1}};
  ASSERT_EQ((*made)->Run(tensors, nullptr).code, TENON_OK);
  EXPECT_EQ(Backwards::launches, 1);
  EXPECT_EQ(flat, want);
}

}  // namespace
}  // namespace tenon::testing
