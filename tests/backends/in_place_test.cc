// A row kernel may write over its operand only where its plan really finishes a row's reductions first: fusions of form `row`
// given as they stand, because the pipeline keeps reducers that depend on the elements' order out of such kernels.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "backends/driver/literal_executable.h"
#include "hlo/eval/evaluator.h"
#include "hlo/text/text.h"
#include "hlo/tolerance.h"

namespace tenon {
namespace {

// x = -p; y = `rows` of x; z = |y|: of one shape. `regions`: what rows calls.
std::string Around(const std::string& shape, const std::string& regions, const std::string& rows) {
  return absl::StrReplaceAll(R"(HloModule rows
$REGIONS
negated {
  p = $SHAPE{1,0} parameter(0)
  ROOT n = $SHAPE{1,0} negate(p)
}
rows {
  x = $SHAPE{1,0} parameter(0)
  $ROWS
}
absolute {
  y = $SHAPE{1,0} parameter(0)
  ROOT z = $SHAPE{1,0} abs(y)
}
ENTRY main {
  p = $SHAPE{1,0} parameter(0)
  x = $SHAPE{1,0} fusion(p), kind=kLoop, calls=negated, backend_config={"tenon":{"kind":"loop"}}
  y = $SHAPE{1,0} fusion(x), kind=kInput, calls=rows, backend_config={"tenon":{"kind":"row"}}
  ROOT z = $SHAPE{1,0} fusion(y), kind=kLoop, calls=absolute, backend_config={"tenon":{"kind":"loop"}}
})",
                             {{"$REGIONS", regions}, {"$SHAPE", shape}, {"$ROWS", rows}});
}

// y = a function of x and a reduction of its row, by `body`.
std::string Text(const std::string& body) {
  return Around("s32[4,257]", absl::StrCat("body {\n  a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  ", body, "\n}"),
                R"(i = s32[] constant(-5)
  r = s32[4]{0} reduce(x, i), dimensions={1}, to_apply=body
  rs = s32[4,257]{1,0} broadcast(r), dimensions={0}
  ROOT y = s32[4,257]{1,0} subtract(x, rs))");
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

// Of a p of these sizes, numbers below 1009 in steps of `step`.
void ExpectTheEvaluatorsNumbers(const Module& module, const Shape& shape, double step, const ToleranceRule& rule) {
  Literal p(shape);
  for (int64_t i = 0; i < p.num_elements(); ++i) p.SetFromDouble(i, static_cast<double>(i * 7919 % 1009) * step);
  const absl::StatusOr<Literal> want = Evaluate(module, {p});
  ASSERT_TRUE(want.ok()) << want.status();
  const auto executable = LiteralExecutable::Compile(module, kAsItStands, nullptr, /*max_grain=*/1);
  ASSERT_TRUE(executable.ok()) << executable.status();
  const absl::StatusOr<std::vector<Literal>> got = (*executable)->Run({p});
  ASSERT_TRUE(got.ok()) << got.status();
  const LiteralDifference d = CompareLiterals((*got)[0], *want, rule);
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
  ExpectTheEvaluatorsNumbers(**module, Shape::Array(PrimitiveType::kS32, {4, 257}), 1, ToleranceRule::Exact());
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
    const std::string rows = absl::StrReplaceAll(R"(e = f32[2,33001]{1,0} exponential(x)
  i = f32[] constant(0)
  r = f32[2]{0} reduce(e, i), dimensions={1}, to_apply=add
  rs = f32[2,33001]{1,0} broadcast(r), dimensions={0}
  d = f32[2,33001]{1,0} divide(e, rs)
  ROOT y = f32[2,33001]{1,0} multiply(d, $BY))",
                                                 {{"$BY", again ? "x" : "d"}});
    const absl::StatusOr<std::unique_ptr<Module>> module = ParseModule(
        Around("f32[2,33001]", "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT s = f32[] add(a, b)\n}", rows));
    ASSERT_TRUE(module.ok()) << module.status();
    EXPECT_EQ(WritesOverItsOperand(**module), !again);
    ExpectTheEvaluatorsNumbers(**module, Shape::Array(PrimitiveType::kF32, {2, 33001}), 0.002, ToleranceRule::AbsRel(1e-9, 1e-4));
  }
}

// Rows times a square matrix: only a tile with all columns has read its rows when it stores them.
TEST(InPlaceProduct, OnlyWhereATileHasAllColumns) {
  for (const int columns : {8, 400}) {
    const std::string shape = absl::StrCat("s32[", 37, ",", columns, "]"), square = absl::StrCat("s32[", columns, ",", columns, "]{1,0}");
    const std::string rows = absl::StrCat("w = ", square, " iota(), iota_dimension=0\n  ROOT y = ", shape,
                                          "{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}");
    const absl::StatusOr<std::unique_ptr<Module>> module = ParseModule(
        absl::StrReplaceAll(Around(shape, "", rows), {{R"("kind":"row")", R"("kind":"contraction")"}, {"kind=kInput", "kind=kCustom"}}));
    ASSERT_TRUE(module.ok()) << module.status();
    EXPECT_EQ(WritesOverItsOperand(**module), columns == 8);
    ExpectTheEvaluatorsNumbers(**module, Shape::Array(PrimitiveType::kS32, {37, columns}), 1, ToleranceRule::Exact());
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
