// Generated kernels against the evaluator: the modules of tests/backends/*.hlo and of tests/ops,
// for every instruction set of this machine, whole and in pieces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "backends/codegen/fused/generate.h"
#include "backends/cpu/emit/codegen.h"
#include "hlo/eval/evaluator.h"
#include "hlo/text/text.h"
#include "tests/backends/disassembly.h"
#include "tests/backends/hlo_cases.h"
#include "tests/backends/kernel_runner.h"

namespace tenon {
namespace {

const std::vector<HloCase>& Cases() {
  static const auto* cases =
      new std::vector<HloCase>(LoadCases(std::string(TENON_SOURCE_DIR) + "/tests/backends"));
  return *cases;
}

struct Built {
  std::unique_ptr<Module> module;
  KernelRequest request;
};

absl::StatusOr<Built> Build(const HloCase& c) {
  Built b;
  ParseOptions options;
  TENON_ASSIGN_OR_RETURN(b.module, ParseModule(c.text, options));
  b.request = DenseRequest(WrapEntryAsFusion(*b.module));
  return b;
}

EvalOptions WithChecks() {
  EvalOptions options;
  options.custom_calls["tenon.check"] = [](const Instruction&,
                                           absl::Span<const Literal>) -> absl::StatusOr<Literal> {
    return Literal::ScalarInt(PrimitiveType::kPred, 0);
  };
  return options;
}

std::vector<Literal> RandomArguments(const Built& b, const HloCase& c, uint64_t seed) {
  std::vector<Literal> args;
  for (const Instruction* o : b.request.fusion->operands())
    args.push_back(RandomLiteral(o->shape(), c, seed * 1000 + args.size()));
  return args;
}

// Such an instruction reads what its mask hides (BeforeShuffle in kernel_memory.cc).
void ExpectNoMaskedShuffleOfMemory(const std::string& assembly) {
  for (const absl::string_view line : absl::StrSplit(assembly, '\n')) {
    const bool shuffles = absl::StrContains(line, "perm") || absl::StrContains(line, "shuf") || absl::StrContains(line, "unpck");
    const bool reads = absl::StrContains(line, "(%r") && !absl::StrContains(line, "(%rip)");
    EXPECT_FALSE(shuffles && reads && absl::StrContains(line, "{%k")) << line;
  }
}

void RunCase(const HloCase& c, const std::string& isa) {
  absl::StatusOr<Built> built = Build(c);
  ASSERT_TRUE(built.ok()) << built.status();
  RunnerOptions options{.isa = isa, .excess_precision = !c.strict, .keep_text = isa == "avx512"};
  absl::StatusOr<KernelRunner> runner = KernelRunner::Make(built->request, options);
  ASSERT_TRUE(runner.ok()) << runner.status();
  ExpectNoMaskedShuffleOfMemory(runner->assembly());
  const std::string& plan = runner->kernel().info().plan_text;
  for (const std::string& piece : c.plan)
    EXPECT_TRUE(absl::StrContains(plan, piece)) << plan << " lacks " << piece;
  if (c.in_place >= 0) {
    EXPECT_THAT(runner->kernel().info().may_overwrite, testing::Contains(LaunchPlan::Pair{c.in_place, 0})) << plan;
  }
  std::vector<Literal> args = RandomArguments(*built, c, 7);
  absl::StatusOr<Literal> want =
      Evaluate(*built->request.fusion->fused_computation(), args, WithChecks());
  ASSERT_TRUE(want.ok()) << want.status();
  std::vector<Literal> first;
  for (int64_t pieces : {1, 2, 5}) {
    KernelRunner::RunOptions run{.pieces = pieces, .in_place = c.in_place};
    absl::StatusOr<std::vector<Literal>> got = runner->Run(args, run);
    ASSERT_TRUE(got.ok()) << got.status() << "\n" << plan;
    for (size_t i = 0; i < got->size(); ++i) {
      LiteralDifference d = CompareLiterals((*got)[i], Leaves(*want)[i], c.tolerance);
      EXPECT_TRUE(d.within) << "result " << i << ", " << pieces << " pieces: " << d.what << "\n"
                            << plan;
      if (pieces > 1) {
        EXPECT_TRUE((*got)[i] == first[i]) << "bits depend on the split";
      }
    }
    if (pieces == 1) first = *got;
  }
}

class CodegenCases : public testing::TestWithParam<std::tuple<size_t, std::string>> {};

TEST_P(CodegenCases, EqualsEvaluator) {
  const auto& [index, isa] = GetParam();
  RunCase(Cases()[index], isa);
}

std::string CaseName(const testing::TestParamInfo<std::tuple<size_t, std::string>>& info) {
  const HloCase& c = Cases()[std::get<0>(info.param)];
  std::string name = absl::StrCat(c.file, "_", c.name, "_", std::get<1>(info.param));
  for (char& ch : name) {
    if (!isalnum(static_cast<unsigned char>(ch))) ch = '_';
  }
  return name;
}
INSTANTIATE_TEST_SUITE_P(Hlo, CodegenCases,
                         testing::Combine(testing::Range(size_t{0}, Cases().size()),
                                          testing::ValuesIn(HostIsas())),
                         CaseName);

// The operation cases of the evaluator, as far as they are generated: same module, random
// arguments.
TEST(OpCases, EqualEvaluatorOnEveryIsa) {
  int ran = 0, skipped = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           std::string(TENON_SOURCE_DIR) + "/tests/ops")) {
    if (entry.path().extension() != ".hlo") continue;
    std::ifstream in(entry.path());
    HloCase c{.file = entry.path().stem(),
              .text = std::string(std::istreambuf_iterator<char>(in), {}),
              .strict = true,
              .low = 0,
              .high = 4};
    c.tolerance = ToleranceRule::AbsRel(1e-5, 1e-5);
    absl::StatusOr<Built> built = Build(c);
    bool fits = built.ok();
    if (fits) {
      for (const Instruction* op : built->request.fusion->fused_computation()->instructions()) {
        fits &= CanGenerate(*op) && op->shape().is_static() &&
                (!IsSerialOp(op->opcode()) ||
                 op == built->request.fusion->fused_computation()->root());
      }
    }
    std::vector<Literal> args;
    if (fits) args = RandomArguments(*built, c, 3);
    absl::StatusOr<Literal> want = fits
                                       ? Evaluate(*built->request.fusion->fused_computation(), args)
                                       : absl::UnimplementedError("");
    if (!want.ok()) {
      ++skipped;
      continue;
    }
    ++ran;
    for (const std::string& isa : HostIsas()) {
      absl::StatusOr<KernelRunner> runner =
          KernelRunner::Make(built->request, {.isa = isa, .excess_precision = false});
      ASSERT_TRUE(runner.ok()) << entry.path() << ": " << runner.status();
      absl::StatusOr<std::vector<Literal>> got = runner->Run(args);
      ASSERT_TRUE(got.ok()) << entry.path() << ": " << got.status();
      for (size_t i = 0; i < got->size(); ++i) {
        // A bf16 sum that rounds each step depends on the order of its steps.
        const bool half = BitWidth((*got)[i].type()) == 16 && IsFloat((*got)[i].type());
        LiteralDifference d = CompareLiterals((*got)[i], Leaves(*want)[i],
                                              half ? ToleranceRule::AbsRel(0, 0.01) : c.tolerance);
        EXPECT_TRUE(d.within) << entry.path() << " " << isa << " result " << i << ": " << d.what
                              << "\n"
                              << runner->kernel().info().plan_text;
      }
    }
  }
  std::cout << ran << " cases ran, " << skipped << " are not generated code\n";
  EXPECT_GT(ran, 40);
}

HloCase Named(std::string_view name) {
  for (const HloCase& c : Cases()) {
    if (c.file + "_" + c.name == name) return c;
  }
  ADD_FAILURE() << "no case " << name;
  return {};
}

// One compilation with a symbolic outer dim, run at many sizes.
void RunSymbolic(const std::string& text, const std::function<std::string(int64_t)>& with_size,
                 const ToleranceRule& rule, const std::vector<int64_t>& sizes = {0, 1, 3, 7, 1000}) {
  for (const std::string& isa : HostIsas()) {
    absl::StatusOr<Built> symbolic = Build({.text = text});
    ASSERT_TRUE(symbolic.ok()) << symbolic.status();
    absl::StatusOr<KernelRunner> runner = KernelRunner::Make(symbolic->request, {.isa = isa});
    ASSERT_TRUE(runner.ok()) << runner.status();
    ASSERT_EQ(runner->kernel().info().size_args.size(), 1u);
    for (int64_t n : sizes) {
      HloCase c{.text = with_size(n)};
      absl::StatusOr<Built> fixed = Build(c);
      ASSERT_TRUE(fixed.ok()) << fixed.status();
      std::vector<Literal> args = RandomArguments(*fixed, c, 11);
      absl::StatusOr<Literal> want = Evaluate(*fixed->request.fusion->fused_computation(), args);
      ASSERT_TRUE(want.ok()) << want.status();
      for (int64_t pieces : {1, 3}) {
        absl::StatusOr<std::vector<Literal>> got =
            runner->Run(args, {.pieces = pieces, .symbols = {{"s0", n}}});
        ASSERT_TRUE(got.ok()) << got.status();
        for (size_t leaf = 0; leaf < got->size(); ++leaf) {
          LiteralDifference d = CompareLiterals((*got)[leaf], Leaves(*want)[leaf], rule);
          EXPECT_TRUE(d.within) << isa << ", s0 = " << n << ", result " << leaf << ": " << d.what << "\n"
                                << runner->kernel().info().plan_text;
        }
      }
    }
  }
}

std::string WithSize(std::string text, int64_t n) {
  for (size_t p; (p = text.find("s0")) != std::string::npos;) text.replace(p, 2, std::to_string(n));
  return text;
}

// What a module's kernel is compiled to; a failed expectation and "" where it is not.
std::string AssemblyOf(const std::string& text, const std::string& isa) {
  absl::StatusOr<Built> built = Build({.text = text});
  EXPECT_TRUE(built.ok()) << built.status();
  if (!built.ok()) return "";
  absl::StatusOr<KernelRunner> runner = KernelRunner::Make(built->request, {.isa = isa, .keep_text = true});
  EXPECT_TRUE(runner.ok()) << runner.status();
  return runner.ok() ? runner->assembly() : "";
}

TEST(SymbolicDims, OnePointwiseKernelForAllSizes) {
  const std::string text = R"(HloModule p
ENTRY e {
  x = f32[s0,33] parameter(0)
  y = f32[33] parameter(1)
  yb = f32[s0,33] broadcast(y), dimensions={1}
  a = f32[s0,33] add(x, yb)
  ROOT m = f32[s0,33] multiply(a, x)
})";
  RunSymbolic(text, [&](int64_t n) { return WithSize(text, n); }, ToleranceRule::Exact());
}

TEST(SymbolicDims, OneRowKernelForAllSizes) {
  std::string text = Named("row_softmax").text;
  for (size_t p; (p = text.find("13,")) != std::string::npos;) text.replace(p, 3, "s0,");
  for (size_t p; (p = text.find("[13]")) != std::string::npos;) text.replace(p, 4, "[s0]");
  RunSymbolic(
      text, [&](int64_t n) { return WithSize(text, n); }, ToleranceRule::AbsRel(1e-6, 1e-5));
}

TEST(SymbolicDims, TheVectorDimMayBeSymbolicToo) {
  const std::string text = R"(HloModule p
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] add(a, b) }
ENTRY e {
  x = f32[5,s0] parameter(0)
  z = f32[] constant(0)
  s = f32[5] reduce(x, z), dimensions={1}, to_apply=add
  sb = f32[5,s0] broadcast(s), dimensions={0}
  ROOT m = f32[5,s0] subtract(x, sb)
})";
  RunSymbolic(
      text, [&](int64_t n) { return WithSize(text, n); }, ToleranceRule::AbsRel(1e-3, 1e-5));
}

// What the plan says is what sizes of the kind that the symbol stands for (256 where nobody says) would get.
TEST(SymbolicDims, PlansAreForTypicalSizes) {
  struct Case {
    std::string what, text, plan;
  };
  const std::vector<Case> cases = {
      {"pairs: vectors along the long dim, both elements of each at a time", R"(HloModule p
ENTRY e {
  x = f32[s0,1] parameter(0)
  y = f32[s0,1] parameter(1)
  ROOT r = f32[s0,2] concatenate(x, y), dimensions={1}
})",
       "loops=[1:2 0:s0] split=0 block=1024 tile=0 rows=2"},
      {"colours: short vectors", R"(HloModule p, symbols={s0:[0,1000]~3}
ENTRY e {
  x = f32[40,s0] parameter(0)
  m = f32[s0] parameter(1)
  b = f32[40,s0] broadcast(m), dimensions={1}
  ROOT r = f32[40,s0] divide(x, b)
})",
       "tile=-1 lanes=4"},
      {"windows: no division by a symbol for each element", R"(HloModule p
max { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] maximum(a, b) }
ENTRY e {
  x = f32[3,10,s0] parameter(0)
  z = f32[] constant(-inf)
  ROOT r = f32[3,5,floordiv(s0+1,2)] reduce-window(x, z), window={size=1x2x3 stride=1x2x2 pad=0_0x0_0x1_1}, to_apply=max
})",
       "1:5 2:floordiv(s0+1,2)]"},
      {"running results of dear steps: rows side by side", R"(HloModule p, symbols={s0:[0,1000]~500}
step { x = s32[s0] parameter(0)
 c = s32[s0] parameter(1)
 s = s32[s0] add(x, c)
 q = s32[s0] maximum(s, x)
 m = s32[s0] subtract(q, c)
 n = s32[s0] minimum(m, s)
 p = s32[s0] xor(n, x)
 ROOT t = (s32[s0], s32[s0]) tuple(p, n) }
ENTRY e {
  x = s32[s0,37] parameter(0)
  i = s32[s0] parameter(1)
  ROOT r = (s32[s0,37], s32[s0]) scan(x, i), dimensions={1}, num_carries=1, to_apply=step
})",
       "loops=[1:37! 0:s0]"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    const std::string bare = c.text.substr(c.text.find('\n'));
    RunSymbolic(c.text, [&](int64_t n) { return "HloModule p" + WithSize(bare, n); }, ToleranceRule::AbsRel(1e-6, 1e-5));
    absl::StatusOr<Built> built = Build({.text = c.text});
    ASSERT_TRUE(built.ok()) << built.status();
    for (const std::string& isa : HostIsas()) {
      absl::StatusOr<KernelRunner> runner = KernelRunner::Make(built->request, {.isa = isa});
      ASSERT_TRUE(runner.ok()) << runner.status();
      const std::string& plan = runner->kernel().info().plan_text;
      EXPECT_NE(plan.find(c.plan), std::string::npos) << isa << ": " << plan;
    }
  }
}

// Pixels of usually three colours: code for three, which goes along the pixels, and code for any other number.
TEST(SymbolicDims, ColoursHaveTheCodeOfTheirUsualNumber) {
  const std::string text = R"(HloModule p, symbols={s0:[0,1000]~3}
ENTRY e {
  x = u8[30,50,s0] parameter(0)
  m = f32[s0] parameter(1)
  y = f32[30,50,s0] convert(x)
  b = f32[30,50,s0] broadcast(m), dimensions={2}
  ROOT r = f32[30,50,s0] subtract(y, b)
})";
  const std::string bare = text.substr(text.find('\n'));
  RunSymbolic(text, [&](int64_t n) { return "HloModule p" + WithSize(bare, n); }, ToleranceRule::Exact());
  auto has_two = [](const std::string& module) {
    absl::StatusOr<Built> built = Build({.text = module});
    EXPECT_TRUE(built.ok()) << built.status();
    absl::StatusOr<KernelRunner> runner = KernelRunner::Make(built->request, {.isa = "sse4", .keep_text = true});
    EXPECT_TRUE(runner.ok()) << runner.status();
    return absl::StrContains(runner->assembly(), ".usual:");
  };
  EXPECT_TRUE(has_two(text));
  EXPECT_FALSE(has_two("HloModule p, symbols={s0:[0,1000]~30}" + bare));
  EXPECT_FALSE(has_two("HloModule p" + WithSize(bare, 3)));
}

// What a second pass reads of rows that are large, typically: the next row is asked for, as if the sizes were numbers.
TEST(SymbolicDims, LargeRowsAreAskedForAhead) {
  auto prefetches = [](int64_t typical) {
    const std::string text = absl::StrCat("HloModule p, symbols={s0:[0,inf]~", typical, R"(}
max { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] maximum(a, b) }
ENTRY e {
  x = f32[4096,s0] parameter(0)
  z = f32[] constant(-inf)
  m = f32[4096] reduce(x, z), dimensions={1}, to_apply=max
  b = f32[4096,s0] broadcast(m), dimensions={0}
  ROOT r = f32[4096,s0] subtract(x, b)
})");
    return absl::StrContains(AssemblyOf(text, "sse4"), "prefetch");
  };
  EXPECT_TRUE(prefetches(1024));
  EXPECT_FALSE(prefetches(16));
}

// Elements a few places apart are picked from the vectors that lie there in the tail and at borders, too, by the lanes that are live.
TEST(SymbolicDims, PickedElementsAreNotGathered) {
  const std::string reducers = "max { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] maximum(a, b) }\n"
                               "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b) }\n";
  const std::vector<std::string> entries = {
      R"(x = f32[3,9,s0] parameter(0)
  z = f32[] constant(-inf)
  ROOT r = f32[3,5,floordiv(s0+1,2)] reduce-window(x, z), window={size=1x3x3 stride=1x2x2 pad=0_0x1_1x1_1}, to_apply=max)",
      R"(x = f32[3,8,s0] parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[3,4,floordiv(s0+1,3)] reduce-window(x, z), window={size=1x2x2 stride=1x2x3}, to_apply=add)",
      R"(x = u8[5,3*s0] parameter(0)
  y = u8[5,s0] slice(x), slice={[0:5],[0:3*s0:3]}
  ROOT r = f32[5,s0] convert(y))",
  };
  for (const std::string& entry : entries) {
    SCOPED_TRACE(entry);
    const std::string text = absl::StrCat("HloModule p\n", reducers, "ENTRY e {\n  ", entry, "\n}");
    RunSymbolic(text, [&](int64_t n) { return WithSize(text, n); }, ToleranceRule::Exact());
    absl::StatusOr<Built> built = Build({.text = text});
    ASSERT_TRUE(built.ok()) << built.status();
    if (!absl::c_linear_search(HostIsas(), "avx512")) continue;  // no masks of its own
    absl::StatusOr<KernelRunner> runner = KernelRunner::Make(built->request, {.isa = "avx512", .keep_text = true});
    ASSERT_TRUE(runner.ok()) << runner.status();
    EXPECT_EQ(runner->assembly().find("gather"), std::string::npos) << runner->kernel().info().plan_text;
  }
}

// As many vectors of columns as there are typically have code of their own, accumulators in registers: 49 to 64 columns on AVX-512.
// Others go through scratch. Sums of a symbol's rows and of more than a stretch, two results, short types, two phases.
TEST(SymbolicDims, FewColumnsStayInRegisters) {
  const std::string add = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b) }\n";
  const std::string max = "max { a = type[] parameter(0)\n b = type[] parameter(1)\n ROOT r = type[] maximum(a, b) }\n";
  const std::string first = R"(f {
  v0 = s32[] parameter(0)
  i0 = s32[] parameter(1)
  v1 = s32[] parameter(2)
  i1 = s32[] parameter(3)
  lt = pred[] compare(v0, v1), direction=LT
  eq = pred[] compare(v0, v1), direction=EQ
  il = pred[] compare(i0, i1), direction=LT
  tie = pred[] and(eq, il)
  first = pred[] or(lt, tie)
  v = s32[] select(first, v0, v1)
  i = s32[] select(first, i0, i1)
  ROOT t = (s32[], s32[]) tuple(v, i)
}
)";
  const std::vector<std::string> cases = {
      add + R"(ENTRY e {
  x = f32[3,s0,s0] parameter(0)
  z = f32[] constant(0.5)
  ROOT r = f32[3,s0] reduce(x, z), dimensions={1}, to_apply=add
})",
      add + R"(ENTRY e {
  x = f32[2,300,s0] parameter(0)
  z = f32[] parameter(1)
  ROOT r = f32[2,s0] reduce(x, z), dimensions={1}, to_apply=add
})",
      first + R"(ENTRY e {
  x = s32[5,9,s0] parameter(0)
  k = s32[5,9,s0] iota(), iota_dimension=1
  b = s32[] constant(2147483647)
  ROOT r = (s32[5,s0], s32[5,s0]) reduce(x, k, b, b), dimensions={1}, to_apply=f
})",
      absl::StrReplaceAll(max, {{"type", "s8"}}) + R"(ENTRY e {
  x = s8[5,9,s0] parameter(0)
  z = s8[] constant(-128)
  ROOT r = s8[5,s0] reduce(x, z), dimensions={1}, to_apply=max
})",
      add + absl::StrReplaceAll(max, {{"type", "f32"}}) + R"(ENTRY e {
  x = f32[3,11,s0] parameter(0)
  n = f32[] constant(-inf)
  m = f32[3,s0] reduce(x, n), dimensions={1}, to_apply=max
  mb = f32[3,11,s0] broadcast(m), dimensions={0,2}
  d = f32[3,11,s0] subtract(x, mb)
  y = f32[3,11,s0] exponential(d)
  z = f32[] constant(0)
  s = f32[3,s0] reduce(y, z), dimensions={1}, to_apply=add
  sb = f32[3,11,s0] broadcast(s), dimensions={0,2}
  ROOT r = f32[3,11,s0] divide(y, sb)
})",
  };
  for (const std::string& text : cases) {
    SCOPED_TRACE(text);
    const std::string module = "HloModule p, symbols={s0:[0,1000]~60}\n" + text;
    const ToleranceRule rule = absl::StrContains(text, "f32") ? ToleranceRule::AbsRel(1e-4, 1e-5) : ToleranceRule::Exact();
    RunSymbolic(module, [&](int64_t n) { return WithSize("HloModule p\n" + text, n); }, rule, {0, 1, 15, 16, 17, 48, 49, 63, 64, 65, 200});
  }
}

// Windows whose taps lie inside, all of them, are read without a question for each; at the borders and in small images each tap is asked.
TEST(SymbolicDims, WindowsInTheMiddleAskNothing) {
  const std::string text = R"(HloModule p
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] add(a, b) }
ENTRY e {
  x = f32[9,s0,40]{2,1,0} parameter(0)
  z = f32[] constant(0)
  w = f32[5,floordiv(s0+1,2),40]{2,1,0} reduce-window(x, z), window={size=3x3x1 stride=2x2x1 pad=1_1x1_1x0_0}, to_apply=add
  ROOT r = f32[5,floordiv(s0+1,2),40]{2,1,0} negate(w)
})";
  RunSymbolic(text, [&](int64_t n) { return WithSize(text, n); }, ToleranceRule::Exact());
  if (!absl::c_linear_search(HostIsas(), "avx512")) GTEST_SKIP() << "no AVX-512 here: masked additions tell the loops apart";
  for (const std::string& one : {text, WithSize(text, 9)}) {
    int plain = 0, masked = 0;
    for (absl::string_view line : absl::StrSplit(AssemblyOf(one, "avx512"), '\n')) {
      if (absl::StrContains(line, "vaddps")) (absl::StrContains(line, "{%k") ? masked : plain) += 1;
    }
    EXPECT_GE(plain, 9) << "no loop without masks";
    EXPECT_GE(masked, 5) << "no loop for borders";
  }
}

// A body that is too long to be there twice is masked in all iterations; all but the last load and store whole vectors without the mask.
TEST(SymbolicDims, LongBodiesLoadWholeVectors) {
  std::string text = "HloModule p\nENTRY e {\n x = f32[s0] parameter(0)\n z = f32[s0] parameter(1)\n y0 = f32[s0] multiply(x, z)\n";
  constexpr int kSteps = 60;
  for (int k = 0; k < kSteps; ++k) {
    absl::StrAppend(&text, " m", k, " = f32[s0] multiply(y", k, ", x)\n y", k + 1, " = f32[s0] add(m", k, ", z)\n");
  }
  absl::StrAppend(&text, " ROOT t = (f32[s0], f32[s0]) tuple(y", kSteps, ", y", kSteps / 2, ")\n}");
  RunSymbolic(text, [&](int64_t n) { return WithSize(text, n); }, ToleranceRule::Exact());
  if (!absl::c_linear_search(HostIsas(), "avx512")) GTEST_SKIP() << "no AVX-512 here";
  int whole = 0, masked = 0;
  for (absl::string_view line : absl::StrSplit(AssemblyOf(text, "avx512"), '\n')) {
    if (absl::StrContains(line, "vmov") && absl::StrContains(line, "(%r")) (absl::StrContains(line, "{%k") ? masked : whole) += 1;
  }
  EXPECT_GE(masked, 4) << "two loads, two stores";
  EXPECT_GE(whole, masked);
}

// LLVM 22 would load what a mask hides, and take the mask for that of the shuffled lanes (BeforeShuffle in kernel_memory.cc).
TEST(Masks, AreNotThoseOfAShuffleOfWhatIsLoaded) {
  // Rows of two vectors and one element: in the vectors the mask is of the row alone.
  const std::pair<const char*, int> rows[] = {{"f32", 33}, {"s64", 17}, {"s16", 65}, {"u8", 129}, {"c64", 33}, {"c128", 17}, {"f64", 17}};
  for (const auto& [type, size] : rows) {
    SCOPED_TRACE(type);
    const std::string text = absl::StrReplaceAll(R"(HloModule p
ENTRY e {
  x = $T[5,3,$N] parameter(0)
  v = $T[5,3,$N] reverse(x), dimensions={0,2}
  c = $T[] constant($C)
  ROOT r = $T[5,5,$M] pad(v, c), padding=0_0x1_1x0_1
})", {{"$T", type}, {"$C", *type == 'c' ? "(2, 3)" : "2"},
                                                     {"$N", absl::StrCat(size)}, {"$M", absl::StrCat(size + 1)}});
    for (const std::string& isa : HostIsas()) {
      absl::StatusOr<Built> built = Build({.text = text});
      ASSERT_TRUE(built.ok()) << built.status();
      absl::StatusOr<KernelRunner> runner = KernelRunner::Make(built->request, {.isa = isa, .keep_text = true});
      ASSERT_TRUE(runner.ok()) << runner.status();
      ExpectNoMaskedShuffleOfMemory(runner->assembly());
    }
  }
}

// What later passes need is kept in scratch for rows up to a few times the typical length; longer ones compute it again.
TEST(SymbolicDims, RowsKeepValuesWhileTheyFit) {
  const std::string text = R"(HloModule p, symbols={s0:[0,1000]~100}
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] add(a, b) }
ENTRY e {
  x = f32[5,3,s0] parameter(0)
  z = f32[] constant(0)
  g = f32[5,3,s0] exponential(x)
  s = f32[5] reduce(g, z), dimensions={1,2}, to_apply=add
  sb = f32[5,3,s0] broadcast(s), dimensions={0}
  q = f32[5,3,s0] divide(g, sb)
  ROOT t = (f32[5,3,s0], f32[5,3,s0]) tuple(g, q)
})";
  const std::string bare = text.substr(text.find('\n'));
  RunSymbolic(text, [&](int64_t n) { return "HloModule p" + WithSize(bare, n); }, ToleranceRule::AbsRel(1e-6, 1e-5));
  auto info_of = [](const std::string& module) {
    absl::StatusOr<Built> built = Build({.text = module});
    EXPECT_TRUE(built.ok()) << built.status();
    absl::StatusOr<KernelRunner> runner = KernelRunner::Make(built->request, {.isa = "sse4"});
    EXPECT_TRUE(runner.ok()) << runner.status();
    return runner->kernel().info();
  };
  const auto symbolic = info_of(text), fixed = info_of("HloModule p" + WithSize(bare, 100));
  EXPECT_NE(symbolic.plan_text.find("kept 2"), std::string::npos) << symbolic.plan_text;
  EXPECT_NE(symbolic.plan_text.find("scratch=4096"), std::string::npos) << symbolic.plan_text;  // 1024 elements; the last size has 3000
  // The first result may lie in x where no pass reads x after it is stored; a row that is too long reads it.
  EXPECT_TRUE(absl::c_linear_search(fixed.may_overwrite, LaunchPlan::Pair{0, 0})) << fixed.plan_text;
  EXPECT_FALSE(absl::c_linear_search(symbolic.may_overwrite, LaunchPlan::Pair{0, 0})) << symbolic.plan_text;
}

// Lengths begin short and grow: vectors are as long as there are.
TEST(SymbolicDims, VectorsAreLongForLengthsThatBeganShort) {
  auto plan_for = [](int64_t typical) {
    const std::string text = absl::StrCat("HloModule p, symbols={s0:[0,1000]~", typical, R"(}
ENTRY e {
  x = f32[400,s0] parameter(0)
  y = f32[s0] parameter(1)
  b = f32[400,s0] broadcast(y), dimensions={1}
  ROOT r = f32[400,s0] add(x, b)
})");
    absl::StatusOr<Built> built = Build({.text = text});
    EXPECT_TRUE(built.ok()) << built.status();
    absl::StatusOr<KernelRunner> runner = KernelRunner::Make(built->request, {.isa = "avx2"});
    EXPECT_TRUE(runner.ok()) << runner.status();
    return std::string(runner->kernel().info().plan_text);
  };
  if (!absl::c_linear_search(HostIsas(), "avx2")) GTEST_SKIP() << "no AVX2 here";
  EXPECT_EQ(plan_for(5), plan_for(500));
  EXPECT_NE(plan_for(3), plan_for(500));
}

TEST(SymbolicDims, OneConvolutionForAllBatchesAndAllRows) {
  const std::string text = R"(HloModule p
ENTRY e {
  x = f32[s0,5,9,3] parameter(0)
  k = f32[3,3,3,20] parameter(1)
  ROOT c = f32[s0,5,9,20] convolution(x, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
})";
  RunSymbolic(
      text, [&](int64_t n) { return WithSize(text, n); }, ToleranceRule::AbsRel(1e-3, 1e-4));
}

TEST(SymbolicDims, OneIntegerDotForAllSizes) {
  const std::string text = R"(HloModule p
ENTRY e {
  x = s32[s0,11] parameter(0)
  y = s32[11,37] parameter(1)
  ROOT c = s32[s0,37] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
})";
  RunSymbolic(text, [&](int64_t n) { return WithSize(text, n); }, ToleranceRule::Exact());
  const std::string inner = R"(HloModule p
ENTRY e {
  x = s32[6,s0] parameter(0)
  y = s32[s0,37] parameter(1)
  ROOT c = s32[6,37] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
})";
  RunSymbolic(inner, [&](int64_t n) { return WithSize(inner, n); }, ToleranceRule::Exact());
}

TEST(SymbolicDims, PiecesOfAConcatenation) {
  const std::string text = R"(HloModule p
ENTRY e {
  x = f32[3,1,32] parameter(0)
  y = f32[3,2*s0+3,32] parameter(1)
  ROOT c = f32[3,2*s0+4,32] concatenate(x, y), dimensions={1}
})";
  RunSymbolic(text, [&](int64_t n) { return WithSize(text, n); }, ToleranceRule::Exact());
}

TEST(SymbolicDims, WindowsOfAGather) {
  const std::string text = R"(HloModule p
ENTRY e {
  x = f32[s0,5,6] parameter(0)
  i = s64[4] constant({1,-3,9,4})
  ROOT g = f32[s0,4,6] gather(x, i), offset_dims={0,2}, collapsed_slice_dims={1}, start_index_map={1}, index_vector_dim=1, slice_sizes={s0,1,6}
})";
  RunSymbolic(text, [&](int64_t n) { return WithSize(text, n); }, ToleranceRule::Exact());
}

// HLO has no such gather, but a program for all sizes may be called so: what it computes then is not looked at.
TEST(SymbolicDims, NothingIsReadOfAnEmptyOperand) {
  for (const char* text : {R"(HloModule rows, symbols={s0:[0,1000]}
ENTRY e {
  x = f32[s0,37] parameter(0)
  i = s64[4] constant({1,-3,9,4})
  ROOT g = f32[4,37] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,37}
})",
                           R"(HloModule elements, symbols={s0:[0,1000]}
ENTRY e {
  x = f32[s0] parameter(0)
  i = s64[40] iota(), iota_dimension=0
  ROOT g = f32[40] gather(x, i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1}
})",
                           R"(HloModule window, symbols={s0:[0,1000]}
ENTRY e {
  x = f32[s0,21] parameter(0)
  i = s64[] constant(3)
  z = s64[] constant(0)
  ROOT g = f32[2,21] dynamic-slice(x, i, z), dynamic_slice_sizes={2,21}
})"}) {
    absl::StatusOr<Built> built = Build({.text = text});
    ASSERT_TRUE(built.ok()) << built.status();
    for (const std::string& isa : HostIsas()) {
      absl::StatusOr<KernelRunner> runner = KernelRunner::Make(built->request, {.isa = isa});
      ASSERT_TRUE(runner.ok()) << runner.status();
      for (int64_t n : {0, 1}) {
        const Shape& rows = built->request.fusion->fused_computation()->parameters()[0]->shape();
        std::vector<Dim> dims(rows.dims().begin(), rows.dims().end());
        dims[0] = n;
        const Literal x(Shape(PrimitiveType::kF32, dims));
        EXPECT_TRUE(runner->Run({x}, {.symbols = {{"s0", n}}}).ok()) << isa << " " << n << " " << text;
      }
    }
  }
}

TEST(Check, SetsTheErrorWordOnlyWhenAnElementIsTrue) {
  HloCase c = Named("indexing_check");
  absl::StatusOr<Built> built = Build(c);
  ASSERT_TRUE(built.ok());
  for (const std::string& isa : HostIsas()) {
    absl::StatusOr<KernelRunner> runner = KernelRunner::Make(built->request, {.isa = isa});
    ASSERT_TRUE(runner.ok()) << runner.status();
    std::vector<Literal> args = RandomArguments(*built, c, 5);
    ASSERT_TRUE(runner->Run(args).ok());
    EXPECT_EQ(runner->error_word(), 0);
    for (int64_t at : {0, 17, 49}) {
      Literal bad = args[0];
      bad.SetFromInt64(at, 101);
      ASSERT_TRUE(runner->Run({bad}).ok());
      EXPECT_EQ(runner->error_word(), 5) << isa << " element " << at;  // check id 4, plus one
    }
  }
}

TEST(Check, AloneLooksAtEveryElement) {
  HloCase c = Named("indexing_check_alone");
  absl::StatusOr<Built> built = Build(c);
  ASSERT_TRUE(built.ok());
  for (const std::string& isa : HostIsas()) {
    absl::StatusOr<KernelRunner> runner = KernelRunner::Make(built->request, {.isa = isa});
    ASSERT_TRUE(runner.ok()) << runner.status();
    std::vector<Literal> args = RandomArguments(*built, c, 5);
    ASSERT_TRUE(runner->Run(args).ok());
    EXPECT_EQ(runner->error_word(), 0);
    for (int64_t at : {0, 1023, 1024, 3000, 4808, 4809}) {
      Literal bad = args[0];
      bad.SetFromInt64(at, 101);
      ASSERT_TRUE(runner->Run({bad}).ok());
      EXPECT_EQ(runner->error_word(), 2) << isa << " element " << at;  // check id 1, plus one
    }
  }
}

TEST(Check, IsMadeBesideAScatter) {
  HloCase c = Named("indexing_check_beside_scatter");
  absl::StatusOr<Built> built = Build(c);
  ASSERT_TRUE(built.ok());
  absl::StatusOr<KernelRunner> runner = KernelRunner::Make(built->request, {});
  ASSERT_TRUE(runner.ok()) << runner.status();
  std::vector<Literal> args = RandomArguments(*built, c, 5);
  ASSERT_TRUE(runner->Run(args).ok());
  EXPECT_EQ(runner->error_word(), 0);
  args[1].SetFromInt64(19, 8);
  ASSERT_TRUE(runner->Run(args).ok());
  EXPECT_EQ(runner->error_word(), 3);
}

TEST(Plan, PrintsParsesAndCanBeGiven) {
  for (const HloCase& c : Cases()) {
    absl::StatusOr<Built> built = Build(c);
    ASSERT_TRUE(built.ok()) << built.status();
    auto kernel = PlanCpuKernel(built->request, *MakeCpuTarget(""), true);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    absl::StatusOr<KernelPlan> plan =
        ParseKernelPlan((*kernel)->info().plan_text, &built->module->dims());
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(ToString(*plan), (*kernel)->info().plan_text);
  }
  for (const char* bad :
       {"", "loop", "loop loops=[0:] split=0",
        "row loops=[0:4] split=x block=0 tile=-1 lanes=1 unroll=1 tail=mask phases=[] scratch=0"}) {
    DimTable dims;
    EXPECT_FALSE(ParseKernelPlan(bad, &dims).ok()) << bad;
  }
}

TEST(Plan, AnyFittingPlanGivesTheSameValuesAndOthersAreRefused) {
  HloCase c = Named("loop_odd_sizes");
  absl::StatusOr<Built> built = Build(c);
  ASSERT_TRUE(built.ok());
  std::vector<Literal> args = RandomArguments(*built, c, 5);
  absl::StatusOr<Literal> want = Evaluate(*built->request.fusion->fused_computation(), args);
  for (const char* text : {"loop loops=[1:13 0:7] split=1 block=0 tile=-1 lanes=4 unroll=1 "
                           "tail=scalar phases=[] scratch=0",
                           "loop loops=[0:7 1:13] split=0 block=0 tile=-1 lanes=1 unroll=1 "
                           "tail=scalar phases=[] scratch=0",
                           "loop loops=[0+1:91] split=0 block=32 tile=-1 lanes=8 unroll=2 "
                           "tail=scalar phases=[] scratch=0",
                           "loop loops=[0:7 1:13] split=2 block=0 tile=-1 lanes=1 unroll=1 "
                           "tail=scalar phases=[] scratch=0"}) {
    absl::StatusOr<KernelPlan> plan = ParseKernelPlan(text, &built->module->dims());
    ASSERT_TRUE(plan.ok()) << plan.status();
    absl::StatusOr<KernelRunner> runner = KernelRunner::Make(built->request, {.plan = *plan});
    ASSERT_TRUE(runner.ok()) << runner.status();
    absl::StatusOr<std::vector<Literal>> got = runner->Run(args, {.pieces = 3});
    ASSERT_TRUE(got.ok()) << got.status();
    LiteralDifference d = CompareLiterals((*got)[0], *want);
    EXPECT_TRUE(d.within) << text << ": " << d.what;
  }
  for (const char* text :
       {"loop loops=[0:7] split=0 block=0 tile=-1 lanes=1 unroll=1 tail=scalar phases=[] scratch=0",
        "loop loops=[0:7 1:14] split=0 block=0 tile=-1 lanes=4 unroll=1 tail=scalar phases=[] "
        "scratch=0",
        "row loops=[0:7 1:13] split=0 block=0 tile=-1 lanes=4 unroll=1 tail=scalar phases=[] "
        "scratch=0",
        "loop loops=[0:7 1:13] split=0 block=0 tile=-1 lanes=3 unroll=1 tail=scalar phases=[] "
        "scratch=0"}) {
    absl::StatusOr<KernelPlan> plan = ParseKernelPlan(text, &built->module->dims());
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_FALSE(KernelRunner::Make(built->request, {.plan = *plan}).ok()) << text;
  }
}

TEST(Fingerprint, IgnoresNamesAndLiteralsAndNothingElse) {
  auto fingerprint = [](std::string text) {
    HloCase c{.text = std::move(text)};
    absl::StatusOr<Built> built = Build(c);
    EXPECT_TRUE(built.ok()) << built.status();
    return (*PlanCpuKernel(built->request, *MakeCpuTarget(""), true))->fingerprint();
  };
  const std::string base =
      "HloModule m\nENTRY e {\n x = f32[40] parameter(0)\n c = f32[] constant(0.3)\n b = f32[40] "
      "broadcast(c), dimensions={}\n ROOT r = f32[40] add(x, b)\n}";
  auto with = [&](std::string_view from, std::string_view to) {
    std::string s = base;
    return s.replace(s.find(from), from.size(), to);
  };
  EXPECT_EQ(fingerprint(base), fingerprint(with("0.3", "0.7")));
  EXPECT_EQ(fingerprint(base), fingerprint(with("HloModule m", "HloModule other")));
  EXPECT_NE(fingerprint(base), fingerprint(with("add(x", "multiply(x")));
  EXPECT_NE(fingerprint(base), fingerprint(with("0.3", "1")));
}

TEST(Plan, PhasesThatDoNotFitAreRefused) {
  absl::StatusOr<Built> built = Build(Named("row_layer_norm"));
  ASSERT_TRUE(built.ok());
  auto kernel = PlanCpuKernel(built->request, *MakeCpuTarget(""), true);
  absl::StatusOr<KernelPlan> right = ParseKernelPlan((*kernel)->info().plan_text, &built->module->dims());
  ASSERT_TRUE(right.ok());
  ASSERT_TRUE(KernelRunner::Make(built->request, {.plan = *right}).ok());
  const std::pair<const char*, std::function<void(KernelPlan&)>> wrong[] = {
      {"a full-shaped root in no phase", [](KernelPlan& p) { p.phases.back().roots.clear(); }},
      {"a phase stores what is no full-shaped root, or twice",
       [](KernelPlan& p) { p.phases.back().roots.push_back(p.phases.back().roots[0]); }},
      {"a phase stores what is no full-shaped root, or twice", [](KernelPlan& p) { p.phases.back().roots[0] = 99; }},
      {"a phase finishes what is no reduction, or twice", [](KernelPlan& p) { p.phases[0].reduces[0] = 0; }},
      {"a phase finishes what is no reduction, or twice", [](KernelPlan& p) { p.phases[0].reduces.push_back(-1); }},
      {"a reduction in no phase", [](KernelPlan& p) { p.phases[0].reduces.clear(); }},
      {"a phase keeps what is no full-shaped value, or twice", [](KernelPlan& p) { p.phases[0].kept.push_back(1000); }},
  };
  for (const auto& [why, spoil] : wrong) {
    KernelPlan plan = *right;
    spoil(plan);
    const absl::Status refused = KernelRunner::Make(built->request, {.plan = plan}).status();
    EXPECT_NE(refused.message().find(why), refused.message().npos) << why << ": " << refused;
  }
}

// Exponentials wait where the softmax will be; plans by which other values would, or at another time, are refused.
TEST(Plan, ARootLendsItsMemoryToValuesOfItsPlace) {
  for (const char* name : {"row_softmax", "row_softmax_in_place"}) {
    const HloCase c = Named(name);
    absl::StatusOr<Built> built = Build(c);
    ASSERT_TRUE(built.ok());
    const std::vector<Literal> args = RandomArguments(*built, c, 5);
    const absl::StatusOr<Literal> want = Evaluate(*built->request.fusion->fused_computation(), args);
    for (const std::string& isa : HostIsas()) {
      auto kernel = PlanCpuKernel(built->request, *MakeCpuTarget(isa), true);
      KernelPlan right = *ParseKernelPlan((*kernel)->info().plan_text, &built->module->dims());
      ASSERT_EQ(right.phases.size(), 3u);
      ASSERT_EQ(right.phases[1].kept.size(), 1u);
      const int64_t exponential = right.phases[1].kept[0];
      right.phases[1].kept.clear();
      right.phases[1].lent = {{exponential, 0}};
      right.scratch_bytes = 0;
      EXPECT_EQ(*ParseKernelPlan(ToString(right), &built->module->dims()), right);
      absl::StatusOr<KernelRunner> runner = KernelRunner::Make(built->request, {.isa = isa, .plan = right});
      ASSERT_TRUE(runner.ok()) << runner.status();
      const absl::StatusOr<std::vector<Literal>> got = runner->Run(args);
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_TRUE(CompareLiterals((*got)[0], *want, c.tolerance).within) << name << " " << isa;
      const std::pair<const char*, std::function<void(KernelPlan&)>> wrong[] = {
          {"a root lends", [](KernelPlan& p) { p.phases[1].lent[0].root = 1; }},
          {"a root lends", [](KernelPlan& p) { p.phases[1].lent[0].value = 99; }},
          {"a root lends", [](KernelPlan& p) { p.phases[1].lent[0].value = -1; }},
          {"a root lends", [](KernelPlan& p) { p.phases[1].lent[0].value = p.phases[0].reduces[0]; }},  // of another shape
          {"a root lends", [](KernelPlan& p) { p.phases[1].lent.push_back({p.phases[1].lent[0].value - 1, 0}); }},
          {"a root lends", [](KernelPlan& p) { std::swap(p.phases[1].lent, p.phases[2].lent); }},
          {"twice", [](KernelPlan& p) { p.phases[1].kept.push_back(p.phases[1].lent[0].value), p.scratch_bytes = 1024; }},
          {"not finished", [](KernelPlan& p) { std::swap(p.phases[1].lent, p.phases[0].lent); }},
      };
      for (const auto& [why, spoil] : wrong) {
        KernelPlan plan = right;
        spoil(plan);
        const absl::Status refused = KernelRunner::Make(built->request, {.isa = isa, .plan = plan}).status();
        EXPECT_NE(refused.message().find(why), refused.message().npos) << why << ": " << refused << "\n" << ToString(plan);
      }
    }
  }
}

// A tail mask that lets one lane too many through: the runner's guard bytes notice, and so do the
// values of the last element.
TEST(PlantedMiscompile, AWrongTailMaskIsSeen) {
  if (!MakeCpuTarget("avx512").ok()) GTEST_SKIP() << "no AVX-512 here: no masked tails";
  HloCase c = Named("loop_odd_sizes");
  absl::StatusOr<Built> built = Build(c);
  ASSERT_TRUE(built.ok());
  std::vector<Literal> args = RandomArguments(*built, c, 5);
  absl::StatusOr<Literal> want = Evaluate(*built->request.fusion->fused_computation(), args);
  for (int wrong : {1, -1}) {
    absl::StatusOr<KernelRunner> runner = KernelRunner::Make(
        built->request,
        {.isa = "avx512", .break_ir = [&](llvm::Module& m) { return WidenTailMask(m, wrong); }});
    ASSERT_TRUE(runner.ok()) << runner.status();
    // Seen by a wrong result, or by the fault that touching what lies outside is.
    const auto run = [&] {
      absl::StatusOr<std::vector<Literal>> got = runner->Run(args);
      std::_Exit(!got.ok() || !CompareLiterals((*got)[0], *want).within ? 0 : 1);
    };
    EXPECT_EXIT(run(), [](int status) { return WIFSIGNALED(status) || WEXITSTATUS(status) == 0; }, "") << "a mask wrong by " << wrong;
  }
}

// What each forced ISA must not contain, and the widest register it must.
TEST(Disassembly, StaysBelowTheForcedIsa) {
  for (const std::string& isa : HostIsas()) {
    for (const char* name :
         {"row_softmax", "column_batch_norm_training", "transpose_odd", "loop_bf16_strict",
          "loop_f16_strict", "loop_s32_ops", "indexing_embedding", "contraction_convolution_nchw_same",
          "contraction_dot_s32"}) {
      HloCase c = Named(name);
      absl::StatusOr<Built> built = Build(c);
      ASSERT_TRUE(built.ok());
      absl::StatusOr<KernelRunner> runner =
          KernelRunner::Make(built->request, {.isa = isa, .keep_text = true});
      ASSERT_TRUE(runner.ok()) << runner.status();
      EXPECT_EQ(FirstInstructionAbove(isa, runner->object()), "") << name << " " << isa;
      if (isa == "avx512")
        EXPECT_TRUE(absl::StrContains(runner->assembly(), "zmm") ||
                    std::string_view(name) != "row_softmax");
    }
  }
}

TEST(Disassembly, NoticesAnInstructionAboveTheIsa) {
  if (!MakeCpuTarget("avx512").ok()) GTEST_SKIP() << "no AVX-512 here";
  absl::StatusOr<Built> built = Build(Named("row_softmax"));
  absl::StatusOr<KernelRunner> runner = KernelRunner::Make(built->request, {.isa = "avx512"});
  ASSERT_TRUE(runner.ok());
  EXPECT_NE(FirstInstructionAbove("avx2", runner->object()), "");
  EXPECT_NE(FirstInstructionAbove("sse4", runner->object()), "");
}

// A kernel that keeps vectors on its stack aligns it: a slot on two cache lines costs twice.
TEST(Codegen, SpilledVectorsLieOnOneCacheLine) {
  std::string text = "HloModule m\nENTRY e {\n x = f32[4096] parameter(0)\n y0 = f32[4096] negate(x)\n";
  constexpr int kSteps = 60;  // more than there are registers; each value is used again, the last one first
  for (int k = 0; k < kSteps; ++k) {
    absl::StrAppend(&text, " m", k, " = f32[4096] multiply(y", k, ", x)\n y", k + 1, " = f32[4096] add(m", k, ", x)\n");
  }
  absl::StrAppend(&text, " z", kSteps, " = f32[4096] abs(y", kSteps, ")\n");
  for (int k = kSteps; k-- > 0;) {
    absl::StrAppend(&text, k == 0 ? " ROOT z" : " z", k, " = f32[4096] maximum(z", k + 1, ", y", k, ")\n");
  }
  for (const std::string& isa : HostIsas()) {
    const absl::string_view reg = isa == "avx512" ? "zmm" : isa == "avx2" ? "ymm" : "";
    if (reg.empty()) continue;  // SSE's vectors take the alignment that calls give
    const std::string assembly = AssemblyOf(text + "}", isa);
    const bool spills = absl::c_any_of(absl::StrSplit(assembly, '\n'), [&](absl::string_view line) {
      return absl::StrContains(line, "(%rsp)") && absl::StrContains(line, reg);
    });
    EXPECT_TRUE(spills) << isa;
    EXPECT_TRUE(absl::StrContains(assembly, isa == "avx512" ? "$-64, %rsp" : "$-32, %rsp")) << isa;
  }
}

// result_accuracy of erf chooses its body: the coarse one where the absolute error that it has is allowed.
TEST(Codegen, TakesTheCoarseErfWhereItsErrorIsAllowed) {
  const auto run = [](const std::string& type, const std::string& accuracy) {
    const auto module = ParseModule(
        absl::StrCat("HloModule m\nENTRY e {\n x = ", type, "[64] parameter(0)\n ROOT y = ", type, "[64] erf(x)", accuracy, "\n}\n"));
    TENON_CHECK(module.ok(), module.status().ToString());
    const auto runner = KernelRunner::Make(DenseRequest(WrapEntryAsFusion(**module)), {});
    TENON_CHECK(runner.ok(), runner.status().ToString());
    Literal x(Shape::Array(*ParsePrimitiveType(type), {64}));
    for (int64_t i = 0; i < 64; ++i) x.SetFromDouble(i, 0.01 * static_cast<double>(i + 1));
    const auto y = runner->Run({x});
    TENON_CHECK(y.ok(), y.status().ToString());
    std::vector<double> values;
    for (int64_t i = 0; i < 64; ++i) values.push_back((*y)[0].GetAsDouble(i));
    return values;
  };
  const std::string coarse = ", result_accuracy={tolerance={atol=2.4e-07,ulps=1}}";
  const std::vector<double> exact = run("f32", "");
  EXPECT_EQ(run("f32", ", result_accuracy={tolerance={atol=1e-07,ulps=1}}"), exact);
  EXPECT_NE(run("f32", coarse), exact);
  EXPECT_EQ(run("f64", coarse), run("f64", "")) << "double has one body";
}

}  // namespace
}  // namespace tenon
