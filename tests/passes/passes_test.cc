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
  options.exclusive_slot = [](const Instruction& op) { return op.custom_call_target() == "aten.convolution.default"; };
  options.direct_output = [](int64_t) { return true; };
  options.works_by_rows = [](const Instruction&) { return true; };  // tests/backends/in_place_test.cc asks the plan
  auto plan = PlanBuffers(module, options);
  return plan.ok() ? plan->ToString() : plan.status().ToString();
}

ToleranceRule RuleOf(const std::string& numerics) {
  ToleranceRule rule = ToleranceRule::Exact();
  rule.zero_signs = true;
  if (numerics.starts_with("ulps ")) return ToleranceRule::Ulps(std::stoll(numerics.substr(5)));
  if (numerics == "close") return ToleranceRule::AbsRel(1e-5, 1e-5);
  EXPECT_EQ(numerics, "exact");
  return rule;
}

// "" or how the two modules' results differ.
std::string NumericDifference(const std::string& numerics, const std::string& symbols, const std::string& before_text,
                              const std::string& after_text) {
  if (numerics.starts_with("off: ")) return "";
  auto before = ParseModule(Specialized(before_text, symbols)), after = ParseModule(Specialized(after_text, symbols));
  if (!before.ok() || !after.ok()) return absl::StrCat(before.status().ToString(), ", ", after.status().ToString());
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    std::mt19937_64 random(seed);
    const std::vector<Literal> arguments = RandomArguments(**before, /*extremes=*/numerics != "close", random);
    std::vector<std::string> checks_before, checks_after;
    auto want = EvaluateWithCalls(**before, arguments, &checks_before);
    auto got = EvaluateWithCalls(**after, arguments, &checks_after);
    if (!want.ok() || !got.ok()) return absl::StrCat(want.status().ToString(), ", ", got.status().ToString());
    const LiteralDifference difference = CompareLiterals(*got, *want, RuleOf(numerics));
    if (!difference.within) return absl::StrCat("seed ", seed, ": ", difference.what);
    if (checks_after != checks_before) return absl::StrCat("seed ", seed, ": other checks fired");
  }
  return "";
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
  if (c.print == "module") EXPECT_EQ(NumericDifference(c.numerics, c.symbols, before, after), "") << after;
  if (c.unchanged) {
    EXPECT_FALSE(*changed) << after;
    return;
  }
  const std::string got = c.print == "remarks" ? RemarksText(remarks) : c.print == "plan" ? PlanText(**module) : after;
  if (std::getenv("UPDATE_GOLDEN") != nullptr)
    c.expect = got;
  else
    EXPECT_EQ(got, c.expect) << "(UPDATE_GOLDEN=1 rewrites it)";
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
    const std::string path =
        absl::StrCat(TENON_SOURCE_DIR, "/tests/passes/", absl::StrReplaceAll(std::string(pass.name), {{"-", "_"}}), ".hlo");
    EXPECT_TRUE(std::filesystem::exists(path)) << path;
  }
}

// The numeric check finds what no golden would: x + 0 is not x for x = -0, and a check that is lost.
TEST(PassTests, WrongNumbersAreFound) {
  const std::string before =
      "HloModule m ENTRY e { x = f32[64] parameter(0) z = f32[64] broadcast(f32[] constant(0)), dimensions={} ROOT r = add(x, z) "
      "}";
  const std::string after = "HloModule m ENTRY e { ROOT x = f32[64] parameter(0) }";
  EXPECT_NE(NumericDifference("exact", "", before, after), "");
  EXPECT_EQ(NumericDifference("exact", "", after, after), "");
  const std::string check = R"(HloModule m ENTRY e { ROOT x = f32[64] parameter(0) p = pred[] constant(true)
    c = pred[] custom-call(p), custom_call_target="tenon.check", custom_call_has_side_effect=true, backend_config={"check":0} })";
  EXPECT_EQ(NumericDifference("exact", "", check, after), "seed 1: other checks fired");
}

}  // namespace
}  // namespace tenon
