// Programs built by hand: every kind of step, errors, checks, escapes.
#include "runtime/execute/executable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <nlohmann/json.hpp>

#include "runtime/execute/step_work.h"
#include "runtime/guarded_memory.h"
#include "tests/runtime/fakes.h"

namespace tenon::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
constexpr PrimitiveType kF = PrimitiveType::kF32;

Program Empty() {
  Program p;
  p.name = "test";
  p.regions.push_back({.name = "main"});
  return p;
}

std::shared_ptr<Executable> Make(Program p, const TenonHost* host) {
  auto made = Executable::Create(std::move(p), FakeLoader(), host);
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *made : nullptr;
}

// out = in + 1 through the arena, + 1 again.
Program TwoKernels(int64_t n) {
  Program p = Empty();
  const int32_t in = AddInput(p, kF, {n}), out = AddOutput(p, kF, {n});
  p.arena_bytes = 64 + n * 4;
  const int32_t mid = AddValue(p, ValueKind::kArena, 0, n * 4, 64);
  const int32_t k = AddKernel(p, "add_one");
  p.regions[0].steps.push_back(KernelCall(k, {MakeView(in, kF, {n}), MakeView(mid, kF, {n})}, n));
  p.regions[0].steps.push_back(KernelCall(k, {MakeView(mid, kF, {n}), MakeView(out, kF, {n})}, n));
  return p;
}

TEST(Executable, KernelsThroughTheArena) {
  FakeHost host;
  auto e = Make(TwoKernels(100), host.get());
  Array in({100}, 3), out({100});
  for (int call = 0; call < 3; ++call) {
    TenonTensor inputs[] = {in.tensor()}, outputs[] = {out.tensor()};
    ASSERT_EQ(e->Run(inputs, outputs).code, TENON_OK);
    EXPECT_THAT(out.data, Each(5.0f));
  }
  EXPECT_EQ(host.allocations(), 1) << "the frame keeps its arena";
  EXPECT_EQ(e->idle_frames(), 1);
  e.reset();
  EXPECT_TRUE(host.clean());
}

TEST(Executable, AProfileHasEveryStepAndTheLastRun) {
  FakeHost host;
  auto e = Make(TwoKernels(100), host.get());
  Array in({100}, 3), out({100});
  const auto run = [&] {
    TenonTensor inputs[] = {in.tensor()}, outputs[] = {out.tensor()};
    ASSERT_EQ(e->Run(inputs, outputs).code, TENON_OK);
  };
  run();
  auto profile = nlohmann::json::parse(e->ProfileJson());
  EXPECT_EQ(profile["calls"], 1);
  EXPECT_EQ(profile["steps"][0]["count"], 0) << "kernels are timed only while profiling is on";
  EXPECT_EQ(profile["trace"].size(), 0);
  Executable::SetProfiling(true);
  run();
  run();
  Executable::SetProfiling(false);
  profile = nlohmann::json::parse(e->ProfileJson());
  EXPECT_EQ(profile["regions"], nlohmann::json({2}));
  ASSERT_EQ(profile["steps"].size(), 2);
  for (int k = 0; k < 2; ++k) {
    EXPECT_EQ(profile["steps"][k]["step"], k);
    EXPECT_EQ(profile["steps"][k]["count"], 2);
    EXPECT_GT(profile["steps"][k]["ns"], 0);
  }
  ASSERT_EQ(profile["trace"].size(), 2) << "of the last run";
  EXPECT_EQ(profile["trace"][0][0], 0);
  EXPECT_EQ(profile["trace"][0][1], 0.0);
  EXPECT_LE(profile["trace"][0][2], profile["trace"][1][1]);
  e->StatsJson(/*reset=*/true);
  profile = nlohmann::json::parse(e->ProfileJson());
  EXPECT_EQ(profile["regions"], nlohmann::json({0}));
  EXPECT_EQ(profile["trace"].size(), 0);
}

TEST(StepWork, CopiesAndCallsByTheirViews) {
  const View a = MakeView(0, kF, {8, 16}), b = MakeView(1, kF, {16, 4}), c = MakeView(2, kF, {8, 4});
  StepWork work = WorkOf({.body = CopyStep{a, a}});
  EXPECT_EQ(work.bytes, 2 * 8 * 16 * 4);
  EXPECT_EQ(work.flops, 0);
  FrameworkStep call{.overload = "host.matmul", .operands = {a, b}, .rule = ResultRule::kOut, .results = {c}};
  work = WorkOf({.body = call, .flops = 2 * 8 * 16 * 4});
  EXPECT_EQ(work.flops, 2 * 8 * 16 * 4) << "what the plan says";
  EXPECT_EQ(work.bytes, (8 * 16 + 16 * 4 + 8 * 4) * 4);
  call.operands[0].dims[0] = ~0;  // a size known at run time
  EXPECT_EQ(WorkOf({.body = call}).bytes, (16 * 4 + 8 * 4) * 4);
}

TEST(Executable, PiecesHaveTheirOwnScratchAndLiteralsArrive) {
  FakeHost host;
  constexpr int64_t kRows = 999, kColumns = 33;
  Program p = Empty();
  const int32_t in = AddInput(p, kF, {kRows, kColumns}), out = AddOutput(p, kF, {kRows});
  p.arena_bytes = 4096;
  const int32_t sums = AddValue(p, ValueKind::kArena, 0, kRows * 4);
  Step sum = KernelCall(AddKernel(p, "row_sum", kColumns * 4),
                        {MakeView(in, kF, {kRows, kColumns}), MakeView(sums, kF, {kRows})}, kRows,
                        /*grain=*/10);
  std::get<KernelStep>(sum.body).args = {kColumns};
  Step scale = KernelCall(AddKernel(p, "scale"),
                          {MakeView(sums, kF, {kRows}), MakeView(out, kF, {kRows})}, kRows);
  std::get<KernelStep>(scale.body).literals = {std::bit_cast<uint32_t>(0.5f)};
  p.regions[0].steps = {sum, scale};
  auto e = Make(std::move(p), host.get());
  Array input({kRows, kColumns}), output({kRows});
  for (int64_t i = 0; i < kRows * kColumns; ++i) input.data[i] = static_cast<float>(i / kColumns);
  TenonTensor inputs[] = {input.tensor()}, outputs[] = {output.tensor()};
  ASSERT_EQ(e->Run(inputs, outputs).code, TENON_OK);
  for (int64_t r = 0; r < kRows; ++r)
    ASSERT_EQ(output.data[r], 0.5f * kColumns * static_cast<float>(r)) << r;
}

// Sums by rows, whose scratch of 64 bytes a thread has room for two threads in the arena or in an output that is written later.
TEST(Executable, ScratchLiesInItsRoomIfItFits) {
  if (GuardOfEnvironment() != MemoryGuard::kOff) GTEST_SKIP() << "TENON_GUARD: scratch is always memory of its own";
  constexpr int64_t kRows = 512, kColumns = 16;
  for (const int32_t output : {-1, 1}) {
    for (const int threads : {1, 2, 3}) {
      FakeHost fake;
      TenonHost host = *fake.get();
      const TenonHost threaded = ThreadedHost(threads);
      host.num_threads = threaded.num_threads, host.parallel_for = threaded.parallel_for;
      Program p = Empty();
      const int32_t in = AddInput(p, kF, {kRows, kColumns}), out = AddOutput(p, kF, {kRows}), later = AddOutput(p, kF, {kRows});
      p.arena_bytes = kRows * 4 + 128;
      const int32_t sums = AddValue(p, ValueKind::kArena, 0, kRows * 4);
      const std::vector<View> operands = {MakeView(in, kF, {kRows, kColumns}), MakeView(sums, kF, {kRows})};
      Step sum = KernelCall(AddKernel(p, "row_sum", kColumns * 4), operands, kRows, 10);
      std::get<KernelStep>(sum.body).args = {kColumns};
      std::get<KernelStep>(sum.body).room = {output, output < 0 ? kRows * 4 : 0, 128};
      const int32_t add = AddKernel(p, "add_one");
      p.regions[0].steps = {sum, KernelCall(add, {MakeView(sums, kF, {kRows}), MakeView(out, kF, {kRows})}, kRows),
                            KernelCall(add, {MakeView(sums, kF, {kRows}), MakeView(later, kF, {kRows})}, kRows)};
      EXPECT_THAT(p.ToString(), HasSubstr(output < 0 ? "scratch in arena [2048, +128)" : "scratch in output 1 [0, +128)"));
      const int64_t arena = p.arena_bytes;
      auto e = Make(std::move(p), &host);
      Array input({kRows, kColumns}, 1), a({kRows}), b({kRows});
      TenonTensor inputs[] = {input.tensor()}, outputs[] = {a.tensor(), b.tensor()};
      for (int run = 0; run < 2; ++run) {
        ASSERT_EQ(e->Run(inputs, outputs).code, TENON_OK);
        EXPECT_THAT(a.data, Each(kColumns + 1.0f));
        EXPECT_THAT(b.data, Each(kColumns + 1.0f));
      }
      EXPECT_EQ(fake.live_bytes(), arena + (threads == 3 ? 3 * 64 : 0)) << threads << " threads, output " << output;
    }
  }
}

// slot = in + in (owned); out = slot + slot (out=).
Program TwoCalls(int64_t n) {
  Program p = Empty();
  const int32_t in = AddInput(p, kF, {n}), out = AddOutput(p, kF, {n});
  p.num_slots = 1;
  const int32_t slot = AddValue(p, ValueKind::kSlot, 0, n * 4);
  const View x = MakeView(in, kF, {n}), s = MakeView(slot, kF, {n});
  p.regions[0].steps.push_back(FrameworkCall("test.add", {x, x}, s, ResultRule::kOwned));
  p.regions[0].steps.push_back(
      FrameworkCall("test.add", {s, s}, MakeView(out, kF, {n}), ResultRule::kOut));
  p.regions[0].steps[1].release_slots = {0};
  return p;
}

// In the first output in + 1; slot = twice that, owned; in the arena the first elements of slot + 1. The outputs are slot + 1 and what lies
// in the arena. Before the call in the arena, if `early`: in + 1.
Program ArenaBehindACall(bool early) {
  constexpr int64_t kMany = 4096, kFew = 512;
  Program p = Empty();
  const int32_t in = AddInput(p, kF, {kMany}), out = AddOutput(p, kF, {kMany}), few = AddOutput(p, kF, {kFew});
  p.num_slots = 1;
  p.arena_bytes = kFew * 4;
  const int32_t slot = AddValue(p, ValueKind::kSlot, 0, kMany * 4), mid = AddValue(p, ValueKind::kArena, 0, kFew * 4);
  const int32_t lent = AddValue(p, ValueKind::kLent, 0, kMany * 4);
  const View x = MakeView(in, kF, {kMany}), s = MakeView(slot, kF, {kMany}), l = MakeView(lent, kF, {kMany});
  const int32_t add = AddKernel(p, "add_one"), sum = AddKernel(p, "row_sum", 64);
  std::vector<Step>& steps = p.regions[0].steps;
  if (early) steps.push_back(KernelCall(add, {x, MakeView(mid, kF, {kFew})}, kFew));
  steps.push_back(KernelCall(add, {x, l}, kMany));
  steps.push_back(FrameworkCall("test.add", {l, l}, s, ResultRule::kOwned));
  steps.push_back(KernelCall(add, {s, MakeView(mid, kF, {kFew})}, kFew));
  steps.push_back(KernelCall(add, {s, MakeView(out, kF, {kMany})}, kMany));
  steps.back().release_slots = {0};
  steps.push_back(KernelCall(sum, {MakeView(mid, kF, {kFew, 1}), MakeView(few, kF, {kFew})}, kFew));
  std::get<KernelStep>(steps.back().body).args = {1};
  return p;
}

// The call has its memory to itself, and between the runs nothing is held.
TEST(Executable, AnArenaThatIsFirstNeededBehindACallComesThenAndGoes) {
  if (GuardOfEnvironment() != MemoryGuard::kOff) GTEST_SKIP() << "TENON_GUARD: values have blocks of their own, which stay";
  for (const bool early : {false, true}) {
    FakeHost host;
    auto e = Make(ArenaBehindACall(early), host.get());
    Array in({4096}, 2), out({4096}), few({512});
    TenonTensor inputs[] = {in.tensor()}, outputs[] = {out.tensor(), few.tensor()};
    const int64_t before = host.allocations();
    host.ThrowInCall(0);
    EXPECT_EQ(e->Run(inputs, outputs).code, TENON_ERROR);
    EXPECT_EQ(host.allocations() - before, early ? 2 : 1);  // the call itself counts as one
    for (int run = 0; run < 2; ++run) {
      ASSERT_EQ(e->Run(inputs, outputs).code, TENON_OK);
      EXPECT_THAT(out.data, Each(7.0f));
      EXPECT_THAT(few.data, Each(7.0f));
      EXPECT_EQ(host.live_bytes() == 0, !early);
    }
    e.reset();
    EXPECT_TRUE(host.clean());
    if (early) continue;
    for (int64_t n = 1; n < 3; ++n) {  // behind the call's result: arena, scratch
      auto again = Make(ArenaBehindACall(false), host.get());
      host.FailAllocation(n);
      const RunResult failed = again->Run(inputs, outputs);
      EXPECT_EQ(failed.code, TENON_ERROR) << n;
      EXPECT_THAT(failed.error, HasSubstr("out of memory: wanted")) << n;
      EXPECT_EQ(host.live_bytes(), 0) << n;
      ASSERT_EQ(again->Run(inputs, outputs).code, TENON_OK) << n;
      EXPECT_THAT(few.data, Each(7.0f));
    }
    EXPECT_TRUE(host.clean());
  }
}

TEST(Executable, FrameworkCallsGetWholeTensors) {
  FakeHost host;
  auto e = Make(TwoCalls(8), host.get());
  FakeTensor* in = host.NewTensor({8}, 2);
  Array out({8});
  TenonTensor inputs[] = {host.Handle(in)}, outputs[] = {out.tensor()};
  ASSERT_EQ(e->Run(inputs, outputs).code, TENON_OK);
  EXPECT_THAT(out.data, Each(8.0f));
  EXPECT_EQ(host.whole_operands(), 4);
  EXPECT_EQ(host.live_wrappers(), 0);
  EXPECT_EQ(host.live_tensors(), 1) << "the slot was released";
  EXPECT_THAT(e->StatsJson(true), HasSubstr("\"op\":\"test.add\""));
  host.get()->tensor_release(host.get()->context, in);
  e.reset();
  EXPECT_TRUE(host.clean());
}

TEST(Executable, OwnedInputsAreReleasedAtTheirLastUse) {
  FakeHost host;
  Program p = TwoCalls(8);
  p.regions[0].steps[0].release_inputs = {0};
  auto e = Make(std::move(p), host.get());
  Array out({8});
  TenonTensor inputs[] = {host.Handle(host.NewTensor({8}, 2))}, outputs[] = {out.tensor()};
  uint8_t owned[] = {1};
  ASSERT_EQ(e->Run(inputs, outputs, owned).code, TENON_OK);
  EXPECT_THAT(out.data, Each(8.0f));
  EXPECT_EQ(owned[0], 0);
  EXPECT_EQ(host.live_tensors(), 0);
}

TEST(Executable, AFailingCallReleasesEverything) {
  FakeHost host;
  Program p = TwoCalls(8);
  std::get<FrameworkStep>(p.regions[0].steps[1].body).overload = "test.fail";
  auto e = Make(std::move(p), host.get());
  Array out({8});
  TenonTensor inputs[] = {host.Handle(host.NewTensor({8}, 2))}, outputs[] = {out.tensor()};
  uint8_t owned[] = {1};
  EXPECT_EQ(e->Run(inputs, outputs, owned).code, TENON_HOST_ERROR);
  e.reset();
  EXPECT_TRUE(host.clean());
}

TEST(Executable, AViewOfTheArenaNeverEscapes) {
  FakeHost host;
  Program p = Empty();
  const int32_t in = AddInput(p, kF, {4});
  p.arena_bytes = 64;
  p.num_slots = 1;
  const int32_t mid = AddValue(p, ValueKind::kArena, 0, 16),
                slot = AddValue(p, ValueKind::kSlot, 0, 16);
  p.outputs.push_back({.kind = OutputKind::kSlot, .index = 0, .dims = {4}, .strides = {1}});
  p.outputs.push_back(p.outputs[0]);  // the same tensor twice
  const int32_t k = AddKernel(p, "add_one");
  p.regions[0].steps.push_back(KernelCall(k, {MakeView(in, kF, {4}), MakeView(mid, kF, {4})}, 4));
  p.regions[0].steps.push_back(FrameworkCall("test.view", {MakeView(mid, kF, {4})},
                                             MakeView(slot, kF, {4}), ResultRule::kView));
  auto e = Make(std::move(p), host.get());
  Array input({4}, 1);
  TenonTensor inputs[] = {input.tensor()}, first[2], second[2];
  ASSERT_EQ(e->Run(inputs, first).code, TENON_OK);
  input.data.assign(4, 10);
  ASSERT_EQ(e->Run(inputs, second).code, TENON_OK);
  EXPECT_EQ(host.clones(), 4);
  EXPECT_EQ(static_cast<float*>(first[0].data)[3], 2.0f)
      << "the second run wrote over the first one's result";
  EXPECT_EQ(static_cast<float*>(second[1].data)[0], 11.0f);
  for (TenonTensor& t : first) host.get()->tensor_release(host.get()->context, t.tensor);
  for (TenonTensor& t : second) host.get()->tensor_release(host.get()->context, t.tensor);
  e.reset();
  EXPECT_TRUE(host.clean());
}

// Nor one of memory that an output lends: the output's own value is written there.
TEST(Executable, AnOutputLendsItsMemoryUntilItIsWritten) {
  FakeHost host;
  Program p = Empty();
  constexpr int64_t n = 32;
  const int32_t in = AddInput(p, kF, {n / 2}), out = AddOutput(p, kF, {n}), small = AddOutput(p, kF, {n / 2});
  p.num_slots = 1;
  const int32_t first = AddValue(p, ValueKind::kLent, 0, n / 2 * 4, n / 2 * 4), slot = AddValue(p, ValueKind::kSlot, 0, n / 2 * 4);
  p.outputs.push_back({.kind = OutputKind::kSlot, .index = 0, .dims = {n / 2}, .strides = {1}});
  const int32_t add = AddKernel(p, "add_one");
  auto row = [](int32_t value) { return MakeView(value, kF, {n / 2}); };
  p.regions[0].steps.push_back(KernelCall(add, {row(in), row(first)}, n / 2));
  p.regions[0].steps.push_back(KernelCall(add, {row(first), row(small)}, n / 2));
  p.regions[0].steps.push_back(FrameworkCall("test.view", {row(first)}, row(slot), ResultRule::kView));
  View whole = MakeView(small, kF, {2, n / 2});
  whole.strides = {0, 1};
  p.regions[0].steps.push_back({.body = CopyStep{whole, MakeView(out, kF, {2, n / 2})}, .name = "repeat"});
  auto e = Make(std::move(p), host.get());
  for (const float x : {1.0f, 7.0f}) {
    Array input({n / 2}, x), a({n}), b({n / 2});
    TenonTensor inputs[] = {input.tensor()}, outputs[] = {a.tensor(), b.tensor(), {}};
    const RunResult ran = e->Run(inputs, outputs);
    ASSERT_EQ(ran.code, TENON_OK) << ran.error;
    EXPECT_THAT(a.data, Each(x + 2));
    EXPECT_THAT(b.data, Each(x + 2));
    EXPECT_NE(outputs[2].data, static_cast<void*>(a.data.data() + n / 2)) << "a tensor of its own";
    host.get()->tensor_release(host.get()->context, outputs[2].tensor);
  }
  EXPECT_EQ(host.clones(), 2);
  e.reset();
  EXPECT_TRUE(host.clean());
}

// A check that fails keeps the commit region from writing the mutated input.
TEST(Executable, ChecksComeBeforeCommits) {
  FakeHost host;
  Program p = Empty();
  const int32_t in = AddInput(p, kF, {4}), state = AddInput(p, kF, {4});
  const int32_t word = AddValue(p, ValueKind::kErrorWord, 0, 8);
  p.inputs[1].mutated = true;
  p.checks = {{"ValueError", "unused"}, {"IndexError", "index is negative (net.py:7)"}};
  Step check = KernelCall(AddKernel(p, "check_negative"),
                          {MakeView(in, kF, {4}), MakeView(word, PrimitiveType::kS64, {})}, 4);
  std::get<KernelStep>(check.body).literals = {1};
  p.regions[0].steps.push_back(check);
  p.regions.push_back({.name = "commit"});
  p.regions[1].steps.push_back(
      {.body = CopyStep{MakeView(in, kF, {4}), MakeView(state, kF, {4})}, .name = "write back"});
  p.commit_region = 1;
  auto e = Make(std::move(p), host.get());
  Array input({4}, 5), mutated({4}, 0);
  TenonTensor inputs[] = {input.tensor(), mutated.tensor()};
  input.data[2] = -1;
  RunResult result = e->Run(inputs, nullptr);
  EXPECT_EQ(result.code, TENON_CHECK_ERROR);
  EXPECT_EQ(result.error, "IndexError: index is negative (net.py:7)");
  EXPECT_THAT(mutated.data, Each(0.0f));
  input.data[2] = 5;
  ASSERT_EQ(e->Run(inputs, nullptr).code, TENON_OK) << "the error word is zeroed per run";
  EXPECT_THAT(mutated.data, Each(5.0f));
}

// a := a + 1 and b := b + 1 where they lie, then what `b` was, or is, + 1 into an output.
Program Updates(bool read_b) {
  Program p = Empty();
  const int32_t a = AddInput(p, kF, {4}), b = AddInput(p, kF, {4}), out = AddOutput(p, kF, {4});
  const int32_t new_a = AddValue(p, ValueKind::kUpdate, 0, 16);
  const int32_t add = AddKernel(p, "add_one");
  p.regions.resize(2);
  p.commit_region = 1;
  auto update = [&](int32_t from, int32_t to) {
    p.regions[0].steps.push_back(KernelCall(add, {MakeView(from, kF, {4}), MakeView(to, kF, {4})}, 4));
    p.regions[0].steps.back().effect = Effect::kMutates;
    p.regions[1].steps.push_back(
        {.body = CopyStep{MakeView(to, kF, {4}), MakeView(from, kF, {4})}, .name = "home", .effect = Effect::kMutates});
  };
  update(a, new_a);
  if (!read_b) update(b, AddValue(p, ValueKind::kUpdate, 1, 16));
  p.regions[0].steps.push_back(KernelCall(add, {MakeView(read_b ? b : new_a, kF, {4}), MakeView(out, kF, {4})}, 4));
  return p;
}

TEST(Executable, UpdatesInputsWhereTheyLie) {
  FakeHost host;
  auto e = Make(Updates(false), host.get());
  Array a({4}, 1), b({4}, 5), out({4}, 0);
  const TenonTensor inputs[] = {a.tensor(), b.tensor()};
  TenonTensor outputs[] = {out.tensor()};
  ASSERT_EQ(e->Run(inputs, outputs).code, TENON_OK);
  const int64_t allocations = host.allocations();
  ASSERT_EQ(e->Run(inputs, outputs).code, TENON_OK);
  EXPECT_THAT(a.data, Each(3.0f));
  EXPECT_THAT(b.data, Each(7.0f));
  EXPECT_THAT(out.data, Each(4.0f)) << "the new a";
  EXPECT_EQ(host.allocations(), allocations) << "nothing is made elsewhere";
}

// a := a + 1 where it lies, then a call that reads the new value.
Program UpdateBeforeACall() {
  Program p = Empty();
  const int32_t a = AddInput(p, kF, {4}), out = AddOutput(p, kF, {4}), made = AddValue(p, ValueKind::kUpdate, 0, 16);
  const View old = MakeView(a, kF, {4}), updated = MakeView(made, kF, {4});
  p.regions.resize(2);
  p.commit_region = 1;
  p.regions[0].steps.push_back(KernelCall(AddKernel(p, "add_one"), {old, updated}, 4));
  p.regions[0].steps.back().effect = Effect::kMutates;
  p.regions[0].steps.push_back(FrameworkCall("test.add", {updated, updated}, MakeView(out, kF, {4}), ResultRule::kOut));
  std::get<FrameworkStep>(p.regions[0].steps[1].body).total = true;
  p.regions[1].steps.push_back({.body = CopyStep{updated, old}, .name = "home", .effect = Effect::kMutates});
  return p;
}

TEST(Executable, UpdatesBeforeACallFromTheSecondRunOn) {
  FakeHost host;
  auto e = Make(UpdateBeforeACall(), host.get());
  Array a({4}, 1), out({4}, 0);
  const TenonTensor inputs[] = {a.tensor()};
  TenonTensor outputs[] = {out.tensor()};
  host.FailAllocation(1);  // the memory for the new value, the call: nothing is written
  EXPECT_EQ(e->Run(inputs, outputs).code, TENON_HOST_ERROR);
  EXPECT_THAT(a.data, Each(1.0f));
  ASSERT_EQ(e->Run(inputs, outputs).code, TENON_OK);
  EXPECT_THAT(a.data, Each(2.0f));
  EXPECT_THAT(out.data, Each(4.0f));
  ASSERT_EQ(e->Run(inputs, outputs).code, TENON_OK);
  EXPECT_THAT(a.data, Each(3.0f));
  EXPECT_THAT(out.data, Each(6.0f));
  EXPECT_EQ(host.live_bytes(), 0) << "memory for new values is given back";
  host.FailAllocation(0);
  EXPECT_EQ(e->Run(inputs, outputs).code, TENON_HOST_ERROR | TENON_AFTER_WRITES);
  EXPECT_THAT(a.data, Each(4.0f)) << "as in a program that fails there";
}

// What is thrown behind the first write is told as what is returned there.
TEST(Executable, WhatIsThrownAfterAWriteSaysSo) {
  FakeHost host;
  auto e = Make(UpdateBeforeACall(), host.get());
  Array a({4}, 1), out({4}, 0);
  const TenonTensor inputs[] = {a.tensor()};
  TenonTensor outputs[] = {out.tensor()};
  host.ThrowInCall(0);
  RunResult result = e->Run(inputs, outputs);
  EXPECT_EQ(result.code, TENON_ERROR) << "the new value was made apart";
  EXPECT_EQ(result.error, "out of memory");
  EXPECT_THAT(a.data, Each(1.0f));
  ASSERT_EQ(e->Run(inputs, outputs).code, TENON_OK);
  EXPECT_THAT(a.data, Each(2.0f));
  host.ThrowInCall(0);
  result = e->Run(inputs, outputs);
  EXPECT_EQ(result.code, TENON_ERROR | TENON_AFTER_WRITES);
  EXPECT_EQ(result.error, "out of memory");
  EXPECT_THAT(a.data, Each(3.0f));
  ASSERT_EQ(e->Run(inputs, outputs).code, TENON_OK) << "the next run has written nothing yet";
}

// Nor can a run be done again whose inputs' new values were made apart and are home already.
TEST(Executable, WhatFailsBehindTheCommitSaysSo) {
  FakeHost host;
  Program p = UpdateBeforeACall();
  p.num_slots = 1;
  p.outputs.push_back({.kind = OutputKind::kSlot, .index = 0, .dims = {4}, .strides = {1}});
  const int32_t slot = AddValue(p, ValueKind::kSlot, 0, 16);
  p.regions[0].steps.insert(p.regions[0].steps.begin(),
                            FrameworkCall("test.view", {MakeView(0, kF, {4})}, MakeView(slot, kF, {4}), ResultRule::kView));
  auto e = Make(std::move(p), host.get());
  Array a({4}, 1), out({4}, 0);
  const TenonTensor inputs[] = {a.tensor()};
  TenonTensor outputs[] = {out.tensor(), {}};
  host.FailNextClone();
  EXPECT_EQ(e->Run(inputs, outputs).code, TENON_HOST_ERROR | TENON_AFTER_WRITES);
  EXPECT_THAT(a.data, Each(2.0f));
}

// Within the commit, too, behind the copy that brings the new value home, whether it is thrown or returned.
TEST(Executable, WhatFailsInTheCommitSaysSo) {
  for (const bool thrown : {true, false}) {
    FakeHost host;
    Program p = UpdateBeforeACall();
    p.regions[1].steps.push_back(p.regions[0].steps.back());
    auto e = Make(std::move(p), host.get());
    Array a({4}, 1), out({4}, 0);
    const TenonTensor inputs[] = {a.tensor()};
    TenonTensor outputs[] = {out.tensor()};
    if (thrown) host.ThrowInCall(1);
    if (!thrown) host.FailAllocation(2);  // the memory for the new value, the call, and the call in the commit
    EXPECT_EQ(e->Run(inputs, outputs).code, (thrown ? TENON_ERROR : TENON_HOST_ERROR) | TENON_AFTER_WRITES);
    EXPECT_THAT(a.data, Each(2.0f));
    ASSERT_EQ(e->Run(inputs, outputs).code, TENON_OK);
    EXPECT_THAT(a.data, Each(3.0f));
    EXPECT_THAT(out.data, Each(6.0f));
  }
}

// The same bytes come to be two inputs: every new value is of the old ones, whatever was written first.
TEST(Executable, InputsThatOverlapAreUpdatedFromTheirOldValues) {
  FakeHost host;
  for (const bool read_b : {false, true}) {
    auto e = Make(Updates(read_b), host.get());
    for (const int64_t shift : {2, 4, 1, 4}) {
      std::vector<float> flat = {0, 1, 2, 3, 4, 5, 6, 7}, out(4);
      const int64_t dims[] = {4}, strides[] = {1};
      const int32_t type = static_cast<int32_t>(kF);
      const TenonTensor inputs[] = {{nullptr, flat.data(), dims, strides, type, 1}, {nullptr, flat.data() + shift, dims, strides, type, 1}};
      TenonTensor outputs[] = {{nullptr, out.data(), dims, strides, type, 1}};
      ASSERT_EQ(e->Run(inputs, outputs).code, TENON_OK);
      std::vector<float> want = {0, 1, 2, 3, 4, 5, 6, 7};
      for (int64_t i = 0; i < 4; ++i) want[i] = static_cast<float>(i + 1);
      for (int64_t i = 0; i < 4 && !read_b; ++i) want[i + shift] = static_cast<float>(i + shift + 1);
      EXPECT_EQ(flat, want) << shift;
      for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(out[i], static_cast<float>(read_b ? i + shift + 1 : i + 2)) << shift << " " << read_b;
    }
  }
}

TEST(Executable, NothingIsUpdatedWhereACheckFailed) {
  FakeHost host;
  Program p = Updates(false);
  const int32_t checked = AddInput(p, kF, {4}), word = AddValue(p, ValueKind::kErrorWord, 0, 8);
  p.checks = {{"IndexError", "index is negative"}};
  Step check = KernelCall(AddKernel(p, "check_negative"), {MakeView(checked, kF, {4}), MakeView(word, PrimitiveType::kS64, {})}, 4);
  std::get<KernelStep>(check.body).num_results = 0;
  std::get<KernelStep>(check.body).literals = {0};
  check.effect = Effect::kError;
  p.regions[0].steps.insert(p.regions[0].steps.begin(), check);
  auto e = Make(std::move(p), host.get());
  Array a({4}, 1), b({4}, 5), negative({4}, -1), out({4}, 0);
  const TenonTensor inputs[] = {a.tensor(), b.tensor(), negative.tensor()};
  TenonTensor outputs[] = {out.tensor()};
  EXPECT_EQ(e->Run(inputs, outputs).code, TENON_CHECK_ERROR);
  EXPECT_THAT(a.data, Each(1.0f));
  EXPECT_THAT(b.data, Each(5.0f));
}

TEST(Executable, WhileAndConditional) {
  FakeHost host;
  constexpr PrimitiveType kS = PrimitiveType::kS32;
  Program p = Empty();
  const int32_t counter = AddInput(p, kS, {}), choice = AddInput(p, kS, {}),
                out = AddOutput(p, kF, {1});
  p.arena_bytes = 128;
  const int32_t flag = AddValue(p, ValueKind::kArena, 0, 1);
  const int32_t decrement = AddKernel(p, "decrement"), positive = AddKernel(p, "positive"),
                add = AddKernel(p, "add_one");
  const View c = MakeView(counter, kS, {}), f = MakeView(flag, PrimitiveType::kPred, {}),
             o = MakeView(out, kF, {1});
  p.regions.resize(4);
  p.regions[0].steps = {
      {.body = WhileStep{1, 2, f}, .name = "while"},
      {.body = ConditionalStep{MakeView(choice, kS, {}), {3, 2}}, .name = "switch"}};
  p.regions[1].steps = {KernelCall(positive, {c, f}, 1)};
  p.regions[2].steps = {KernelCall(decrement, {c}, 1), KernelCall(add, {o, o}, 1)};
  p.regions[3].steps = {};
  auto e = Make(std::move(p), host.get());
  for (const auto& [chosen, total] : {std::pair{0, 7}, {1, 8}, {99, 8}, {-1, 8}}) {
    int32_t n = 7, branch = chosen;
    Array result({1}, 0);
    const TenonTensor inputs[] = {
        {nullptr, &n, nullptr, nullptr, static_cast<int32_t>(kS), 0},
        {nullptr, &branch, nullptr, nullptr, static_cast<int32_t>(kS), 0}};
    TenonTensor outputs[] = {result.tensor()};
    ASSERT_EQ(e->Run(inputs, outputs).code, TENON_OK);
    EXPECT_EQ(result.data[0], static_cast<float>(total)) << chosen;
  }
}

// Counts an s32 input down to 0; before that, if asked to, a step that writes to the caller's memory.
Program Countdown(bool write_first) {
  constexpr PrimitiveType kS = PrimitiveType::kS32;
  Program p = Empty();
  const int32_t counter = AddInput(p, kS, {}), written = AddInput(p, kS, {});
  p.arena_bytes = 64;
  const int32_t flag = AddValue(p, ValueKind::kArena, 0, 1);
  const int32_t decrement = AddKernel(p, "decrement"), positive = AddKernel(p, "positive");
  const View c = MakeView(counter, kS, {}), f = MakeView(flag, PrimitiveType::kPred, {});
  p.regions.resize(3);
  if (write_first) {
    p.regions[0].steps.push_back({.body = CopyStep{c, MakeView(written, kS, {})}, .name = "write", .effect = Effect::kMutates});
  }
  p.regions[0].steps.push_back({.body = WhileStep{1, 2, f}, .name = "while"});
  p.regions[1].steps = {KernelCall(positive, {c, f}, 1)};
  p.regions[2].steps = {KernelCall(decrement, {c}, 1)};
  return p;
}

TEST(Executable, AnInterruptEndsALoopUnlessTheCallersMemoryIsHalfWritten) {
  constexpr PrimitiveType kS = PrimitiveType::kS32;
  TenonHost host = *DefaultHost();
  static std::atomic<int> asked;
  host.interrupted = [](void*) {
    ++asked;
    return 1;
  };
  for (const bool write_first : {false, true}) {
    asked = 0;
    auto e = Make(Countdown(write_first), &host);
    int32_t n = write_first ? 5'000'000 : INT32_MAX, written = 0;
    const TenonTensor inputs[] = {{nullptr, &n, nullptr, nullptr, static_cast<int32_t>(kS), 0},
                                  {nullptr, &written, nullptr, nullptr, static_cast<int32_t>(kS), 0}};
    const RunResult result = e->Run(inputs, nullptr);
    if (write_first) {
      EXPECT_EQ(result.code, TENON_OK);
      EXPECT_EQ(n, 0);
      EXPECT_EQ(asked, 0);
    } else {
      EXPECT_EQ(result.code, TENON_HOST_ERROR);
      EXPECT_EQ(result.kind, absl::StatusCode::kCancelled);
      EXPECT_GT(n, 0);
      EXPECT_EQ(asked, 1);
    }
  }
}

TEST(Executable, CopiesAnyStrides) {
  FakeHost host;
  Program p = Empty();
  const int32_t in = AddInput(p, kF, {3, 4}), out = AddOutput(p, kF, {4, 2, 3});
  View from = MakeView(in, kF, {4, 2, 3}), to = MakeView(out, kF, {4, 2, 3});
  from.strides = {1, 0, 4};  // transposed, repeated
  p.regions[0].steps.push_back({.body = CopyStep{from, to}, .name = "copy"});
  auto e = Make(std::move(p), host.get());
  Array input({3, 4}), output({4, 2, 3});
  for (int i = 0; i < 12; ++i) input.data[i] = static_cast<float>(i);
  TenonTensor inputs[] = {input.tensor()}, outputs[] = {output.tensor()};
  ASSERT_EQ(e->Run(inputs, outputs).code, TENON_OK);
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < 2; ++k) {
      for (int j = 0; j < 3; ++j)
        ASSERT_EQ(output.data[(i * 2 + k) * 3 + j], static_cast<float>(j * 4 + i));
    }
  }
}

TEST(Executable, SymbolicSizes) {
  FakeHost host;
  Program p = Empty();
  DimProgramBuilder dims(&p);
  p.inputs.push_back({.dtype = kF, .dims = {0}, .strides = {1}});
  const SizeRef n = dims.Emit({.kind = DimOp::Kind::kInputDim, .a = 0, .b = 0});
  EXPECT_EQ(dims.Emit({.kind = DimOp::Kind::kInputDim, .a = 0, .b = 0}), n) << "no duplicates";
  const SizeRef bytes = dims.Emit({.kind = DimOp::Kind::kMul, .a = n, .b = 4});
  p.inputs[0].dims = {n};
  p.outputs.push_back({.dtype = kF, .dims = {n}, .strides = {1}});
  p.arena_bytes = bytes;
  const int32_t in = AddValue(p, ValueKind::kInput, 0, bytes),
                mid = AddValue(p, ValueKind::kArena, 0, bytes),
                out = AddValue(p, ValueKind::kOutput, 0, bytes);
  auto view = [&](int32_t v) { return View{.value = v, .dtype = kF, .dims = {n}, .strides = {1}}; };
  const int32_t k = AddKernel(p, "add_one");
  p.regions[0].steps = {KernelCall(k, {view(in), view(mid)}, n),
                        KernelCall(k, {view(mid), view(out)}, n),
                        {.body = CopyStep{view(out), view(mid)}, .name = "copy"}};
  auto e = Make(std::move(p), host.get());
  for (const int64_t size : {7, 0, 1000, 1}) {
    Array input({size}, 1), output({size});
    TenonTensor inputs[] = {input.tensor()}, outputs[] = {output.tensor()};
    std::vector<int64_t> sizes, strides;
    ASSERT_TRUE(e->OutputSizes(inputs, 0, &sizes, &strides).ok());
    EXPECT_EQ(sizes, std::vector<int64_t>{size});
    ASSERT_EQ(e->Run(inputs, outputs).code, TENON_OK);
    EXPECT_THAT(output.data, Each(3.0f));
  }
}

TEST(Executable, WrongInputsAreNamed) {
  FakeHost host;
  auto e = Make(TwoKernels(100), host.get());
  Array wrong({50, 2}), out({100});
  TenonTensor inputs[] = {wrong.tensor()}, outputs[] = {out.tensor()};
  RunResult result = e->Run(inputs, outputs);
  EXPECT_EQ(result.code, TENON_ERROR);
  EXPECT_THAT(result.error, HasSubstr("input 0: compiled for dtype f32, shape [100]"));
  EXPECT_THAT(result.error, HasSubstr("got dtype f32, shape [50,2]"));
}

TEST(Executable, UnknownOperatorsAndSymbolsAreNamed) {
  FakeHost host;
  Program p = TwoCalls(8);
  std::get<FrameworkStep>(p.regions[0].steps[1].body).overload = "test.unknown";
  auto made = Executable::Create(std::move(p), FakeLoader(), host.get());
  EXPECT_THAT(std::string(made.status().message()), HasSubstr("test.unknown: no such operator"));
  EXPECT_TRUE(host.clean());
  p = TwoKernels(8);
  p.kernels[0].symbol = "nowhere";
  EXPECT_THAT(
      std::string(Executable::Create(std::move(p), FakeLoader(), host.get()).status().message()),
      HasSubstr("nowhere"));
}

// Every allocation fails once: a clean error, nothing leaked, and the executable still works.
TEST(Executable, TheNthAllocationFails) {
  for (int64_t n = 0;; ++n) {
    FakeHost host;
    Program p = TwoCalls(8);
    p.arena_bytes = 1 << 12;
    const int32_t mid = AddValue(p, ValueKind::kArena, 0, 32);
    Step sum = KernelCall(AddKernel(p, "row_sum", 64),
                          {MakeView(0, kF, {1, 8}), MakeView(mid, kF, {1})}, 1);
    std::get<KernelStep>(sum.body).args = {8};
    p.regions[0].steps.push_back(sum);
    host.FailAllocation(n);
    auto made = Executable::Create(std::move(p), FakeLoader(), host.get());
    if (!made.ok()) {
      EXPECT_TRUE(host.clean()) << n;
      continue;
    }
    Array in({8}, 2), out({8});
    TenonTensor inputs[] = {in.tensor()}, outputs[] = {out.tensor()};
    const RunResult failed = (*made)->Run(inputs, outputs);
    if (failed.code == TENON_ERROR) {
      EXPECT_THAT(failed.error, HasSubstr("out of memory: wanted"));
    }
    EXPECT_EQ(host.live_tensors(), 0) << n;
    host.FailAllocation(-1);
    EXPECT_EQ((*made)->Run(inputs, outputs).code, TENON_OK) << n;
    EXPECT_THAT(out.data, Each(8.0f));
    (*made).reset();
    EXPECT_TRUE(host.clean()) << n;
    if (failed.code == TENON_OK) {
      EXPECT_GE(n, 4) << "prepared operators, arena, call, scratch must each have failed";
      break;
    }
  }
}

}  // namespace
}  // namespace tenon::testing
