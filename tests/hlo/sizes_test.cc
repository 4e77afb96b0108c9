// Numbers for the symbols of a module.
#include "hlo/sizes.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hlo/text/text.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;

constexpr char kModule[] = R"(HloModule m, symbols={s:[2,64],t:[0,inf]%4}
ENTRY e {
  x = f32[s,t] parameter(0)
  y = (s32[2*s+1], f32[t]) parameter(1)
  w = f32[t] get-tuple-element(y), index=1
  a = f32[s-1,t] slice(x), slice={[1:s],[0:t]}
  b = f32[s-1,t] broadcast(w), dimensions={1}
  ROOT c = f32[s-1,t] add(a, b)
})";

std::unique_ptr<Module> Parse(std::string_view text) {
  auto module = ParseModule(text);
  EXPECT_TRUE(module.ok()) << module.status();
  return *std::move(module);
}

std::vector<Literal> Arguments(int64_t rows, int64_t columns, int64_t odd, int64_t last) {
  const auto zeros = [](PrimitiveType t, std::vector<int64_t> dims) { return Literal::Full(t, dims, 0); };
  return {zeros(PrimitiveType::kF32, {rows, columns}),
          Literal::Tuple({zeros(PrimitiveType::kS32, {odd}), zeros(PrimitiveType::kF32, {last})})};
}

TEST(Sizes, TextAndSymbols) {
  const Sizes sizes = {{"t", 64}, {"s", 7}};
  EXPECT_EQ(SizesText(sizes), "s=7,t=64");
  EXPECT_EQ(*ParseSizes("s=7,t=64"), sizes);
  EXPECT_FALSE(ParseSizes("s=7,t").ok());
  const auto module = Parse(kModule);
  const std::vector<Dim> symbols = SymbolsOf(*module);
  ASSERT_EQ(symbols.size(), 2u);
  EXPECT_EQ(symbols[0].ToString(), "s");
  EXPECT_TRUE(HasSymbols(*module));
}

TEST(Sizes, AModuleOfNumbers) {
  const auto module = Parse(kModule);
  const auto numbers = WithSizes(*module, {{"s", 3}, {"t", 8}});
  ASSERT_TRUE(numbers.ok()) << numbers.status();
  EXPECT_FALSE(HasSymbols(**numbers));
  EXPECT_THAT((*numbers)->ToString(), HasSubstr("f32[2,8] slice(x), slice={[1:3], [0:8]}"));
  EXPECT_THAT((*numbers)->ToString(), HasSubstr("(s32[7], f32[8]) parameter(1)"));
  EXPECT_TRUE(HasSymbols(*module)) << "the module itself stays";
  EXPECT_THAT(std::string(WithSizes(*module, {{"s", 3}}).status().message()), HasSubstr("no size for the symbol t"));
  EXPECT_THAT(std::string(WithSizes(*module, {{"s", 65}, {"t", 8}}).status().message()), HasSubstr("wanted s in [2, 64], got 65"));
  EXPECT_THAT(std::string(WithSizes(*module, {{"s", 3}, {"t", 6}}).status().message()), HasSubstr("divisible by 4, got 6"));
}

TEST(Sizes, SomeSymbolsOnly) {
  const auto module = Parse(kModule);
  PutSizes(*module, {{"s", 5}});
  EXPECT_THAT(module->ToString(), HasSubstr("(s32[11], f32[t]) parameter(1)"));
  EXPECT_EQ(SymbolsOf(*module).size(), 1u);
}

TEST(Sizes, WhatDoesNotHoldForThemIsTold) {
  const auto module = Parse("ENTRY e { x = f32[s] parameter(0) ROOT y = f32[3] slice(x), slice={[0:3]} }");
  EXPECT_TRUE(WithSizes(*module, {{"s", 3}}).ok());
  EXPECT_THAT(std::string(WithSizes(*module, {{"s", 2}}).status().message()), HasSubstr("with s=2"));
  const auto divided = Parse("ENTRY e { x = f32[s] parameter(0) ROOT y = f32[floordiv(12,s)] iota(), iota_dimension=0 }");
  EXPECT_THAT(std::string(WithSizes(*divided, {{"s", 0}}).status().message()), HasSubstr("divided by zero"));
}

TEST(Sizes, OfArguments) {
  const auto module = Parse(kModule);
  const auto sizes = SizesOfArguments(*module, Arguments(3, 8, 7, 8));
  ASSERT_TRUE(sizes.ok()) << sizes.status();
  EXPECT_EQ(SizesText(*sizes), "s=3,t=8");
  const auto wrong = [&](std::vector<Literal> arguments) {
    return std::string(SizesOfArguments(*module, arguments).status().message());
  };
  EXPECT_THAT(wrong(Arguments(3, 8, 6, 8)), HasSubstr("argument 1's dim 0: wanted 2*s+1 = 7, got 6"));
  EXPECT_THAT(wrong(Arguments(3, 8, 7, 4)), HasSubstr("wanted t = 8, got 4"));
  EXPECT_THAT(wrong(Arguments(1, 8, 3, 8)), HasSubstr("wanted s in [2, 64], got 1"));
  EXPECT_THAT(wrong({Arguments(3, 8, 7, 8)[0]}), HasSubstr("wanted 2 arguments, got 1"));
  const auto unread = Parse("ENTRY e { ROOT x = f32[2*s] parameter(0) }");
  EXPECT_THAT(std::string(SizesOfArguments(*unread, {Literal::Full(PrimitiveType::kF32, {4}, 0)}).status().message()),
              HasSubstr("no size for the symbol s"));
}

}  // namespace
}  // namespace tenon
