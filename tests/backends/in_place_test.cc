// A row kernel may write over its operand only where its plan really finishes a row's reductions first: fusions of form `row`
// given as they stand, because the pipeline keeps reducers that depend on the elements' order out of such kernels.
#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"
#include "backends/driver/literal_executable.h"
#include "hlo/eval/evaluator.h"
#include "hlo/text/text.h"
#include "hlo/tolerance.h"

namespace tenon {
namespace {

// x = -p; y = a function of x and a reduction of its row, by `body`; z = |y|.
std::string Text(const std::string& body) {
  return absl::StrReplaceAll(R"(HloModule rows
body {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  $BODY
}
negated {
  p = s32[4,257]{1,0} parameter(0)
  ROOT n = s32[4,257]{1,0} negate(p)
}
rows {
  x = s32[4,257]{1,0} parameter(0)
  i = s32[] constant(-5)
  r = s32[4]{0} reduce(x, i), dimensions={1}, to_apply=body
  rs = s32[4,257]{1,0} broadcast(r), dimensions={0}
  ROOT y = s32[4,257]{1,0} subtract(x, rs)
}
absolute {
  y = s32[4,257]{1,0} parameter(0)
  ROOT z = s32[4,257]{1,0} abs(y)
}
ENTRY main {
  p = s32[4,257]{1,0} parameter(0)
  x = s32[4,257]{1,0} fusion(p), kind=kLoop, calls=negated, backend_config={"tenon":{"kind":"loop"}}
  y = s32[4,257]{1,0} fusion(x), kind=kInput, calls=rows, backend_config={"tenon":{"kind":"row"}}
  ROOT z = s32[4,257]{1,0} fusion(y), kind=kLoop, calls=absolute, backend_config={"tenon":{"kind":"loop"}}
})",
                             {{"$BODY", body}});
}

const CompileOptions kAsItStands = {.passes = {"schedule"}, .verify_passes = true};

// Does kernel y write where it reads x?
bool WritesOverItsOperand(const Module& module) {
  const absl::StatusOr<Program> program = CompileToProgram(module.Clone(), BindingOf(module), kAsItStands);
  TENON_CHECK(program.ok(), program.status().ToString());
  for (const Step& step : program->regions[0].steps) {
    const auto* kernel = std::get_if<KernelStep>(&step.body);
    if (kernel != nullptr && step.name.starts_with("y")) return kernel->operands[0].value == kernel->operands[1].value;
  }
  ADD_FAILURE() << "no kernel y in " << program->ToString();
  return false;
}

void ExpectTheEvaluatorsNumbers(const Module& module) {
  Literal p(Shape::Array(PrimitiveType::kS32, {4, 257}));
  for (int64_t i = 0; i < p.num_elements(); ++i) p.SetFromDouble(i, static_cast<double>(i * 7919 % 1009));
  const absl::StatusOr<Literal> want = Evaluate(module, {p});
  ASSERT_TRUE(want.ok()) << want.status();
  const auto executable = LiteralExecutable::Compile(module, kAsItStands, nullptr, /*max_grain=*/1);
  ASSERT_TRUE(executable.ok()) << executable.status();
  const absl::StatusOr<std::vector<Literal>> got = (*executable)->Run({p});
  ASSERT_TRUE(got.ok()) << got.status();
  const LiteralDifference d = CompareLiterals((*got)[0], *want, ToleranceRule::Exact());
  EXPECT_TRUE(d.within) << d.what;
}

struct Reducer {
  const char *name, *body;
  bool in_place;
};

class InPlaceRow : public testing::TestWithParam<Reducer> {};

TEST_P(InPlaceRow, OnlyWhereThePlanIsARow) {
  const absl::StatusOr<std::unique_ptr<Module>> module = ParseModule(Text(GetParam().body));
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_EQ(WritesOverItsOperand(**module), GetParam().in_place);
  ExpectTheEvaluatorsNumbers(**module);
}

INSTANTIATE_TEST_SUITE_P(
    Reducers, InPlaceRow,
    testing::Values(Reducer{"sum", "ROOT s = s32[] add(a, b)", true},
                    Reducer{"chosen", "g = pred[] compare(a, b), direction=GE ROOT s = s32[] select(g, a, b)", true},
                    Reducer{"twice_the_sum_so_far", "ROOT s = s32[] add(a, a)", false},
                    Reducer{"larger_and_again", "m = s32[] maximum(a, b) ROOT s = s32[] add(m, b)", false},
                    Reducer{"last", "g = pred[] compare(a, b), direction=EQ ROOT s = s32[] select(g, a, b)", false}),
    [](const auto& info) { return std::string(info.param.name); });

// Exponentials of a row too long for scratch wait where its result will be: not over an operand that is read once more behind them.
TEST(LentRow, IsWrittenBeforeTheLastPass) {
  for (const bool again : {false, true}) {
    const std::string text = absl::StrReplaceAll(R"(HloModule rows
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
negated {
  p = f32[2,33001]{1,0} parameter(0)
  ROOT n = f32[2,33001]{1,0} negate(p)
}
rows {
  x = f32[2,33001]{1,0} parameter(0)
  e = f32[2,33001]{1,0} exponential(x)
  i = f32[] constant(0)
  r = f32[2]{0} reduce(e, i), dimensions={1}, to_apply=add
  rs = f32[2,33001]{1,0} broadcast(r), dimensions={0}
  d = f32[2,33001]{1,0} divide(e, rs)
  ROOT y = f32[2,33001]{1,0} multiply(d, $BY)
}
absolute {
  y = f32[2,33001]{1,0} parameter(0)
  ROOT z = f32[2,33001]{1,0} abs(y)
}
ENTRY main {
  p = f32[2,33001]{1,0} parameter(0)
  x = f32[2,33001]{1,0} fusion(p), kind=kLoop, calls=negated, backend_config={"tenon":{"kind":"loop"}}
  y = f32[2,33001]{1,0} fusion(x), kind=kInput, calls=rows, backend_config={"tenon":{"kind":"row"}}
  ROOT z = f32[2,33001]{1,0} fusion(y), kind=kLoop, calls=absolute, backend_config={"tenon":{"kind":"loop"}}
})",
                                                 {{"$BY", again ? "x" : "d"}});
    const absl::StatusOr<std::unique_ptr<Module>> module = ParseModule(text);
    ASSERT_TRUE(module.ok()) << module.status();
    EXPECT_EQ(WritesOverItsOperand(**module), !again);
    Literal p(Shape::Array(PrimitiveType::kF32, {2, 33001}));
    for (int64_t i = 0; i < p.num_elements(); ++i) p.SetFromDouble(i, static_cast<double>(i * 7919 % 1009) / 500);
    const absl::StatusOr<Literal> want = Evaluate(**module, {p});
    ASSERT_TRUE(want.ok()) << want.status();
    const auto executable = LiteralExecutable::Compile(**module, kAsItStands, nullptr, /*max_grain=*/1);
    ASSERT_TRUE(executable.ok()) << executable.status();
    const absl::StatusOr<std::vector<Literal>> got = (*executable)->Run({p});
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_TRUE(CompareLiterals((*got)[0], *want, ToleranceRule::AbsRel(1e-9, 1e-4)).within) << again;
  }
}

// Somebody's own order of passes: the kernels are those of the module in the end.
TEST(LaunchPlans, AreMadeAgainWhereTheModuleChangedBehindThem) {
  const absl::StatusOr<std::unique_ptr<Module>> module =
      ParseModule("HloModule m ENTRY e { x = f32[8] parameter(0) y = f32[8] exponential(x) ROOT z = f32[8] negate(y) }");
  ASSERT_TRUE(module.ok()) << module.status();
  for (const std::vector<std::string>& passes : std::vector<std::vector<std::string>>{
           {"assign-layout", "lower-kernels", "fuse", "dce", "schedule"}, {"assign-layout", "fuse", "lower-kernels", "dce", "schedule"}}) {
    const absl::StatusOr<Program> program =
        CompileToProgram((*module)->Clone(), BindingOf(**module), {.passes = passes, .verify_passes = true});
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_EQ(program->kernels.size(), 1u);
  }
}

}  // namespace
}  // namespace tenon
