// The reducer on predicates whose smallest failing module is known.
#include "tools/lab/reduce/reduce.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "hlo/builder.h"
#include "hlo/eval/evaluator.h"
#include "hlo/sizes.h"
#include "hlo/text/text.h"
#include "hlo/verifier.h"
#include "tools/lab/generate/random_inputs.h"
#include "tools/lab/reduce/reduce_dims.h"

namespace tenon::lab {
namespace {

std::unique_ptr<Module> Parse(std::string_view text) {
  absl::StatusOr<std::unique_ptr<Module>> module = ParseModule(text);
  EXPECT_TRUE(module.ok()) << module.status();
  return module.ok() ? *std::move(module) : nullptr;
}

std::vector<const Instruction*> Find(const Module& module, Opcode opcode) {
  std::vector<const Instruction*> found;
  for (const Computation* c : module.computations()) {
    for (const Instruction* op : c->instructions()) {
      if (op->opcode() == opcode) found.push_back(op);
    }
  }
  return found;
}

// A chain of `n` elementwise instructions with a tangent in the middle, two outputs.
std::unique_ptr<Module> Chain(int n) {
  auto module = std::make_unique<Module>("chain");
  Computation* c = module->AddComputation("main");
  module->set_entry(c);
  Builder b(c);
  Instruction* x = b.Parameter(0, Shape::Array(PrimitiveType::kF32, {12, 40}));
  Instruction* y = b.Parameter(1, Shape::Array(PrimitiveType::kF32, {12, 40}));
  Instruction* side = y;
  for (int i = 0; i < n; ++i) {
    x = i == n / 2 ? b.Unary(Opcode::kTan, x)
                   : b.Binary(i % 3 == 0 ? Opcode::kMultiply : Opcode::kAdd, x, y);
    side = b.Binary(Opcode::kSubtract, side, x);
  }
  c->set_root(b.Tuple({side, x}));
  return module;
}

// Runs `body` on (i, x, k) while i < 4.
constexpr char kFourTimes[] = R"(
    cond {
      s = (s32[], f32[6], f32[6]) parameter(0)
      i = s32[] get-tuple-element(s), index=0
      n = s32[] constant(4)
      ROOT l = pred[] compare(i, n), direction=LT
    }
    ENTRY e {
      p = f32[6] parameter(0)
      z = s32[] constant(0)
      t = (s32[], f32[6], f32[6]) tuple(z, p, p)
      w = (s32[], f32[6], f32[6]) while(t), condition=cond, body=body
      ROOT g = f32[6] get-tuple-element(w), index=1
    })";

TEST(Reduce, OneInstructionOfManyIsFoundAndEverythingElseCut) {
  const std::unique_ptr<Module> module = Chain(200);
  absl::StatusOr<ReduceResult> r =
      Reduce(*module, [](const Module& m) { return !Find(m, Opcode::kTan).empty(); });
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_TRUE(r->finished);
  EXPECT_EQ(Print(*r->module, {.canonical = true}),
            Print(*Parse("ENTRY e { p = f32[1,1] parameter(0) ROOT t = f32[1,1] tan(p) }"),
                  {.canonical = true}));
  EXPECT_LT(r->tries, 120) << "bisection and chunks, not one instruction at a time";
}

TEST(Reduce, TheValuesThatMatterAreKept) {
  // Fails where some instruction's evaluated operand is 7: only the third add has one.
  const std::unique_ptr<Module> module = Parse(R"(
    ENTRY e {
      p = s32[4] parameter(0)
      a = s32[4] add(p, p)
      b = s32[4] add(a, p)
      c = s32[4] negate(b)
      d = s32[4] abs(c)
      ROOT e = s32[4] multiply(d, a)
    })");
  const int32_t values[] = {1, 2, 3, 4};
  const Literal argument = Literal::FromSpan<int32_t>(PrimitiveType::kS32, {4}, values);
  auto predicate = [](const Module& m, absl::Span<const Literal> args) {
    for (const Instruction* abs : Find(m, Opcode::kAbs)) {
      // What flows into it, by evaluating the module with it as the root.
      std::unique_ptr<Module> copy = m.Clone();
      for (Instruction* op : copy->entry()->instructions()) {
        if (op->name() == abs->operand(0)->name()) copy->entry()->set_root(op);
      }
      absl::StatusOr<Literal> value = Evaluate(*copy, args);
      for (int64_t i = 0; value.ok() && i < value->num_elements(); ++i) {
        if (value->GetAsInt64(i) == -9) return true;
      }
    }
    return false;
  };
  absl::StatusOr<ReduceResult> r = Reduce(*module, {argument}, predicate);
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ(r->module->instruction_count(), 2) << r->module->ToString();
  ASSERT_EQ(r->arguments.size(), 1u);
  EXPECT_EQ(r->arguments[0].num_elements(), 1);
  EXPECT_EQ(r->arguments[0].GetAsInt64(0), -9);
}

TEST(Reduce, TwoFarApartInstructionsThatDependOnEachOther) {
  const std::unique_ptr<Module> module = Parse(R"(
    ENTRY e {
      p = f32[8,8] parameter(0)
      s = f32[8,8] sine(p)
      a = f32[8,8] add(s, p)
      t = f32[8,8] transpose(a), dimensions={1,0}
      m = f32[8,8] multiply(t, p)
      c = f32[8,8] cosine(m)
      ROOT n = f32[8,8] negate(c)
    })");
  auto reaches = [](const Module& m) {  // a cosine computed from a sine
    std::vector<const Instruction*> work = Find(m, Opcode::kCosine);
    while (!work.empty()) {
      const Instruction* op = work.back();
      work.pop_back();
      if (op->opcode() == Opcode::kSine) return true;
      work.insert(work.end(), op->operands().begin(), op->operands().end());
    }
    return false;
  };
  absl::StatusOr<ReduceResult> r = Reduce(*module, reaches);
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ(r->module->instruction_count(), 3) << r->module->ToString();
}

TEST(Reduce, LoopsConditionalsCallsAndFusionsAreTakenApart) {
  const std::unique_ptr<Module> module = Parse(R"(HloModule nested
    inner { q = f32[6] parameter(0) r = f32[6] tan(q) ROOT u = f32[6] add(r, q) }
    fused { q = f32[6] parameter(0) ROOT v = f32[6] call(q), to_apply=inner }
    yes { q = f32[6] parameter(0) ROOT w = f32[6] fusion(q), kind=kLoop, calls=fused }
    no { q = f32[6] parameter(0) ROOT n = f32[6] negate(q) }
    body {
      s = (s32[], f32[6], f32[6]) parameter(0)
      i = s32[] get-tuple-element(s), index=0
      x = f32[6] get-tuple-element(s), index=1
      k = f32[6] get-tuple-element(s), index=2
      one = s32[] constant(1)
      j = s32[] add(i, one)
      odd = s32[] and(i, one)
      b = f32[6] conditional(odd, x, x), branch_computations={yes, no}
      y = f32[6] add(b, k)
      ROOT t = (s32[], f32[6], f32[6]) tuple(j, y, k)
    }
)" + std::string(kFourTimes));
  absl::StatusOr<ReduceResult> r =
      Reduce(*module, [](const Module& m) { return !Find(m, Opcode::kTan).empty(); });
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ(r->module->instruction_count(), 2) << r->module->ToString();
  EXPECT_EQ(r->module->computations().size(), 1u);
}

TEST(Reduce, ALoopThatMustStayLosesItsStateAndItsBody) {
  const std::unique_ptr<Module> module = Parse(R"(HloModule loop
    body {
      s = (s32[], f32[6], f32[6]) parameter(0)
      i = s32[] get-tuple-element(s), index=0
      x = f32[6] get-tuple-element(s), index=1
      k = f32[6] get-tuple-element(s), index=2
      one = s32[] constant(1)
      j = s32[] add(i, one)
      m = f32[6] multiply(x, k)
      y = f32[6] add(m, k)
      ROOT t = (s32[], f32[6], f32[6]) tuple(j, y, k)
    }
)" + std::string(kFourTimes));
  absl::StatusOr<ReduceResult> r =
      Reduce(*module, [](const Module& m) { return !Find(m, Opcode::kWhile).empty(); });
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ(Find(*r->module, Opcode::kWhile)[0]->shape().elements().size(), 1u)
      << r->module->ToString();
  EXPECT_LE(r->module->instruction_count(), 9) << r->module->ToString();
}

TEST(Reduce, DimensionsShrinkTogetherThroughMovementAndContraction) {
  const std::unique_ptr<Module> module = Parse(R"(HloModule dims
    sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
    ENTRY e {
      x = f32[16,24] parameter(0)
      w = f32[24,32] parameter(1)
      d = f32[16,32] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      r = f32[16,4,8] reshape(d)
      t = f32[4,16,8] transpose(r), dimensions={1,0,2}
      zero = f32[] constant(0)
      ROOT s = f32[4,16] reduce(t, zero), dimensions={2}, to_apply=sum
    })");
  // Everything stays, and the dot's contracted dimension is odd and at least 3.
  auto predicate = [](const Module& m) {
    if (m.instruction_count() != 10 || Find(m, Opcode::kDot).empty() ||
        Find(m, Opcode::kReshape).empty())
      return false;
    const int64_t k = Find(m, Opcode::kDot)[0]->operand(0)->shape().constant_dim(1);
    return k >= 3 && (k % 2 == 1 || k == 24);
  };
  absl::StatusOr<ReduceResult> r = Reduce(*module, predicate);
  ASSERT_TRUE(r.ok()) << r.status();
  const Instruction* dot = Find(*r->module, Opcode::kDot)[0];
  EXPECT_EQ(dot->operand(0)->shape().ToString(), "f32[1,3]") << r->module->ToString();
  EXPECT_EQ(dot->shape().ToString(), "f32[1,1]") << r->module->ToString();
  EXPECT_EQ(Find(*r->module, Opcode::kReshape)[0]->shape().ToString(), "f32[1,1,1]")
      << r->module->ToString();
}

TEST(Reduce, SquaresShrinkAsSquares) {
  const std::unique_ptr<Module> module = Parse(
      "ENTRY e { p = f32[24,24] parameter(0) ROOT t = f32[24,24] transpose(p), dimensions={1,0} }");
  auto square = [](const Module& m) {
    const Shape& shape = m.entry()->root()->shape();
    return m.entry()->root()->opcode() == Opcode::kTranspose && shape.dim(0) == shape.dim(1) &&
           shape.constant_dim(0) >= 2;
  };
  absl::StatusOr<ReduceResult> r = Reduce(*module, square);
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ(r->module->entry()->root()->shape().ToString(), "f32[2,2]") << r->module->ToString();
}

TEST(Reduce, SizesFollowThroughSliceConcatenatePadAndGather) {
  const std::unique_ptr<Module> module = Parse(R"(
    ENTRY e {
      table = f32[50,12] parameter(0)
      ids = s32[9] parameter(1)
      g = f32[9,12] gather(table, ids), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,12}
      c = f32[9,24] concatenate(g, g), dimensions={1}
      s = f32[9,7] slice(c), slice={[0:9],[10:24:2]}
      z = f32[] constant(0)
      ROOT p = f32[12,7] pad(s, z), padding=2_1x0_0
    })");
  const int64_t count = module->instruction_count();
  absl::StatusOr<ReduceResult> r =
      Reduce(*module, [&](const Module& m) { return m.instruction_count() == count; });
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ(Find(*r->module, Opcode::kGather)[0]->shape().ToString(), "f32[1,1]")
      << r->module->ToString();
  EXPECT_EQ(r->module->entry()->root()->shape().ToString(), "f32[1,1]") << r->module->ToString();
}

TEST(Reduce, AttributesTypesAndLayoutsBecomePlain) {
  const std::unique_ptr<Module> module = Parse(R"(HloModule plain, replica_count=1
    most { a = bf16[] parameter(0) b = bf16[] parameter(1) ROOT c = bf16[] maximum(a, b) }
    ENTRY e {
      x = bf16[16,24]{0,1} parameter(0), metadata={op_name="x"}
      i = bf16[] constant(-inf)
      ROOT w = bf16[8,12]{0,1} reduce-window(x, i), window={size=3x3 stride=2x2 pad=1_1x1_1}, to_apply=most
    })");
  absl::StatusOr<ReduceResult> r =
      Reduce(*module, [](const Module& m) { return !Find(m, Opcode::kReduceWindow).empty(); });
  ASSERT_TRUE(r.ok()) << r.status();
  const std::string text = r->module->ToString();
  EXPECT_EQ(text.find("bf16"), std::string::npos) << text;
  EXPECT_EQ(text.find("stride"), std::string::npos) << text;
  EXPECT_EQ(text.find("{0,1}"), std::string::npos) << text;
  EXPECT_EQ(text.find("metadata"), std::string::npos) << text;
  EXPECT_EQ(text.find("replica_count"), std::string::npos) << text;
}

TEST(Reduce, ValuesBecomeZerosWhereTheyDoNotMatter) {
  const std::unique_ptr<Module> module =
      Parse("ENTRY e { p = f32[32] parameter(0) ROOT n = f32[32] negate(p) }");
  std::vector<Literal> arguments = RandomInputs(*module, 1);
  arguments[0].SetFromDouble(17, std::numeric_limits<double>::quiet_NaN());
  auto predicate = [](const Module& m, absl::Span<const Literal> args) {
    int nans = 0;
    for (int64_t i = 0; i < args[0].num_elements(); ++i) nans += std::isnan(args[0].GetAsDouble(i));
    return m.instruction_count() == 2 && nans == 1 && args[0].num_elements() >= 6;
  };
  for (int64_t i = 0; i < 32; ++i) {
    if (i != 17) arguments[0].SetFromDouble(i, 0.25 * static_cast<double>(i));
  }
  absl::StatusOr<ReduceResult> r = Reduce(*module, arguments, predicate);
  ASSERT_TRUE(r.ok()) << r.status();
  int nonzero = 0;
  for (int64_t i = 0; i < r->arguments[0].num_elements(); ++i)
    nonzero += !(r->arguments[0].GetAsDouble(i) == 0);
  EXPECT_EQ(nonzero, 1);
}

TEST(Reduce, BudgetsEndIt) {
  const std::unique_ptr<Module> module = Chain(200);
  int asked = 0;
  auto predicate = [&](const Module& m) { return ++asked, !Find(m, Opcode::kTan).empty(); };
  absl::StatusOr<ReduceResult> r = Reduce(*module, predicate, {.max_tries = 7});
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_FALSE(r->finished);
  EXPECT_EQ(asked, 7);
  EXPECT_FALSE(Find(*r->module, Opcode::kTan).empty()) << "what comes back still fails";
}

TEST(Reduce, IsDeterministic) {
  const std::unique_ptr<Module> module = Chain(60);
  auto predicate = [](const Module& m) {
    return Find(m, Opcode::kMultiply).size() >= 2 && !Find(m, Opcode::kSubtract).empty();
  };
  absl::StatusOr<ReduceResult> a = Reduce(*module, predicate), b = Reduce(*module, predicate);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->module->ToString(), b->module->ToString());
  EXPECT_EQ(a->tries, b->tries);
}

TEST(Reduce, EveryCandidateIsValid) {
  const std::unique_ptr<Module> module = Chain(40);
  int64_t bad = 0, asked = 0;
  auto predicate = [&](const Module& m, absl::Span<const Literal> args) {
    ++asked;
    bad += !Verify(m).ok() || !Evaluate(m, args).ok() || !ParseModule(m.ToString()).ok();
    return !Find(m, Opcode::kTan).empty() && m.instruction_count() > 6;
  };
  absl::StatusOr<ReduceResult> r = Reduce(*module, RandomInputs(*module, 3), predicate);
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_GT(asked, 20);
  EXPECT_EQ(bad, 0);
}

TEST(Reduce, AModuleThatDoesNotFailIsSaidToBeSo) {
  const absl::StatusOr<ReduceResult> r = Reduce(*Chain(3), [](const Module&) { return false; });
  EXPECT_EQ(r.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Reduce, ArgumentsMustFit) {
  const std::unique_ptr<Module> module = Chain(3);
  const StillFails yes = [](const Module&, absl::Span<const Literal>) { return true; };
  EXPECT_EQ(Reduce(*module, {}, yes).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Reduce, APredicateThatThrowsSaysNo) {
  const StillFails thrower = [](const Module& m, absl::Span<const Literal>) -> bool {
    if (m.instruction_count() < 8) throw std::runtime_error("too small");
    return true;
  };
  const std::unique_ptr<Module> module = Chain(20);
  absl::StatusOr<ReduceResult> r = Reduce(*module, RandomInputs(*module, 0), thrower);
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ(r->module->instruction_count(), 8);
}

// The tangent stays, of a smaller size, with the parameter that alone has it; t becomes a number and goes.
TEST(Reduce, Symbols) {
  const auto module = Parse(R"(HloModule m, symbols={s:[2,64],t:[0,inf]}
    ENTRY e {
      x = f32[s,t] parameter(0)
      n = f32[t] parameter(1)
      a = f32[s,t] negate(x)
      b = f32[2*s] parameter(2)
      c = f32[2*s] tan(b)
      d = f32[t] sine(n)
      ROOT r = (f32[s,t], f32[2*s], f32[t]) tuple(a, c, d)
    })");
  const auto numbers = WithSizes(*module, {{"s", 20}, {"t", 9}});
  ASSERT_TRUE(numbers.ok()) << numbers.status();
  const auto fails = [](const Module& m, absl::Span<const Literal>) {
    const auto tangents = Find(m, Opcode::kTan);
    return !tangents.empty() && !tangents[0]->shape().is_static();
  };
  const auto r = Reduce(*module, RandomInputs(**numbers, 1), fails);
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_LE(r->module->instruction_count(), 3) << r->module->ToString();
  const auto sizes = SizesOfArguments(*r->module, r->arguments);
  ASSERT_TRUE(sizes.ok()) << sizes.status() << r->module->ToString();
  EXPECT_EQ(SizesText(*sizes), "s=2");
}

}  // namespace
}  // namespace tenon::lab
