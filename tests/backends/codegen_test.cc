// Generated kernels against the evaluator: the modules of tests/backends/*.hlo and of tests/ops, for every instruction set of this
// machine, whole and in pieces.
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "backends/cpu/codegen.h"
#include "hlo/eval/evaluator.h"
#include "hlo/text/text.h"
#include "tests/backends/hlo_cases.h"
#include "tests/backends/kernel_runner.h"

namespace tenon {
namespace {

std::vector<std::string> HostIsas() {
  std::vector<std::string> isas;
  for (const char* isa : {"sse4", "avx2", "avx512"}) {
    if (MakeCpuTarget(isa).ok()) isas.push_back(isa);
  }
  return isas;
}

const std::vector<HloCase>& Cases() {
  static const auto* cases = new std::vector<HloCase>(LoadCases(std::string(TENON_SOURCE_DIR) + "/tests/backends"));
  return *cases;
}

struct Built {
  std::unique_ptr<Module> module;
  KernelRequest request;
};

absl::StatusOr<Built> Build(const HloCase& c) {
  Built b;
  ParseOptions options;
  TENON_ASSIGN_OR_RETURN(b.module, ParseModule(c.text, options));
  b.request = DenseRequest(WrapEntryAsFusion(*b.module));
  if (c.in_place >= 0) b.request.operands[static_cast<size_t>(c.in_place)].may_alias_result = true;
  return b;
}

std::vector<Literal> Leaves(const Literal& l) { return l.shape().is_tuple() ? l.elements() : std::vector<Literal>{l}; }

EvalOptions WithChecks() {
  EvalOptions options;
  options.custom_calls["tenon.check"] = [](const Instruction&, absl::Span<const Literal>) -> absl::StatusOr<Literal> {
    return Literal::ScalarInt(PrimitiveType::kPred, 0);
  };
  return options;
}

std::vector<Literal> RandomArguments(const Built& b, const HloCase& c, uint64_t seed) {
  std::vector<Literal> args;
  for (const Instruction* o : b.request.fusion->operands()) args.push_back(RandomLiteral(o->shape(), c, seed * 1000 + args.size()));
  return args;
}

void RunCase(const HloCase& c, const std::string& isa) {
  absl::StatusOr<Built> built = Build(c);
  ASSERT_TRUE(built.ok()) << built.status();
  RunnerOptions options{.isa = isa, .excess_precision = !c.strict};
  absl::StatusOr<KernelRunner> runner = KernelRunner::Make(built->request, options);
  ASSERT_TRUE(runner.ok()) << runner.status();
  const std::string& plan = runner->kernel().info().plan_text;
  for (const std::string& piece : c.plan) EXPECT_TRUE(absl::StrContains(plan, piece)) << plan << " lacks " << piece;
  std::vector<Literal> args = RandomArguments(*built, c, 7);
  absl::StatusOr<Literal> want = Evaluate(*built->request.fusion->fused_computation(), args, WithChecks());
  ASSERT_TRUE(want.ok()) << want.status();
  std::vector<Literal> first;
  for (int64_t pieces : {1, 2, 5}) {
    KernelRunner::RunOptions run{.pieces = pieces, .in_place = c.in_place >= 0};
    absl::StatusOr<std::vector<Literal>> got = runner->Run(args, run);
    ASSERT_TRUE(got.ok()) << got.status() << "\n" << plan;
    for (size_t i = 0; i < got->size(); ++i) {
      LiteralDifference d = CompareLiterals((*got)[i], Leaves(*want)[i], c.tolerance);
      EXPECT_TRUE(d.within) << "result " << i << ", " << pieces << " pieces: " << d.what << "\n" << plan;
      if (pieces > 1) {
        EXPECT_TRUE((*got)[i] == first[i]) << "bits depend on the split";
      }
    }
    if (pieces == 1) first = *got;
  }
}

class CodegenCases : public testing::TestWithParam<std::tuple<size_t, std::string>> {};

TEST_P(CodegenCases, EqualsEvaluator) {
  const auto& [index, isa] = GetParam();
  RunCase(Cases()[index], isa);
}

std::string CaseName(const testing::TestParamInfo<std::tuple<size_t, std::string>>& info) {
  const HloCase& c = Cases()[std::get<0>(info.param)];
  std::string name = absl::StrCat(c.file, "_", c.name, "_", std::get<1>(info.param));
  for (char& ch : name) {
    if (!isalnum(static_cast<unsigned char>(ch))) ch = '_';
  }
  return name;
}
INSTANTIATE_TEST_SUITE_P(Hlo, CodegenCases, testing::Combine(testing::Range(size_t{0}, Cases().size()), testing::ValuesIn(HostIsas())), CaseName);

}  // namespace
}  // namespace tenon
