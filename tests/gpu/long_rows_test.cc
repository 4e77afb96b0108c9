// Rows that no block keeps: softmax, its logarithm, log of the sum of exponentials, layer norm, variance, read once for both of their
// reductions; how often memory is read, and that what comes is the evaluator's, infinities and all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "backends/driver/compile.h"
#include "backends/driver/given_plans.h"
#include "backends/gpu/gpu.h"
#include "hlo/text/text.h"
#include "passes/expand/control_flow.h"
#include "passes/spaces/spaces.h"
#include "runtime/program/binding.h"
#include "tools/lab/generate/random_inputs.h"
#include "tools/lab/gpu/emulated_target.h"
#include "tools/lab/judge/miscompare.h"

namespace tenon::gpu {
namespace {

using testing::HasSubstr;

// As the lowerings of ATen make them (torch_plugin/aten/lower/{normalization,reduction}.cc): [R,N] of type T, computed in f32.
constexpr char kHead[] = R"(HloModule m
max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a, b) }
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
wide { a = f64[] parameter(0) b = f64[] parameter(1) ROOT r = f64[] add(a, b) }
ENTRY e {
  p = T[R,N] parameter(0)
  x = f32[R,N] convert(p)
  zero = f32[] constant(0)
)";
constexpr char kExponentials[] = R"(  low = f32[] constant(-inf)
  m = f32[R] reduce(x, low), dimensions={1}, to_apply=max
  mb = f32[R,N] broadcast(m), dimensions={0}
  d = f32[R,N] subtract(x, mb)
  e = f32[R,N] exponential(d)
  s = f32[R] reduce(e, zero), dimensions={1}, to_apply=add
)";
constexpr char kSoftmax[] = R"(  sb = f32[R,N] broadcast(s), dimensions={0}
  y = f32[R,N] divide(e, sb)
  ROOT r = T[R,N] convert(y)
})";
constexpr char kLogSoftmax[] = R"(  l = f32[R] log(s)
  lb = f32[R,N] broadcast(l), dimensions={0}
  y = f32[R,N] subtract(d, lb)
  ROOT r = T[R,N] convert(y)
})";
constexpr char kLogSumExp[] = R"(  low = f32[] constant(-inf)
  m = f32[R] reduce(x, low), dimensions={1}, to_apply=max
  am = f32[R] abs(m)
  inf = f32[] constant(inf)
  infs = f32[R] broadcast(inf), dimensions={}
  i = pred[R] compare(am, infs), direction=EQ
  zeros = f32[R] broadcast(zero), dimensions={}
  c = f32[R] select(i, zeros, m)
  mb = f32[R,N] broadcast(c), dimensions={0}
  d = f32[R,N] subtract(x, mb)
  e = f32[R,N] exponential(d)
  s = f32[R] reduce(e, zero), dimensions={1}, to_apply=add
  l = f32[R] log(s)
  ROOT r = f32[R] add(l, c)
})";
constexpr char kSquares[] = R"(  n = f32[] constant(N)
  ns = f32[R] broadcast(n), dimensions={}
  t = f32[R] reduce(x, zero), dimensions={1}, to_apply=add
  mean = f32[R] divide(t, ns)
  mb = f32[R,N] broadcast(mean), dimensions={0}
  d = f32[R,N] subtract(x, mb)
  q = f32[R,N] multiply(d, d)
  v = f32[R] reduce(q, zero), dimensions={1}, to_apply=add
  var = f32[R] divide(v, ns)
)";
constexpr char kLayerNorm[] = R"(  eps = f32[] constant(1e-5)
  epss = f32[R] broadcast(eps), dimensions={}
  ve = f32[R] add(var, epss)
  root = f32[R] rsqrt(ve)
  rb = f32[R,N] broadcast(root), dimensions={0}
  y = f32[R,N] multiply(d, rb)
  ROOT r = T[R,N] convert(y)
})";
constexpr char kVariance[] = R"(  ROOT r = (f32[R], f32[R]) tuple(var, mean)
})";
// var_mean: totals in f64, around the mean in f32.
constexpr char kWideVariance[] = R"(  inverse = f64[] constant(@)
  is = f64[R] broadcast(inverse), dimensions={}
  t = f32[R] reduce(x, zero), dimensions={1}, to_apply=add
  tw = f64[R] convert(t)
  mean = f64[R] multiply(tw, is)
  near = f32[R] convert(mean)
  nb = f32[R,N] broadcast(near), dimensions={0}
  d = f32[R,N] subtract(x, nb)
  q = f32[R,N] multiply(d, d)
  v = f32[R] reduce(q, zero), dimensions={1}, to_apply=add
  vw = f64[R] convert(v)
  var = f64[R] multiply(vw, is)
  vf = f32[R] convert(var)
  ROOT r = (f32[R], f32[R]) tuple(vf, near)
})";

// Batch norm's: sums of what was converted to f64.
constexpr char kSumsInF64[] = R"(  inverse = f64[] constant(@)
  is = f64[R] broadcast(inverse), dimensions={}
  z = f64[] constant(0)
  xw = f64[R,N] convert(x)
  t = f64[R] reduce(xw, z), dimensions={1}, to_apply=wide
  mean = f64[R] multiply(t, is)
  near = f32[R] convert(mean)
  nb = f32[R,N] broadcast(near), dimensions={0}
  d = f32[R,N] subtract(x, nb)
  q = f32[R,N] multiply(d, d)
  qw = f64[R,N] convert(q)
  v = f64[R] reduce(qw, z), dimensions={1}, to_apply=wide
  var = f64[R] multiply(v, is)
  vf = f32[R] convert(var)
  ROOT r = (f32[R], f32[R]) tuple(vf, near)
})";

struct Case {
  std::string name, body;
  bool writes = true;  // as many elements as it reads
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
std::vector<Case> Cases() {
  return {{"Softmax", absl::StrCat(kExponentials, kSoftmax)},
          {"LogSoftmax", absl::StrCat(kExponentials, kLogSoftmax)},
          {"LogSumExp", kLogSumExp, false},
          {"LayerNorm", absl::StrCat(kSquares, kLayerNorm)},
          {"Variance", absl::StrCat(kSquares, kVariance), false},
          {"WideVariance", kWideVariance, false},
          {"SumsInF64", kSumsInF64, false}};
}
std::string TextOf(const Case& c, std::string_view type, int64_t rows, int64_t columns) {
  const std::string r = absl::StrCat(rows), n = absl::StrCat(columns);
  const std::string text = absl::StrReplaceAll(absl::StrCat(kHead, c.body), {{" T[", absl::StrCat(" ", std::string(type), "[")}});
  return absl::StrReplaceAll(text, {{"[R,N]", absl::StrCat("[", r, ",", n, "]")},
                                    {"[R]", absl::StrCat("[", r, "]")},
                                    {"constant(N)", absl::StrCat("constant(", n, ")")},
                                    {"constant(@)", absl::StrCat("constant(", 1.0 / static_cast<double>(columns), ")")}});
}

absl::StatusOr<Program> Compiled(const std::string& text, std::string_view model) {
  const auto module = ParseModule(text);
  if (!module.ok()) return module.status();
  CompileOptions options{.targets = {MakeGpu({.model = *FindGpuModel(model)})}};
  MoveSignature(**module, kSpace);
  return CompileToProgram((*module)->Clone(), BindingOf(**module), options);
}

struct Moved {
  int64_t launches = 0;
  double bytes = 0;
};
Moved MovedBy(const Program& program) {
  Moved moved;
  for (const Step& step : program.regions[0].steps) {
    if (!std::holds_alternative<KernelStep>(step.body)) continue;
    ++moved.launches;
    moved.bytes += static_cast<double>(step.bytes);
  }
  return moved;
}

class LongRows : public testing::TestWithParam<Case> {};

// As tools/gpu-report counts: what a kernel reads twice is in shared memory in between.
TEST_P(LongRows, AreReadTwiceAtMost) {
  struct Size {
    int64_t rows, columns;
    const char* type;
  };
  for (const Size& size : {Size{4096, 128256, "bf16"}, Size{64, 1000000, "f32"}, Size{4, 1000000, "f32"}, Size{512, 131101, "f16"}}) {
    const auto program = Compiled(TextOf(GetParam(), size.type, size.rows, size.columns), "sm_90");
    ASSERT_TRUE(program.ok()) << program.status();
    const double all = static_cast<double>(size.rows * size.columns) * (size.type == std::string("f32") ? 4 : 2);
    const Moved moved = MovedBy(*program);
    const std::string plans = PlansOf(*program);
    EXPECT_LE(moved.bytes, (GetParam().writes ? 3.02 : 1.02) * all) << size.rows << " x " << size.columns << "\n" << plans;
    EXPECT_GT(moved.launches, 1) << plans;
    EXPECT_THAT(plans, HasSubstr("kept")) << plans;
  }
}

// A row that fits is one launch, and read once: the first pass keeps it.
TEST_P(LongRows, InBetweenStayInSharedMemory) {
  for (const char* model : {"sm_75", "sm_80", "sm_86", "sm_90"}) {
    const auto program = Compiled(TextOf(GetParam(), "bf16", 4096, 11000), model);
    ASSERT_TRUE(program.ok()) << program.status();
    const std::string plans = PlansOf(*program);
    EXPECT_EQ(MovedBy(*program).launches, 1) << plans;
    EXPECT_THAT(plans, testing::ContainsRegex("phases=\\[\\{reduces [0-9 ]+; roots; kept [0-9]")) << model << plans;
  }
}

// A block keeps 256 elements; the second has no whole pieces.
constexpr char kSmall[] = "gpu-emulated:sm_80,shared_per_block=2048,l2_bytes=64,sms=1,threads_per_sm=1024";
constexpr int64_t kSizes[] = {1300, 1301};

lab::Verdict Judged(const std::string& text, const std::vector<Literal>& arguments, const CompileOptions::Sabotage& sabotage = {},
                    bool excess_precision = true) {
  const auto module = ParseModule(text);
  const auto expected = lab::Expect(**module, arguments, excess_precision);
  EXPECT_TRUE(expected.ok()) << expected.status();
  return lab::Judge(**module, arguments, *expected, {.target = kSmall, .excess_precision = excess_precision, .sabotage = sabotage});
}

TEST_P(LongRows, AreRight) {
  for (const int64_t columns : kSizes) {
    for (const char* type : {"f32", "bf16", "f16"}) {
      const std::string text = TextOf(GetParam(), type, 5, columns);
      for (const bool excess : {true, false}) {
        const lab::Verdict v = Judged(text, lab::RandomInputs(**ParseModule(text), 7), {}, excess);
        EXPECT_EQ(v.outcome, lab::Outcome::kSame) << v.text << text;
      }
    }
  }
}

std::vector<float> SpecialRows(int64_t columns) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> x;
  auto row = [&](auto f) {
    for (int64_t i = 0; i < columns; ++i) x.push_back(f(i, std::sin(static_cast<float>(i * i % 1009)) * 3));
  };
  row([](int64_t, float r) { return r; });
  row([](int64_t i, float r) { return i < 400 ? -kInf : r; });              // pieces of -inf
  row([](int64_t, float) { return -kInf; });
  row([](int64_t i, float r) { return i == 700 ? kInf : r; });
  row([](int64_t i, float r) { return i == 700 ? kInf : -kInf; });
  row([](int64_t i, float r) { return i == 5 ? std::nanf("") : r; });
  row([](int64_t i, float r) { return static_cast<float>(i) * 0.5f - 300; });  // each piece has another maximum
  row([](int64_t i, float r) { return i < 300 ? -kInf : r - 1000; });
  row([](int64_t, float) { return 2.5f; });
  row([](int64_t, float r) { return r * 1e37f; });
  return x;
}
std::vector<Literal> SpecialArguments(int64_t columns) {
  const std::vector<float> x = SpecialRows(columns);
  const int64_t dims[] = {static_cast<int64_t>(x.size()) / columns, columns};
  std::vector<Literal> arguments;
  arguments.push_back(Literal::FromSpan<float>(PrimitiveType::kF32, dims, x));
  return arguments;
}

TEST_P(LongRows, HaveTheUnsplitRowsInfinities) {
  for (const int64_t columns : kSizes) {
    const lab::Verdict v = Judged(TextOf(GetParam(), "f32", 10, columns), SpecialArguments(columns));
    EXPECT_EQ(v.outcome, lab::Outcome::kSame) << v.text;
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, LongRows, testing::ValuesIn(Cases()), [](const auto& info) { return info.param.name; });

// Where `root` says yes, an instruction becomes its first operand.
CompileOptions::Sabotage Dropping(bool (*root)(const Instruction&), int* dropped) {
  return {.module = [root, dropped](Module& module) {
    for (Computation* c : module.computations()) {
      for (Instruction* op : c->PostOrder()) {
        if (!root(*op)) continue;
        c->ReplaceAndRemove(op, op->operand(0));
        ++*dropped;
      }
    }
  }};
}
lab::Verdict JudgedWithout(const Case& c, bool (*root)(const Instruction&)) {
  int dropped = 0;
  const lab::Verdict v = Judged(TextOf(c, "f32", 10, 1300), SpecialArguments(1300), Dropping(root, &dropped));
  EXPECT_GT(dropped, 0);
  return v;
}

// Planted: sums of pieces are added without exp(m_p - c).
TEST(LongRowsPlants, SumsWithoutTheirFactorsAreSeen) {
  const auto factor = [](const Instruction& op) {
    return op.opcode() == Opcode::kMultiply && op.operand(1)->opcode() == Opcode::kExponential;
  };
  for (const Case& c : Cases()) {
    if (c.body.find("exponential") == std::string::npos) continue;
    EXPECT_EQ(JudgedWithout(c, factor).outcome, lab::Outcome::kDifferent) << c.name;
  }
}

// Planted: a piece's sum of squares counts as if its mean were the row's.
TEST(LongRowsPlants, SquaresWithoutTheMeansDistanceAreSeen) {
  const auto distance = [](const Instruction& op) {
    return op.opcode() == Opcode::kAdd && op.operand(1)->opcode() == Opcode::kMultiply && op.operand(0)->shape().rank() == 2 &&
           op.shape().element_type() == PrimitiveType::kF64;
  };
  for (const Case& c : Cases()) {
    if (c.body.find("exponential") != std::string::npos) continue;
    EXPECT_EQ(JudgedWithout(c, distance).outcome, lab::Outcome::kDifferent) << c.name;
  }
}

}  // namespace
}  // namespace tenon::gpu
