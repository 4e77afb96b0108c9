// Ops that the CPU backend leaves to a library function or rewrites, against the evaluator bit for bit: transforms, linear
// algebra, random numbers, custom calls, collectives of one device; and transforms against their definition.
#include <gtest/gtest.h>

#include <complex>
#include <filesystem>
#include <fstream>
#include <numbers>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backends/driver/literal_executable.h"
#include "hlo/eval/evaluator.h"
#include "hlo/library/custom_calls.h"
#include "hlo/text/text.h"
#include "hlo/tolerance.h"
#include "tests/backends/hlo_cases.h"

namespace tenon {
namespace {

Literal RandomArray(const Shape& shape, uint64_t seed) {
  Literal l(Shape::Array(shape.element_type(), shape.constant_dims()));
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  const PrimitiveType part = ComplexComponent(shape.element_type());
  if (part != shape.element_type()) {
    Literal parts(Shape::Array(part, {2 * l.num_elements()}));
    for (int64_t i = 0; i < parts.num_elements(); ++i) parts.SetFromDouble(i, normal(random));
    if (l.num_elements() > 0) std::copy_n(parts.bytes(), l.size_bytes(), l.mutable_bytes());
    return l;
  }
  for (int64_t i = 0; i < l.num_elements(); ++i) {
    if (IsFloat(part)) l.SetFromDouble(i, normal(random));
    else l.SetFromInt64(i, static_cast<int64_t>(random()));
  }
  return l;
}

// Compiled with and without folding, run twice each: always the evaluator's bits.
void ExpectEvaluatorsBits(const std::string& text, std::vector<Literal> args = {}) {
  SCOPED_TRACE(text);
  absl::StatusOr<std::unique_ptr<Module>> module = ParseModule(text);
  ASSERT_TRUE(module.ok()) << module.status();
  if (args.empty()) {
    for (const Instruction* p : (*module)->entry()->parameters()) args.push_back(RandomArray(p->shape(), 3 + args.size()));
  }
  absl::StatusOr<Literal> evaluated = Evaluate(**module, args);
  ASSERT_TRUE(evaluated.ok()) << evaluated.status();
  const std::vector<Literal> want = Leaves(*evaluated);
  for (const bool fold : {false, true}) {
    CompileOptions options{.excess_precision = false, .verify_passes = true};
    if (fold) options.evaluate = ConstantFolder();
    auto executable = LiteralExecutable::Compile(**module, options);
    ASSERT_TRUE(executable.ok()) << executable.status();
    for (int run = 0; run < 2; ++run) {
      auto got = (*executable)->Run(args);
      ASSERT_TRUE(got.ok()) << got.status();
      ASSERT_EQ(got->size(), want.size());
      for (size_t k = 0; k < want.size(); ++k) {
        const LiteralDifference d = CompareLiterals((*got)[k], want[k], ToleranceRule::Exact());
        EXPECT_TRUE(d.within) << "fold " << fold << ", result " << k << ": " << d.what;
      }
    }
  }
}

// ---- transforms ----------------------------------------------------------------------------------------------------------

TEST(LibrarySteps, TransformsOfEveryKindTypeAndRank) {
  const std::vector<std::vector<int64_t>> lengths = {{0}, {1}, {2}, {7}, {12}, {97}, {6, 5}, {4, 1}, {3, 0}, {2, 3, 9}, {5, 4, 8}};
  for (const bool wide : {false, true}) {
    const char *c = wide ? "c128" : "c64", *r = wide ? "f64" : "f32";
    for (const std::vector<int64_t>& n : lengths) {
      std::vector<int64_t> full = n, half = n;
      half.back() = n.back() == 0 ? 0 : n.back() / 2 + 1;
      for (std::vector<int64_t>* dims : {&full, &half}) dims->insert(dims->begin(), 2);
      auto fft = [&](const char* type, const char* from, const std::vector<int64_t>& x, const char* to, const std::vector<int64_t>& y) {
        ExpectEvaluatorsBits(absl::StrCat("ENTRY e { x = ", from, "[", absl::StrJoin(x, ","), "] parameter(0)\n ROOT y = ", to, "[",
                                          absl::StrJoin(y, ","), "] fft(x), fft_type=", type, ", fft_length={", absl::StrJoin(n, ","),
                                          "} }"));
      };
      fft("FFT", c, full, c, full);
      fft("IFFT", c, full, c, full);
      fft("RFFT", r, full, c, half);
      fft("IRFFT", c, half, r, full);
    }
  }
}

TEST(LibrarySteps, TransformsAreTheirDefinition) {
  std::vector<int64_t> lengths;
  for (int64_t n = 1; n <= 70; ++n) lengths.push_back(n);
  for (int64_t n : {97, 127, 128, 210, 243, 255, 361, 509, 720, 1009}) lengths.push_back(n);
  for (int64_t n : lengths) {
    const Literal x = RandomArray(Shape::Array(PrimitiveType::kC128, {n}), static_cast<uint64_t>(n));
    auto module = ParseModule(absl::StrCat("ENTRY e { x = c128[", n, "] parameter(0)\n ROOT y = c128[", n,
                                           "] fft(x), fft_type=FFT, fft_length={", n, "} }"));
    const Literal y = *Evaluate(**module, {x});
    long double norm = 0, worst = 0;
    for (int64_t k = 0; k < n; ++k) norm += std::norm(x.GetAsComplex(k));
    for (int64_t k = 0; k < n; ++k) {
      std::complex<long double> sum = 0;
      for (int64_t j = 0; j < n; ++j) {
        const long double angle = -2 * std::numbers::pi_v<long double> * static_cast<long double>(j * k % n) / static_cast<long double>(n);
        sum += std::complex<long double>(x.GetAsComplex(j)) * std::complex<long double>(std::cos(angle), std::sin(angle));
      }
      worst = std::max(worst, std::abs(sum - std::complex<long double>(y.GetAsComplex(k))));
    }
    // An element of the result has size sqrt(sum |x|^2) or so; the passes add a rounding each.
    EXPECT_LE(worst / std::sqrt(norm), 4e-16L * (4 + std::log2(static_cast<long double>(n)))) << n;
  }
}

TEST(LibrarySteps, OperandsAndResultsOfAnyLayout) {
  ExpectEvaluatorsBits(R"(ENTRY e {
    x = c64[5,6]{0,1} parameter(0)
    t = c64[6,5]{1,0} transpose(x), dimensions={1,0}
    f = c64[6,5]{0,1} fft(t), fft_type=FFT, fft_length={5}
    s = c64[6,2] slice(f), slice={[0:6], [1:4:2]}
    ROOT g = c64[6,2]{0,1} fft(s), fft_type=IFFT, fft_length={6,2}
  })");
  ExpectEvaluatorsBits(R"(ENTRY e {
    x = f32[3] parameter(0)
    b = f32[4,3,3] broadcast(x), dimensions={1}
    i = f32[4,3,3] triangular-solve(b, b), left_side=true, lower=true, unit_diagonal=true, transpose_a=NO_TRANSPOSE
    ROOT t = (f32[4,3,3], f32[4,3,3], f32[3]) tuple(i, i, x)
  })");
}

// ---- linear algebra ------------------------------------------------------------------------------------------------------

TEST(LibrarySteps, Cholesky) {
  for (const char* type : {"f32", "f64", "bf16", "f16", "c64", "c128"}) {
    for (const char* lower : {"true", "false"}) {
      for (const char* dims : {"1,1", "0,0", "2,0,3,3", "2,3,7,7"}) {  // random matrices: most give NaNs
        ExpectEvaluatorsBits(absl::StrCat("ENTRY e { x = ", type, "[", dims, "] parameter(0)\n ROOT y = ", type, "[", dims,
                                          "] cholesky(x), lower=", lower, " }"));
      }
    }
  }
}

TEST(LibrarySteps, TriangularSolve) {
  for (const char* type : {"f32", "f64", "f16", "c64", "c128"}) {
    for (const char* transpose : {"NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"}) {
      for (int flags = 0; flags < 8; ++flags) {
        const bool left = flags & 1;
        const std::string b = absl::StrCat(type, left ? "[2,5,3]" : "[2,3,5]");
        auto flag = [&](int bit) { return flags & bit ? "true" : "false"; };
        ExpectEvaluatorsBits(absl::StrCat("ENTRY e { a = ", type, "[2,5,5] parameter(0)\n b = ", b, " parameter(1)\n ROOT y = ", b,
                                          " triangular-solve(a, b), left_side=", flag(1), ", lower=", flag(2), ", unit_diagonal=",
                                          flag(4), ", transpose_a=", transpose, " }"));
      }
    }
  }
}

TEST(LibrarySteps, LapackCustomCalls) {
  for (const auto& [letter, type] : {std::pair("s", "f32"), {"d", "f64"}, {"c", "c64"}, {"z", "c128"}}) {
    const bool real = *letter == 's' || *letter == 'd';
    auto call = [&](const char* routine, const std::string& operands, const std::string& parameters, const std::string& result,
                    const char* config) {
      ExpectEvaluatorsBits(absl::StrCat("ENTRY e { ", parameters, " ROOT r = ", result, " custom-call(", operands,
                                        "), custom_call_target=\"lapack_", letter, routine,
                                        "_ffi\", api_version=API_VERSION_TYPED_FFI, backend_config=", config, " }"));
    };
    const std::string t = type, square = t + "[2,4,4]", wide = t + "[2,5,3]";
    call("potrf", "a", absl::StrCat("a = ", square, " parameter(0)\n"), absl::StrCat("(", square, ", s32[2])"), "{uplo = 85 : ui8}");
    call("getrf", "a", absl::StrCat("a = ", wide, " parameter(0)\n"), absl::StrCat("(", wide, ", s32[2,3], s32[2])"), "{}");
    call("geqrf", "a", absl::StrCat("a = ", wide, " parameter(0)\n"), absl::StrCat("(", wide, ", ", t, "[2,3])"), "{}");
    call(real ? "orgqr" : "ungqr", "a, u", absl::StrCat("a = ", wide, " parameter(0)\n u = ", t, "[2,3] parameter(1)\n"), wide, "{}");
    call("trsm", "a, b", absl::StrCat("a = ", square, " parameter(0)\n b = ", t, "[2,4,2] parameter(1)\n"), t + "[2,4,2]",
         "{side = 76 : ui8, uplo = 85 : ui8, trans_x = 67 : ui8, diag = 78 : ui8}");
  }
}

// ---- random numbers ------------------------------------------------------------------------------------------------------

TEST(LibrarySteps, BitsOfEveryTypeAlgorithmAndState) {
  for (const char* algorithm : {"rng_default", "rng_three_fry", "rng_philox"}) {
    for (const char* state : {"u64[2]", "u64[3]", "u32[4]", "u32[6]", "u8[16]", "s16[12]"}) {
      for (const char* type : {"u8", "s8", "u16", "u32", "s32", "u64", "s64", "f32", "f64", "bf16", "f16", "u4", "s4", "u2", "f8e5m2"}) {
        for (const char* dims : {"", "0", "5", "3,7", "3,4,5"}) {
          const std::string result = absl::StrCat("(", state, ", ", type, "[", dims, "])");
          ExpectEvaluatorsBits(absl::StrCat("ENTRY e { s = ", state, " parameter(0)\n ROOT r = ", result,
                                            " rng-bit-generator(s), algorithm=", algorithm, " }"));
        }
      }
    }
  }
}

TEST(LibrarySteps, DrawsOfEveryTypeInTheOrderOfTheProgram) {
  for (const char* type : {"f32", "f64", "bf16", "f16", "s32", "u8", "s64"}) {
    const std::string t = type;
    const bool normal = t[0] == 'f' || t[0] == 'b';
    // Every draw depends on those before it; what is done with them would let a schedule turn them around.
    ExpectEvaluatorsBits(absl::StrCat("draw { d.lo = ", t, "[] parameter(0)\n d.hi = ", t, "[] parameter(1)\n d.r = ", t,
                                      "[9] rng(d.lo, d.hi), distribution=rng_uniform\n ROOT d.n = ", t, "[9] add(d.r, d.r) }\n"
                                      "ENTRY e { lo = ", t, "[] constant(1)\n hi = ", t, "[] constant(9)\n a = ", t,
                                      "[1000] rng(lo, hi), distribution=rng_uniform\n b = ", t, "[9] call(lo, hi), to_apply=draw\n c = ", t,
                                      "[9] rng(lo, hi), distribution=", normal ? "rng_normal" : "rng_uniform",
                                      "\n s1 = u64[2] rng-get-and-update-state(), delta=2\n unused = ", t,
                                      "[3] rng(lo, hi), distribution=rng_uniform\n d = ", t,
                                      "[9] call(hi, lo), to_apply=draw\n s2 = u64[2] rng-get-and-update-state(), delta=2\n"
                                      " cd = ", t, "[9] subtract(d, c)\n ROOT t = (", t, "[9], ", t, "[9], u64[2], u64[2], ", t,
                                      "[1000]) tuple(cd, b, s2, s1, a) }"));
  }
}

TEST(LibrarySteps, DrawsInLoopsAndBranches) {
  ExpectEvaluatorsBits(R"(
    go { s = (s32[], f32[4], u64[2]) parameter(0)
      i = s32[] get-tuple-element(s), index=0
      n = s32[] constant(5)
      ROOT lt = pred[] compare(i, n), direction=LT }
    step { s = (s32[], f32[4], u64[2]) parameter(0)
      i = s32[] get-tuple-element(s), index=0
      x = f32[4] get-tuple-element(s), index=1
      st = u64[2] get-tuple-element(s), index=2
      one = s32[] constant(1)
      next = s32[] add(i, one)
      lo = f32[] constant(0)
      hi = f32[] constant(1)
      a = f32[4] rng(lo, hi), distribution=rng_uniform
      b = f32[4] rng(lo, hi), distribution=rng_normal
      d = f32[4] subtract(b, a)
      y = f32[4] add(x, d)
      g = u64[2] rng-get-and-update-state(), delta=7
      h = u64[2] xor(g, st)
      ROOT t = (s32[], f32[4], u64[2]) tuple(next, y, h) }
    ENTRY e {
      zero = s32[] constant(0)
      x = f32[4] parameter(0)
      st = u64[2] parameter(1)
      init = (s32[], f32[4], u64[2]) tuple(zero, x, st)
      w = (s32[], f32[4], u64[2]) while(init), condition=go, body=step
      lo = f32[] constant(0)
      after = f32[4] rng(lo, lo), distribution=rng_normal
      y = f32[4] get-tuple-element(w), index=1
      h = u64[2] get-tuple-element(w), index=2
      ROOT t = (f32[4], f32[4], u64[2]) tuple(y, after, h) })");
}

// ---- one device ----------------------------------------------------------------------------------------------------------

TEST(LibrarySteps, CollectivesOfOneReplica) {
  ExpectEvaluatorsBits(R"(
    add { a = f32[] parameter(0)
      b = f32[] parameter(1)
      ROOT s = f32[] add(a, b) }
    ENTRY e {
      x = f32[4,2] parameter(0)
      y = f32[4,2] parameter(1)
      r = f32[4,2] all-reduce(x), replica_groups={}, to_apply=add
      rr = (f32[4,2], f32[4,2]) all-reduce(x, y), replica_groups={}, to_apply=add
      rr1 = f32[4,2] get-tuple-element(rr), index=1
      g = f32[4,2] all-gather(y), replica_groups={{0}}, dimensions={0}
      sc = f32[4,2] reduce-scatter(x), replica_groups={{0}}, dimensions={0}, to_apply=add
      at = f32[4,2] all-to-all(x), replica_groups={{0}}, dimensions={0}
      p = f32[4,2] collective-permute(x), source_target_pairs={{0,0}}
      q = f32[4,2] collective-permute(x), source_target_pairs={}
      cb = f32[4,2] collective-broadcast(y), replica_groups={{0}}
      s = f32[4,2] all-reduce-start(y), replica_groups={}, to_apply=add
      d = f32[4,2] all-reduce-done(s)
      gs = (f32[4,2], f32[4,2]) all-gather-start(x), replica_groups={{0}}, dimensions={0}
      gd = f32[4,2] all-gather-done(gs)
      ps = (f32[4,2], f32[4,2], u32[], u32[]) collective-permute-start(x), source_target_pairs={{0,0}}
      pd = f32[4,2] collective-permute-done(ps)
      id = u32[] replica-id()
      part = u32[] partition-id()
      ROOT t = (f32[4,2], f32[4,2], f32[4,2], f32[4,2], f32[4,2], f32[4,2], f32[4,2], f32[4,2], f32[4,2], f32[4,2], f32[4,2], u32[], u32[])
          tuple(r, rr1, g, sc, at, p, q, cb, d, gd, pd, id, part) })");
}

TEST(LibrarySteps, WhatNobodySendsIsZeroBits) {
  for (const char* type : {"f8e8m0fnu", "pred", "s4", "c64", "bf16"}) {
    ExpectEvaluatorsBits(absl::StrCat("ENTRY e { x = ", type, "[3] parameter(0)\n ROOT y = ", type,
                                      "[3] collective-permute(x), source_target_pairs={} }"));
  }
}

TEST(LibrarySteps, RaggedAllToAll) {
  const std::string text = R"(ENTRY e {
    x = f32[6,2] parameter(0)
    y = f32[8,2] parameter(1)
    from = s64[3] parameter(2)
    send = s64[3] parameter(3)
    to = s64[3] parameter(4)
    receive = s64[3] parameter(5)
    ROOT r = f32[8,2] ragged-all-to-all(x, y, from, send, to, receive), replica_groups={{0}} })";
  auto numbers = [](std::vector<int64_t> v) { return Literal::FromSpan<int64_t>(PrimitiveType::kS64, {3}, v); };
  const Literal x = RandomArray(Shape::Array(PrimitiveType::kF32, {6, 2}), 1),
                y = RandomArray(Shape::Array(PrimitiveType::kF32, {8, 2}), 2);
  ExpectEvaluatorsBits(text, {x, y, numbers({0, 3, 5}), numbers({2, 0, 1}), numbers({6, 0, 1}), numbers({2, 0, 1})});
  auto executable = LiteralExecutable::Compile(**ParseModule(text), {});
  ASSERT_TRUE(executable.ok()) << executable.status();
  auto outside = (*executable)->Run({x, y, numbers({0, 3, 5}), numbers({2, 0, 2}), numbers({6, 0, 1}), numbers({2, 0, 2})});
  EXPECT_EQ(outside.status().code(), absl::StatusCode::kInvalidArgument) << outside.status();
}

TEST(LibrarySteps, BatchNormOfEveryType) {
  for (const char* type : {"f32", "f64"}) {
    const std::string t = type, x = t + "[2,3,5]", f = t + "[3]";
    const std::string parameters = absl::StrCat("x = ", x, " parameter(0)\n s = ", f, " parameter(1)\n o = ", f, " parameter(2)\n");
    // The variance that the backend sums up rounds in another order: not bit for bit.
    auto near = [&](const std::string& text) {
      auto module = ParseModule(text);
      ASSERT_TRUE(module.ok()) << module.status();
      std::vector<Literal> args;
      for (const Instruction* p : (*module)->entry()->parameters()) {
        args.push_back(RandomArray(p->shape(), args.size()));
        if (p->name() == "v") {  // a variance
          for (int64_t i = 0; i < args.back().num_elements(); ++i) args.back().SetFromDouble(i, std::abs(args.back().GetAsDouble(i)));
        }
      }
      auto executable = LiteralExecutable::Compile(**module, {.excess_precision = false});
      ASSERT_TRUE(executable.ok()) << executable.status();
      auto got = (*executable)->Run(args);
      ASSERT_TRUE(got.ok()) << got.status();
      const std::vector<Literal> want = Leaves(*Evaluate(**module, args));
      for (size_t k = 0; k < want.size(); ++k) {
        const double bound = t == "f64" ? 1e-12 : 1e-4;
        EXPECT_TRUE(CompareLiterals((*got)[k], want[k], ToleranceRule::AbsRel(bound, bound)).within) << text << " result " << k;
      }
    };
    near(absl::StrCat("ENTRY e { ", parameters, " ROOT r = (", x, ", ", f, ", ", f,
                      ") batch-norm-training(x, s, o), epsilon=0.001, feature_index=1 }"));
    near(absl::StrCat("ENTRY e { ", parameters, " m = ", f, " parameter(3)\n v = ", f, " parameter(4)\n ROOT r = ", x,
                      " batch-norm-inference(x, s, o, m, v), epsilon=0.001, feature_index=1 }"));
    near(absl::StrCat("ENTRY e { x = ", x, " parameter(0)\n s = ", f, " parameter(1)\n m = ", f, " parameter(2)\n v = ", f,
                      " parameter(3)\n d = ", x, " parameter(4)\n ROOT r = (", x, ", ", f, ", ", f,
                      ") batch-norm-grad(x, s, m, v, d), epsilon=0.001, feature_index=1 }"));
  }
}

// ---- custom calls --------------------------------------------------------------------------------------------------------

TEST(LibrarySteps, CustomCallsOfUsers) {
  const std::string text = R"(ENTRY e {
    x = f32[2,3]{0,1} parameter(0)
    y = (f32[2,3], bf16[]) custom-call(x), custom_call_target="library_test.scale", backend_config={by = 3 : i64}
    y0 = f32[2,3] get-tuple-element(y), index=0
    ROOT z = f32[2,3] negate(y0) })";
  auto refused = LiteralExecutable::Compile(**ParseModule(text), {});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(std::string(refused.status().message()).find("custom-call target \"library_test.scale\" is not registered"), std::string::npos)
      << refused.status();
  RegisterCustomCall("library_test.scale", [](const CustomCall& call, absl::Span<const Literal> operands) -> absl::StatusOr<Literal> {
    EXPECT_NE(call.instruction.find("custom-call("), std::string::npos);
    Literal y = operands[0];
    for (float& v : y.mutable_data<float>()) v *= static_cast<float>(CustomCallAttribute(call, "by").value_or(0));
    return Literal::Tuple({std::move(y), Literal::Scalar(PrimitiveType::kBF16, 1)});
  });
  ExpectEvaluatorsBits(text);
  RegisterCustomCall("library_test.scale", nullptr);
}

// A registered function goes before the library's own of that name, on both.
TEST(LibrarySteps, UsersMayReplaceWhatIsKnown) {
  const std::string text = R"(ENTRY e { x = f32[3] parameter(0)
    ROOT s = f32[3] custom-call(x), custom_call_target="Sharding" })";
  ExpectEvaluatorsBits(text);
  RegisterCustomCall("Sharding", [](const CustomCall&, absl::Span<const Literal>) -> absl::StatusOr<Literal> {
    return Literal::Full(PrimitiveType::kF32, {3}, 42);
  });
  ExpectEvaluatorsBits(text);
  auto executable = LiteralExecutable::Compile(**ParseModule(text), {});
  EXPECT_EQ((*executable)->Run({Literal::Full(PrimitiveType::kF32, {3}, 1)})->at(0).GetAsDouble(0), 42);
  RegisterCustomCall("Sharding", nullptr);
}

}  // namespace
}  // namespace tenon
