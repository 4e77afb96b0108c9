// Programs with regions, tuples and tokens against the evaluator: the modules of tests/backends/control/*.hlo, several seeds each.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "backends/literal_executable.h"
#include "hlo/eval/evaluator.h"
#include "hlo/text/text.h"
#include "tests/backends/hlo_cases.h"

namespace tenon {
namespace {

void AppendLeaves(const Literal& l, std::vector<Literal>* leaves) {
  if (!l.shape().is_tuple()) leaves->push_back(l);
  for (const Literal& e : l.elements()) AppendLeaves(e, leaves);
}

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
    std::vector<Literal> leaves;
    AppendLeaves(*want, &leaves);
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

}  // namespace
}  // namespace tenon
