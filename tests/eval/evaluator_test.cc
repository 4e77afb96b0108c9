// The evaluator's limits and refusals, its exactness against plain C++, and that a bug in it would be seen.
#include <chrono>
#include <cmath>
#include <random>

#include "gtest/gtest.h"
#include "hlo/builder.h"
#include "hlo/eval/evaluator.h"
#include "hlo/library/custom_calls.h"
#include "hlo/numeric_types.h"
#include "hlo/text/text.h"
#include "hlo/tolerance.h"

namespace tenon {
namespace {

std::unique_ptr<Module> Parse(std::string_view text) {
  absl::StatusOr<std::unique_ptr<Module>> m = ParseModule(text);
  EXPECT_TRUE(m.ok()) << m.status();
  return m.ok() ? *std::move(m) : nullptr;
}

Literal Random(PrimitiveType type, absl::Span<const int64_t> dims, uint64_t seed, double scale = 4) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(-scale, scale);
  Literal l(Shape::Array(type, dims));
  for (int64_t i = 0; i < l.num_elements(); ++i) l.SetFromDouble(i, uniform(random));
  return l;
}

absl::StatusCode CodeOf(const absl::StatusOr<Literal>& r) { return r.status().code(); }

constexpr char kSum[] = R"(
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
ENTRY main {
  x = f32[64,100] parameter(0)
  zero = f32[] constant(0)
  ROOT r = f32[64] reduce(x, zero), dimensions={1}, to_apply=add
})";

TEST(Evaluator, ChecksItsArguments) {
  auto m = Parse(kSum);
  EXPECT_EQ(CodeOf(Evaluate(*m, {})), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(Evaluate(*m, {Literal::Scalar(PrimitiveType::kF32, 1)})),
            absl::StatusCode::kInvalidArgument);
}

TEST(Evaluator, RefusesSymbolicDims) {
  auto m = Parse("ENTRY main { x = f32[s0] parameter(0) ROOT y = f32[s0] negate(x) }");
  absl::StatusOr<Literal> r = Evaluate(*m, {Random(PrimitiveType::kF32, {3}, 1)});
  EXPECT_EQ(CodeOf(r), absl::StatusCode::kInvalidArgument);
}

TEST(Evaluator, MemoryIsGuarded) {
  auto m = Parse(R"(ENTRY main {
    x = f32[] parameter(0)
    big = f32[1000,1000,1000] broadcast(x), dimensions={}
    ROOT s = f32[1,1,1] slice(big), slice={[0:1],[0:1],[0:1]}
  })");
  EvalOptions options;
  options.max_bytes = 1 << 20;
  absl::StatusOr<Literal> r = Evaluate(*m, {Literal::Scalar(PrimitiveType::kF32, 1)}, options);
  EXPECT_EQ(CodeOf(r), absl::StatusCode::kResourceExhausted) << r.status();
}

TEST(Evaluator, DeadValuesDoNotCount) {
  std::string text = "ENTRY main {\n x0 = f32[1000] parameter(0)\n";
  for (int i = 0; i < 100; ++i) {
    text += " x" + std::to_string(i + 1) + " = f32[1000] negate(x" + std::to_string(i) + ")\n";
  }
  text += " ROOT r = f32[1000] negate(x100)\n}";
  auto m = Parse(text);
  EvalOptions options;
  options.max_bytes = 12000;  // three of the hundred
  EXPECT_TRUE(Evaluate(*m, {Random(PrimitiveType::kF32, {1000}, 1)}, options).ok());
}

TEST(Evaluator, EndlessLoopsEnd) {
  auto m = Parse(R"(
cond {
  s = s32[] parameter(0)
  ROOT t = pred[] constant(true)
}
body {
  ROOT s = s32[] parameter(0)
}
ENTRY main {
  x = s32[] parameter(0)
  ROOT w = s32[] while(x), condition=cond, body=body
})");
  EvalOptions options;
  options.max_while_iterations = 1000;
  EXPECT_EQ(CodeOf(Evaluate(*m, {Literal::ScalarInt(PrimitiveType::kS32, 0)}, options)),
            absl::StatusCode::kResourceExhausted);
}

TEST(Evaluator, DeepCallsEnd) {
  Module m;
  Computation* callee = m.AddComputation("leaf");
  callee->set_root(callee->AddParameter(0, Shape::Scalar(PrimitiveType::kF32)));
  for (int i = 0; i < 1000; ++i) {
    Computation* c = m.AddComputation("level");
    Builder b(c);
    Attributes attrs;
    attrs.set(Attr::kToApply, callee);
    c->set_root(b.Make(Opcode::kCall, {b.Parameter(0, Shape::Scalar(PrimitiveType::kF32))}, attrs));
    callee = c;
  }
  EXPECT_EQ(CodeOf(Evaluate(*callee, {Literal::Scalar(PrimitiveType::kF32, 1)})),
            absl::StatusCode::kResourceExhausted);
}

TEST(Evaluator, CustomCallsComeThroughOptions) {
  auto m = Parse(R"(ENTRY main {
    x = f32[2] parameter(0)
    ROOT c = f32[2] custom-call(x), custom_call_target="twice"
  })");
  EvalOptions options;
  options.custom_calls["twice"] = [](const Instruction&, absl::Span<const Literal> operands) {
    Literal y = operands[0];
    for (float& v : y.mutable_data<float>()) v *= 2;
    return y;
  };
  Literal x = Random(PrimitiveType::kF32, {2}, 3);
  absl::StatusOr<Literal> y = Evaluate(*m, {x}, options);
  ASSERT_TRUE(y.ok());
  EXPECT_EQ(y->GetAsDouble(1), 2 * x.GetAsDouble(1));
  options.custom_calls["twice"] = [](const Instruction&, absl::Span<const Literal>) {
    return Literal::Scalar(PrimitiveType::kF32, 0);
  };
  EXPECT_EQ(CodeOf(Evaluate(*m, {x}, options)), absl::StatusCode::kInvalidArgument);
}

TEST(Evaluator, CustomCallsComeFromTheRegistry) {
  auto m = Parse(R"(ENTRY main {
    x = f32[2] parameter(0)
    ROOT c = f32[2] custom-call(x), custom_call_target="evaluator_test.thrice", backend_config={by = 3 : ui8, "and": "C", up = true}
  })");
  const Literal x = Random(PrimitiveType::kF32, {2}, 3);
  EXPECT_EQ(CodeOf(Evaluate(*m, {x})), absl::StatusCode::kUnimplemented);
  RegisterCustomCall("evaluator_test.thrice",
                     [](const CustomCall& call, absl::Span<const Literal> operands) -> absl::StatusOr<Literal> {
                       EXPECT_EQ(CustomCallAttribute(call, "and"), 'C');
                       EXPECT_EQ(CustomCallAttribute(call, "up"), 1);
                       EXPECT_EQ(CustomCallAttribute(call, "b"), std::nullopt);
                       Literal y = operands[0];
                       const double by = CustomCallAttribute(call, "by").value_or(0);
                       for (float& v : y.mutable_data<float>()) v *= static_cast<float>(by);
                       return y;
                     });
  const absl::StatusOr<Literal> y = Evaluate(*m, {x});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ(y->GetAsDouble(1), static_cast<float>(3 * x.GetAsDouble(1)));
  EvalOptions options;  // of one evaluation: goes before the registry
  options.custom_calls["evaluator_test.thrice"] = [](const Instruction&, absl::Span<const Literal> o) { return o[0]; };
  EXPECT_EQ(*Evaluate(*m, {x}, options), x);
  RegisterCustomCall("evaluator_test.thrice", nullptr);
  EXPECT_EQ(CodeOf(Evaluate(*m, {x})), absl::StatusCode::kUnimplemented);
}

TEST(Evaluator, OneInstructionForFolding) {
  Module m;
  Computation* c = m.AddComputation("main");
  Builder b(c);
  Instruction* sum = b.Binary(Opcode::kAdd, b.ScalarConstant(PrimitiveType::kS32, 2),
                              b.ScalarConstant(PrimitiveType::kS32, 3));
  absl::StatusOr<Literal> r =
      EvaluateInstruction(*sum, {sum->operand(0)->literal(), sum->operand(1)->literal()});
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r->GetAsInt64(0), 5);
  EXPECT_FALSE(EvaluateInstruction(*sum, {}).ok());
}

// The arithmetic that backends must match bit for bit equals the hardware's.
TEST(Evaluator, FloatArithmeticIsTheHardwares) {
  auto m = Parse(R"(ENTRY main {
    a = f32[20000] parameter(0)
    b = f32[20000] parameter(1)
    s = f32[20000] add(a, b)
    d = f32[20000] subtract(a, b)
    p = f32[20000] multiply(a, b)
    q = f32[20000] divide(a, b)
    aa = f32[20000] abs(a)
    r = f32[20000] sqrt(aa)
    ROOT t = (f32[20000], f32[20000], f32[20000], f32[20000], f32[20000]) tuple(s, d, p, q, r)
  })");
  // Random bits: subnormals, infinities and NaNs included.
  std::mt19937 random(11);
  Literal a(Shape::Array(PrimitiveType::kF32, {20000})), b = a;
  for (float& v : a.mutable_data<float>()) v = std::bit_cast<float>(static_cast<uint32_t>(random()));
  for (float& v : b.mutable_data<float>()) v = std::bit_cast<float>(static_cast<uint32_t>(random()));
  absl::StatusOr<Literal> r = Evaluate(*m, {a, b});
  ASSERT_TRUE(r.ok()) << r.status();
  for (int64_t i = 0; i < 20000; ++i) {
    float x = a.data<float>()[i], y = b.data<float>()[i];
    float want[] = {x + y, x - y, x * y, x / y, std::sqrt(std::fabs(x))};
    for (int k = 0; k < 5; ++k) {
      float got = r->elements()[k].data<float>()[i];
      EXPECT_TRUE(std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(want[k]) ||
                  (std::isnan(got) && std::isnan(want[k])))
          << k << ": " << x << " " << y << " gave " << got;
    }
  }
}

TEST(Evaluator, Bf16IsRoundedAfterEachInstruction) {
  auto m = Parse(R"(ENTRY main {
    a = bf16[5000] parameter(0)
    b = bf16[5000] parameter(1)
    p = bf16[5000] multiply(a, b)
    ROOT s = bf16[5000] add(p, a)
  })");
  Literal a = Random(PrimitiveType::kBF16, {5000}, 5), b = Random(PrimitiveType::kBF16, {5000}, 6);
  absl::StatusOr<Literal> r = Evaluate(*m, {a, b});
  ASSERT_TRUE(r.ok());
  for (int64_t i = 0; i < 5000; ++i) {
    float x = a.GetAsDouble(i), y = b.GetAsDouble(i);
    BF16 p(static_cast<double>(x * y));
    EXPECT_EQ(r->data<BF16>()[i].bits(), BF16(static_cast<double>(static_cast<float>(p) + x)).bits());
  }
}

TEST(Evaluator, DotMeetsTheAccumulationBound) {
  auto m = Parse(R"(ENTRY main {
    a = f32[7,300] parameter(0)
    b = f32[300,5] parameter(1)
    ROOT d = f32[7,5] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  })");
  Literal a = Random(PrimitiveType::kF32, {7, 300}, 1), b = Random(PrimitiveType::kF32, {300, 5}, 2);
  absl::StatusOr<Literal> r = Evaluate(*m, {a, b});
  ASSERT_TRUE(r.ok());
  // A straight f32 sum is within the bound of the evaluator's double one; one with a term lost is not.
  Literal straight(r->shape()), lossy(r->shape()), magnitude(Shape::Array(PrimitiveType::kF64, {7, 5}));
  for (int64_t i = 0; i < 7; ++i) {
    for (int64_t j = 0; j < 5; ++j) {
      float sum = 0;
      double size = 0;
      for (int64_t k = 0; k < 300; ++k) {
        float x = a.data<float>()[i * 300 + k] * b.data<float>()[k * 5 + j];
        sum += x;
        size += std::fabs(x);
      }
      straight.SetFromDouble(i * 5 + j, sum);
      lossy.SetFromDouble(i * 5 + j, sum - a.data<float>()[i * 300] * b.data<float>()[j]);
      magnitude.SetFromDouble(i * 5 + j, size);
    }
  }
  ToleranceRule rule = ToleranceRule::Accumulated(PrimitiveType::kF32, 300, &magnitude);
  LiteralDifference d = CompareLiterals(straight, *r, rule);
  EXPECT_TRUE(d.within) << d.what;
  EXPECT_FALSE(CompareLiterals(lossy, *r, rule).within);
}

// A planted bug: a reduction that starts from a wrong value, a maximum that swallows NaN. The comparison sees both.
TEST(Evaluator, PlantedBugsAreSeen) {
  auto m = Parse(kSum);
  Literal x = Random(PrimitiveType::kF32, {64, 100}, 9);
  Instruction* reduce = m->entry()->root();
  auto with_init = [&](double init) {
    return *EvaluateInstruction(*reduce, {x, Literal::Scalar(PrimitiveType::kF32, init)});
  };
  Literal magnitude(Shape::Array(PrimitiveType::kF64, {64}));
  for (int64_t e = 0; e < x.num_elements(); ++e) {
    magnitude.SetFromDouble(e / 100, magnitude.GetAsDouble(e / 100) + std::fabs(x.GetAsDouble(e)));
  }
  ToleranceRule rule = ToleranceRule::Accumulated(PrimitiveType::kF32, 100, &magnitude);
  EXPECT_TRUE(CompareLiterals(with_init(0), *Evaluate(*m, {x}), rule).within);
  EXPECT_FALSE(CompareLiterals(with_init(1), *Evaluate(*m, {x}), rule).within);

  auto max = Parse("ENTRY main { a = f32[2] parameter(0) b = f32[2] parameter(1) ROOT m = f32[2] maximum(a, b) }");
  std::vector<float> a = {NAN, 1}, b = {2, 3};
  Literal la = Literal::FromSpan<float>(PrimitiveType::kF32, {2}, std::span<const float>(a));
  Literal lb = Literal::FromSpan<float>(PrimitiveType::kF32, {2}, std::span<const float>(b));
  std::vector<float> swallowed = {std::fmax(a[0], b[0]), std::fmax(a[1], b[1])};
  Literal wrong = Literal::FromSpan<float>(PrimitiveType::kF32, {2}, std::span<const float>(swallowed));
  EXPECT_FALSE(CompareLiterals(wrong, *Evaluate(*max, {la, lb})).within);
}

TEST(Evaluator, SortWithAnInconsistentComparatorEnds) {
  auto m = Parse(R"(
le {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LE
}
ENTRY main {
  x = s32[1000] parameter(0)
  ROOT s = s32[1000] sort(x), dimensions={0}, to_apply=le
})");
  EXPECT_TRUE(Evaluate(*m, {Random(PrimitiveType::kS32, {1000}, 4, 20)}).ok());
}

// Constant folding and the other tests lean on this; generous, because machines are shared.
TEST(Evaluator, AMillionElementsAreNoWait) {
  auto m = Parse(R"(ENTRY main {
    a = f32[1000,1000] parameter(0)
    b = f32[1000,1000] parameter(1)
    ROOT s = f32[1000,1000] add(a, b)
  })");
  Literal a = Literal::Full(PrimitiveType::kF32, {1000, 1000}, 1), b = a;
  double best = 1;
  for (int attempt = 0; attempt < 5; ++attempt) {
    auto t0 = std::chrono::steady_clock::now();
    ASSERT_TRUE(Evaluate(*m, {a, b}).ok());
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count());
  }
  std::printf("1M elements: %.1f ms\n", best * 1e3);
}

}  // namespace
}  // namespace tenon
