// CheckPlan: a plan that it lets through computes what the fusion says, inside of the fusion's memory, whoever wrote it. The modules of
// tests/backends/*.hlo under plans of their own, changed at random. TENON_RANDOM_PLANS=N: so many of each (default 4).
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "backends/cpu/emit/codegen.h"
#include "hlo/eval/evaluator.h"
#include "hlo/text/text.h"
#include "tests/backends/hlo_cases.h"
#include "tests/backends/kernel_runner.h"
#include "tools/lab/generate/random_plan.h"

namespace tenon {
namespace {

// What children that die leave.
struct Shared {
  int ran, refused;
  char plan[4000];
};

// A sum in another order is another number; what is compared exactly otherwise holds for orders of whole numbers too.
ToleranceRule AnyOrder(const HloCase& c, PrimitiveType type) {
  if (!IsFloat(type) && !IsComplex(type)) return c.tolerance;
  if (BitWidth(type) <= 16) return ToleranceRule::AbsRel(0.05, 0.05);
  return ToleranceRule::AbsRel(1e-3, 1e-3);
}

// Returns what is wrong.
std::string RunPlans(const HloCase& c, uint64_t seed, int64_t plans, Shared* shared) {
  absl::StatusOr<std::unique_ptr<Module>> module = ParseModule(c.text);
  if (!module.ok()) return module.status().ToString();
  const KernelRequest request = DenseRequest(WrapEntryAsFusion(**module));
  std::vector<Literal> args;
  for (const Instruction* o : request.fusion->operands()) args.push_back(RandomLiteral(o->shape(), c, seed * 1000 + args.size()));
  EvalOptions with_checks;
  with_checks.custom_calls["tenon.check"] = [](const Instruction&, absl::Span<const Literal>) -> absl::StatusOr<Literal> {
    return Literal::ScalarInt(PrimitiveType::kPred, 0);
  };
  const absl::StatusOr<Literal> want = Evaluate(*request.fusion->fused_computation(), args, with_checks);
  if (!want.ok()) return want.status().ToString();
  const std::vector<Literal> leaves = Leaves(*want);
  const std::vector<std::string> isas = HostIsas();
  lab::Random r(seed);
  for (int64_t k = 0, tries = 0; k < plans && tries < 20 * plans; ++tries) {
    const std::string isa = r.Pick(isas);
    const auto planned = PlanCpuKernel(request, *MakeCpuTarget(isa), !c.strict);
    if (!planned.ok()) return planned.status().ToString();
    const KernelPlan plan = lab::ChangedPlan(r, *ParseKernelPlan((*planned)->info().plan_text, &(*module)->dims()));
    const std::string text = absl::StrCat(isa, " ", ToString(plan));
    strncpy(shared->plan, text.c_str(), sizeof(shared->plan) - 1);
    const absl::StatusOr<KernelRunner> runner =
        KernelRunner::Make(request, {.isa = isa, .excess_precision = !c.strict, .plan = plan});
    if (!runner.ok()) {
      const bool says = absl::IsInvalidArgument(runner.status()) || absl::IsUnimplemented(runner.status());
      if (!says) return absl::StrCat(runner.status().ToString(), "\n", text);
      ++shared->refused;
      continue;
    }
    ++k, ++shared->ran;
    const auto got = runner->Run(args, {.pieces = r.Between(1, 4)});
    if (!got.ok()) return absl::StrCat(got.status().ToString(), "\n", text);
    for (size_t i = 0; i < got->size(); ++i) {
      const LiteralDifference d = CompareLiterals((*got)[i], leaves[i], AnyOrder(c, (*got)[i].type()));
      if (!d.within) return absl::StrCat("result ", i, ": ", d.what, "\n", text);
    }
  }
  return "";
}

// Elements that are left over are found by a mask. The copy of what is added to is a loop of vectors, too.
TEST(RandomPlans, VectorsAtOnceAreAPowerOfTwo) {
  constexpr std::string_view kScatter = R"(HloModule m
add {
  a = c128[] parameter(0)
  b = c128[] parameter(1)
  ROOT r = c128[] add(a, b)
}
ENTRY e {
  o = c128[8] parameter(0)
  n = c128[8] negate(o)
  i = s32[1,9] parameter(1)
  u = c128[9] parameter(2)
  ROOT s = c128[8] scatter(n, i, u), to_apply=add, index_vector_dim=0, update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}
}
)";
  auto module = ParseModule(kScatter);
  ASSERT_TRUE(module.ok()) << module.status();
  const KernelRequest request = DenseRequest(WrapEntryAsFusion(**module));
  const auto planned = PlanCpuKernel(request, *MakeCpuTarget(""), /*excess_precision=*/true);
  ASSERT_TRUE(planned.ok()) << planned.status();
  KernelPlan plan = *ParseKernelPlan((*planned)->info().plan_text, &(*module)->dims());
  ASSERT_EQ(plan.kind, PlanKind::kScatter);
  for (const int unroll : {2, 3, 4, 6}) {
    plan.unroll = unroll;
    const auto runner = KernelRunner::Make(request, {.plan = plan});
    EXPECT_EQ(runner.ok(), unroll == 2 || unroll == 4) << unroll;
    if (!runner.ok()) EXPECT_TRUE(absl::StrContains(runner.status().message(), "no power of two")) << runner.status();
  }
}

TEST(RandomPlans, AreRefusedOrRight) {
  const char* asked = getenv("TENON_RANDOM_PLANS");
  const int64_t plans = asked == nullptr ? 4 : atoll(asked);
  auto* shared = static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(shared, MAP_FAILED);
  *shared = {};
  uint64_t seed = 1;
  for (const HloCase& c : LoadCases(std::string(TENON_SOURCE_DIR) + "/tests/backends")) {
    // In a child: a plan that should have been refused may read outside.
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(60);
      const std::string wrong = RunPlans(c, seed, plans, shared);
      if (!wrong.empty()) fprintf(stderr, "%s %s: %s\n", c.file.c_str(), c.name.c_str(), wrong.c_str());
      _exit(wrong.empty() ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_FALSE(WIFSIGNALED(status)) << c.file << " " << c.name << ": signal " << WTERMSIG(status) << "\n" << shared->plan;
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << c.file << " " << c.name;
    ++seed;
  }
  std::cout << shared->ran << " plans ran, " << shared->refused << " were refused\n";
  EXPECT_GT(shared->ran, 200);
  EXPECT_GT(shared->refused, 200);
}

}  // namespace
}  // namespace tenon
