// Runs the cases of tests/passes/*.hlo (pass_case.h): the golden, the truth about "changed", the verifier, the same numbers.
#include "gtest/gtest.h"

#include <regex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "hlo/eval/evaluator.h"
#include "hlo/text/text.h"
#include "hlo/tolerance.h"
#include "passes/memory/buffer_plan.h"
#include "passes/pipeline.h"
#include "tests/hlo/text_files.h"
#include "tests/passes/pass_case.h"
#include "tests/passes/random_values.h"

namespace tenon {
namespace {

std::string RemarksText(const std::vector<Remark>& remarks) {
  std::string text;
  for (const Remark& r : remarks) {
    absl::StrAppend(&text, r.pass, " ", r.kind, " ", r.instruction, ": ", r.reason);
    for (const auto& [key, value] : r.numbers) absl::StrAppend(&text, " ", key, "=", value);
    text += "\n";
  }
  return text;
}

// Symbols replaced by their values, the header's list of them dropped.
std::string Specialized(std::string text, const std::string& symbols) {
  if (symbols.empty()) return text;
  text = std::regex_replace(text, std::regex(R"(, symbols=\{[^}]*\})"), "");
  for (const std::string& pair : std::vector<std::string>(absl::StrSplit(symbols, ','))) {
    const size_t at = pair.find('=');
    text = std::regex_replace(text, std::regex("\\b" + pair.substr(0, at) + "\\b"), pair.substr(at + 1));
  }
  return text;
}

void SetTarget(const std::string& text, TargetInfo* target) {
  if (text.empty()) return;
  const size_t at = text.find('=');
  ASSERT_EQ(text.substr(0, at), "max_fusion_instructions");
  target->max_fusion_instructions = std::stoll(text.substr(at + 1));
}

std::string PlanText(const Module& module) {
  BufferPlanOptions options;
  options.in_slot = [](const Instruction& op, int64_t) { return op.opcode() == Opcode::kCustomCall; };
  options.direct_output = [](int64_t) { return true; };
  auto plan = PlanBuffers(module, options);
  return plan.ok() ? plan->ToString() : plan.status().ToString();
}

void ExpectSameNumbers(const PassCase& c, const std::string& before_text, const std::string& after_text) {
  if (c.numerics.starts_with("off: ")) return;
  auto before = ParseModule(Specialized(before_text, c.symbols)), after = ParseModule(Specialized(after_text, c.symbols));
  ASSERT_TRUE(before.ok()) << before.status();
  ASSERT_TRUE(after.ok()) << after.status() << "\n" << after_text;
  ToleranceRule rule = ToleranceRule::Exact();
  rule.zero_signs = true;
  if (c.numerics.starts_with("ulps ")) rule = ToleranceRule::Ulps(std::stoll(c.numerics.substr(5)));
  else if (c.numerics == "close") rule = ToleranceRule::AbsRel(1e-5, 1e-5);
  else ASSERT_EQ(c.numerics, "exact");
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    std::mt19937_64 random(seed);
    const std::vector<Literal> arguments = RandomArguments(**before, /*extremes=*/c.numerics != "close", random);
    std::vector<std::string> checks_before, checks_after;
    auto want = EvaluateWithCalls(**before, arguments, &checks_before);
    auto got = EvaluateWithCalls(**after, arguments, &checks_after);
    ASSERT_TRUE(want.ok()) << want.status();
    ASSERT_TRUE(got.ok()) << got.status();
    const LiteralDifference difference = CompareLiterals(*got, *want, rule);
    EXPECT_TRUE(difference.within) << "seed " << seed << ": " << difference.what << "\n" << after_text;
    EXPECT_EQ(checks_after, checks_before);
  }
}

void RunCase(PassCase& c) {
  SCOPED_TRACE(c.name);
  auto module = ParseModule(c.input);
  ASSERT_TRUE(module.ok()) << module.status();
  const std::string before = Print(**module);
  std::vector<Remark> remarks;
  PassContext context;
  context.remarks = &remarks;
  context.evaluate = [](const Instruction& op, absl::Span<const Literal> operands) { return EvaluateInstruction(op, operands); };
  SetTarget(c.target, &context.target);
  PipelineOptions options{.verify = true};
  if (c.run != "default") options.passes = absl::StrSplit(c.run, ',');
  const absl::StatusOr<bool> changed = RunPipeline(**module, context, options);
  ASSERT_TRUE(changed.ok()) << changed.status();
  const std::string after = Print(**module);
  if (c.print == "module") ExpectSameNumbers(c, before, after);
  if (c.unchanged) {
    EXPECT_FALSE(*changed) << after;
    return;
  }
  const std::string got = c.print == "remarks" ? RemarksText(remarks) : c.print == "plan" ? PlanText(**module) : after;
  if (std::getenv("UPDATE_GOLDEN") != nullptr) c.expect = got;
  else EXPECT_EQ(got, c.expect) << "(UPDATE_GOLDEN=1 rewrites it)";
}

class Passes : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(Passes, Golden) {
  PassFile file = ReadPassFile(GetParam());
  ASSERT_FALSE(file.cases.empty());
  EXPECT_EQ(PrintPassFile(file), ReadTestFile(GetParam())) << "the file's form differs from what UPDATE_GOLDEN=1 writes";
  for (PassCase& c : file.cases) RunCase(c);
  if (std::getenv("UPDATE_GOLDEN") != nullptr && !HasFatalFailure()) ExpectGolden(GetParam(), PrintPassFile(file));
}

INSTANTIATE_TEST_SUITE_P(Files, Passes, testing::ValuesIn(TestFiles("passes")), [](const auto& info) {
  return absl::StrReplaceAll(info.param.stem().string(), {{"-", "_"}, {".", "_"}});
});

// Every pass has its file of cases, and every rule of simplify is named in one.
TEST(PassTests, EveryPassHasItsFile) {
  for (const PassInfo& pass : AllPasses()) {
    const std::string path = absl::StrCat(TENON_SOURCE_DIR, "/tests/passes/", absl::StrReplaceAll(std::string(pass.name), {{"-", "_"}}), ".hlo");
    EXPECT_TRUE(std::filesystem::exists(path)) << path;
  }
}

}  // namespace
}  // namespace tenon
