// Intermediate results of symbolic sizes: each set of sizes has its places, and a program that says wrong lives is refused.
#include "runtime/execute/arena_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/execute/stats.h"
#include "tests/runtime/fakes.h"

namespace tenon::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
constexpr PrimitiveType kF = PrimitiveType::kF32;
constexpr SizeRef kN = ~0, kBytes = ~1;

View Row(int32_t value) {
  View view = MakeView(value, kF, {1});
  view.dims = {kN};
  return view;
}

// out = in + 4 for n elements, by a, b and c: a and c are not alive together.
Program Chain() {
  Program p;
  p.name = "chain";
  p.regions.resize(1);
  const int32_t in = AddInput(p, kF, {1}), out = AddOutput(p, kF, {1});
  p.inputs[0].dims = p.outputs[0].dims = {kN};
  p.dim_program = {{DimOp::Kind::kInputDim, 0, 0}, {DimOp::Kind::kMul, kN, 4}};
  const int32_t k = AddKernel(p, "add_one");
  int32_t from = in;
  for (int32_t step = 0; step < 4; ++step) {
    int32_t to = out;
    if (step < 3) {
      to = AddValue(p, ValueKind::kArena, 0, 0);
      p.values[to].bytes = kBytes;
      p.values[to].life = {step, step + 1};
    }
    p.regions[0].steps.push_back(KernelCall(k, {Row(from), Row(to)}, 0));
    std::get<KernelStep>(p.regions[0].steps.back().body).end = kN;
    from = to;
  }
  return p;
}

TEST(ArenaPlaces, ARunTakesTheMemoryOfItsSizes) {
  FakeHost host;
  auto made = Executable::Create(Chain(), FakeLoader(), host.get());
  ASSERT_TRUE(made.ok()) << made.status();
  auto counters = (*made)->NewCounters();
  for (const int64_t n : {100, 7, 1000, 100, 7, 0, 1}) {
    Array in({n}, 3), out({n});
    TenonTensor inputs[] = {in.tensor()}, outputs[] = {out.tensor()};
    const RunResult ran = (*made)->Run(inputs, outputs, nullptr, counters.get());
    ASSERT_EQ(ran.code, TENON_OK) << ran.error;
    EXPECT_THAT(out.data, Each(7.0f));
    EXPECT_EQ(counters->arena_bytes.load(), 2 * ((n * 4 + 63) / 64 * 64)) << n;
  }
  counters.reset();
  made->reset();
  EXPECT_TRUE(host.clean());
}

// The output's memory holds b until it is written of c: of the arena a and c are left, which are not alive together.
TEST(ArenaPlaces, OutputsOfTheCallLendTheirMemory) {
  FakeHost host;
  Program p = Chain();
  p.values[1].bytes = kBytes;
  p.values[1].life = {3, 4};
  auto made = Executable::Create(p, FakeLoader(), host.get());
  ASSERT_TRUE(made.ok()) << made.status();
  auto counters = (*made)->NewCounters();
  for (const int64_t n : {100, 100, 7, 1000, 100, 7, 0, 1}) {
    Array in({n}, 3), out({n});  // elsewhere in each call
    TenonTensor inputs[] = {in.tensor()}, outputs[] = {out.tensor()};
    const RunResult ran = (*made)->Run(inputs, outputs, nullptr, counters.get());
    ASSERT_EQ(ran.code, TENON_OK) << ran.error;
    EXPECT_THAT(out.data, Each(7.0f));
    EXPECT_EQ(counters->arena_bytes.load(), (n * 4 + 63) / 64 * 64) << n;
  }
  counters.reset();
  made->reset();
  EXPECT_TRUE(host.clean());
  p.values[1].life = {2, 4};
  EXPECT_TRUE(p.Validate().ok()) << "longer than it need be";
  p.values[1].life = {4, 4};
  EXPECT_THAT(std::string(p.Validate().message()), HasSubstr("values 4 and 1 are in use at once, and not alive together"));
}

// A framework's view of b, which lies in the output's memory in this call, leaves the run as a tensor of its own.
TEST(ArenaPlaces, AViewOfWhatACallLendsNeverEscapes) {
  FakeHost host;
  Program p = Chain();
  p.values[1].bytes = kBytes;
  p.values[1].life = {3, 4};
  p.num_slots = 1;
  const int32_t slot = AddValue(p, ValueKind::kSlot, 0, 0);
  p.values[slot].bytes = kBytes;
  p.outputs.push_back({.kind = OutputKind::kSlot, .index = 0, .dims = {kN}, .strides = {1}});
  Step view = FrameworkCall("test.view", {Row(3)}, Row(slot), ResultRule::kView);
  p.regions[0].steps.insert(p.regions[0].steps.begin() + 2, view);
  auto made = Executable::Create(std::move(p), FakeLoader(), host.get());
  ASSERT_TRUE(made.ok()) << made.status();
  for (const int64_t n : {100, 7}) {
    Array in({n}, 3), out({n});
    TenonTensor inputs[] = {in.tensor()}, outputs[] = {out.tensor(), {}};
    const RunResult ran = (*made)->Run(inputs, outputs);
    ASSERT_EQ(ran.code, TENON_OK) << ran.error;
    EXPECT_THAT(out.data, Each(7.0f));
    const auto* data = static_cast<const float*>(outputs[1].data);
    EXPECT_TRUE(data + n <= out.data.data() || data >= out.data.data() + n) << n;
    host.get()->tensor_release(host.get()->context, outputs[1].tensor);
  }
  EXPECT_EQ(host.clones(), 2);
  made->reset();
  EXPECT_TRUE(host.clean());
}

TEST(ArenaPlaces, WhatIsInUseAtOnceIsAliveTogether) {
  Program p = Chain();
  p.values[3].life = {5, 6};  // b, which the second step makes of a
  EXPECT_THAT(std::string(p.Validate().message()), HasSubstr("values 2 and 3 are in use at once, and not alive together"));
  p = Chain();
  p.values[3].life = {2, 1};
  EXPECT_THAT(std::string(p.Validate().message()), HasSubstr("a life from 2 to 1"));
  p = Chain();
  p.values[3].offset = 64;
  EXPECT_THAT(std::string(p.Validate().message()), HasSubstr("an offset of a value that each call places"));
}

// In a loop's body too, whatever is touched by one step of the main region.
TEST(ArenaPlaces, RegionsAreLookedInto) {
  Program p = Chain();
  const int32_t flag = AddValue(p, ValueKind::kArena, 0, 1);
  p.arena_bytes = 64;
  p.regions.resize(3);
  p.regions[2].steps = {p.regions[0].steps[1]};
  p.regions[0].steps[1] = {.body = WhileStep{1, 2, MakeView(flag, PrimitiveType::kPred, {})}, .name = "loop"};
  EXPECT_TRUE(p.Validate().ok()) << p.Validate();
  p.values[3].life = {5, 6};
  EXPECT_THAT(std::string(p.Validate().message()), HasSubstr("in use at once"));
}

TEST(ArenaPlaces, SetsOfSizesAreRemembered) {
  PlacedValues values;
  values.Add(0, {.bytes = ~0, .life = {0, 1}});
  values.Add(1, {.bytes = 64, .life = {1, 2}});
  values.Add(2, {.bytes = ~0, .life = {2, 3}});
  EXPECT_EQ(values.sizes.size(), 2);
  PlaceMemory memory(&values);
  auto find = [&](int64_t bytes) { return memory.Find({&bytes, 1}); };
  const ArenaPlaces* first = *find(100);
  EXPECT_EQ(first->bytes, 192);
  EXPECT_EQ(first->offsets[0], first->offsets[2]) << "they are not alive together";
  EXPECT_EQ(*find(100), first);
  EXPECT_EQ((*find(1000))->bytes, 1024 + 64);
  EXPECT_EQ(*find(100), first) << "it was known";
  for (int64_t n = 0; n < static_cast<int64_t>(PlaceMemory::kMostSets) - 1; ++n) ASSERT_TRUE(find(2000 + n).ok());
  EXPECT_EQ(*find(100), first) << "still known: what was wanted least recently went";
  EXPECT_THAT(std::string(find(-4).status().message()), HasSubstr("the size of an intermediate result comes out as -4"));
  EXPECT_THAT(std::string(find(int64_t{1} << 62).status().message()), HasSubstr("comes out as"));
  EXPECT_EQ(*find(100), first) << "a call that fails changes nothing";
}

}  // namespace
}  // namespace tenon::testing
