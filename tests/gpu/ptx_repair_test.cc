// What ptxas would make something else of (backends/gpu/emit/ptx_repair.h), as it is written for it; gpu-runner runs such modules on a GPU.
#include "backends/gpu/emit/ptx_repair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/gpu/ptx_of_text.h"

namespace tenon::gpu {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

TEST(PtxRepair, CutsWhatIsStored) {
  EXPECT_EQ(RepairPtx("\tst.global.b32 \t[%rd1+4], %rd6;"),
            "\t{ .reg .b32 %cut0; cvt.u32.u64 %cut0, %rd6; st.global.b32 \t[%rd1+4], %cut0; }");
  EXPECT_EQ(RepairPtx("\tst.shared.b16 \t[%r1], %r2;"), "\t{ .reg .b16 %cut0; cvt.u16.u32 %cut0, %r2; st.shared.b16 \t[%r1], %cut0; }");
  EXPECT_EQ(RepairPtx("\tst.global.b8 \t[%rd1], %rs2;"), "\t{ .reg .b16 %cut0; and.b16 %cut0, %rs2, 255; st.global.b8 \t[%rd1], %cut0; }");
  EXPECT_EQ(RepairPtx("\tst.global.v2.b32 \t[%rd1], {%r2, %rd3};"),
            "\t{ .reg .b32 %cut1; cvt.u32.u64 %cut1, %rd3; st.global.v2.b32 \t[%rd1], {%r2, %cut1}; }");
}

TEST(PtxRepair, LeavesTheRest) {
  const std::string text = "\tst.global.b32 \t[%rd1], %r6;\n\tst.global.v2.b64 \t[%rd1], {%rd2, %rd3};\n"
                           "\tst.global.b8 \t[%rd1], 0;\n\tsub.s16 \t%rs1, %rs2, %rs3;\n"
                           "\tsub.s32 \t%r1, %r2, %r3;\n\tneg.s64 \t%rd1, %rd2;\n\tabs.s32 \t%r1, %r2;\n\tret;\n";
  EXPECT_EQ(RepairPtx(text), text);
}

TEST(PtxRepair, NegatesInWords) {
  const std::string word = "\t{ .reg .b32 %word; cvt.s32.s16 %word, %rs1; ";
  EXPECT_EQ(RepairPtx("\tabs.s16 \t%rs2, %rs1;"), word + "abs.s32 %word, %word; cvt.u16.u32 %rs2, %word; }");
  const std::string negated = word + "add.s32 \t%word, %word, -1; not.b32 \t%word, %word; cvt.u16.u32 %rs2, %word; }";
  EXPECT_EQ(RepairPtx("\tneg.s16 \t%rs2, %rs1;"), negated);
  EXPECT_EQ(RepairPtx("\tsub.s16 \t%rs2, 0, %rs1;"), negated);
}

// Where it is the second operand of one of two maxima, ptxas forgets that.
TEST(PtxRepair, NegatesByOtherMeans) {
  const std::string negated = "\tadd.s32 \t%r12, %r1, -1; not.b32 \t%r12, %r12;";
  EXPECT_EQ(RepairPtx("\tneg.s32 \t%r12, %r1;"), negated);
  EXPECT_EQ(RepairPtx("\tsub.s32 \t%r12, 0, %r1;"), negated);
}

// cvt.f32.f16 gives the canonical NaN, which has no sign: where HLO tells NaNs from each other they are made of their bits.
TEST(F16Nans, KeepTheirSignWhereItIsLookedAt) {
  const auto compared = [](const char* type, const char* order) {
    return PtxOfBody(absl::StrCat("  x = ", type, "[4096] parameter(0)\n  y = ", type, "[4096] parameter(1)\n",
                                  "  ROOT r = pred[4096] compare(x, y), direction=LT", order, "\n"));
  };
  const std::string infinity = "2139095040";  // 0x7f800000
  EXPECT_THAT(compared("f16", ", type=TOTALORDER"), AllOf(HasSubstr("cvt.f32.f16"), HasSubstr(infinity)));
  EXPECT_THAT(compared("f16", ""), Not(HasSubstr(infinity)));
  EXPECT_THAT(compared("bf16", ", type=TOTALORDER"), Not(HasSubstr(infinity)));
}

TEST(PtxRepair, IsDoneToWhatIsEmitted) {
  const std::string bits = PtxOfBody(R"(
  x = f64[64] parameter(0)
  s = f64[64] add(x, x)
  ROOT b = u32[64,2] bitcast-convert(s))");
  EXPECT_THAT(bits, Not(ContainsRegex("st[a-z0-9.]*\\.b32[^;]*%rd[0-9]+;"))) << bits;
  const std::string high = PtxOfBody(R"(
  x = s16[64] parameter(0)
  a = s16[64] abs(x)
  ROOT h = s16[64] mulhi(x, a))");
  EXPECT_THAT(high, HasSubstr("abs.s32")) << high;
  EXPECT_THAT(high, Not(HasSubstr("abs.s16"))) << high;
}

// Without backends/gpu/emit/selection_repair.h LLVM ends this compile.
TEST(SelectionRepair, LeadingZerosOfFewBitsSeenInAWord) {
  const std::string counted = PtxOfBody(R"(
  x = bf16[4096] parameter(0)
  p = pred[4096] convert(x)
  w = s64[4096] convert(p)
  z = s64[4096] count-leading-zeros(w)
  f = bf16[4096] convert(z)
  h = s64[4096] count-leading-zeros(w)
  limit = s64[] constant(32)
  limits = s64[4096] broadcast(limit), dimensions={}
  m = s64[4096] and(h, limits)
  ROOT t = (bf16[4096], s64[4096]) tuple(f, m))");
  EXPECT_THAT(counted, HasSubstr("clz.b32")) << counted;
  EXPECT_THAT(counted, Not(HasSubstr("clz.b64"))) << counted;
}

}  // namespace
}  // namespace tenon::gpu
