// Scratch of a program's kernels: in the arena or in an output's memory, where nothing is alive that anybody reads later.
#include <gtest/gtest.h>

#include <span>

#include "backends/driver/compile.h"
#include "backends/driver/literal_executable.h"
#include "hlo/check.h"
#include "hlo/eval/evaluator.h"
#include "hlo/text/text.h"
#include "hlo/tolerance.h"

namespace tenon {
namespace {

// Two layers, then many more columns than all that was before: the output has room until it is written.
constexpr char kModule[] = R"(HloModule m
ENTRY main {
  x = f32[24,512] parameter(0)
  w1 = f32[1024,512] parameter(1)
  w2 = f32[512,1024] parameter(2)
  w3 = f32[4096,512] parameter(3)
  h = f32[24,1024] dot(x, w1), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  a = f32[24,1024] abs(h)
  y = f32[24,512] dot(a, w2), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT z = f32[24,4096] dot(y, w3), lhs_contracting_dims={1}, rhs_contracting_dims={1}
})";

TEST(ScratchRoom, IsInTheOutputUntilItIsWritten) {
  auto module = *ParseModule(kModule);
  const Binding binding = BindingOf(*module);
  const absl::StatusOr<Program> program = CompileToProgram(std::move(module), binding, {.verify_passes = true, .provider = "generated"});
  ASSERT_TRUE(program.ok()) << program.status();
  int in_output = 0, with_scratch = 0;
  const std::vector<Step>& steps = program->regions[0].steps;
  for (const Step& step : steps) {
    const auto& kernel = std::get<KernelStep>(step.body);
    const int64_t scratch = program->kernels[static_cast<size_t>(kernel.kernel)].scratch_bytes;
    if (scratch == 0) continue;
    ++with_scratch;
    if (kernel.room.output != 0) continue;
    ++in_output;
    EXPECT_NE(&step, &steps.back()) << "which writes it";
    EXPECT_GE(kernel.room.bytes, 2 * scratch) << program->ToString();
  }
  EXPECT_EQ(with_scratch, 3) << program->ToString();
  EXPECT_EQ(in_output, 2) << program->ToString();
}

TEST(ScratchRoom, GivesTheEvaluatorsValues) {
  auto module = *ParseModule(kModule);
  std::vector<Literal> args;
  for (const Instruction* p : module->entry()->parameters()) {
    Literal value(p->shape());
    const std::span<float> numbers = value.mutable_data<float>();
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i * i % 3) - 1;  // sums are exact
    args.push_back(std::move(value));
  }
  const absl::StatusOr<Literal> want = Evaluate(*module, args);
  ASSERT_TRUE(want.ok()) << want.status();
  const auto compiled = LiteralExecutable::Compile(*module, {.provider = "generated"});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  for (int run = 0; run < 2; ++run) {
    const auto got = (*compiled)->Run(args);
    ASSERT_TRUE(got.ok()) << got.status();
    const LiteralDifference d = CompareLiterals((*got)[0], *want);
    EXPECT_TRUE(d.within) << d.what;
  }
}

}  // namespace
}  // namespace tenon
