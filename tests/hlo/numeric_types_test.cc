// Narrow floats, exhaustively: every code widens and comes back, and rounding is to the nearest, ties to even.
#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "hlo/numeric_types.h"

namespace tenon {
namespace {

template <typename T>
class Narrow : public testing::Test {};
using Types = testing::Types<F16, BF16, F8E5M2, F8E4M3, F8E3M4, F8E4M3FN, F8E4M3B11FNUZ, F8E5M2FNUZ,
                             F8E4M3FNUZ, F8E8M0FNU, F4E2M1FN>;
TYPED_TEST_SUITE(Narrow, Types);

template <typename T>
int CodeCount() {
  return std::is_same_v<T, F4E2M1FN> ? 16 : 1 << (8 * sizeof(T));
}

TYPED_TEST(Narrow, EveryCodeComesBack) {
  for (int code = 0; code < CodeCount<TypeParam>(); ++code) {
    TypeParam x = TypeParam::FromBits(code);
    TypeParam back(static_cast<double>(x));
    if (x.is_nan()) {
      EXPECT_TRUE(back.is_nan()) << code;
    } else {
      EXPECT_EQ(back.bits(), x.bits()) << code;
    }
  }
}

// Between two neighbouring values: below the middle goes down, above it up, the middle itself to the even code.
TYPED_TEST(Narrow, RoundsToNearestEven) {
  std::vector<std::pair<double, int>> values;
  for (int code = 0; code < CodeCount<TypeParam>(); ++code) {
    TypeParam x = TypeParam::FromBits(code);
    double v = static_cast<double>(x);
    if (std::isfinite(v) && !(v == 0 && std::signbit(v))) values.push_back({v, code});
  }
  std::sort(values.begin(), values.end());
  for (size_t i = 0; i + 1 < values.size(); ++i) {
    auto [a, code_a] = values[i];
    auto [b, code_b] = values[i + 1];
    double middle = a + (b - a) / 2;
    EXPECT_EQ(static_cast<double>(TypeParam(std::nextafter(middle, a))), a) << a << " " << b;
    EXPECT_EQ(static_cast<double>(TypeParam(std::nextafter(middle, b))), b) << a << " " << b;
    double even = std::is_same_v<TypeParam, F8E8M0FNU> || (code_a & 1) != 0 ? b : a;
    EXPECT_EQ(static_cast<double>(TypeParam(middle)), even) << a << " " << b;
  }
}

TEST(NumericTypes, OverflowByFormat) {
  EXPECT_EQ(F16(65519.0).bits(), 0x7bff);
  EXPECT_EQ(F16(65520.0).bits(), 0x7c00);
  EXPECT_EQ(F16(-1e300).bits(), 0xfc00);
  EXPECT_EQ(BF16(3.4e38).bits(), 0x7f80);
  EXPECT_EQ(F8E5M2(1e9).bits(), 0x7c);
  EXPECT_EQ(F8E4M3FN(448.0).bits(), 0x7e);
  EXPECT_EQ(F8E4M3FN(465.0).bits(), 0x7f);
  EXPECT_EQ(F8E4M3FN(INFINITY).bits(), 0x7f);
  EXPECT_EQ(F8E4M3FNUZ(1e9).bits(), 0x80);
  EXPECT_EQ(F8E4M3FNUZ(-0.0).bits(), 0x00);
  EXPECT_EQ(F4E2M1FN(100.0).bits(), 0x7);
  EXPECT_EQ(F4E2M1FN(-INFINITY).bits(), 0xf);
  EXPECT_EQ(F8E8M0FNU(-1.0).bits(), 0xff);
  EXPECT_EQ(F8E8M0FNU(1.0).bits(), 127);
}

// A double just above a tie of the narrow type, which a float would round onto the tie.
TEST(NumericTypes, NoDoubleRounding) {
  double x = 1.0 + 0x1p-8 + 0x1p-40;  // BF16: tie at 1 + 2^-8
  EXPECT_EQ(static_cast<double>(BF16(x)), 1.0 + 0x1p-7);
  EXPECT_EQ(static_cast<double>(BF16(static_cast<double>(static_cast<float>(x)))), 1.0);
}

TEST(NumericTypes, MatchesTheHardwareOnFloats) {
  std::mt19937 random(7);
  for (int i = 0; i < 200000; ++i) {
    float f = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isnan(f)) continue;
    uint32_t bits = std::bit_cast<uint32_t>(f);
    uint16_t want = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
    EXPECT_EQ(BF16(f).bits(), want) << f;
    EXPECT_EQ(F16(f).bits(), std::bit_cast<uint16_t>(static_cast<_Float16>(f))) << f;
  }
}

TEST(NumericTypes, NarrowIntegersWrap) {
  EXPECT_EQ(int64_t(S4(7)), 7);
  EXPECT_EQ(int64_t(S4(8)), -8);
  EXPECT_EQ(int64_t(S4(-9)), 7);
  EXPECT_EQ(int64_t(U4(17)), 1);
  EXPECT_EQ(int64_t(S1(1)), -1);
  EXPECT_EQ(int64_t(U2(-1)), 3);
}

TEST(NumericTypes, TruncationSaturates) {
  EXPECT_EQ(TruncateSaturating<int32_t>(2147483648.0), INT32_MAX);
  EXPECT_EQ(TruncateSaturating<int32_t>(-2147483649.0), INT32_MIN);
  EXPECT_EQ(TruncateSaturating<int64_t>(0x1p63), INT64_MAX);
  EXPECT_EQ(TruncateSaturating<int64_t>(-0x1p63), INT64_MIN);
  EXPECT_EQ(TruncateSaturating<uint64_t>(0x1p64), UINT64_MAX);
  EXPECT_EQ(TruncateSaturating<uint8_t>(-0.9), 0);
  EXPECT_EQ(TruncateSaturating<uint8_t>(-1.0), 0);
  EXPECT_EQ(TruncateSaturating<int8_t>(NAN), 0);
  EXPECT_EQ(TruncateSaturating<int8_t>(-128.9), -128);
}

TEST(NumericTypes, NativeTypesFillTheirBytes) {
  for (int t = 0; t <= static_cast<int>(PrimitiveType::kC128); ++t) {
    PrimitiveType type = static_cast<PrimitiveType>(t);
    DispatchType(type, [&]<typename T>(TypeTag<T>) {
      EXPECT_EQ(static_cast<int64_t>(sizeof(T)), ByteWidth(type)) << PrimitiveTypeName(type);
    });
  }
  EXPECT_THROW(DispatchType(PrimitiveType::kTuple, [](auto) {}), InternalError);
}

}  // namespace
}  // namespace tenon
