// Which numbers of a kernel have 64 bits, by its PTX: only addresses where all sizes are known and small, all that depends on a size where
// they are not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/gpu/ptx_of_text.h"

namespace tenon::gpu {
namespace {

// A product, quotient or comparison of 64 bits. (Addresses are mul.wide and add.)
bool HasWideArithmetic(const std::string& ptx) {
  for (const char* op : {"mul.lo.s64", "mad.lo.s64", "div.u64", "div.s64", "rem.u64", "rem.s64", "setp.lt.s64", "setp.gt.s64",
                         "setp.ge.s64", "shr.u64"}) {
    if (ptx.find(op) != std::string::npos) return true;
  }
  return false;
}

// Pieces of 7 elements, each with an element of another value on both sides: places by division, and bounds.
std::string Pieces(int64_t pieces) {
  return absl::StrCat("x = s8[", pieces * 7, "] parameter(0)\nz = s8[] constant(3)\ny = s8[", pieces, ",7] reshape(x)\np = s8[", pieces,
                      ",9] pad(y, z), padding=0_0x1_1\nROOT n = s8[", pieces, ",9] negate(p)\n");
}

TEST(NarrowIndices, SmallKernelsAreNarrow) {
  const std::string ptx = PtxOfBody(Pieces(200));
  ASSERT_THAT(ptx, testing::HasSubstr(".visible .entry"));
  EXPECT_FALSE(HasWideArithmetic(ptx)) << ptx;
}

TEST(NarrowIndices, LoopsAreNarrow) {
  const std::string ptx = PtxOfBody(R"(
  x = f32[40,7000] parameter(0)
  i = s32[300] parameter(1)
  g = f32[300,7000] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,7000}
  w = f32[7000,3] parameter(2)
  ROOT d = f32[300,3] dot(g, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
)");
  ASSERT_THAT(ptx, testing::HasSubstr(".visible .entry"));
  EXPECT_FALSE(HasWideArithmetic(ptx)) << ptx;
}

TEST(NarrowIndices, LargeKernelsAreWide) {
  const std::string ptx = PtxOfBody(Pieces(400'000'000));
  ASSERT_THAT(ptx, testing::HasSubstr(".visible .entry"));
  EXPECT_TRUE(HasWideArithmetic(ptx)) << ptx;
}

TEST(NarrowIndices, UnknownSizesAreWide) {
  const std::string ptx = PtxOfBody(R"(
  x = f32[n,40] parameter(0)
  b = f32[40] parameter(1)
  bb = f32[n,40] broadcast(b), dimensions={1}
  ROOT s = f32[n,40] subtract(x, bb)
)");
  ASSERT_THAT(ptx, testing::HasSubstr(".visible .entry"));
  EXPECT_TRUE(HasWideArithmetic(ptx)) << ptx;
}

}  // namespace
}  // namespace tenon::gpu
