// Sorts, scatters, windows and scans of random sizes against the evaluator; comparators that are no
// order; plans that don't fit; regions that differ only in what they call.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"
#include "backends/cpu/emit/codegen.h"
#include "hlo/eval/evaluator.h"
#include "hlo/text/text.h"
#include "tests/backends/hlo_cases.h"
#include "tests/backends/kernel_runner.h"

namespace tenon {
namespace {

struct Built {
  std::unique_ptr<Module> module;
  KernelRequest request;
};

Built Build(const std::string& text) {
  Built b;
  absl::StatusOr<std::unique_ptr<Module>> module = ParseModule(text);
  EXPECT_TRUE(module.ok()) << module.status() << "\n" << text;
  if (!module.ok()) return b;
  b.module = std::move(*module);
  b.request = DenseRequest(WrapEntryAsFusion(*b.module));
  return b;
}

std::vector<Literal> Arguments(const Built& b, const HloCase& c, uint64_t seed) {
  std::vector<Literal> args;
  for (const Instruction* o : b.request.fusion->operands())
    args.push_back(RandomLiteral(o->shape(), c, seed * 100 + args.size()));
  return args;
}

// In one piece and in three, which must give the same bits.
void ExpectEvaluators(const std::string& text, const HloCase& c, uint64_t seed) {
  const char* isas[] = {"sse4", "avx2", "avx512"};
  const std::string isa = isas[seed % 3];
  if (!MakeCpuTarget(isa).ok()) return;
  Built b = Build(text);
  if (b.module == nullptr) return;
  absl::StatusOr<KernelRunner> runner =
      KernelRunner::Make(b.request, {.isa = isa, .excess_precision = false});
  ASSERT_TRUE(runner.ok()) << runner.status() << "\n" << text;
  std::vector<Literal> args = Arguments(b, c, seed);
  absl::StatusOr<Literal> want = Evaluate(*b.request.fusion->fused_computation(), args);
  ASSERT_TRUE(want.ok()) << want.status() << "\n" << text;
  for (int64_t pieces : {1, 3}) {
    absl::StatusOr<std::vector<Literal>> got = runner->Run(args, {.pieces = pieces});
    ASSERT_TRUE(got.ok()) << got.status() << "\n" << text;
    for (size_t i = 0; i < got->size(); ++i) {
      LiteralDifference d = CompareLiterals((*got)[i], Leaves(*want)[i]);
      EXPECT_TRUE(d.within) << isa << ", seed " << seed << ", result " << i << ": " << d.what
                            << "\n" << runner->kernel().info().plan_text << "\n" << text;
    }
  }
}

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1));
  }
  template <typename T>
  const T& Of(const std::vector<T>& v) {
    return v[static_cast<size_t>(Between(0, static_cast<int64_t>(v.size()) - 1))];
  }

 private:
  std::mt19937_64 engine_;
};

std::string Dims(const std::vector<int64_t>& dims) { return absl::StrJoin(dims, ","); }

TEST(RandomSort, EqualsEvaluator) {
  const std::vector<std::string> types = {"f32", "f64", "bf16", "f16", "s8", "u16", "s32", "u64",
                                          "pred"};
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    std::vector<int64_t> dims;
    const int64_t rank = random.Between(1, 3);
    for (int64_t d = 0; d < rank; ++d) dims.push_back(random.Between(seed % 10 == 9 ? 0 : 1, 6));
    const int64_t dim = random.Between(0, rank - 1);
    dims[static_cast<size_t>(dim)] = random.Between(1, 300);
    const int64_t count = random.Between(1, 4), key = random.Between(0, count - 1);
    std::vector<std::string> shapes, parameters, names, arguments;
    std::string less;
    for (int64_t k = 0; k < count; ++k) {
      const std::string& type = random.Of(types);
      const bool is_float = type[0] == 'f' || type[0] == 'b';
      shapes.push_back(absl::StrCat(type, "[", Dims(dims), "]"));
      names.push_back(absl::StrCat("x", k));
      absl::StrAppend(&less, " a", k, " = ", type, "[] parameter(", 2 * k, ")\n b", k, " = ", type,
                      "[] parameter(", 2 * k + 1, ")\n");
      if (k == key) {
        absl::StrAppend(&less, " ROOT r = pred[] compare(a", k, ", b", k, "), direction=",
                        random.Between(0, 1) ? "LT" : "GT", is_float ? ", type=TOTALORDER" : "",
                        "\n");
      }
      absl::StrAppend(&parameters.emplace_back(), " x", k, " = ", shapes.back(), " parameter(", k,
                      ")\n");
    }
    const std::string result =
        count == 1 ? shapes[0] : absl::StrCat("(", absl::StrJoin(shapes, ", "), ")");
    ExpectEvaluators(
        absl::StrCat("HloModule m\nless {\n", less, "}\nENTRY e {\n",
                     absl::StrJoin(parameters, ""), " ROOT s = ", result, " sort(",
                     absl::StrJoin(names, ", "), "), dimensions={", dim, "}, to_apply=less\n}\n"),
        {.has_range = true, .low = -6, .high = 6}, seed);
  }
}

// Comparators that are no order: what they give is open, but it is the same elements in another
// order, and no memory around is touched (the runner looks).
TEST(Sort, NoComparatorLosesElements) {
  for (const char* comparison :
       {"compare(a, b), direction=LT", "compare(a, b), direction=LE", "compare(a, b), direction=NE",
        "compare(b, b), direction=EQ", "compare(b, b), direction=NE"}) {
    for (int64_t n : {2, 8, 9, 31, 64, 1000}) {
      Built b = Build(absl::Substitute(R"(HloModule m
less { a = f32[] parameter(0)
 b = f32[] parameter(1)
 i = s32[] parameter(2)
 j = s32[] parameter(3)
 ROOT r = pred[] $0 }
ENTRY e {
  x = f32[3,$1] parameter(0)
  i = s32[3,$1] iota(), iota_dimension=1
  ROOT s = (f32[3,$1], s32[3,$1]) sort(x, i), dimensions={1}, to_apply=less
})",
                                       comparison, n));
      std::vector<Literal> args = Arguments(b, {.specials = true}, 1);
      absl::StatusOr<KernelRunner> runner = KernelRunner::Make(b.request, {});
      ASSERT_TRUE(runner.ok()) << runner.status();
      absl::StatusOr<std::vector<Literal>> got = runner->Run(args);
      ASSERT_TRUE(got.ok()) << comparison << ": " << got.status();
      for (int64_t row = 0; row < 3; ++row) {
        std::vector<bool> seen(static_cast<size_t>(n), false);
        for (int64_t k = 0; k < n; ++k) {
          const int64_t from = (*got)[1].GetAsInt64(row * n + k);
          ASSERT_TRUE(from >= 0 && from < n && !seen[static_cast<size_t>(from)]) << comparison;
          seen[static_cast<size_t>(from)] = true;
          const double moved = (*got)[0].GetAsDouble(row * n + k),
                       was = args[0].GetAsDouble(row * n + from);
          EXPECT_TRUE(moved == was || (moved != moved && was != was));
        }
      }
    }
  }
}

// Equal keys of whole runs in both halves, sizes around the run length.
TEST(Sort, IsStableAtEverySize) {
  for (int64_t n = 1; n < 70; n += 1 + n / 16) {
    ExpectEvaluators(absl::Substitute(R"(HloModule m
less { a = s32[] parameter(0)
 b = s32[] parameter(1)
 i = s32[] parameter(2)
 j = s32[] parameter(3)
 ROOT r = pred[] compare(a, b), direction=LT }
ENTRY e {
  x = s32[4,$0] parameter(0)
  i = s32[4,$0] iota(), iota_dimension=1
  ROOT s = (s32[4,$0], s32[4,$0]) sort(x, i), dimensions={1}, is_stable=true, to_apply=less
})",
                                      n),
                     {.low = 0, .high = 3}, static_cast<uint64_t>(n));
  }
}

struct RandomWindow {
  std::string text;  // of the attribute
  std::vector<int64_t> result;
};

RandomWindow WindowOver(const std::vector<int64_t>& dims, Random& random, bool cut) {
  std::vector<std::string> parts[6];
  RandomWindow w;
  for (int64_t n : dims) {
    const int64_t size = random.Between(1, 3), stride = random.Between(1, 3),
                  low = random.Between(cut ? -2 : 0, 2), high = random.Between(cut ? -2 : 0, 2),
                  base = random.Between(1, 3), dilation = random.Between(1, 2);
    const int64_t padded = (n == 0 ? 0 : (n - 1) * base + 1) + low + high;
    const int64_t wide = (size - 1) * dilation + 1;
    w.result.push_back(padded < wide ? 0 : (padded - wide) / stride + 1);
    parts[0].push_back(absl::StrCat(size));
    parts[1].push_back(absl::StrCat(stride));
    parts[2].push_back(absl::StrCat(low, "_", high));
    parts[3].push_back(absl::StrCat(base));
    parts[4].push_back(absl::StrCat(dilation));
    parts[5].push_back(absl::StrCat(random.Between(0, 1)));
  }
  auto part = [&](int i) { return absl::StrJoin(parts[i], "x"); };
  w.text = absl::StrCat("window={size=", part(0), " stride=", part(1), " pad=", part(2),
                        " lhs_dilate=", part(3), " rhs_dilate=", part(4), " rhs_reversal=", part(5),
                        "}");
  return w;
}

std::vector<int64_t> RandomDims(Random& random, int64_t rank, int64_t low, int64_t high) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < rank; ++d) dims.push_back(random.Between(low, high));
  return dims;
}

constexpr char kMix[] = R"(mix { a = s32[] parameter(0)
 b = s32[] parameter(1)
 three = s32[] constant(3)
 m = s32[] multiply(a, three)
 ROOT r = s32[] subtract(m, b) }
)";

TEST(RandomWindows, ReduceWindowEqualsEvaluator) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Random random(seed + 100);
    const std::vector<int64_t> dims = RandomDims(random, random.Between(1, 3), seed % 8 == 7 ? 0 : 1, 9);
    const RandomWindow w = WindowOver(dims, random, /*cut=*/true);
    ExpectEvaluators(
        absl::StrCat("HloModule m\n", kMix, "ENTRY e {\n x = s32[", Dims(dims),
                     "] parameter(0)\n i = s32[] parameter(1)\n ROOT r = s32[", Dims(w.result),
                     "] reduce-window(x, i), ", w.text, ", to_apply=mix\n}\n"),
        {.low = -5, .high = 5}, seed);
  }
}

TEST(RandomWindows, SelectAndScatterEqualsEvaluator) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Random random(seed + 200);
    const std::vector<int64_t> dims = RandomDims(random, random.Between(1, 3), seed % 8 == 7 ? 0 : 1, 9);
    const RandomWindow w = WindowOver(dims, random, /*cut=*/seed % 2 == 0);
    ExpectEvaluators(
        absl::StrCat("HloModule m\nge { a = s32[] parameter(0)\n b = s32[] parameter(1)\n"
                     " ROOT r = pred[] compare(a, b), direction=GE }\n",
                     kMix, "ENTRY e {\n x = s32[", Dims(dims), "] parameter(0)\n s = s32[",
                     Dims(w.result), "] parameter(1)\n i = s32[] parameter(2)\n ROOT r = s32[",
                     Dims(dims), "] select-and-scatter(x, s, i), ", w.text,
                     ", select=ge, scatter=mix\n}\n"),
        {.low = -3, .high = 3}, seed);
  }
}

// Operand [n0, n1, n2]: a batching dim, a windowed dim with a start, and an inserted one.
TEST(RandomScatter, EqualsEvaluator) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Random random(seed + 300);
    const std::vector<int64_t> dims = RandomDims(random, 3, 1, 6);
    const int64_t updates = random.Between(seed % 8 == 7 ? 0 : 1, 9), window = random.Between(1, dims[1]);
    const std::string index = random.Of(std::vector<std::string>{"s32", "u8", "s64", "u64"});
    ExpectEvaluators(
        absl::Substitute(R"(HloModule m
$0ENTRY e {
  x = s32[$1] parameter(0)
  i = $2[$3,$4,2] parameter(1)
  u = s32[$3,$5,$4] parameter(2)
  ROOT r = s32[$1] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={2}, scatter_dims_to_operand_dims={2,1}, input_batching_dims={0}, scatter_indices_batching_dims={1}, index_vector_dim=2, to_apply=mix
})",
                         kMix, Dims(dims), index, updates, dims[0], window),
        {.low = -2, .high = 7}, seed);
  }
}

// Scatters that pieces share: each dim of the operand that may be cut, updates outside of it, an order-dependent combiner.
TEST(Scatter, PiecesSeeTheirUpdatesInOrder) {
  struct Case {
    const char *x, *i, *u, *attributes, *plan;
    double high;  // of indices, a little above the indexed dim
  };
  const Case cases[] = {
      {"50,700", "90", "90,700", "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1",
       "loops=[0:50 1:700] split=0 block=16", 52},
      {"90,700", "90", "90,700", "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1",
       "loops=[0:90 1:700] split=1 block=0", 92},
      {"700,50", "90", "700,90", "update_window_dims={0}, inserted_window_dims={1}, scatter_dims_to_operand_dims={1}, index_vector_dim=1",
       "loops=[0:700 1:50] split=1 block=0", 52},
      {"6,90,70", "40", "6,40,70",
       "update_window_dims={0,2}, inserted_window_dims={1}, scatter_dims_to_operand_dims={1}, index_vector_dim=1",
       "split=0 block=16", 92},
      {"12,3000", "12,400", "12,400",
       "update_window_dims={}, inserted_window_dims={1}, scatter_dims_to_operand_dims={1}, input_batching_dims={0}, "
       "scatter_indices_batching_dims={0}, index_vector_dim=2",
       "loops=[0:12 1:3000] split=1 block=0", 3001},
      {"5000,10", "300", "300,10", "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1",
       "loops=[0:5000 1:10] split=1 block=0", 30},
      {"40000", "3000", "3000", "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1",
       "loops=[0:40000] split=0 block=16", 40},
      {"40000", "30000", "30000", "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1",
       "loops=[0:40000] split=0 block=0", 40},
      {"90,50,20", "30", "30,4,20",
       "update_window_dims={1,2}, inserted_window_dims={0}, scatter_dims_to_operand_dims={1}, index_vector_dim=1",
       "split=0 block=0", 50},
  };
  for (const Case& c : cases) {
    const std::string text = absl::Substitute(R"(HloModule m
$0ENTRY e {
  x = s32[$1] parameter(0)
  i = s64[$2] parameter(1)
  u = s32[$3] parameter(2)
  ROOT r = s32[$1] scatter(x, i, u), $4, to_apply=mix
})",
                                              kMix, c.x, c.i, c.u, c.attributes);
    Built b = Build(text);
    ASSERT_NE(b.module, nullptr);
    const auto kernel = PlanCpuKernel(b.request, *MakeCpuTarget(""), true);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    EXPECT_NE((*kernel)->info().plan_text.find(c.plan), std::string::npos) << (*kernel)->info().plan_text << "\n" << text;
    for (uint64_t seed = 0; seed < 3; ++seed) ExpectEvaluators(text, {.low = -2, .high = c.high}, seed);
  }
}

// Two operands at once, and one whose memory is the result's.
TEST(Scatter, PiecesOfSeveralOperands) {
  ExpectEvaluators(R"(HloModule m
both { a = f32[] parameter(0)
 b = s32[] parameter(1)
 c = f32[] parameter(2)
 d = s32[] parameter(3)
 later = pred[] compare(d, b), direction=GT
 x = f32[] select(later, c, a)
 y = s32[] select(later, d, b)
 ROOT t = (f32[], s32[]) tuple(x, y) }
ENTRY e {
  x = f32[60,640] parameter(0)
  y = s32[60,640] parameter(1)
  i = s32[80] parameter(2)
  u = f32[80,640] parameter(3)
  v = s32[80,640] parameter(4)
  ROOT r = (f32[60,640], s32[60,640]) scatter(x, y, i, u, v), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=both
})",
                   {.low = -1, .high = 61}, 1);
}

TEST(RandomScan, EqualsEvaluator) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    Random random(seed + 400);
    const int64_t rank = random.Between(1, 3);
    std::vector<int64_t> dims = RandomDims(random, rank, 1, 40);
    const int64_t dim = random.Between(0, rank - 1);
    if (seed % 8 == 7) dims[static_cast<size_t>(dim)] = 0;
    std::vector<int64_t> slab = dims;
    slab.erase(slab.begin() + dim);
    ExpectEvaluators(
        absl::Substitute(R"(HloModule m
step { x = s32[$0] parameter(0)
 c = s32[$0] parameter(1)
 s = s32[$0] subtract(x, c)
 o = s32[$0] multiply(s, x)
 ROOT t = (s32[$0], s32[$0]) tuple(o, s) }
ENTRY e {
  x = s32[$1] parameter(0)
  i = s32[$0] parameter(1)
  ROOT s = (s32[$1], s32[$0]) scan(x, i), dimensions={$2}, is_reverse=$3, num_carries=1, to_apply=step
})",
                         Dims(slab), Dims(dims), dim, seed % 2 == 0 ? "true" : "false"),
        {}, seed);
  }
}

TEST(SerialPlans, ThatDoNotFitAreRefused) {
  Built b = Build(R"(HloModule m
less { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = pred[] compare(a, b), direction=LT }
ENTRY e {
  x = f32[5,100] parameter(0)
  ROOT s = f32[5,100] sort(x), dimensions={1}, to_apply=less
})");
  for (const char* text :
       {"sort loops=[0:5 1:100!] split=1 block=0 tile=-1 lanes=8 unroll=1 tail=scalar phases=[] scratch=64",
        "sort loops=[0:5 1:100!] split=0 block=0 tile=-1 lanes=8 unroll=1 tail=scalar phases=[] scratch=896",
        "loop loops=[0:5 1:100!] split=1 block=0 tile=-1 lanes=8 unroll=1 tail=scalar phases=[] scratch=896",
        "scan loops=[0:5 1:100!] split=1 block=0 tile=-1 lanes=1 unroll=1 tail=scalar phases=[] scratch=896",
        "sort loops=[1:100! 0:5] split=0 block=0 tile=-1 lanes=1 unroll=1 tail=scalar phases=[] scratch=896"}) {
    absl::StatusOr<KernelPlan> plan = ParseKernelPlan(text, &b.module->dims());
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(KernelRunner::Make(b.request, {.plan = *plan}).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
  absl::StatusOr<KernelPlan> plan = ParseKernelPlan(
      "sort loops=[0:5 1:100!] split=1 block=0 tile=-1 lanes=2 unroll=1 tail=scalar phases=[] "
      "scratch=896",
      &b.module->dims());
  EXPECT_TRUE(KernelRunner::Make(b.request, {.plan = *plan}).ok());
}

TEST(SerialPlans, ScattersAreNotCutAcrossTheirWindows) {
  Built b = Build(absl::StrCat("HloModule m\n", kMix, R"(ENTRY e {
  x = s32[8,300,20] parameter(0)
  i = s32[9] parameter(1)
  u = s32[9,4,20] parameter(2)
  ROOT r = s32[8,300,20] scatter(x, i, u), update_window_dims={1,2}, inserted_window_dims={0}, scatter_dims_to_operand_dims={1}, index_vector_dim=1, to_apply=mix
})"));
  auto made = [&](const char* text) {
    absl::StatusOr<KernelPlan> plan = ParseKernelPlan(text, &b.module->dims());
    EXPECT_TRUE(plan.ok()) << plan.status();
    return KernelRunner::Make(b.request, {.plan = *plan}).status();
  };
  const char* rest = " tile=-1 lanes=1 unroll=1 tail=scalar phases=[] scratch=0";
  EXPECT_TRUE(made(absl::StrCat("scatter loops=[0:8 1:300 2:20] split=0 block=16", rest).c_str()).ok());
  for (const char* text : {"scatter loops=[1:300 0:8 2:20] split=1 block=0", "scatter loops=[0:8 1:300 2:20] split=1 block=0",
                           "scatter loops=[0:8 2:20 1:300] split=0 block=16", "scatter loops=[0:8 1:300 2:20] split=1 block=16"})
    EXPECT_EQ(made(absl::StrCat(text, rest).c_str()).code(), absl::StatusCode::kInvalidArgument) << text;
}

TEST(SerialPlans, RegionsThatCallOthersAreToldApart) {
  auto fingerprint = [](std::string_view op) {
    Built b = Build(absl::Substitute(R"(HloModule m
inner { a = f32[] parameter(0)
 ROOT r = f32[] $0(a) }
body { a = f32[] parameter(0)
 ROOT r = f32[] map(a), dimensions={}, to_apply=inner }
ENTRY e {
  x = f32[5] parameter(0)
  ROOT s = f32[5] map(x), dimensions={0}, to_apply=body
})",
                                     std::string(op)));
    return (*PlanCpuKernel(b.request, *MakeCpuTarget(""), true))->fingerprint();
  };
  EXPECT_EQ(fingerprint("negate"), fingerprint("negate"));
  EXPECT_NE(fingerprint("negate"), fingerprint("floor"));
}

}  // namespace
}  // namespace tenon
