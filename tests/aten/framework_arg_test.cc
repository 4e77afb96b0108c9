#include "hlo/framework_arg.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;

TEST(FrameworkArgTest, TextIsAFixedPoint) {
  for (const char* text :
       {"()", "(%0, [1, 2], none)", "(12, -1, 1.5, inf, -inf, nan, true, false)", "(\"a \\\"b\\\" \\\\ \\n\")",
        "(complex(1.0,-2.5))", "(dtype:bf16, layout:strided, device:cuda:0, format:channels_last)",
        "(sym(4*s0+floordiv(s1,2)), [[%1, none], []])", "(9223372036854775807, -9223372036854775808)",
        "(1e+300, 0.1, 1e-05, -0.0, 3.0)", "(%0{8,1}, [%1[4]{2}+7, %2[]{}])", "(%3[2,0]{-1,0})"}) {
    auto args = ParseFrameworkArgs(text);
    ASSERT_TRUE(args.ok()) << text << ": " << args.status();
    EXPECT_EQ(ToString(*args), text);
  }
}

TEST(FrameworkArgTest, FloatsKeepTheirBits) {
  for (double v : {0.1, 1.0 / 3, 1e308, 5e-324, -0.0, 123456789.0, 1e22}) {
    auto args = ParseFrameworkArgs("(" + ToString(FrameworkArg::Float(v)) + ")");
    ASSERT_TRUE(args.ok()) << args.status();
    ASSERT_EQ((*args)[0].kind, FrameworkArg::Kind::kFloat);
    EXPECT_EQ(std::bit_cast<uint64_t>((*args)[0].f), std::bit_cast<uint64_t>(v));
  }
}

TEST(FrameworkArgTest, ErrorsSayWhatCame) {
  EXPECT_THAT(ParseFrameworkArgs("(1, foo)").status().ToString(), HasSubstr("got 'foo'"));
  EXPECT_THAT(ParseFrameworkArgs("(dtype:f99)").status().ToString(), HasSubstr("unknown dtype 'f99'"));
  EXPECT_THAT(ParseFrameworkArgs("([1, 2").status().ToString(), HasSubstr("wanted ',' or ']'"));
  EXPECT_THAT(ParseFrameworkArgs("(1) x").status().ToString(), HasSubstr("wanted the end"));
  EXPECT_THAT(ParseFrameworkArgs("(%x)").status().ToString(), HasSubstr("operand number"));
  EXPECT_THAT(ParseFrameworkArgs("(%0[2,3]{1})").status().ToString(), HasSubstr("as many strides as sizes"));
  EXPECT_THAT(ParseFrameworkArgs("(%0[2])").status().ToString(), HasSubstr("wanted '{' and strides"));
  EXPECT_THAT(ParseFrameworkArgs("(%0{1.5})").status().ToString(), HasSubstr("wanted an integer"));
  EXPECT_THAT(ParseFrameworkArgs("(%0{1;2})").status().ToString(), HasSubstr("wanted ',' or '}'"));
  EXPECT_FALSE(ParseFrameworkArgs(std::string(1000, '[')).ok());
}

}  // namespace
}  // namespace tenon
