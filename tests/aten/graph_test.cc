#include "torch_plugin/aten/graph.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tenon::aten {
namespace {

using ::testing::HasSubstr;

constexpr char kText[] = R"(graph "forward" {
  symbols s0 in [2, 1024] ~ 100, s1
  %p0 = input f32[8,s0]{s0,1}
  %p1 = input symint s0
  %p2 = input bf16[2,3]{0,1}+4 on "cuda:0"
  %n = input none
  %o = input other("sparse \"csr\"")
  %c0 = constant f32[3]{1}
  %lit = literal s64[2]{1} [1, -2]
  %f = literal f32[3]{1} [0.5, inf, nan]
  %z = literal c64[]{} [complex(1.0,-2.0)]
  %add = aten.add.Tensor(%p0, %p0, 1) -> f32[8,s0]{s0,1} @ "layer.0" "net.py:12"
  %v, %i = aten.max.dim(%add, 1, false) -> f32[8]{1}, s64[8]{1}
  %m = aten.sym_size.int(%p0, 1) -> symint s0
  %k = aten.view.default(%add, [8, %m, 1, sym(floordiv(s0,2))]) -> f32[8,s0,1]{s0,1,1}
  %x = aten.full.default([2], 1e-05, dtype:bf16, layout:strided, device:cpu, true, format:contiguous) -> bf16[2]{1}
  %cat = aten.cat.default([%add, %p0], -1) -> f32[8,2*s0]{2*s0,1}
  aten.copy_.default(%p0, %add, false) -> alias %p0
  return (%v, none, %p0, sym(2*s0+1))
}
)";

TEST(GraphTest, RoundTripIsAFixedPoint) {
  auto graph = ParseGraph(kText);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(Print(*graph), kText);
  EXPECT_EQ(graph->nodes.back().mutates_first, true);
  EXPECT_EQ(graph->nodes[0].operands.size(), 1u);
  EXPECT_EQ(graph->nodes[0].module_path, "layer.0");
}

TEST(GraphTest, SpecializeReplacesSymbols) {
  auto graph = ParseGraph(kText);
  ASSERT_TRUE(graph.ok()) << graph.status();
  auto fixed = Specialize(*graph, {{"s0", 10}, {"s1", 3}});
  ASSERT_TRUE(fixed.ok()) << fixed.status();
  std::string text = Print(*fixed);
  EXPECT_THAT(text, HasSubstr("aten.view.default(%add, [8, 10, 1, 5]) -> f32[8,10,1]{10,1,1}"));
  EXPECT_THAT(text, HasSubstr("return (%v, none, %p0, sym(21))"));
  EXPECT_FALSE(fixed->has_symbols());
  auto again = ParseGraph(text);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(Print(*again), text);
}

TEST(GraphTest, SpecializeRefuses) {
  auto graph = ParseGraph(kText);
  ASSERT_TRUE(graph.ok());
  EXPECT_THAT(Specialize(*graph, {{"s0", 10}}).status().ToString(), HasSubstr("no value for symbol s1"));
  EXPECT_THAT(Specialize(*graph, {{"s0", 1}, {"s1", 1}}).status().ToString(),
              HasSubstr("s0 wanted in [2, 1024], got 1"));
}

struct BadGraph {
  const char *text, *message;
};

TEST(GraphTest, ErrorsNameLineAndColumn) {
  const BadGraph cases[] = {
      {"grap", "line 1, column 1: wanted 'graph', got 'grap'"},
      {"graph \"g\" {\n  %a = input f33[2]{1}\n", "line 2, column 14: wanted a dtype"},
      {"graph \"g\" {\n  %a = input f32[2]{1,1}\n", "line 2, column 20: wanted 1 strides, got 2"},
      {"graph \"g\" {\n  %a = input f32[s0]{1}\n", "symbol s0 is not declared"},
      {"graph \"g\" {\n  %a = input f32[-2]{1}\n", "a size is negative"},
      {"graph \"g\" {\n  %a = aten.relu.default(%b) -> f32[]{}\n", "unknown value %b"},
      {"graph \"g\" {\n  %a = input f32[]{}\n  %a = input f32[]{}\n", "line 3, column 3: value %a is defined twice"},
      {"graph \"g\" {\n  %a = input f32[]{}\n  %b, %c = aten.relu.default(%a) -> f32[]{}\n",
       "aten.relu.default: 2 names for 1 results"},
      {"graph \"g\" {\n  %a = aten.full.default([1, 2, 3.5.6]) -> f32[]{}\n", "line 2"},
      {"graph \"g\" {\n  %a = literal s64[2]{1} [1]\n", "wanted a list of 2 values, got 1"},
      {"graph \"g\" {\n  %a = input f32[4]{1}\n  %b = my.op.default() writes(%a) -> f32[4]{1}\n",
       "wants tensors that the operator is given"},
      {"graph \"g\" {\n  %a = input f32[4]{1}\n  my.op.default(%a) writes(%a) -> none\n",
       "1 operands are written, wanted a result for each, got 0"},
      {"graph \"g\" {\n  %a = input f32[4]{1}\n  %b = my.op.default(%a) writes(%a) -> f32[2]{1}\n", "wanted its dtype, sizes and strides"},
      {"graph \"g\" {\n  return (%q)\n}", "unknown value %q"},
      {"graph \"g\" {\n  return ()\n} trailing", "wanted the end"},
      {"graph \"g\" {\n  %a = aten.full.default(99999999999999999999) -> f32[]{}\n", "does not fit 64 bits"},
  };
  for (const BadGraph& bad : cases) {
    EXPECT_THAT(std::string(ParseGraph(bad.text).status().message()), HasSubstr(bad.message)) << bad.text;
  }
}

// Every prefix and many one-byte changes: an error or a graph, never a crash.
TEST(GraphTest, DamagedTextNeverCrashes) {
  const std::string text = kText;
  for (size_t n = 0; n < text.size(); ++n) (void)ParseGraph(text.substr(0, n)).ok();
  uint64_t seed = 12345;
  for (int i = 0; i < 20000; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    std::string changed = text;
    changed[(seed >> 33) % text.size()] = "%[](){},.-+0919as\"\n *"[(seed >> 20) % 21];
    auto graph = ParseGraph(changed);
    if (graph.ok()) (void)Print(*graph);
  }
}

TEST(GraphTest, FiveThousandNodesParseInMilliseconds) {
  std::string text = "graph \"big\" {\n  %v0 = input f32[8,128,768]{98304,768,1}\n";
  for (int i = 1; i <= 5000; ++i) {
    absl::StrAppend(&text, "  %v", i, " = aten.add.Tensor(%v", i - 1, ", %v0, 1) -> f32[8,128,768]{98304,768,1} @ ",
                    "\"model.layer.", i % 12, "\" \"model.py:", i, "\"\n");
  }
  text += "  return (%v5000)\n}\n";
  auto start = std::chrono::steady_clock::now();
  auto graph = ParseGraph(text);
  double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->nodes.size(), 5000u);
  RecordProperty("ms", std::to_string(ms));
  EXPECT_EQ(Print(*graph), text);
}

}  // namespace
}  // namespace tenon::aten
