// Random modules whose parameters and results lie in either memory, by chance: the same values wherever they are computed.
#include <gtest/gtest.h>

#include <iostream>

#include "hlo/text/text.h"
#include "tests/toy_target/toy_runner.h"
#include "tools/lab/generate/random_inputs.h"
#include "tools/lab/generate/random_module.h"
#include "tools/lab/judge/miscompare.h"

namespace tenon::toy {
namespace {

void Scatter(Shape* shape, lab::Random& random) {
  if (shape->is_array()) shape->set_memory_space(random.Below(2));
  for (int64_t i = 0; i < static_cast<int64_t>(shape->elements().size()); ++i) Scatter(&shape->mutable_element(i), random);
}

void RunModules(uint64_t first, int modules) {
  const lab::GeneratorOptions options{.size = 14, .max_elements = 96};
  int ran = 0, with_launches = 0, mixed = 0;
  for (uint64_t seed = first; seed < first + static_cast<uint64_t>(modules); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const std::unique_ptr<Module> module = lab::RandomModule(seed, options);
    const std::vector<Literal> args = lab::RandomInputs(*module, seed);
    const absl::StatusOr<lab::Expectation> want = lab::Expect(*module, args);
    if (!want.ok()) continue;
    lab::Random random(seed);
    for (Instruction* p : module->entry()->parameters()) Scatter(&p->mutable_shape(), random);
    Scatter(&module->entry()->root()->mutable_shape(), random);
    absl::StatusOr<Program> program = CompileForToy(*module, {.excess_precision = false});
    if (absl::IsUnimplemented(program.status())) continue;  // sizes that are known at run time only, as without a device
    ASSERT_TRUE(program.ok()) << program.status() << "\n" << Print(*module);
    ++ran;
    with_launches += LaunchesOf(*program) > 0;
    mixed += LaunchesOf(*program) > 0 && TransfersOf(*program) > 0;
    const absl::StatusOr<ToyRunner> runner = ToyRunner::Make(*std::move(program));
    ASSERT_TRUE(runner.ok()) << runner.status() << "\n" << Print(*module);
    std::vector<Literal> leaves;
    for (const Literal& arg : args) lab::AppendLeaves(arg, &leaves);
    const absl::StatusOr<std::vector<Literal>> got = runner->Run(leaves);
    ASSERT_TRUE(got.ok()) << got.status() << "\n" << Print(*module);
    const lab::Verdict verdict = lab::Compare(*got, *want);
    ASSERT_EQ(verdict.outcome, lab::Outcome::kSame) << verdict.text << "\n" << Print(*module) << runner->program().ToString();
  }
  std::cout << ran << " of " << modules << " modules, " << with_launches << " with launches, " << mixed
            << " with copies between memories\n";
  EXPECT_GT(ran, modules / 2);
  EXPECT_GT(mixed, modules / 4);
}

TEST(RandomSpaces, EqualTheEvaluator) { RunModules(1, 200); }
TEST(RandomSpaces, SlowEqualTheEvaluator) { RunModules(201, 4000); }

}  // namespace
}  // namespace tenon::toy
