// Programs with regions, tuples and tokens against the evaluator: the modules of tests/backends/control/*.hlo, several seeds each.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "backends/driver/literal_executable.h"
#include "hlo/eval/evaluator.h"
#include "hlo/text/text.h"
#include "tests/backends/hlo_cases.h"

namespace tenon {
namespace {

Literal Argument(const Shape& shape, const HloCase& c, uint64_t* seed) {
  if (shape.is_array()) return RandomLiteral(shape, c, ++*seed);
  std::vector<Literal> elements;
  for (const Shape& e : shape.elements()) elements.push_back(Argument(e, c, seed));
  return Literal::Tuple(std::move(elements));
}

std::vector<Literal> Arguments(const Module& module, const HloCase& c, uint64_t seed) {
  std::vector<Literal> args;
  for (const Instruction* p : module.entry()->parameters()) args.push_back(Argument(p->shape(), c, &seed));
  return args;
}

class Control : public testing::TestWithParam<HloCase> {};

TEST_P(Control, EqualsTheEvaluator) {
  const HloCase& c = GetParam();
  absl::StatusOr<std::unique_ptr<Module>> module = ParseModule(c.text);
  ASSERT_TRUE(module.ok()) << module.status();
  auto executable = LiteralExecutable::Compile(**module, {.excess_precision = false, .verify_passes = true});
  ASSERT_TRUE(executable.ok()) << executable.status();
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const std::vector<Literal> args = Arguments(**module, c, seed * 100);
    absl::StatusOr<Literal> want = Evaluate(**module, args);
    ASSERT_TRUE(want.ok()) << want.status();
    absl::StatusOr<std::vector<Literal>> got = (*executable)->Run(args);
    ASSERT_TRUE(got.ok()) << got.status();
    const std::vector<Literal> leaves = Leaves(*want);
    ASSERT_EQ(got->size(), leaves.size());
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (!leaves[i].shape().is_array()) continue;
      const LiteralDifference d = CompareLiterals((*got)[i], leaves[i], c.tolerance);
      EXPECT_TRUE(d.within) << "seed " << seed << ", result " << i << ": " << d.what;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Hlo, Control, testing::ValuesIn(LoadCases(std::string(TENON_SOURCE_DIR) + "/tests/backends/control")),
                         [](const auto& info) { return absl::StrCat(info.param.file, "_", info.param.name); });

// Copies of more than a scalar inside of loops, and the bytes of the arena.
struct Copies {
  int64_t arrays = 0, arena_bytes = 0;
};
Copies CopiesOf(const std::string& text) {
  const auto module = ParseModule(text);
  TENON_CHECK(module.ok(), module.status().ToString());
  const auto program = CompileToProgram((*module)->Clone(), BindingOf(**module), {});
  TENON_CHECK(program.ok(), program.status().ToString());
  Copies copies{.arena_bytes = program->arena_bytes};
  for (size_t r = 1; r < program->regions.size(); ++r) {
    for (const Step& step : program->regions[r].steps) {
      const auto* copy = std::get_if<CopyStep>(&step.body);
      copies.arrays += copy != nullptr && !copy->to.dims.empty();
    }
  }
  return copies;
}

constexpr char kWriteRows[] = R"(HloModule rows
body {
  s = (s32[], f32[1000,4096], f32[4096]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  all = f32[1000,4096] get-tuple-element(s), index=1
  x = f32[4096] get-tuple-element(s), index=2
  one = s32[] constant(1)
  zero = s32[] constant(0)
  row = f32[1,4096] reshape(x)
  next = f32[1000,4096] dynamic-update-slice(all, row, i, zero)
  j = s32[] add(i, one)
  ROOT t = (s32[], f32[1000,4096], f32[4096]) tuple(j, next, SECOND)
}
cond {
  s = (s32[], f32[1000,4096], f32[4096]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(1000)
  ROOT l = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[4096] parameter(0)
  z = f32[] constant(0)
  zeros = f32[1000,4096] broadcast(z), dimensions={}
  i = s32[] constant(0)
  t = (s32[], f32[1000,4096], f32[4096]) tuple(i, zeros, x)
  w = (s32[], f32[1000,4096], f32[4096]) while(t), condition=cond, body=body
  ROOT r = f32[1000,4096] get-tuple-element(w), index=1
})";

// A loop that writes one row each time moves no array: the buffer is the result's memory from the start.
TEST(ControlMemory, RowsAreWrittenInPlace) {
  const Copies copies = CopiesOf(absl::StrReplaceAll(kWriteRows, {{"SECOND", "x"}}));
  EXPECT_EQ(copies.arrays, 0);
  EXPECT_LT(copies.arena_bytes, 1000 * 4096 * 4);
}

// Its other state is what the buffer held before the write: now one of them has to move.
TEST(ControlMemory, AnOldValueThatIsStillReadIsNotOverwritten) {
  const Copies copies = CopiesOf(absl::StrReplaceAll(kWriteRows, {{"SECOND", "old"}, {"  j = s32[] add(i, one)", R"(  was = f32[1,4096] dynamic-slice(all, j, zero), dynamic_slice_sizes={1,4096}
  old = f32[4096] reshape(was))"}, {"  row = ", "  j = s32[] add(i, one)\n  row = "}}));
  EXPECT_GT(copies.arrays, 0);
}

}  // namespace
}  // namespace tenon
