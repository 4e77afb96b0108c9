// f16 and bf16 in pairs: which instructions PTX has, what ptxas makes of them, and that all values of one half with many of another give
// the evaluator's bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "backends/driver/compile.h"
#include "backends/gpu/gpu.h"
#include "hlo/text/text.h"
#include "passes/spaces/spaces.h"
#include "runtime/program/binding.h"
#include "tools/lab/gpu/host_math.h"
#include "tools/lab/gpu/ptxas.h"
#include "tools/lab/judge/miscompare.h"

namespace tenon::gpu {
namespace {

// [4096,4096] of type T by type T, as ATen's lowerings write it: halves become f32, what is computed becomes a half.
std::string Widened(std::string_view type, std::string_view body) {
  const std::string text =
      absl::StrReplaceAll(absl::StrCat("HloModule m\nadd { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }\n"
                                          "max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a, b) }\n"
                                          "ENTRY e {\n p = T[N] parameter(0)\n q = T[N] parameter(1)\n x = f32[N] convert(p)\n"
                                          " y = f32[N] convert(q)\n zero = f32[] constant(0)\n",
                                          std::string(body), " ROOT r = T[N] convert(z)\n}\n"),
                          {{" T[", absl::StrCat(" ", std::string(type), "[")}});
  return absl::StrReplaceAll(text, {{"[N]", "[4096,4096]"}, {"[R]", "[4096]"}});
}
const std::string kAdd = " z = f32[N] add(x, y)\n";
const std::string kGelu = R"( half = f32[] constant(0.5)
 halves = f32[N] broadcast(half), dimensions={}
 c = f32[] constant(0.70710678)
 cs = f32[N] broadcast(c), dimensions={}
 s = f32[N] multiply(x, cs)
 e = f32[N] erf(s)
 one = f32[] constant(1)
 ones = f32[N] broadcast(one), dimensions={}
 f = f32[N] add(e, ones)
 h = f32[N] multiply(x, halves)
 z = f32[N] multiply(h, f)
)";
const std::string kSoftmax = R"( low = f32[] constant(-inf)
 m = f32[R] reduce(x, low), dimensions={1}, to_apply=max
 mb = f32[N] broadcast(m), dimensions={0}
 d = f32[N] subtract(x, mb)
 e = f32[N] exponential(d)
 s = f32[R] reduce(e, zero), dimensions={1}, to_apply=add
 sb = f32[N] broadcast(s), dimensions={0}
 z = f32[N] divide(e, sb)
)";
const std::string kLayerNorm = R"( n = f32[] constant(4096)
 ns = f32[R] broadcast(n), dimensions={}
 t = f32[R] reduce(x, zero), dimensions={1}, to_apply=add
 mean = f32[R] divide(t, ns)
 mb = f32[N] broadcast(mean), dimensions={0}
 d = f32[N] subtract(x, mb)
 q2 = f32[N] multiply(d, d)
 v = f32[R] reduce(q2, zero), dimensions={1}, to_apply=add
 var = f32[R] divide(v, ns)
 root = f32[R] rsqrt(var)
 rb = f32[N] broadcast(root), dimensions={0}
 z = f32[N] multiply(d, rb)
)";

absl::StatusOr<Program> Compiled(const std::string& text, std::string_view model, bool excess_precision) {
  const auto module = ParseModule(text);
  if (!module.ok()) return module.status();
  CompileOptions options{.targets = {MakeGpu({.model = *FindGpuModel(model)})}};
  options.excess_precision = excess_precision;
  MoveSignature(**module, kSpace);
  return CompileToProgram((*module)->Clone(), BindingOf(**module), options);
}
std::string PtxFor(const std::string& text, std::string_view model, bool excess_precision = true) {
  const auto program = Compiled(text, model, excess_precision);
  EXPECT_TRUE(program.ok()) << program.status() << text;
  if (!program.ok()) return "";
  const auto ptx = PtxOf(*program);
  EXPECT_TRUE(ptx.ok() && ptx->modules.size() == 1) << ptx.status();
  return ptx.ok() && !ptx->modules.empty() ? ptx->modules[0] : "";
}
int Count(const std::string& ptx, std::string_view instruction) {
  int count = 0;
  for (size_t at = 0; (at = ptx.find(instruction, at)) != std::string::npos; at += instruction.size()) ++count;
  return count;
}

// What `op` of two halves is: one packed instruction for two of them, of vectors of 16 bytes.
TEST(PackedHalves, OneOperationIsOfPairs) {
  struct Expected {
    const char *model, *type, *add, *multiply;
  };
  for (const Expected& e : {Expected{"sm_75", "f16", "add.rn.f16x2", "mul.rn.f16x2"},
                            Expected{"sm_80", "f16", "add.rn.f16x2", "mul.rn.f16x2"},
                            Expected{"sm_80", "bf16", "fma.rn.bf16x2", "fma.rn.bf16x2"},
                            Expected{"sm_90", "bf16", "add.rn.bf16x2", "mul.rn.bf16x2"}}) {
    for (const bool excess : {true, false}) {
      for (const auto& [op, instruction] : {std::pair{"add", e.add}, std::pair{"multiply", e.multiply}}) {
        const std::string ptx = PtxFor(Widened(e.type, absl::StrCat(" z = f32[N] ", op, "(x, y)\n")), e.model, excess);
        EXPECT_EQ(Count(ptx, instruction), 4) << e.model << ptx;
        EXPECT_EQ(Count(ptx, "cvt.rn"), 0) << e.model << ptx;
        EXPECT_EQ(Count(ptx, "ld.global.v4.b32") + Count(ptx, "ld.global.v2.b64"), 2) << ptx;
      }
    }
  }
}

// A chain of operations that round each is computed in pairs; with excess precision what is between is f32.
TEST(PackedHalves, ChainsThatRoundEachAreOfPairs) {
  const std::string text = R"(HloModule m
ENTRY e {
 x = bf16[4096,4096] parameter(0)
 y = bf16[4096,4096] parameter(1)
 a = bf16[4096,4096] add(x, y)
 b = bf16[4096,4096] multiply(a, x)
 n = bf16[4096,4096] negate(b)
 s = bf16[4096,4096] subtract(n, y)
 zero = bf16[] constant(0)
 zeros = bf16[4096,4096] broadcast(zero), dimensions={}
 ROOT r = bf16[4096,4096] maximum(s, zeros)
})";
  const std::string strict = PtxFor(text, "sm_90", false), excess = PtxFor(text, "sm_90", true);
  EXPECT_EQ(Count(strict, "add.rn.bf16x2"), 4) << strict;
  EXPECT_EQ(Count(strict, "mul.rn.bf16x2"), 4) << strict;
  EXPECT_EQ(Count(strict, "sub.rn.bf16x2"), 4) << strict;
  EXPECT_EQ(Count(strict, "max.NaN.bf16x2"), 4) << strict;
  EXPECT_EQ(Count(strict, "cvt.rn"), 0) << strict;
  EXPECT_EQ(Count(excess, "cvt.rn.bf16x2.f32"), 4) << excess;
  EXPECT_GT(Count(excess, "add.rn.f32"), 0) << excess;
  // sm_75 has no bf16: nothing of it, and integer code rounds.
  const std::string old = PtxFor(text, "sm_75", false);
  EXPECT_EQ(Count(old, "bf16"), 0) << old;
}

TEST(PackedHalves, RoundingIsOfPairs) {
  for (const std::string& body : {kGelu, kSoftmax, kLayerNorm}) {
    for (const char* type : {"bf16", "f16"}) {
      const std::string ptx = PtxFor(Widened(type, body), "sm_80"), pairs = absl::StrCat("cvt.rn.", type, "x2.f32");
      EXPECT_GT(Count(ptx, pairs), 0) << ptx;
    }
    // Integer code rounds by adding this.
    EXPECT_EQ(Count(PtxFor(Widened("bf16", body), "sm_80"), ", 32767"), 0);
    EXPECT_GT(Count(PtxFor(Widened("bf16", body), "sm_75"), ", 32767"), 0);
  }
}

TEST(PackedHalves, PtxasTakesThem) {
  if (!HasPtxas()) GTEST_SKIP() << kNoPtxas;
  for (const char* model : {"sm_75", "sm_80", "sm_90", "sm_100", "sm_120"}) {
    for (const std::string& body : {kAdd, kGelu, kSoftmax, kLayerNorm}) {
      for (const char* type : {"bf16", "f16"}) {
        for (const bool excess : {true, false}) {
          const auto assembled = Assemble(PtxFor(Widened(type, body), model, excess), model);
          ASSERT_TRUE(assembled.ok()) << model << assembled.status();
          for (const PtxasKernel& k : assembled->kernels) EXPECT_EQ(k.spill_stores + k.spill_loads + k.stack, 0) << model << body;
        }
      }
    }
  }
}

// All bit patterns of the first operand, with these of the second: limits, subnormals, ties, and by a sequence.
constexpr size_t kPartners = 24, kFewPartners = 4;
std::vector<uint16_t> Partners(bool bf16) {
  std::vector<uint16_t> some = {0x0000, 0x8000, 0x0001, 0x03ff, 0x0400, 0x3c00, 0xbc00, 0x3c01,
                                0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x37ff, 0x13ff, 0x1401};
  if (bf16) {
    some = {0x0000, 0x8000, 0x0001, 0x007f, 0x0080, 0x3f80, 0xbf80, 0x3f81, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0x3eff, 0x1fff, 0x2001};
  }
  for (uint32_t k = 0; some.size() < kPartners; ++k) some.push_back(static_cast<uint16_t>(k * 40503u + 12345u));
  return some;
}

std::vector<Literal> AllPairs(bool bf16, size_t first, size_t count) {
  std::vector<uint16_t> some = Partners(bf16);
  some.erase(some.begin(), some.begin() + static_cast<std::ptrdiff_t>(first));
  some.resize(count);
  const PrimitiveType type = bf16 ? PrimitiveType::kBF16 : PrimitiveType::kF16;
  const int64_t dims[] = {static_cast<int64_t>(some.size()), 1 << 16};
  std::vector<Literal> arguments;
  for (int operand = 0; operand < 2; ++operand) {
    Literal& l = arguments.emplace_back(Literal::Full(type, dims, 0));
    auto* bits = reinterpret_cast<uint16_t*>(l.mutable_bytes());
    for (size_t r = 0; r < some.size(); ++r) {
      for (size_t c = 0; c < 1 << 16; ++c) bits[(r << 16) + c] = operand == 0 ? static_cast<uint16_t>(c) : some[r];
    }
  }
  return arguments;
}

void ExpectTheEvaluatorsBits(size_t first, size_t count) {
  for (const bool bf16 : {true, false}) {
    const std::string shape = absl::StrCat(bf16 ? "bf16[" : "f16[", count, ",65536]");
    const std::string text = absl::StrReplaceAll(R"(HloModule m
ENTRY e {
 x = T parameter(0)
 y = T parameter(1)
 a = T add(x, y)
 s = T subtract(x, y)
 p = T multiply(x, y)
 m = T maximum(x, y)
 n = T negate(x)
 l = T minimum(n, y)
 b = T abs(x)
 c = T multiply(b, p)
 ROOT r = (T, T, T, T, T, T) tuple(a, s, p, m, l, c)
})",
                                                 {{"T parameter", shape + " parameter"},
                                                  {"T add", shape + " add"},
                                                  {"T subtract", shape + " subtract"},
                                                  {"T multiply", shape + " multiply"},
                                                  {"T maximum", shape + " maximum"},
                                                  {"T minimum", shape + " minimum"},
                                                  {"T negate", shape + " negate"},
                                                  {"T abs", shape + " abs"},
                                                  {"(T", "(" + shape},
                                                  {", T", ", " + shape}});
    const auto module = ParseModule(text);
    ASSERT_TRUE(module.ok()) << module.status();
    const std::vector<Literal> arguments = AllPairs(bf16, first, count);
    const auto expected = lab::Expect(**module, arguments);
    ASSERT_TRUE(expected.ok()) << expected.status();
    const lab::Verdict v = lab::Judge(**module, arguments, *expected, {.target = "gpu-emulated"});
    EXPECT_EQ(v.outcome, lab::Outcome::kSame) << v.text;
    EXPECT_EQ(v.bounded, 0);  // bit by bit
  }
}
TEST(PackedHalves, AllPatternsWithSomeGiveTheEvaluatorsBits) { ExpectTheEvaluatorsBits(1, kFewPartners); }
TEST(PackedHalves, SlowAllPatternsWithMoreGiveTheEvaluatorsBits) { ExpectTheEvaluatorsBits(0, kPartners); }

// What the rewriting of rounded f32 operations rests on: an operation of two halves in f32, rounded again, is rounded once. In f64 sums and
// products are exact, or so close that the half doesn't see it.
TEST(PackedHalves, RoundingTwiceIsRoundingOnce) {
  for (const bool bf16 : {true, false}) {
    auto value = [bf16](uint32_t bits) {
      return bf16 ? std::bit_cast<float>(bits << 16) : HalfToFloat(static_cast<uint16_t>(bits));
    };
    auto rounded = [bf16](double x) { return std::isnan(x) ? 0xffffu : uint32_t{bf16 ? DoubleToBfloat(x) : DoubleToHalf(x)}; };
    int64_t wrong = 0;
    for (const uint16_t other : Partners(bf16)) {
      for (uint32_t bits = 0; bits < 1 << 16; ++bits) {
        const float x = value(bits), y = value(other);
        wrong += rounded(x + y) != rounded(static_cast<double>(x) + static_cast<double>(y));
        wrong += rounded(x - y) != rounded(static_cast<double>(x) - static_cast<double>(y));
        wrong += rounded(x * y) != rounded(static_cast<double>(x) * static_cast<double>(y));
      }
    }
    EXPECT_EQ(wrong, 0) << (bf16 ? "bf16" : "f16");
  }
}

}  // namespace
}  // namespace tenon::gpu
