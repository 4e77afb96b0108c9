// What is recorded is what ran. No test here judges how long something took.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "runtime/clock.h"
#include "runtime/execute/step_work.h"
#include "runtime/profile/recorder.h"
#include "tests/runtime/fakes.h"

namespace tenon::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = TraceEvent::Kind;
constexpr PrimitiveType kF = PrimitiveType::kF32, kS = PrimitiveType::kS32;
constexpr int64_t kRoom = 100'000;

Program Empty() {
  Program p;
  p.name = "test";
  p.regions.push_back({.name = "main"});
  return p;
}

// Kernels "add 0", "add 1", ...: out k = in k + 1, of `sizes` in grains of `grain`.
Program Pairs(const std::vector<int64_t>& sizes, int64_t grain) {
  Program p = Empty();
  const int32_t add = AddKernel(p, "add_one");
  for (size_t k = 0; k < sizes.size(); ++k) {
    const int32_t in = AddInput(p, kF, {sizes[k]}), out = AddOutput(p, kF, {sizes[k]});
    p.regions[0].steps.push_back(KernelCall(add, {MakeView(in, kF, {sizes[k]}), MakeView(out, kF, {sizes[k]})}, sizes[k], grain));
    p.regions[0].steps.back().name = "add " + std::to_string(k);
    p.regions[0].steps.back().bytes = 8 * sizes[k];
  }
  return p;
}

// Counts an s32 input down to 0 in a loop.
Program Countdown() {
  Program p = Empty();
  const int32_t counter = AddInput(p, kS, {});
  p.arena_bytes = 64;
  const View c = MakeView(counter, kS, {}), f = MakeView(AddValue(p, ValueKind::kArena, 0, 1), PrimitiveType::kPred, {});
  p.regions.resize(3);
  p.regions[0].steps = {{.body = WhileStep{1, 2, f}, .name = "while"}};
  p.regions[1].steps = {KernelCall(AddKernel(p, "positive"), {c, f}, 1)};
  p.regions[2].steps = {KernelCall(AddKernel(p, "decrement"), {c}, 1)};
  return p;
}

class Runner {
 public:
  Runner(Program program, const TenonHost* host) {
    for (const InputSpec& in : program.inputs) arrays_.emplace_back(in.dims);
    const size_t inputs = arrays_.size();
    for (const OutputSpec& out : program.outputs) arrays_.emplace_back(out.dims);
    for (size_t k = 0; k < arrays_.size(); ++k) (k < inputs ? in_ : out_).push_back(arrays_[k].tensor());
    auto made = Executable::Create(std::move(program), FakeLoader(), host);
    EXPECT_TRUE(made.ok()) << made.status();
    executable_ = *std::move(made);
  }
  void Run(int times = 1) {
    for (int k = 0; k < times; ++k) EXPECT_EQ(executable_->Run(in_.data(), out_.data()).code, TENON_OK);
  }

 private:
  std::vector<Array> arrays_;
  std::vector<TenonTensor> in_, out_;
  std::shared_ptr<Executable> executable_;
};

void CountDown(Executable& e, int32_t n) {
  const TenonTensor inputs[] = {{nullptr, &n, nullptr, nullptr, static_cast<int32_t>(kS), 0}};
  EXPECT_EQ(e.Run(inputs, nullptr).code, TENON_OK);
  EXPECT_EQ(n, 0);
}

template <typename F>
std::unique_ptr<Profile> Recorded(const F& run, int64_t max_events = kRoom) {
  EXPECT_TRUE(Recorder::Start(max_events).ok());
  run();
  auto profile = Recorder::Stop();
  EXPECT_TRUE(profile.ok()) << profile.status();
  return *std::move(profile);
}

std::vector<TraceEvent> Events(const Profile& profile, Kind kind, int32_t step = -2) {
  std::vector<TraceEvent> found;
  for (const ProfiledEvent& e : profile.events) {
    if (e.event.kind == kind && (step == -2 || e.event.step == step)) found.push_back(e.event);
  }
  return found;
}

bool Within(const TraceEvent& inner, const TraceEvent& outer) { return outer.begin <= inner.begin && inner.end <= outer.end; }

MachineRoof SomeRoof() {
  return {.threads = 2, .f32_gflop_per_s = 100, .levels = {{"L2", 1000, 50}, {"memory", INT64_MAX, 10}}};
}

TEST(Profile, OneRecordingAtATime) {
  EXPECT_THAT(Recorder::Stop().status().message(), HasSubstr("no profile"));
  EXPECT_FALSE(Recorder::Start(-1).ok());
  ASSERT_TRUE(Recorder::Start(0).ok());
  EXPECT_THAT(Recorder::Start(0).message(), HasSubstr("already"));
  EXPECT_TRUE(Recorder::Stop().ok());
  EXPECT_FALSE(Recorder::Stop().ok());
}

TEST(Profile, EveryStepOfEveryCallAndNoOther) {
  Runner runner(Pairs({100, 200, 300}, 1 << 30), DefaultHost());
  runner.Run(2);
  const auto profile = Recorded([&] { runner.Run(3); });
  runner.Run();
  ASSERT_EQ(profile->programs.size(), 1);
  const ProfiledProgram& program = profile->programs[0];
  EXPECT_EQ(program.name, "test");
  EXPECT_EQ(program.calls, 3);
  EXPECT_THAT(program.regions, ElementsAre(3));
  ASSERT_EQ(program.steps.size(), 3);
  uint64_t ticks = 0;
  for (const ProfiledStep& step : program.steps) {
    EXPECT_EQ(step.totals.count, 3);
    EXPECT_EQ(step.totals.pieces, 3) << "one each";
    EXPECT_GT(step.totals.ticks, 0);
    EXPECT_LE(step.totals.busy, step.totals.ticks);
    ticks += step.totals.ticks;
  }
  EXPECT_EQ(program.steps[2].described["name"].get<std::string>(), "add 2");
  EXPECT_LE(ticks, program.ticks);
  EXPECT_LE(program.ticks, profile->inside) << "on one thread";
  EXPECT_LE(profile->inside, profile->end - profile->begin);
  const std::vector<TraceEvent> calls = Events(*profile, Kind::kCall);
  ASSERT_EQ(calls.size(), 3);
  for (int32_t k = 0; k < 3; ++k) {
    const std::vector<TraceEvent> steps = Events(*profile, Kind::kStep, k);
    ASSERT_EQ(steps.size(), 3);
    for (int call = 0; call < 3; ++call) EXPECT_TRUE(Within(steps[call], calls[call])) << k << " of " << call;
  }
  EXPECT_EQ(profile->dropped, 0);
  EXPECT_EQ(profile->unfinished, 0);
}

TEST(Profile, PiecesAreThoseOfTheGrain) {
  const TenonHost host = ThreadedHost(3);
  Runner alone(Pairs({1000}, 100), &host);
  const auto profile = Recorded([&] { alone.Run(2); });
  const StepTotals& totals = profile->programs[0].steps[0].totals;
  EXPECT_EQ(totals.count, 2);
  EXPECT_EQ(totals.pieces, 6) << "10 grains on 3 threads, twice";
  const std::vector<TraceEvent> steps = Events(*profile, Kind::kStep), pieces = Events(*profile, Kind::kPiece);
  ASSERT_EQ(steps.size(), 2);
  ASSERT_EQ(pieces.size(), 6);
  uint64_t busy = 0;
  std::map<int32_t, int> threads;
  for (size_t k = 0; k < pieces.size(); ++k) {
    EXPECT_TRUE(Within(pieces[k], steps[k / 3]));
    busy += pieces[k].end - pieces[k].begin;
    ++threads[pieces[k].thread];
  }
  EXPECT_EQ(totals.busy, busy);
  EXPECT_EQ(threads[ThreadNumber()], 2) << "the caller works too";
}

TEST(Profile, AGroupsLaunchIsSharedOutAmongItsMembers) {
  const TenonHost host = ThreadedHost(3);
  Runner runner(Pairs({900, 50, 1, 700, 1500}, 300), &host);
  const auto profile = Recorded([&] { runner.Run(4); });
  const std::vector<TraceEvent> launches = Events(*profile, Kind::kLaunch), pieces = Events(*profile, Kind::kPiece);
  ASSERT_EQ(launches.size(), 4) << "profiles leave groups as they are";
  EXPECT_TRUE(Events(*profile, Kind::kStep).empty());
  uint64_t launched = 0, shared = 0, parts = 0;
  for (const TraceEvent& launch : launches) launched += launch.end - launch.begin;
  for (const ProfiledStep& step : profile->programs[0].steps) {
    EXPECT_EQ(step.totals.count, 4);
    EXPECT_GE(step.totals.pieces, 4);
    shared += step.totals.ticks, parts += step.totals.pieces;
  }
  EXPECT_EQ(parts, pieces.size());
  EXPECT_LE(parts, 4 * (5 + 3 - 1)) << "a cut inside of a member makes one more";
  EXPECT_LE(shared, launched);
  EXPECT_GE(shared + 4 * pieces.size(), launched) << "all but what rounding takes";
  for (const TraceEvent& p : pieces) {
    EXPECT_TRUE(std::any_of(launches.begin(), launches.end(), [&](const TraceEvent& l) { return Within(p, l); }));
  }
}

TEST(Profile, LoopsAreCountedBeyondWhatTheTimelineHolds) {
  auto made = Executable::Create(Countdown(), FakeLoader(), DefaultHost());
  ASSERT_TRUE(made.ok()) << made.status();
  constexpr int32_t kTurns = 30'000;
  for (const int64_t room : {int64_t{10}, kRoom}) {
    const auto profile = Recorded([&] { CountDown(**made, kTurns); }, room);
    const ProfiledProgram& program = profile->programs[0];
    EXPECT_THAT(program.regions, ElementsAre(1, kTurns + 1, kTurns));
    EXPECT_EQ(program.steps[0].totals.count, 1);
    EXPECT_EQ(program.steps[1].totals.count, kTurns + 1);
    EXPECT_EQ(program.steps[2].totals.count, kTurns);
    EXPECT_TRUE(program.steps[0].control);
    EXPECT_LE(program.steps[1].totals.ticks + program.steps[2].totals.ticks, program.steps[0].totals.ticks);
    const size_t all = 1 + 1 + 2 * kTurns + 1;  // the call, the loop, what it ran
    EXPECT_EQ(profile->events.size() + profile->dropped, all);
    EXPECT_EQ(profile->events.size(), std::min<size_t>(static_cast<size_t>(room), kMaxTraceEvents + 1));
    EXPECT_LE(profile->events.capacity(), static_cast<size_t>(room)) << "no more memory than was asked for";
    EXPECT_THAT(profile->Table(SomeRoof(), 0), HasSubstr("the timeline lacks"));
  }
}

TEST(Profile, CallsOfManyThreads) {
  constexpr int kThreads = 4, kRuns = 50;
  Runner sample(Pairs({10}, 1 << 30), DefaultHost());
  auto made = Executable::Create(Pairs({100, 100}, 1 << 30), FakeLoader(), DefaultHost());
  ASSERT_TRUE(made.ok());
  const auto profile = Recorded([&] {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        Array in[] = {Array({100}), Array({100})}, out[] = {Array({100}), Array({100})};
        const TenonTensor inputs[] = {in[0].tensor(), in[1].tensor()};
        TenonTensor outputs[] = {out[0].tensor(), out[1].tensor()};
        for (int k = 0; k < kRuns; ++k) EXPECT_EQ((*made)->Run(inputs, outputs).code, TENON_OK);
      });
    }
    for (std::thread& t : threads) t.join();
    sample.Run();
  });
  ASSERT_EQ(profile->programs.size(), 2) << "programs are told apart, though they have one name";
  const ProfiledProgram& program = profile->programs[0];
  EXPECT_EQ(program.calls, kThreads * kRuns);
  std::map<int32_t, std::vector<TraceEvent>> calls;
  for (const TraceEvent& call : Events(*profile, Kind::kCall)) calls[call.thread].push_back(call);
  EXPECT_EQ(calls.size(), kThreads + 1);
  for (int32_t k = 0; k < 2; ++k) {
    EXPECT_EQ(program.steps[k].totals.count, kThreads * kRuns);
    for (const TraceEvent& step : Events(*profile, Kind::kStep, k)) {
      const auto& own = calls[step.thread];
      EXPECT_EQ(std::count_if(own.begin(), own.end(), [&](const TraceEvent& call) { return Within(step, call); }), 1);
    }
  }
  EXPECT_LE(profile->inside, profile->end - profile->begin) << "calls beside each other count once";
}

TEST(Profile, ACallThatGoesOnIsNotInIt) {
  static std::unique_ptr<Profile> stopped;
  TenonHost host = ThreadedHost(2);
  host.parallel_for = [](void*, int64_t begin, int64_t end, int64_t, void (*run)(void*, int64_t, int64_t), void* data) {
    for (int64_t k = begin; k < end; ++k) run(data, k, k + 1);
    if (auto profile = Recorder::Stop(); profile.ok()) stopped = *std::move(profile);
  };
  Runner runner(Pairs({1000}, 100), &host);
  ASSERT_TRUE(Recorder::Start(kRoom).ok());
  runner.Run();
  ASSERT_NE(stopped, nullptr);
  EXPECT_EQ(stopped->unfinished, 1);
  EXPECT_TRUE(stopped->programs.empty());
  EXPECT_GT(stopped->inside, 0);
  EXPECT_THAT(stopped->Table(SomeRoof(), 0), HasSubstr("1 calls went on after the end"));
  Runner other(Pairs({10}, 100), DefaultHost());
  EXPECT_EQ(Recorded([&] { other.Run(); })->programs.at(0).calls, 1) << "the next recording is not disturbed";
}

TEST(Profile, TextsHaveWhatWasRecorded) {
  const TenonHost host = ThreadedHost(2);
  Program program = Pairs({1000}, 100);
  program.name = "a \"name\"";
  program.regions[0].steps[0].flops = 5000;
  Runner runner(std::move(program), &host);
  const auto profile = Recorded([&] { runner.Run(4); });
  const auto json = nlohmann::json::parse(profile->JsonText(SomeRoof()));
  const auto& step = json["programs"][0]["steps"][0];
  EXPECT_EQ(json["programs"][0]["name"], "a \"name\"");
  EXPECT_EQ(json["programs"][0]["regions"][0]["runs"], 4);
  EXPECT_EQ(step["count"], 4);
  EXPECT_EQ(step["executions"], 1);
  EXPECT_EQ(step["pieces"], 2);
  const double once = step["ns"].get<double>() / 4;
  EXPECT_NEAR(step["gb_per_s"].get<double>() * once, 8000, 1e-6);
  EXPECT_NEAR(step["gflop_per_s"].get<double>() * once, 5000, 1e-6);
  EXPECT_NEAR(step["roof"].get<double>() * once, 800, 1e-6) << "8000 bytes at 10 GB/s are more than 5000 flops at 100 GFLOP/s";
  EXPECT_NEAR(step["share"].get<double>() * json["programs"][0]["ns"].get<double>(), 4 * once, 1e-3);
  EXPECT_LE(json["inside_ns"].get<double>(), json["wall_ns"].get<double>());
  const std::string table = profile->Table(SomeRoof(), 0);
  for (const char* wanted : {"a \"name\": 4 calls", "add_one add 0", "GFLOP/s", "between steps", "roof: 2 threads", "outside"}) {
    EXPECT_THAT(table, HasSubstr(wanted));
  }

  const auto trace = nlohmann::json::parse(profile->ChromeTrace());
  std::map<std::string, int> events;
  for (const auto& e : trace["traceEvents"]) {
    if (e["ph"] == "M") {
      EXPECT_EQ(e["name"], "thread_name");
      continue;
    }
    EXPECT_EQ(e["ph"], "X");
    EXPECT_GE(e["ts"].get<double>(), 0);
    EXPECT_GE(e["dur"].get<double>(), 0);
    EXPECT_TRUE(e["tid"].is_number_integer() && e["pid"].is_number_integer());
    ++events[e["cat"].get<std::string>()];
    EXPECT_EQ(e["name"], e["cat"] == "call" ? "a \"name\"" : "add 0");
    if (e["cat"] != "call") {
      EXPECT_EQ(e["args"]["flops"], 5000);
    }
  }
  EXPECT_EQ(events, (std::map<std::string, int>{{"call", 4}, {"step", 4}, {"piece", 8}}));
}

// The other account of runs: what a report shows of the last one.
TEST(Profile, AReportsTraceHasThePieces) {
  const TenonHost host = ThreadedHost(3);
  auto made = Executable::Create(Pairs({1000}, 100), FakeLoader(), &host);
  ASSERT_TRUE(made.ok());
  Array in({1000}), out({1000});
  const TenonTensor inputs[] = {in.tensor()};
  TenonTensor outputs[] = {out.tensor()};
  Executable::SetProfiling(true);
  for (int k = 0; k < 2; ++k) EXPECT_EQ((*made)->Run(inputs, outputs).code, TENON_OK);
  Executable::SetProfiling(false);
  const auto profile = nlohmann::json::parse((*made)->ProfileJson());
  ASSERT_EQ(profile["trace"].size(), 1);
  ASSERT_EQ(profile["pieces"].size(), 3);
  const auto& step = profile["trace"][0];
  std::vector<int> threads;
  for (const auto& piece : profile["pieces"]) {
    EXPECT_EQ(piece[0], 0);
    threads.push_back(piece[1]);
    EXPECT_TRUE(step[1] <= piece[2] && piece[2] <= piece[3] && piece[3] <= step[2]) << piece;
  }
  EXPECT_THAT(threads, ElementsAre(0, 1, 2)) << "the caller is number 0";
}

TEST(Profile, TheHostsRangesAreCallsAndStepsInThem) {
  static std::vector<std::string> log;
  static bool tracing;
  TenonHost host = ThreadedHost(2);
  host.tracing = [](void*) { return tracing ? 1 : 0; };
  host.range_begin = [](void*, const char* name) -> void* {
    log.push_back(name);
    return new std::string(name);
  };
  host.range_end = [](void*, void* range) {
    log.push_back("end " + *static_cast<std::string*>(range));
    delete static_cast<std::string*>(range);
  };
  Runner runner(Pairs({100, 200'000}, 1000), &host), group(Pairs({900, 700, 1500}, 300), &host);
  tracing = false;
  runner.Run();
  EXPECT_TRUE(log.empty());
  tracing = true;
  runner.Run();
  EXPECT_THAT(log, ElementsAre("tenon::test", "tenon::add 0", "end tenon::add 0", "tenon::add 1", "end tenon::add 1", "end tenon::test"));
  log.clear();
  group.Run();
  EXPECT_THAT(log, ElementsAre("tenon::test", "tenon::add 0 and 2 more", "end tenon::add 0 and 2 more", "end tenon::test"));
}

TEST(StepWork, CallsOnDoublesAreToldApart) {
  const View a = MakeView(0, kF, {8, 16}), b = MakeView(1, kF, {16, 4}), c = MakeView(2, kF, {8, 4});
  EXPECT_FALSE(WorkOf({.body = FrameworkStep{.overload = "test.op", .operands = {a, b}, .results = {c}}}).f64);
  const View d = MakeView(0, PrimitiveType::kF64, {8, 16});
  EXPECT_TRUE(WorkOf({.body = FrameworkStep{.overload = "test.op", .operands = {d, d}, .results = {d}}}).f64);
}

TEST(MachineRoof, TheLeastTimeIsThatOfWhatTakesLonger) {
  const MachineRoof roof = SomeRoof();
  EXPECT_EQ(roof.LeastNs(1000, 0), 20) << "fits L2";
  EXPECT_EQ(roof.LeastNs(1001, 0), 100.1);
  EXPECT_EQ(roof.LeastNs(1000, 4000), 40);
  EXPECT_EQ(roof.LeastNs(1000, 4000, /*f64=*/true), 80);
}

TEST(MachineRoof, IsMeasuredOnce) {
  const MachineRoof& roof = RoofOf(*DefaultHost());
  EXPECT_GT(roof.f32_gflop_per_s, 0);
  ASSERT_GE(roof.levels.size(), 2);
  for (size_t k = 0; k < roof.levels.size(); ++k) {
    EXPECT_GT(roof.levels[k].gb_per_s, 0);
    EXPECT_GT(roof.levels[k].bytes, k == 0 ? 0 : roof.levels[k - 1].bytes);
  }
  EXPECT_EQ(&roof, &RoofOf(*DefaultHost()));
  TenonHost host = ThreadedHost(roof.threads + 1);
  EXPECT_EQ(RoofOf(host).threads, roof.threads + 1) << "of each number of threads";
}

}  // namespace
}  // namespace tenon::testing
