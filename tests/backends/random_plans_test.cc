// CheckPlan: a plan that it lets through computes what the fusion says, inside of the fusion's memory, whoever wrote it. The modules of
// tests/backends/*.hlo under plans of their own, changed at random. TENON_RANDOM_PLANS=N: so many of each (default 4).
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "backends/cpu/emit/codegen.h"
#include "hlo/eval/evaluator.h"
#include "hlo/text/text.h"
#include "tests/backends/hlo_cases.h"
#include "tests/backends/kernel_runner.h"

namespace tenon {
namespace {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t In(int64_t low, int64_t high) { return low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1)); }
  bool OneIn(int64_t n) { return In(1, n) == 1; }
  template <typename T>
  T& Of(std::vector<T>& v) {
    return v[static_cast<size_t>(In(0, static_cast<int64_t>(v.size()) - 1))];
  }

 private:
  std::mt19937_64 engine_;
};

void ChangeLoops(Random& r, KernelPlan& p) {
  if (p.loops.empty()) return;
  switch (r.In(0, 4)) {
    case 0: return std::swap(r.Of(p.loops), r.Of(p.loops));
    case 1: p.loops.erase(p.loops.begin() + r.In(0, static_cast<int64_t>(p.loops.size()) - 1)); return;
    case 2: r.Of(p.loops).reduced ^= true; return;
    case 3: {  // two loops as one
      if (p.loops.size() < 2) return;
      const size_t i = static_cast<size_t>(r.In(0, static_cast<int64_t>(p.loops.size()) - 2));
      p.loops[i].dims.insert(p.loops[i].dims.end(), p.loops[i + 1].dims.begin(), p.loops[i + 1].dims.end());
      p.loops[i].extent *= p.loops[i + 1].extent;
      p.loops.erase(p.loops.begin() + static_cast<int64_t>(i) + 1);
      return;
    }
    default: {
      PlanLoop& loop = r.Of(p.loops);
      if (!loop.dims.empty()) std::swap(r.Of(loop.dims), r.Of(loop.dims));
    }
  }
}

void ChangePhases(Random& r, KernelPlan& p) {
  if (p.phases.empty()) return;
  PlanPhase &from = r.Of(p.phases), &to = r.Of(p.phases);
  auto move = [&](std::vector<int64_t>& a, std::vector<int64_t>& b) {
    if (a.empty()) return;
    const int64_t x = r.Of(a);
    if (!r.OneIn(6)) a.erase(std::find(a.begin(), a.end(), x));
    b.push_back(x);
  };
  switch (r.In(0, 5)) {
    case 0: return move(from.reduces, to.reduces);
    case 1: return move(from.roots, to.roots);
    case 2: return move(from.kept, to.kept);
    case 3: to.kept.push_back(r.In(0, 12)); return;
    case 4: return std::swap(from, to);
    default: p.phases.emplace_back();
  }
}

KernelPlan Changed(Random& r, KernelPlan p) {
  const int64_t loops = static_cast<int64_t>(p.loops.size());
  for (int64_t n = r.In(1, 3); n > 0; --n) {
    switch (r.In(0, 11)) {
      case 0: p.lanes = 1 << r.In(0, 6); break;
      case 1: p.unroll = static_cast<int>(r.In(1, 14)); break;
      case 2: p.split = static_cast<int>(r.In(0, loops)); break;
      case 3: p.block = r.OneIn(3) ? 0 : p.lanes * r.In(1, 5) + (r.OneIn(4) ? 1 : 0); break;
      case 4: p.tile_loop = static_cast<int>(r.In(-1, loops)); break;
      case 5: p.rows = r.OneIn(2) ? 0 : p.unroll * r.In(1, 3); break;
      case 6: p.packed ^= true; break;
      case 7: p.masked_tail ^= true; break;
      case 8: p.scratch_bytes = r.OneIn(2) ? 0 : std::max<int64_t>(0, p.scratch_bytes + 64 * r.In(-3, 40)); break;
      case 9: p.kind = static_cast<PlanKind>(r.In(0, 8)); break;
      case 10: ChangeLoops(r, p); break;
      default: ChangePhases(r, p);
    }
  }
  return p;
}

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
  Random r(seed);
  for (int64_t k = 0, tries = 0; k < plans && tries < 20 * plans; ++tries) {
    const std::string isa = r.Of(const_cast<std::vector<std::string>&>(isas));
    const auto planned = PlanCpuKernel(request, *MakeCpuTarget(isa), !c.strict);
    if (!planned.ok()) return planned.status().ToString();
    const KernelPlan plan = Changed(r, *ParseKernelPlan((*planned)->info().plan_text, &(*module)->dims()));
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
    const auto got = runner->Run(args, {.pieces = r.In(1, 4)});
    if (!got.ok()) return absl::StrCat(got.status().ToString(), "\n", text);
    for (size_t i = 0; i < got->size(); ++i) {
      const LiteralDifference d = CompareLiterals((*got)[i], leaves[i], AnyOrder(c, (*got)[i].type()));
      if (!d.within) return absl::StrCat("result ", i, ": ", d.what, "\n", text);
    }
  }
  return "";
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
