// The math bodies: accuracy on a sample (the tool ulp-sweep runs the same code on all inputs),
// special values, every width, and that the check notices a wrong coefficient.
#include "backends/codegen/math/math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "backends/codegen/math/bodies.h"
#include "backends/codegen/math/coefficients.h"
#include "tools/ulp-sweep/sweep_f64.h"

namespace tenon::math {
namespace {

using ulp_sweep::JitBody;
using ulp_sweep::JitOptions;

JitBody Compile(Fn fn, JitOptions options = {}) {
  auto body = JitBody::Create(
      Info(fn).arity,
      [fn](llvm::IRBuilderBase& b, std::span<llvm::Value* const> args) {
        return Emit(b, fn, args);
      },
      options);
  if (!body.ok()) throw std::runtime_error(std::string(body.status().message()));
  return std::move(*body);
}

ulp_sweep::SweepOptions Sampled() {
  ulp_sweep::SweepOptions options;
  options.stride = 4096;
  options.pairs = 1 << 19;
  return options;
}

std::string Describe(const ulp_sweep::Worst& worst) {
  std::ostringstream out;
  out << std::hexfloat << "at " << worst.a << ", " << worst.b << ": got " << worst.got << ", want "
      << worst.want;
  return out.str();
}

class MathFunction : public testing::TestWithParam<Fn> {};

TEST_P(MathFunction, IsAsAccurateAsClaimed) {
  const FnInfo& info = Info(GetParam());
  ulp_sweep::SweepResult result =
      Sweep(Compile(GetParam()), ulp_sweep::ReferenceFor(GetParam()), Sampled());
  EXPECT_GT(result.inputs, 500'000);
  EXPECT_LE(result.worst.ulp, info.max_ulp) << Describe(result.worst);
  EXPECT_EQ(result.mismatches, 0) << Describe(result.first_mismatch);
  EXPECT_GE(result.worst.ulp, 0.49) << "no measurement finds less than half a unit";
}

// What docs/accuracy.md reports, half a minute per function.
TEST_P(MathFunction, IsAsAccurateAsClaimedOnAllInputsSlow) {
  ulp_sweep::SweepOptions options;
  options.pairs = int64_t{1} << 28;
  ulp_sweep::SweepResult result =
      Sweep(Compile(GetParam()), ulp_sweep::ReferenceFor(GetParam()), options);
  EXPECT_LE(result.worst.ulp, Info(GetParam()).max_ulp) << Describe(result.worst);
  EXPECT_EQ(result.mismatches, 0) << Describe(result.first_mismatch);
}

// AVX2 and narrower vectors give the bits that the host's widest vectors give.
TEST_P(MathFunction, HasTheSameBitsAtEveryWidth) {
  JitBody wide = Compile(GetParam());
  std::vector<float> a, b;
  for (float x : ulp_sweep::SpecialValues()) {
    for (float y : ulp_sweep::SpecialValues()) {
      a.push_back(x);
      b.push_back(y);
    }
  }
  for (uint64_t i = 0; i < 20000; ++i) {
    auto [x, y] = ulp_sweep::RandomPair(i, 7);
    a.push_back(x);
    b.push_back(y);
  }
  a.resize(a.size() / 16 * 16);
  std::vector<float> want(a.size()), got(a.size());
  wide.Run(a.data(), b.data(), want.data(), a.size());
  for (JitOptions options :
       {JitOptions{.width = 1}, JitOptions{.width = 4}, JitOptions{.width = 8},
        JitOptions{.width = 8, .cpu = "x86-64-v3"}, JitOptions{.width = 1, .cpu = "x86-64-v3"}}) {
    Compile(GetParam(), options).Run(a.data(), b.data(), got.data(), a.size());
    for (size_t i = 0; i < a.size(); ++i) {
      if (std::isnan(want[i]) && std::isnan(got[i])) continue;
      ASSERT_EQ(std::bit_cast<uint32_t>(want[i]), std::bit_cast<uint32_t>(got[i]))
          << "width " << options.width << " " << options.cpu << " at " << a[i] << ", " << b[i];
    }
  }
}

// Whatever the width, also where some lanes take the long way of the trigonometric functions.
TEST_P(MathFunction, DoubleHasTheSameBitsAtEveryWidth) {
  const ulp_sweep::ReferenceF64* reference = ulp_sweep::ReferenceF64For(GetParam());
  if (reference == nullptr) GTEST_SKIP() << "no double body";
  std::vector<double> a, b;
  ulp_sweep::SampleF64(*reference, 20000, 3, &a, &b);
  a.resize(a.size() / 16 * 16);
  b.resize(a.size());
  std::vector<double> want(a.size()), got(a.size());
  Compile(GetParam(), {.width = 1, .is_double = true}).Run(a.data(), b.data(), want.data(), a.size());
  for (JitOptions options : {JitOptions{.width = 2}, JitOptions{.width = 4}, JitOptions{.width = 8},
                             JitOptions{.width = 4, .cpu = "x86-64-v3"}, JitOptions{.width = 2, .cpu = "x86-64-v2"}}) {
    options.is_double = true;
    Compile(GetParam(), options).Run(a.data(), b.data(), got.data(), a.size());
    for (size_t i = 0; i < a.size(); ++i) {
      if (std::isnan(want[i]) && std::isnan(got[i])) continue;
      ASSERT_EQ(std::bit_cast<uint64_t>(want[i]), std::bit_cast<uint64_t>(got[i]))
          << "width " << options.width << " " << options.cpu << " at " << a[i] << ", " << b[i];
    }
  }
}

// Bodies call nothing but LLVM's own fma, fabs, copysign, sqrt, trunc and or, functions that they bring along, and pow. A builder with
// fast-math flags set gives no instruction any.
TEST_P(MathFunction, ImportsNothingAndIgnoresFastMathFlags) {
  for (bool is_double : {false, true}) {
    llvm::LLVMContext context;
    llvm::Module module("m", context);
    llvm::IRBuilder<> b(context);
    b.setFastMathFlags(llvm::FastMathFlags::getFast());
    llvm::Type* type = llvm::FixedVectorType::get(is_double ? b.getDoubleTy() : b.getFloatTy(), 8);
    if (!HasBody(GetParam(), type)) continue;
    std::vector<llvm::Type*> params(Info(GetParam()).arity, type);
    auto* function = llvm::Function::Create(llvm::FunctionType::get(type, params, false),
                                            llvm::Function::ExternalLinkage, "f", module);
    b.SetInsertPoint(llvm::BasicBlock::Create(context, "entry", function));
    std::vector<llvm::Value*> args;
    for (llvm::Argument& arg : function->args()) args.push_back(&arg);
    b.CreateRet(Emit(b, GetParam(), args));
    EXPECT_TRUE(b.getFastMathFlags().isFast()) << "the caller's flags are put back";
    EXPECT_EQ(function->size(), 1u) << "straight-line code";

    std::set<std::string_view> intrinsics = {"fma", "fabs", "copysign", "sqrt", "trunc", "vector"};
    for (const llvm::Function& callee : module) {
      if (&callee == function) continue;
      std::string name = callee.getName().str();
      if (callee.isIntrinsic()) {
        EXPECT_TRUE(intrinsics.contains(name.substr(5, name.find('.', 5) - 5))) << name;
      } else {
        EXPECT_TRUE(is_double && (!callee.isDeclaration() || name == "pow")) << name;
      }
    }
    for (const llvm::Function& each : module) {
      for (const llvm::BasicBlock& block : each) {
        for (const llvm::Instruction& instruction : block) {
          const auto* op = llvm::dyn_cast<llvm::FPMathOperator>(&instruction);
          EXPECT_TRUE(op == nullptr || op->getFastMathFlags().none());
        }
      }
    }
  }
}

// ulp-sweep --f64 measures more.
TEST_P(MathFunction, OwnDoubleIsAsAccurateAsClaimed) {
  const ulp_sweep::ReferenceF64* reference = ulp_sweep::ReferenceF64For(GetParam());
  EXPECT_EQ(reference != nullptr, Info(GetParam()).max_ulp_f64 > 0);
  if (reference == nullptr) GTEST_SKIP() << "none of its own";
  const ulp_sweep::ResultF64 result =
      SweepF64(Compile(GetParam(), {.is_double = true}), *reference, 1 << 17);
  EXPECT_LE(result.worst.ulp, Info(GetParam()).max_ulp_f64) << std::hexfloat << result.worst.a << ", " << result.worst.b;
  EXPECT_GE(result.worst.ulp, 0.49) << "no measurement finds less than half a unit";
  EXPECT_EQ(result.mismatches, 0) << std::hexfloat << result.first_mismatch.a << ", " << result.first_mismatch.b;
}

INSTANTIATE_TEST_SUITE_P(All, MathFunction, testing::ValuesIn([] {
                           std::vector<Fn> all;
                           for (const FnInfo& info : Functions()) all.push_back(info.fn);
                           return all;
                         }()),
                         [](const auto& info) { return std::string(Info(info.param).name); });

TEST(Math, TableIsConsistent) {
  for (const FnInfo& info : Functions()) {
    EXPECT_EQ(FindFunction(info.name), info.fn);
    EXPECT_EQ(ulp_sweep::ReferenceFor(info.fn).fn, info.fn);
    EXPECT_EQ(ulp_sweep::ReferenceFor(info.fn).unary != nullptr, info.arity == 1);
  }
  EXPECT_FALSE(FindFunction("exponential"));
}

TEST(Math, RefusesOtherTypes) {
  llvm::LLVMContext context;
  EXPECT_FALSE(HasBody(Fn::kExp, llvm::Type::getHalfTy(context)));
  EXPECT_FALSE(HasBody(Fn::kExp, llvm::Type::getInt32Ty(context)));
  EXPECT_FALSE(
      HasBody(Fn::kExp, llvm::ScalableVectorType::get(llvm::Type::getFloatTy(context), 4)));
}

// Instructions are compile time: about 30 us each.
TEST(Math, StaysWithinItsInstructionBudget) {
  const std::pair<Fn, int> kBudgets[] = {
      {Fn::kExp, 26}, {Fn::kLogistic, 36}, {Fn::kTanh, 40}, {Fn::kErf, 40}, {Fn::kLog, 40}};
  for (auto [fn, budget] : kBudgets) EXPECT_LE(Compile(fn).instructions(), budget) << Info(fn).name;
}

// The coarse erf, its third coefficient multiplied, over a sample of floats.
struct CoarseErf {
  double worst = 0;          // error
  int beyond = 0, ends = 0;  // results beyond 1; those from 3.8 on that are not 1, for which gelu of -100 would be no zero
  int nans = 0;              // NaN for another argument than NaN, or the other way round
};
CoarseErf SampleCoarseErf(float factor) {
  std::vector<float> c(std::begin(coefficients::kErfCoarseF), std::end(coefficients::kErfCoarseF));
  c[3] *= factor;
  auto body = JitBody::Create(
      1, [&](llvm::IRBuilderBase& b, std::span<llvm::Value* const> args) { return EmitCoarseErfWith(V{&b, args[0]}, c).v; }, {});
  EXPECT_TRUE(body.ok());
  std::vector<float> x = {0.0f, 1e-30f, 3.79999f, 3.8f, 3.80001f, 5, 100, std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()};
  for (int i = 0; i < 1 << 20; ++i) x.push_back(4.2f * static_cast<float>(i) / (1 << 20));
  for (size_t i = 0, n = x.size(); i < n; ++i) x.push_back(-x[i]);
  while (x.size() % 64 != 0) x.push_back(0);
  std::vector<float> y(x.size());
  body->Run(x.data(), nullptr, y.data(), static_cast<int64_t>(x.size()));
  CoarseErf found;
  for (size_t i = 0; i < x.size(); ++i) {
    found.nans += std::isnan(x[i]) != std::isnan(y[i]);
    if (std::isnan(x[i])) continue;
    found.beyond += std::abs(y[i]) > 1;
    found.ends += std::abs(x[i]) >= 3.8f && y[i] != std::copysign(1.0f, x[i]);
    found.worst = std::max(found.worst, std::abs(y[i] - std::erf(static_cast<double>(x[i]))));
  }
  return found;
}

TEST(CoarseErf, IsOffByLessThanItsClaimAndNeverBeyondOne) {
  const CoarseErf found = SampleCoarseErf(1);
  EXPECT_LE(found.worst, kCoarseErfError);
  EXPECT_EQ(found.beyond, 0);
  EXPECT_EQ(found.ends, 0);
  EXPECT_EQ(found.nans, 0);
}

TEST(CoarseErf, AWrongCoefficientBreaksTheClaim) {
  const CoarseErf found = SampleCoarseErf(1 + 0x1p-14);
  EXPECT_GT(found.worst, kCoarseErfError);
  EXPECT_GT(found.ends, 0);
}

// Planted bug: exp's third-order coefficient off by 2^-18 of itself. The sample must find that the
// claim is broken.
TEST(UlpSweep, CatchesAWrongCoefficient) {
  auto measure = [](double factor) {
    std::vector<float> c(std::begin(coefficients::kExpF), std::end(coefficients::kExpF));
    c[1] = static_cast<float>(c[1] * factor);
    auto body = JitBody::Create(1,
                                [&](llvm::IRBuilderBase& b, std::span<llvm::Value* const> args) {
                                  return EmitExpWith(V{&b, args[0]}, c).v;
                                },
                                {});
    EXPECT_TRUE(body.ok());
    return Sweep(*body, ulp_sweep::ReferenceFor(Fn::kExp), Sampled()).worst.ulp;
  };
  EXPECT_LE(measure(1), Info(Fn::kExp).max_ulp);
  EXPECT_GT(measure(1 + 0x1p-18), Info(Fn::kExp).max_ulp);
}

// Planted bug: a body right everywhere but at one special value, which a sparse sample would miss.
TEST(UlpSweep, CatchesAWrongSpecialValue) {
  auto body = JitBody::Create(1,
                              [](llvm::IRBuilderBase& b, std::span<llvm::Value* const> args) {
                                llvm::Value* y = Emit(b, Fn::kTanh, args);
                                return b.CreateFAdd(
                                    y, llvm::ConstantFP::get(y->getType(), 0.0));  // -0 becomes +0
                              },
                              {});
  ASSERT_TRUE(body.ok());
  ulp_sweep::SweepResult result = Sweep(*body, ulp_sweep::ReferenceFor(Fn::kTanh), Sampled());
  EXPECT_EQ(result.mismatches, 1);
  EXPECT_TRUE(result.first_mismatch.a == 0 && std::signbit(result.first_mismatch.a));
}

TEST(UlpSweep, MeasuresUlpsOfDouble) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(ulp_sweep::UlpErrorF64(1.0, 1.0L), 0);
  EXPECT_EQ(ulp_sweep::UlpErrorF64(1.0, 1.0L + 0x1p-54L), 0.25);
  EXPECT_EQ(ulp_sweep::UlpErrorF64(1.0, 1.0L + 0x1p-52L), 1);
  EXPECT_EQ(ulp_sweep::UlpErrorF64(0x1p-1074, 0x1p-1073L), 1);
  EXPECT_EQ(ulp_sweep::UlpErrorF64(0.0, 0x1p-1074L), 1);
  EXPECT_EQ(ulp_sweep::UlpErrorF64(kInf, 0x1p2000L), 0);
  EXPECT_EQ(ulp_sweep::UlpErrorF64(kInf, 0x1.fffffffffffffp1023L), 1);
  for (auto [got, want] : std::vector<std::pair<double, long double>>{
           {NAN, 1}, {1, NAN}, {-0.0, 0}, {0, -0.0L}, {kInf, 1}, {kInf, -kInf}, {1, kInf}, {1, 0x1p2000L}, {kInf, -0x1p2000L}}) {
    EXPECT_TRUE(std::isinf(ulp_sweep::UlpErrorF64(got, want))) << got << " " << static_cast<double>(want);
  }
}

TEST(UlpSweep, MeasuresUlps) {
  EXPECT_EQ(ulp_sweep::UlpError(1.0f, 1.0), 0);
  EXPECT_EQ(ulp_sweep::UlpError(1.0f, 1.0 + 0x1p-24), 0.5);
  EXPECT_EQ(ulp_sweep::UlpError(0x1p-149f, 0x1p-148), 1);
  EXPECT_EQ(ulp_sweep::UlpError(0.0f, 0x1p-149), 1);
  EXPECT_EQ(ulp_sweep::UlpError(INFINITY, 1e300), 0);
  EXPECT_EQ(ulp_sweep::UlpError(INFINITY, 0x1.fffffep127), 1);
  EXPECT_EQ(ulp_sweep::UlpError(NAN, NAN), 0);
  for (auto [got, want] : std::vector<std::pair<float, double>>{{NAN, 1.0},
                                                                {1.0f, NAN},
                                                                {-0.0f, 0.0},
                                                                {0.0f, -0.0},
                                                                {INFINITY, 1.0},
                                                                {INFINITY, -INFINITY},
                                                                {1.0f, INFINITY}}) {
    EXPECT_TRUE(std::isinf(ulp_sweep::UlpError(got, want))) << got << " " << want;
  }
}

}  // namespace
}  // namespace tenon::math
