// The CPU backend without the evaluator: this program links backends, runtime, passes and hlo, and nothing of hlo/eval.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdio>
#include <string>

#include "backends/driver/literal_executable.h"
#include "hlo/text/text.h"
#include "hlo/tolerance.h"

namespace tenon {
namespace {

std::string Output(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "";
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) text.append(buffer, n);
  pclose(pipe);
  return text;
}

// Names of the evaluator in a list of symbols.
int EvaluatorSymbols(const std::string& symbols) {
  int found = 0;
  for (const char* name :
       {" tenon::eval::", " tenon::Evaluate(tenon::Module", " tenon::Evaluate(tenon::Computation", " tenon::EvaluateInstruction("}) {
    for (size_t at = symbols.find(name); at != std::string::npos; at = symbols.find(name, at + 1)) ++found;
  }
  return found;
}

TEST(Alone, HasNoSymbolOfTheEvaluator) {
  const std::string symbols = Output("nm -C /proc/" + std::to_string(getpid()) + "/exe 2>/dev/null");
  if (symbols.find("tenon::LiteralExecutable::Compile(") == std::string::npos) GTEST_SKIP() << "no nm, or a stripped program";
  EXPECT_EQ(EvaluatorSymbols(symbols), 0);
}

// The check can fail: a program that links the evaluator has such symbols.
TEST(Alone, TheCheckSeesAnEvaluator) {
  EXPECT_EQ(EvaluatorSymbols("1 T tenon::eval::HandlerOf(tenon::Opcode)\n2 T tenon::Evaluate(tenon::Module const&)\n"), 2);
  const std::string symbols = Output("nm -C " TENON_BIN_DIR "/eval_test 2>/dev/null");
  if (symbols.empty()) GTEST_SKIP() << "eval_test is not built";
  EXPECT_GT(EvaluatorSymbols(symbols), 10);
}

struct AloneCase {
  const char* name;
  const char* text;
  const char* expected;  // what the one result prints as
};

const AloneCase kPrograms[] = {
    {"elementwise", "ENTRY e { x = f32[3] constant({1, 4, 9})\n s = f32[3] sqrt(x)\n ROOT n = f32[3] negate(s) }", "{-1, -2, -3}"},
    {"foldable", "ENTRY e { a = s32[] constant(2)\n b = s32[] constant(3)\n ROOT c = s32[] add(a, b) }", "5"},
    {"dot",
     "ENTRY e { x = f32[2,2] constant({{1, 2}, {3, 4}})\n ROOT d = f32[2,2] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0} "
     "}",
     "{{7, 10}, {15, 22}}"},
    {"fft",
     "ENTRY e { x = f32[4] constant({1, 2, 3, 4})\n f = c64[3] fft(x), fft_type=RFFT, fft_length={4}\n"
     " ROOT y = f32[4] fft(f), fft_type=IRFFT, fft_length={4} }",
     "{1, 2, 3, 4}"},
    {"cholesky", "ENTRY e { x = f32[2,2] constant({{4, 2}, {2, 5}})\n ROOT l = f32[2,2] cholesky(x), lower=true }", "{{2, 0}, {1, 2}}"},
    {"triangular-solve",
     "ENTRY e { a = f32[2,2] constant({{2, 0}, {1, 4}})\n b = f32[2,1] constant({{2}, {9}})\n"
     " ROOT x = f32[2,1] triangular-solve(a, b), left_side=true, lower=true, transpose_a=NO_TRANSPOSE }",
     "{{1}, {2}}"},
    {"philox",
     "ENTRY e { s = u64[3] constant({0, 0, 0})\n r = (u64[3], u32[4]) rng-bit-generator(s), algorithm=rng_philox\n"
     " ROOT b = u32[4] get-tuple-element(r), index=1 }",
     "{1713891541, 3781805453, 3159862348, 2600524760}"},
    {"rng", "ENTRY e { lo = s32[] constant(5)\n hi = s32[] constant(6)\n ROOT r = s32[3] rng(lo, hi), distribution=rng_uniform }",
     "{5, 5, 5}"},
    {"collectives",
     "a { x = s32[] parameter(0)\n y = s32[] parameter(1)\n ROOT s = s32[] add(x, y) }\n"
     "ENTRY e { x = s32[2] constant({1, 2})\n r = s32[2] all-reduce(x), replica_groups={}, to_apply=a\n"
     " ROOT g = s32[2] all-gather(r), replica_groups={{0}}, dimensions={0} }",
     "{1, 2}"},
    {"while",
     "c { s = (s32[], s32[]) parameter(0)\n i = s32[] get-tuple-element(s), index=0\n n = s32[] constant(5)\n"
     " ROOT l = pred[] compare(i, n), direction=LT }\n"
     "b { s = (s32[], s32[]) parameter(0)\n i = s32[] get-tuple-element(s), index=0\n x = s32[] get-tuple-element(s), index=1\n"
     " one = s32[] constant(1)\n j = s32[] add(i, one)\n y = s32[] add(x, x)\n ROOT t = (s32[], s32[]) tuple(j, y) }\n"
     "ENTRY e { z = s32[] constant(0)\n o = s32[] constant(1)\n t = (s32[], s32[]) tuple(z, o)\n"
     " w = (s32[], s32[]) while(t), condition=c, body=b\n ROOT r = s32[] get-tuple-element(w), index=1 }",
     "32"},
    {"sort",
     "c { a = s32[] parameter(0)\n b = s32[] parameter(1)\n ROOT l = pred[] compare(a, b), direction=LT }\n"
     "ENTRY e { x = s32[5] constant({3, 1, 2, 5, 4})\n ROOT s = s32[5] sort(x), dimensions={0}, to_apply=c }",
     "{1, 2, 3, 4, 5}"},
};

class Alone : public testing::TestWithParam<AloneCase> {};

TEST_P(Alone, Runs) {
  auto module = ParseModule(GetParam().text);
  ASSERT_TRUE(module.ok()) << module.status();
  auto executable = LiteralExecutable::Compile(**module, {.verify_passes = true});
  ASSERT_TRUE(executable.ok()) << executable.status();
  auto results = (*executable)->Run({});
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(results->size(), 1u);
  EXPECT_EQ((*results)[0].ToString(), GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(Programs, Alone, testing::ValuesIn(kPrograms), [](const auto& info) {
  std::string name = info.param.name;
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
});

}  // namespace
}  // namespace tenon
