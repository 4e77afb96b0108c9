#include <complex>

#include "gtest/gtest.h"
#include "hlo/literal.h"
#include "hlo/numeric_types.h"
#include "hlo/tolerance.h"

namespace tenon {
namespace {

Literal F32(absl::Span<const int64_t> dims, std::vector<float> values) {
  return Literal::FromSpan<float>(PrimitiveType::kF32, dims, std::span<const float>(values));
}

TEST(Literal, StartsAtZeroAndKeepsValues) {
  Literal l(Shape::Array(PrimitiveType::kS64, {2, 3}));
  EXPECT_EQ(l.num_elements(), 6);
  EXPECT_EQ(l.size_bytes(), 48);
  EXPECT_TRUE(l.IsAllEqualTo(0));
  l.SetFromInt64(4, INT64_MIN);
  EXPECT_EQ(l.GetAsInt64(4), INT64_MIN);
  EXPECT_FALSE(l.IsSplat());
  EXPECT_EQ(l.ToString(), "{{0, 0, 0}, {0, -9223372036854775808, 0}}");
}

TEST(Literal, CopiesShareUntilWritten) {
  Literal a = Literal::Full(PrimitiveType::kF32, {1000}, 2.5);
  Literal b = a;
  EXPECT_EQ(a.bytes(), b.bytes());
  b.SetFromDouble(0, 7);
  EXPECT_NE(a.bytes(), b.bytes());
  EXPECT_EQ(a.GetAsDouble(0), 2.5);
  EXPECT_EQ(b.GetAsDouble(0), 7);
  const std::byte* before = b.bytes();
  b.SetFromDouble(1, 8);
  EXPECT_EQ(b.bytes(), before);  // alone: in place
}

TEST(Literal, BorrowsAndKeepsTheOwner) {
  auto memory = std::make_shared<std::vector<float>>(std::vector<float>{1, 2, 3});
  std::weak_ptr<std::vector<float>> watch = memory;
  {
    Literal l(Shape::Array(PrimitiveType::kF32, {3}), memory, memory->data());
    memory.reset();
    EXPECT_EQ(l.GetAsDouble(2), 3);
    Literal written = l;
    written.SetFromDouble(2, 9);
    EXPECT_EQ(l.GetAsDouble(2), 3);  // foreign memory is never written
    EXPECT_FALSE(watch.expired());
  }
  EXPECT_TRUE(watch.expired());
}

TEST(Literal, ScalarsConvertByTheRules) {
  EXPECT_EQ(Literal::Scalar(PrimitiveType::kBF16, 1.00390625).GetAsDouble(0), 1.0);
  EXPECT_EQ(Literal::Scalar(PrimitiveType::kU8, 300).GetAsInt64(0), 255);
  EXPECT_EQ(Literal::ScalarInt(PrimitiveType::kU8, 300).GetAsInt64(0), 44);
  EXPECT_EQ(Literal::Scalar(PrimitiveType::kPred, 2).GetAsInt64(0), 1);
  EXPECT_EQ(Literal::Scalar(PrimitiveType::kC64, 3).GetAsComplex(0), std::complex<double>(3, 0));
  EXPECT_EQ(Literal::ScalarInt(PrimitiveType::kS4, 9).GetAsInt64(0), -7);
}

TEST(Literal, EqualityAndHashGoByContent) {
  Literal a = F32({2, 2}, {1, 2, 3, 4}), b = F32({2, 2}, {1, 2, 3, 4}), c = F32({4}, {1, 2, 3, 4});
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.Hash(), b.Hash());
  EXPECT_FALSE(a == c);
  EXPECT_NE(a.Hash(), c.Hash());
  EXPECT_NE(a.Hash(), F32({2, 2}, {1, 2, 3, 5}).Hash());
  EXPECT_FALSE(F32({1}, {0.0f}) == F32({1}, {-0.0f}));  // bytes
  // Stable across processes: the value is part of the cache key.
  EXPECT_EQ(Literal::Scalar(PrimitiveType::kF32, 1).Hash(),
            Literal::Full(PrimitiveType::kF32, {}, 1).Hash());
}

TEST(Literal, SplatsAndConstants) {
  EXPECT_TRUE(Literal::Full(PrimitiveType::kBF16, {3, 5}, -0.5).IsSplat());
  EXPECT_TRUE(F32({2}, {0.0f, -0.0f}).IsAllEqualTo(0));
  EXPECT_FALSE(F32({2}, {0.0f, -0.0f}).IsSplat());
  EXPECT_FALSE(F32({1}, {NAN}).IsAllEqualTo(NAN));
  EXPECT_FALSE(Literal(Shape::Array(PrimitiveType::kF32, {0})).IsSplat());
  EXPECT_FALSE(Literal::ScalarInt(PrimitiveType::kS64, (int64_t{1} << 53) + 1).IsAllEqualTo(0x1p53));
}

TEST(Literal, PrintsLikeHlo) {
  EXPECT_EQ(F32({}, {0.1f}).ToString(), "0.1");
  EXPECT_EQ(F32({2, 0}, {}).ToString(), "{{}, {}}");
  EXPECT_EQ(F32({4}, {INFINITY, -INFINITY, NAN, -0.0f}).ToString(), "{inf, -inf, nan, -0}");
  EXPECT_EQ(Literal::Scalar(PrimitiveType::kPred, 1).ToString(), "true");
  EXPECT_EQ(Literal::Full(PrimitiveType::kPred, {2}, 1).ToString(), "{true, true}");
  EXPECT_EQ(Literal::Scalar(PrimitiveType::kC64, 2).ToString(), "(2, 0)");
  EXPECT_EQ(Literal::Scalar(PrimitiveType::kBF16, 0.375).ToString(), "0.375");
  EXPECT_EQ(Literal::ScalarInt(PrimitiveType::kU64, -1).ToString(), "18446744073709551615");
}

TEST(Shapes, LayoutsAndStrides) {
  Shape s(PrimitiveType::kF32, {2, 3, 4}, {0, 2, 1});
  DimVector strides = s.strides();
  EXPECT_EQ(strides, (DimVector{1, 8, 2}));
  EXPECT_EQ(s.ToString(true), "f32[2,3,4]{0,2,1}");
  EXPECT_EQ(s.byte_size(), Dim(96));
  Shape plain = Shape::Array(PrimitiveType::kF32, {2, 3, 4});
  EXPECT_TRUE(Shape::Compatible(s, plain));
  EXPECT_FALSE(s == plain);
  EXPECT_FALSE(Shape::SameWithLayout(s, plain));
  Shape thin(PrimitiveType::kF32, {1, 4}, {0, 1});
  EXPECT_TRUE(Shape::SameWithLayout(thin, Shape::Array(PrimitiveType::kF32, {1, 4})));
  EXPECT_THROW(s.set_layout({0, 0, 1}), InternalError);
}

TEST(Shapes, TuplesFlatten) {
  Shape t = Shape::Tuple({Shape::Scalar(PrimitiveType::kF32),
                          Shape::Tuple({Shape::Array(PrimitiveType::kS8, {3}), Shape::Token()})});
  EXPECT_EQ(t.ToString(), "(f32[], (s8[3], token[]))");
  EXPECT_EQ(FlattenShape(t).size(), 3u);
  EXPECT_EQ(t.byte_size(), Dim(7));
  DimTable table;
  Shape symbolic(PrimitiveType::kF32, {table.Symbol("s0"), 4});
  EXPECT_FALSE(symbolic.is_static());
  EXPECT_EQ(symbolic.byte_size().ToString(), "16*s0");
  EXPECT_EQ(symbolic.ToString(), "f32[s0,4]");
}

TEST(Tolerance, UlpsCountAlongTheNumberLine) {
  EXPECT_EQ(UlpDistance(PrimitiveType::kF32, 1.0, std::nextafterf(1.0f, 2)), 1);
  EXPECT_EQ(UlpDistance(PrimitiveType::kF32, -0.0, 0.0), 0);
  EXPECT_EQ(UlpDistance(PrimitiveType::kF32, -1e-45, 1e-45), 2);
  EXPECT_EQ(UlpDistance(PrimitiveType::kBF16, 1.0, 1.0078125), 1);
  EXPECT_EQ(UlpDistance(PrimitiveType::kF64, NAN, NAN), 0);
  EXPECT_EQ(UlpDistance(PrimitiveType::kF64, NAN, 1), INT64_MAX);
  EXPECT_EQ(UlpDistance(PrimitiveType::kF64, -INFINITY, INFINITY), INT64_MAX);  // saturates
}

TEST(Tolerance, ReportsTheWorstElement) {
  Literal want = F32({2, 2}, {1, 2, 3, 4}), got = F32({2, 2}, {1, 2.5, 3, 4.1});
  LiteralDifference d = CompareLiterals(got, want);
  EXPECT_FALSE(d.within);
  EXPECT_EQ(d.differing, 2);
  EXPECT_EQ(d.index, (std::vector<int64_t>{0, 1}));
  EXPECT_DOUBLE_EQ(d.abs, 0.5);
  EXPECT_DOUBLE_EQ(d.rel, 0.25);
  EXPECT_NE(d.what.find("[0,1]: got 2.5, wanted 2"), std::string::npos) << d.what;
  EXPECT_TRUE(CompareLiterals(got, want, ToleranceRule::AbsRel(0.5, 0)).within);
  EXPECT_FALSE(CompareLiterals(got, want, ToleranceRule::AbsRel(0.49, 0)).within);
  EXPECT_FALSE(CompareLiterals(F32({4}, {1, 2, 3, 4}), want).within);
}

TEST(Tolerance, AccumulationBoundGrowsWithTermsAndMagnitude) {
  std::vector<double> m = {100.0};
  Literal magnitude = Literal::FromSpan<double>(PrimitiveType::kF64, {1}, std::span<const double>(m));
  ToleranceRule rule = ToleranceRule::Accumulated(PrimitiveType::kF32, 1000, &magnitude);
  double bound = kAccumulationConstant * 1000 * 0x1p-23 * 100;
  EXPECT_TRUE(CompareLiterals(F32({1}, {1.0f + static_cast<float>(0.9 * bound)}), F32({1}, {1}), rule).within);
  EXPECT_FALSE(CompareLiterals(F32({1}, {1.0f + static_cast<float>(1.1 * bound)}), F32({1}, {1}), rule).within);
  EXPECT_FALSE(CompareLiterals(F32({1}, {NAN}), F32({1}, {1}), rule).within);
}

TEST(Tolerance, LargeIntegersAreNotComparedAsDoubles) {
  Literal a = Literal::ScalarInt(PrimitiveType::kS64, (int64_t{1} << 60) + 1);
  Literal b = Literal::ScalarInt(PrimitiveType::kS64, int64_t{1} << 60);
  EXPECT_FALSE(CompareLiterals(a, b).within);
  EXPECT_FALSE(CompareLiterals(a, b, ToleranceRule::Ulps(100)).within);
}

}  // namespace
}  // namespace tenon
