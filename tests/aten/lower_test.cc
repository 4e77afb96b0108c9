// tests/aten/*.aten: graph text, then the HLO that Lower must make of it, each line behind "//> ".
// UPDATE_GOLDEN=1 rewrites the expectations.
#include "torch_plugin/aten/lower.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hlo/eval/evaluator.h"
#include "hlo/text/text.h"
#include "hlo/verifier.h"
#include "torch_plugin/aten/op_table.h"

namespace tenon::aten {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string ReadFile(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<fs::path> Goldens() {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(fs::path(TENON_SOURCE_DIR) / "tests/aten")) {
    if (entry.path().extension() == ".aten") found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

constexpr char kMark[] = "//>";

class LowerGoldenTest : public ::testing::TestWithParam<fs::path> {};

TEST_P(LowerGoldenTest, MakesTheExpectedHlo) {
  const std::string file = ReadFile(GetParam());
  const size_t cut = file.find(kMark);
  const std::string text = file.substr(0, cut);
  auto graph = ParseGraph(text);
  ASSERT_TRUE(graph.ok()) << graph.status();
  auto lowered = Lower(*graph);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_TRUE(Verify(*lowered->module).ok()) << Verify(*lowered->module);
  std::string expected;
  for (std::string line : std::vector<std::string>(absl::StrSplit(Print(*lowered->module), '\n'))) {
    if (!line.empty()) absl::StrAppend(&expected, kMark, " ", line, "\n");
  }
  for (const CheckSpec& check : lowered->binding.checks) {
    absl::StrAppend(&expected, kMark, " check ", check.exception, ": ", check.message, "\n");
  }
  for (const std::string& remark : lowered->remarks) absl::StrAppend(&expected, kMark, " remark ", remark, "\n");
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    std::ofstream(GetParam()) << text << expected;
    return;
  }
  ASSERT_NE(cut, std::string::npos) << "no expectation; run with UPDATE_GOLDEN=1";
  EXPECT_EQ(file.substr(cut), expected);
}

INSTANTIATE_TEST_SUITE_P(All, LowerGoldenTest, ::testing::ValuesIn(Goldens()), [](const auto& info) {
  std::string name = info.param.stem().string();
  std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

TEST(OpTableTest, RowsAreUniqueAndComplete) {
  std::set<std::string_view> seen;
  int lowered = 0;
  for (const OpRow& row : Rows()) {
    EXPECT_TRUE(seen.insert(row.overload).second) << row.overload << " stands twice in aten.def";
    EXPECT_TRUE(row.overload.starts_with("aten.") || row.overload.starts_with("prims.")) << row.overload;
    EXPECT_TRUE(row.element.empty() || HasLowering(row.element)) << row.overload;
    EXPECT_EQ(std::count(row.overload.begin(), row.overload.end(), '.'), 2) << row.overload;
    EXPECT_EQ(row.kind == RowKind::kLowered, row.lower != nullptr) << row.overload;
    lowered += row.kind == RowKind::kLowered;
    EXPECT_EQ(FindRow(row.overload), &row);
  }
  EXPECT_GE(lowered, 305);
  EXPECT_TRUE(HasLowering("aten.add.Tensor"));
  EXPECT_FALSE(HasLowering("aten._scaled_dot_product_flash_attention.default")) << "a library call";
  EXPECT_EQ(FindRow("aten.nonsense.default"), nullptr);
  EXPECT_EQ(RuleOf("aten.nonsense.default"), ResultRule::kView) << "unknown: may alias";
  EXPECT_EQ(EffectOf("aten.relu_.default"), Effect::kMutates);
  EXPECT_EQ(EffectOf("aten.__and__.Tensor"), Effect::kPure);
  EXPECT_EQ(EffectOf("aten.__iand__.Tensor"), Effect::kMutates);
}

absl::StatusOr<Lowered> LowerText(const std::string& text, const LowerOptions& options = {}) {
  auto graph = ParseGraph(text);
  if (!graph.ok()) return graph.status();
  return Lower(*graph, options);
}

TEST(LowerTest, BindsInputsOutputsAndMutations) {
  auto lowered = LowerText(R"(graph "g" {
    %p0 = input f32[4,3]{1,4}
    %p1 = input f32[3]{0}
    %n = input none
    %c0 = constant f32[3]{1}
    %a = aten.add.Tensor(%p0, %c0, 1) -> f32[4,3]{1,4}
    %e = aten.expand.default(%p1, [4, 3], false) -> f32[4,3]{0,0}
    aten.copy_.default(%p0, %a, false) -> alias %p0
    return (%p0, %a, %a, none, sym(7), %c0, %e)
  })");
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  const Binding& b = lowered->binding;
  ASSERT_EQ(b.parameters.size(), 3u);
  EXPECT_EQ(b.parameters[2].kind, Binding::Parameter::Kind::kConstant);
  ASSERT_EQ(b.inputs.size(), 3u);
  EXPECT_TRUE(b.inputs[0].mutated);
  EXPECT_EQ(b.inputs[2].kind, InputSpec::Kind::kNone);
  ASSERT_EQ(b.outputs.size(), 7u);
  EXPECT_EQ(b.outputs[0].kind, OutputKind::kInput);
  EXPECT_EQ(b.outputs[1].root_index, b.outputs[2].root_index);
  EXPECT_EQ(b.outputs[3].kind, OutputKind::kNone);
  EXPECT_EQ(b.outputs[4].symint.constant(), 7);
  EXPECT_EQ(b.outputs[5].kind, OutputKind::kConstant);
  ASSERT_EQ(b.mutations.size(), 1u);
  const Shape& root = lowered->module->entry()->root()->shape();
  EXPECT_EQ(root.element(b.outputs[6].root_index).ToString(), "f32[1,1]") << "stride 0: one element";
  EXPECT_EQ(root.element(b.outputs[1].root_index).minor_to_major(), (Permutation{0, 1})) << "eager's strides";
}

TEST(LowerTest, RefusesWhatNeedsTheEagerProgram) {
  for (const char* text : {
           "graph \"g\" {\n %p = input f32[2]{1} on \"cuda:0\"\n return (%p)\n}",
           "graph \"g\" {\n %p = input other(\"tensor subclass DTensor\")\n return (%p)\n}",
           "graph \"g\" {\n %p = input f32[2]{1}\n %q = aten._conj.default(%p) -> other(\"conjugated or negated view\")\n return (%q)\n}",
           "graph \"g\" {\n %p = input f32[2]{1}\n %q = aten.relu.default(%p) -> f32[2]{1}\n %r = aten.add_.Tensor(%q, %p, 1) -> "
           "f32[2]{1}\n return (%r)\n}",
       }) {
    auto lowered = LowerText(text);
    EXPECT_EQ(lowered.status().code(), absl::StatusCode::kUnimplemented) << text << lowered.status();
  }
}

TEST(LowerTest, UnknownAndDisabledOpsBecomeFrameworkCalls) {
  const std::string text = R"(graph "g" {
    %p = input f32[2]{1}
    %a = aten.nonsense.default(%p, [1, %p], "s") -> f32[2]{1} @ "m.0" "net.py:3"
    %b = aten.relu.default(%a) -> f32[2]{1}
    return (%b)
  })";
  auto lowered = LowerText(text, {.disable = {"aten.relu.default"}});
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  ASSERT_EQ(lowered->remarks.size(), 2u);
  EXPECT_THAT(lowered->remarks[0], HasSubstr("no lowering"));
  EXPECT_THAT(lowered->remarks[1], HasSubstr("disabled"));
  const std::string hlo = Print(*lowered->module);
  EXPECT_THAT(hlo, HasSubstr("custom_call_target=\"aten.nonsense.default\""));
  EXPECT_THAT(hlo, HasSubstr(R"("rule":"view")"));
}

TEST(LowerTest, TwoEqualRandomNodesStayTwoAndOrdered) {
  auto lowered = LowerText(R"(graph "g" {
    %a = aten.rand.default([2], dtype:f32, none, device:cpu, false) -> f32[2]{1}
    %b = aten.rand.default([2], dtype:f32, none, device:cpu, false) -> f32[2]{1}
    return (%a, %b)
  })");
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  const Instruction* root = lowered->module->entry()->root();
  EXPECT_TRUE(root->operand(0)->HasSideEffect());
  ASSERT_EQ(root->operand(1)->control_predecessors().size(), 1u);
  EXPECT_EQ(root->operand(1)->control_predecessors()[0], root->operand(0));
}

TEST(LowerTest, ALowResultDtypeIsRoundedOnce) {
  auto lowered = LowerText(R"(graph "g" {
    %p = input bf16[8]{1}
    %a = aten.gelu.default(%p, "none") -> bf16[8]{1}
    return (%a)
  })");
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  int narrowing = 0;
  for (const Instruction* i : lowered->module->entry()->instructions()) {
    narrowing += i->opcode() == Opcode::kConvert && i->shape().element_type() == PrimitiveType::kBF16;
    if (i->opcode() == Opcode::kErf) EXPECT_EQ(i->shape().element_type(), PrimitiveType::kF32);
  }
  EXPECT_EQ(narrowing, 1);
}

// Whether any "tenon.check" fires for these values of the only input.
int FiredChecks(const std::string& text, std::vector<Literal> inputs) {
  auto lowered = LowerText(text);
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  int fired = 0;
  EvalOptions options;
  options.custom_calls["tenon.check"] = [&](const Instruction&, absl::Span<const Literal> args) {
    bool bad = false;
    for (int64_t i = 0; i < args[0].num_elements(); ++i) bad |= args[0].GetAsInt64(i) != 0;
    fired += bad;
    return absl::StatusOr<Literal>(Literal::ScalarInt(PrimitiveType::kPred, bad));
  };
  auto result = Evaluate(*lowered->module, inputs, options);
  EXPECT_TRUE(result.ok()) << result.status();
  return fired;
}
Literal Ints(std::vector<int64_t> values) {
  return Literal::FromSpan<int64_t>(PrimitiveType::kS64, {static_cast<int64_t>(values.size())}, values);
}

TEST(LowerTest, IndicesOutOfRangeFireTheirCheck) {
  const std::string embedding = R"(graph "g" {
    %i = input s64[2]{1}
    %t = literal f32[3,1]{1,1} [1.0, 2.0, 3.0]
    %e = aten.embedding.default(%t, %i, -1, false, false) -> f32[2,1]{1,1}
    return (%e)
  })";
  EXPECT_EQ(FiredChecks(embedding, {Ints({0, 2})}), 0);
  EXPECT_EQ(FiredChecks(embedding, {Ints({0, 3})}), 1);
  EXPECT_EQ(FiredChecks(embedding, {Ints({-1, 0})}), 1) << "embedding does not wrap";
  const std::string index = R"(graph "g" {
    %i = input s64[2]{1}
    %t = literal f32[3]{1} [1.0, 2.0, 3.0]
    %e = aten.index.Tensor(%t, [%i]) -> f32[2]{1}
    return (%e)
  })";
  EXPECT_EQ(FiredChecks(index, {Ints({-3, 2})}), 0) << "index wraps";
  EXPECT_EQ(FiredChecks(index, {Ints({-4, 2})}), 1);
  EXPECT_EQ(FiredChecks(index, {Ints({3, 2})}), 1);
}

TEST(LowerTest, IntegerDivisionByZeroFiresItsCheck) {
  for (const char* op : {"aten.floor_divide.default(%a, %b)", "aten.remainder.Tensor(%a, %b)", "aten.fmod.Tensor(%a, %b)",
                         "aten.div.Tensor_mode(%a, %b, \"trunc\")", "aten.div.Tensor_mode(%a, %b, \"floor\")"}) {
    const std::string text = absl::StrCat("graph \"g\" {\n %a = input s64[2]{1}\n %b = input s64[2]{1}\n %c = ", op,
                                          " -> s64[2]{1}\n return (%c)\n}");
    EXPECT_EQ(FiredChecks(text, {Ints({7, -7}), Ints({2, 1})}), 0) << op;
    EXPECT_EQ(FiredChecks(text, {Ints({7, 7}), Ints({2, 0})}), 1) << op;
  }
}

}  // namespace
}  // namespace tenon::aten
