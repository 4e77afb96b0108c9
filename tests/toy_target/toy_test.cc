// A device that is no CPU (docs/architecture/targets.md): the modules of tests/backends in its memory, modules of which half lies there,
// and what goes wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <iostream>
#include <set>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backends/driver/literal_executable.h"
#include "backends/driver/targets.h"
#include "hlo/check.h"
#include "hlo/eval/evaluator.h"
#include "hlo/text/text.h"
#include "passes/spaces/spaces.h"
#include "runtime/host/plain_host.h"
#include "tests/backends/hlo_cases.h"
#include "tests/toy_target/toy_runner.h"

namespace tenon::toy {
namespace {

using testing::HasSubstr;

std::vector<Literal> LeavesOf(const std::vector<Literal>& all) {
  std::vector<Literal> leaves;
  for (const Literal& l : all) {
    for (Literal& leaf : Leaves(l)) leaves.push_back(std::move(leaf));
  }
  return leaves;
}

std::unique_ptr<Module> Parse(const std::string& text) {
  absl::StatusOr<std::unique_ptr<Module>> module = ParseModule(text);
  TENON_CHECK(module.ok(), std::string(module.status().message()));
  return *std::move(module);
}

// What the toy had no code for, as the compile tells it.
std::vector<std::string> Refusals(const Program& program) {
  std::vector<std::string> refusals;
  for (const std::string& remark : program.remarks) {
    if (absl::StrContains(remark, "\"kind\":\"host\"")) refusals.push_back(remark);
  }
  return refusals;
}

int64_t KernelsOfTheHost(const Program& program) {
  int64_t n = 0;
  for (const KernelSpec& k : program.kernels) n += program.code[k.code].space == 0;
  return n;
}

class ToyCases : public testing::TestWithParam<HloCase> {};

// All parameters and results lie in the toy's memory.
TEST_P(ToyCases, EqualTheEvaluator) {
  const HloCase& c = GetParam();
  const std::unique_ptr<Module> module = Parse(c.text);
  const std::vector<Literal> args = ArgumentsOf(*module, c, 7000);
  const absl::StatusOr<Literal> want = Evaluate(*module, args, ChecksPass());
  ASSERT_TRUE(want.ok()) << want.status();
  MoveSignature(*module, kSpace);
  const int64_t bytes = TheMemory().live_bytes(), events = LiveEvents();
  {
    absl::StatusOr<Program> program = CompileForToy(*module, {.excess_precision = !c.strict});
    ASSERT_TRUE(program.ok()) << program.status();
    // What is not launched is the host's for a reason that is told, or since it began there, as a loop's counter does.
    const std::vector<std::string> refusals = Refusals(*program);
    if (refusals.empty() && program->regions.size() == 1) {
      EXPECT_EQ(KernelsOfTheHost(*program), 0) << program->ToString();
    }
    absl::StatusOr<ToyRunner> runner = ToyRunner::Make(*std::move(program));
    ASSERT_TRUE(runner.ok()) << runner.status();
    for (int run = 0; run < 2; ++run) {  // the second in the first one's memory
      absl::StatusOr<std::vector<Literal>> got = runner->Run(LeavesOf(args));
      ASSERT_TRUE(got.ok()) << got.status() << "\n" << runner->program().ToString();
      const std::vector<Literal> leaves = Leaves(*want);
      ASSERT_EQ(got->size(), leaves.size());
      for (size_t i = 0; i < leaves.size(); ++i) {
        if (!leaves[i].shape().is_array()) continue;
        const LiteralDifference d = CompareLiterals((*got)[i], leaves[i], c.tolerance);
        EXPECT_TRUE(d.within) << "result " << i << ": " << d.what << "\n" << runner->program().ToString();
      }
    }
  }
  EXPECT_EQ(TheMemory().live_bytes(), bytes);
  EXPECT_EQ(LiveEvents(), events);
}

INSTANTIATE_TEST_SUITE_P(Hlo, ToyCases, testing::ValuesIn(DeviceCases()), [](const auto& info) { return TestName(info.param); });

// What it leaves to the host: walks of regions, contractions without a provider, indices that are data, elements below a byte.
constexpr char kHostsOpcodes[] =
    "add and bitcast-convert convert convolution custom-call divide dot dynamic-slice dynamic-update-slice gather map maximum minimum "
    "mulhi multiply or power reduce reduce-window remainder scatter select-and-scatter shift-left shift-right-arithmetic "
    "shift-right-logical sort subtract topk xor";

// How much of those modules the toy really runs.
TEST(Toy, RunsMostOfThem) {
  int launched = 0, all = 0;
  std::set<std::string> reasons;
  for (const HloCase& c : DeviceCases()) {
    const std::unique_ptr<Module> module = Parse(c.text);
    MoveSignature(*module, kSpace);
    const absl::StatusOr<Program> program = CompileForToy(*module, {.excess_precision = !c.strict});
    ASSERT_TRUE(program.ok()) << c.name << program.status();
    ++all;
    launched += LaunchesOf(*program) > 0;
    for (const std::string& refusal : Refusals(*program)) {
      const size_t at = refusal.find("\"reason\":\"") + 10;
      reasons.insert(refusal.substr(at, refusal.find('"', at) - at));
    }
  }
  std::cout << launched << " of " << all << " modules launch something\n";
  EXPECT_GT(launched, all / 2);
  std::set<std::string> opcodes;
  for (const std::string& reason : reasons) {
    ASSERT_TRUE(reason.starts_with("no code for ") && reason.ends_with(" in memory space 1")) << reason;
    opcodes.insert(reason.substr(12, reason.size() - 12 - 18));
  }
  EXPECT_EQ(absl::StrJoin(opcodes, " "), kHostsOpcodes);
}

// Half of it lies in the toy's memory.
constexpr char kMixed[] = R"(HloModule mixed
ENTRY e {
  x = f32[30,10]{1,0:S(1)} parameter(0)
  y = f32[30,10] parameter(1)
  z = f32[10] parameter(2)
  zb = f32[30,10] broadcast(z), dimensions={1}
  h = f32[30,10] multiply(y, zb)
  a = f32[30,10] add(x, h)
  n = f32[30,10] negate(a)
  zero = f32[] constant(0)
  s = f32[30] reduce(n, zero), dimensions={1}, to_apply={ p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = f32[] add(p, q) }
  m = f32[30,10] subtract(n, x)
  ROOT t = (f32[30,10]{1,0:S(1)}, f32[30], f32[30,10]) tuple(m, s, h)
})";

std::vector<Literal> MixedArguments() { return ArgumentsOf(*Parse(kMixed), {}, 7000); }
std::vector<Literal> MixedResults() { return Leaves(*Evaluate(*Parse(kMixed), MixedArguments())); }

void ExpectMixed(const std::vector<Literal>& got) {
  const std::vector<Literal> want = MixedResults();
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const LiteralDifference d = CompareLiterals(got[i], want[i], ToleranceRule::Ulps(1));
    EXPECT_TRUE(d.within) << i << ": " << d.what;
  }
}

TEST(Toy, MixedModule) {
  absl::StatusOr<Program> program = CompileForToy(*Parse(kMixed));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_GT(LaunchesOf(*program), 0) << program->ToString();
  EXPECT_GT(KernelsOfTheHost(*program), 0) << program->ToString();  // h, which the device's values don't reach
  EXPECT_GE(TransfersOf(*program), 2) << program->ToString();       // h goes there, s comes back
  ASSERT_EQ(program->outputs.size(), 3);
  EXPECT_EQ(program->outputs[0].space, kSpace);
  EXPECT_EQ(program->outputs[1].space, 0);
  EXPECT_THAT(program->ToString(), HasSubstr("in space 1"));
  EXPECT_THAT(program->ToString(), HasSubstr("grid ("));
  const auto runner = ToyRunner::Make(*std::move(program));
  ASSERT_TRUE(runner.ok()) << runner.status();
  const auto got = runner->Run(MixedArguments());
  ASSERT_TRUE(got.ok()) << got.status();
  ExpectMixed(*got);
}

// Values of one memory never lie in the other's, whose arenas are planned apart.
TEST(Toy, ArenasAreApart) {
  const absl::StatusOr<Program> program = CompileForToy(*Parse(kMixed));
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_EQ(program->device_arenas.size(), 1);
  EXPECT_EQ(program->device_arenas[0].space, kSpace);
  EXPECT_GT(program->device_arenas[0].bytes, 0);
  for (const Value& value : program->values) {
    if (value.kind != ValueKind::kArena || value.bytes == 0) continue;
    EXPECT_LE(value.offset + value.bytes, value.space == 0 ? program->arena_bytes : program->device_arenas[0].bytes);
  }
}

// A chain of launches makes its values in one another's memory, where the plan allows it.
TEST(Toy, InPlace) {
  const absl::StatusOr<Program> program = CompileForToy(*Parse(R"(HloModule chain
ENTRY e {
  x = f32[100]{0:S(1)} parameter(0)
  s = f32[100] sort(x), dimensions={0}, to_apply={ p = f32[] parameter(0) q = f32[] parameter(1) ROOT l = pred[] compare(p, q), direction=LT }
  a = f32[100] add(s, x)
  t = f32[100] sort(a), dimensions={0}, to_apply={ p = f32[] parameter(0) q = f32[] parameter(1) ROOT l = pred[] compare(p, q), direction=LT }
  ROOT b = f32[100]{0:S(1)} subtract(x, t)
})"));
  ASSERT_TRUE(program.ok()) << program.status();
  int shared = 0;
  for (const Step& step : program->regions[0].steps) {
    const auto* kernel = std::get_if<KernelStep>(&step.body);
    if (kernel == nullptr || !kernel->launch) continue;
    for (size_t i = 0; i + 1 < kernel->operands.size(); ++i) shared += kernel->operands[i].value == kernel->operands.back().value;
  }
  EXPECT_GT(shared, 0) << program->ToString();
}

// An input of the device's memory is written back, after everything that may fail; one of the host's may be updated on the way only if no
// device works after that.
TEST(Toy, WritesBack) {
  const std::unique_ptr<Module> module = Parse(R"(HloModule back
ENTRY e {
  x = f32[40]{0:S(1)} parameter(0)
  y = f32[40] parameter(1)
  a = f32[40] add(x, y)
  b = f32[40] negate(y)
  ROOT t = (f32[40]{0:S(1)}, f32[40]) tuple(a, b)
})");
  Binding binding = BindingOf(*module);
  binding.inputs[0].mutated = binding.inputs[1].mutated = true;
  binding.mutations = {{.input = 0, .root_index = 0}, {.input = 1, .root_index = 1}};
  binding.outputs.clear();
  absl::StatusOr<Program> program =
      CompileToProgram(module->Clone(), binding, {.targets = {MakeToy()}, .verify_passes = true});
  ASSERT_TRUE(program.ok()) << program.status();
  const auto runner = ToyRunner::Make(*std::move(program));
  ASSERT_TRUE(runner.ok()) << runner.status();
  const std::vector<Literal> args = ArgumentsOf(*module, {}, 7000);
  std::vector<Literal> after;
  const auto got = runner->Run(args, &after);
  ASSERT_TRUE(got.ok()) << got.status();
  const std::vector<Literal> want = Leaves(*Evaluate(*module, args));
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(CompareLiterals(after[i], want[i]).within) << i << runner->program().ToString();
  // The copy of y fails while the run waits for it: the inputs are as they were. The launch fails when the run is over: then x is, and the
  // failure is told by who waits.
  for (int64_t n = 0; n < 2; ++n) {
    FailWork(n);
    const auto failed = runner->Run(args, &after);
    FailWork(-1);
    ASSERT_FALSE(failed.ok()) << n;
    EXPECT_TRUE(CompareLiterals(after[0], args[0]).within) << n;
    if (n == 0) {
      EXPECT_TRUE(CompareLiterals(after[1], args[1]).within);
    }
  }
}

TEST(Toy, RunsOnOtherStreams) {
  static int one, two;
  const auto runner = ToyRunner::Make(*CompileForToy(*Parse(kMixed)));
  ASSERT_TRUE(runner.ok()) << runner.status();
  for (void* stream : {static_cast<void*>(&one), static_cast<void*>(&two), static_cast<void*>(&one), static_cast<void*>(nullptr)}) {
    SetStream(stream);
    const auto got = runner->Run(MixedArguments());
    ASSERT_TRUE(got.ok()) << got.status();
    ExpectMixed(*got);
  }
  SetStream(nullptr);
}

// The allocations of a run fail one after the other: an error that says so, nothing lost, and the next run is right.
TEST(Toy, NoMemory) {
  const int64_t bytes = TheMemory().live_bytes(), events = LiveEvents();
  bool failed_inside = false;
  for (int64_t n = 0;; ++n) {
    ASSERT_LT(n, 20);
    const auto runner = ToyRunner::Make(*CompileForToy(*Parse(kMixed)));
    ASSERT_TRUE(runner.ok()) << runner.status();
    TheMemory().FailAllocation(n);
    const auto got = runner->Run(MixedArguments());
    TheMemory().FailAllocation(-1);
    if (got.ok()) {
      ExpectMixed(*got);
      break;
    }
    if (!absl::StrContains(got.status().message(), "of the test")) {
      failed_inside = true;
      EXPECT_THAT(std::string(got.status().message()), HasSubstr("out of memory: wanted"));
      EXPECT_THAT(std::string(got.status().message()), HasSubstr("in memory space 1"));
    }
    const auto again = runner->Run(MixedArguments());
    ASSERT_TRUE(again.ok()) << again.status();
    ExpectMixed(*again);
  }
  EXPECT_TRUE(failed_inside);
  EXPECT_EQ(TheMemory().live_bytes(), bytes);
  EXPECT_EQ(LiveEvents(), events);
}

TEST(Toy, FailingWork) {
  const int64_t bytes = TheMemory().live_bytes(), events = LiveEvents();
  int failed = 0;
  for (int64_t n = 0;; ++n) {
    ASSERT_LT(n, 20);
    const auto runner = ToyRunner::Make(*CompileForToy(*Parse(kMixed)));
    ASSERT_TRUE(runner.ok()) << runner.status();
    FailWork(n);
    const auto got = runner->Run(MixedArguments());
    FailWork(-1);
    if (got.ok()) break;
    ++failed;
    EXPECT_THAT(std::string(got.status().message()), HasSubstr("the toy fell off its table"));
    EXPECT_EQ(got.status().code(), absl::StatusCode::kUnavailable);
    const auto again = runner->Run(MixedArguments());
    ASSERT_TRUE(again.ok()) << again.status();
    ExpectMixed(*again);
  }
  EXPECT_GE(failed, 4);
  EXPECT_EQ(TheMemory().live_bytes(), bytes);
  EXPECT_EQ(LiveEvents(), events);
}

// ---- wrong spaces

// A program in which something works on memory of another space is refused, whoever made it.
struct Wrong {
  const char* name;
  std::function<bool(Program&)> make;  // false: found nothing to make wrong
  const char* message;
};

int32_t ValueIn(const Program& p, int32_t space, ValueKind kind) {
  for (size_t v = 0; v < p.values.size(); ++v) {
    if (p.values[v].space == space && p.values[v].kind == kind) return static_cast<int32_t>(v);
  }
  return -1;
}
KernelStep* KernelOf(Program& p, bool launched) {
  for (Step& step : p.regions[0].steps) {
    auto* kernel = std::get_if<KernelStep>(&step.body);
    if (kernel != nullptr && kernel->launch.has_value() == launched) return kernel;
  }
  return nullptr;
}

const Wrong kWrong[] = {
    {"a kernel of the host reads the device's memory",
     [](Program& p) { return KernelOf(p, false)->operands[0].value = ValueIn(p, kSpace, ValueKind::kInput), true; },
     "lies in memory space 1, and the step works on 0"},
    {"a launch reads the host's memory",
     [](Program& p) { return KernelOf(p, true)->operands[0].value = ValueIn(p, 0, ValueKind::kOutput), true; },
     "lies in memory space 0, and the step works on 1"},
    {"an input whose value lies elsewhere", [](Program& p) { return p.values[ValueIn(p, kSpace, ValueKind::kInput)].space = 0, true; },
     "it is in memory space 0, and what it stands for in 1"},
    {"an output whose value lies elsewhere", [](Program& p) { return p.values[ValueIn(p, 0, ValueKind::kOutput)].space = kSpace, true; },
     "it is in memory space 1, and what it stands for in 0"},
    {"an arena that isn't there", [](Program& p) { return p.device_arenas.clear(), true; }, "of an arena of 0 bytes"},
    {"an arena too small", [](Program& p) { return p.device_arenas[0].bytes = 64, true; }, "of an arena of 64 bytes"},
    {"a space that no target has", [](Program& p) { return p.values[ValueIn(p, kSpace, ValueKind::kArena)].space = 2, true; },
     "in memory space 2, which no target of the program has"},
    {"a kernel of the host that is launched",
     [](Program& p) { return KernelOf(p, false)->launch = LaunchShape(), true; }, "a launch of a kernel of the host"},
    {"a device's kernel that isn't", [](Program& p) { return KernelOf(p, true)->launch.reset(), true; },
     "a device's kernel without a launch"},
    {"no threads", [](Program& p) { return KernelOf(p, true)->launch->block[1] = 0, true; }, "blocks of 0 threads"},
    {"another stream", [](Program& p) { return KernelOf(p, true)->launch->stream = 1, true; }, "stream 1"},
    {"two targets in one space", [](Program& p) { return p.code.push_back({.target = "other", .space = kSpace}), true; },
     "two targets in memory space 1"},
    {"code without kernels", [](Program& p) { return p.code.push_back({.target = "other", .space = 2, .object = {1}}), true; },
     "0 kernels with 1 bytes of code"},
};

TEST(Toy, WrongSpacesAreRefused) {
  for (const Wrong& wrong : kWrong) {
    Program program = *CompileForToy(*Parse(kMixed));
    ASSERT_TRUE(program.Validate().ok()) << program.Validate();
    ASSERT_TRUE(wrong.make(program)) << wrong.name;
    const auto runner = ToyRunner::Make(std::move(program));
    ASSERT_FALSE(runner.ok()) << wrong.name;
    EXPECT_THAT(std::string(runner.status().message()), HasSubstr(wrong.message)) << wrong.name;
  }
}

// And what gets past that, as a kernel would that is handed such an address, faults at once.
TEST(ToyDeathTest, TheHostCannotTouchItsMemory) {
  void* memory = TheMemory().Allocate(64);
  EXPECT_EXIT(std::cout << *static_cast<volatile char*>(memory), testing::KilledBySignal(SIGSEGV), "");
  EXPECT_FALSE(TheMemory().At(static_cast<char*>(memory) + 32, 33).ok());
  EXPECT_TRUE(TheMemory().At(static_cast<char*>(memory) + 32, 32).ok());
  TheMemory().Free(memory);
  EXPECT_FALSE(TheMemory().At(memory, 1).ok());
}

// ---- sets of targets

TEST(Toy, KeysTellTargetsApart) {
  const CompileOptions host, toy{.targets = {MakeToy()}}, other{.targets = {MakeToy("other")}}, elsewhere{.targets = {MakeToy("toy", 2)}},
      both{.targets = {MakeToy(), MakeToy("other", 2)}};
  std::set<std::string> keys;
  for (const CompileOptions& options : {host, toy, other, elsewhere, both}) keys.insert(TargetKey(options));
  EXPECT_EQ(keys.size(), 5) << absl::StrJoin(keys, "\n");
  EXPECT_EQ(TargetKey(host), TargetKey({}));
  EXPECT_NE(TargetKey(host), TargetKey({.isa = HostVariants().front() == (*MakeHostTarget(""))->facts().variant ? "none" : "sse4"}));
}

TEST(Toy, SetsOfTargets) {
  const std::unique_ptr<Module> module = Parse(kMixed);
  const auto compiled = [&](std::vector<std::shared_ptr<const Target>> targets) {
    CompileOptions options;
    options.targets = std::move(targets);
    return std::string(CompileToProgram(module->Clone(), BindingOf(*module), options).status().message());
  };
  EXPECT_EQ(compiled({MakeToy()}), "");
  EXPECT_EQ(compiled({MakeToy(), *MakeHostTarget("")}), "");
  EXPECT_THAT(compiled({MakeToy(), MakeToy("other")}), HasSubstr("names and memory spaces must differ"));
  EXPECT_THAT(compiled({MakeToy(), MakeToy("toy", 2)}), HasSubstr("names and memory spaces must differ"));
  EXPECT_THAT(compiled({MakeToy("far", 64)}), HasSubstr("wanted a memory space from 0 to 63, got 64"));
  EXPECT_THAT(compiled({}), HasSubstr("input x lies in memory space 1; the compile's targets have 0 (cpu)"));
  EXPECT_THAT(compiled({MakeToy("toy", 2)}), HasSubstr("input x lies in memory space 1; the compile's targets have 0 (cpu), 2 (toy)"));
  const auto without = CompileForToy(*module, {.disable_passes = {"assign-spaces"}});
  EXPECT_THAT(std::string(without.status().message()), HasSubstr("needs the pass assign-spaces"));
  EXPECT_THAT(std::string(LiteralExecutable::Compile(*module, {.targets = {MakeToy()}}).status().message()),
              HasSubstr("literals lie in the host's"));
}

// A module that lies in the host's memory is compiled as if there was no device.
TEST(Toy, HostModulesStayWhatTheyAre) {
  const std::unique_ptr<Module> module = Parse(kMixed);
  MoveSignature(*module, 0);
  const Program with = *CompileForToy(*module), without = *CompileToProgram(module->Clone(), BindingOf(*module), {});
  EXPECT_EQ(with.ToString(), without.ToString());
  EXPECT_EQ(with.code.size(), 1);
}

TEST(Toy, HostsWithoutTheSpaceRefuse) {
  const auto runner = ToyRunner::Make(*CompileForToy(*Parse(kMixed)), PlainHost());
  ASSERT_FALSE(runner.ok());
  EXPECT_THAT(std::string(runner.status().message()), HasSubstr("wants memory space 1, which this host does not have"));
  const auto none = Executable::Create(*CompileForToy(*Parse(kMixed)), LoadersOf({}), ToyHost());
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("code of target toy, of which there is no code loader"));
}

// A program's code is bytes: what a cache would keep is enough.
TEST(Toy, CodeIsBytes) {
  const Program program = *CompileForToy(*Parse(kMixed));
  Program broken = program;
  for (CodeImage& image : broken.code) {
    if (image.target == "toy") image.object.resize(image.object.size() / 2);
  }
  EXPECT_FALSE(ToyRunner::Make(std::move(broken)).ok());
  const auto runner = ToyRunner::Make(program);
  ASSERT_TRUE(runner.ok()) << runner.status();
  const auto got = runner->Run(MixedArguments());
  ASSERT_TRUE(got.ok()) << got.status();
  ExpectMixed(*got);
}

}  // namespace
}  // namespace tenon::toy
