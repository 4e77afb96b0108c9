// tests/aten/retarget/*.aten: a graph of the CPU, then what Retarget makes of it, each line behind "//> ". UPDATE_GOLDEN=1 rewrites.
// That results are what CUDA's operators give is compared with PyTorch's meta functions in tests/plugin/test_retarget.py.
#include "torch_plugin/aten/retarget.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hlo/verifier.h"
#include "torch_plugin/aten/lower.h"
#include "torch_plugin/aten/op_table.h"

namespace tenon::aten {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string ReadFile(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<fs::path> Goldens() {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(fs::path(TENON_SOURCE_DIR) / "tests/aten/retarget")) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

class RetargetGoldenTest : public ::testing::TestWithParam<fs::path> {};

TEST_P(RetargetGoldenTest, MakesTheExpectedGraph) {
  const std::string file = ReadFile(GetParam());
  const size_t cut = file.find("//>");
  const std::string text = file.substr(0, cut);
  const auto graph = ParseGraph(text);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto moved = Retarget(*graph);
  ASSERT_TRUE(moved.ok()) << moved.status();
  const std::string printed = Print(*moved);
  // A graph like any other: it reads back, and lowers to the device's memory.
  const auto again = ParseGraph(printed);
  ASSERT_TRUE(again.ok()) << again.status() << "\n" << printed;
  EXPECT_EQ(Print(*again), printed);
  for (size_t n = 0; n < moved->nodes.size(); ++n) {
    for (size_t r = 0; r < moved->nodes[n].results.size(); ++r) {
      const GraphValue& value = moved->values[static_cast<size_t>(moved->nodes[n].results[r])];
      EXPECT_EQ(value.node, static_cast<int32_t>(n)) << value.name;
      EXPECT_EQ(value.result, static_cast<int32_t>(r)) << value.name;
    }
  }
  EXPECT_EQ(Lower(*moved).status().code(), absl::StatusCode::kUnimplemented) << "no graph of the host's";
  const auto lowered = Lower(*moved, {.disable = {}, .device = "cuda:0", .space = 1});
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_TRUE(Verify(*lowered->module).ok()) << Verify(*lowered->module);
  for (const Binding::Input& in : lowered->binding.inputs) EXPECT_EQ(in.space, in.kind == InputSpec::Kind::kTensor ? 1 : 0);
  std::string expected;
  for (std::string line : std::vector<std::string>(absl::StrSplit(printed, '\n'))) {
    if (!line.empty()) absl::StrAppend(&expected, "//> ", line, "\n");
  }
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    std::ofstream(GetParam()) << text << expected;
    return;
  }
  ASSERT_NE(cut, std::string::npos) << "no expectation; run with UPDATE_GOLDEN=1";
  EXPECT_EQ(file.substr(cut), expected);
}

INSTANTIATE_TEST_SUITE_P(All, RetargetGoldenTest, ::testing::ValuesIn(Goldens()),
                         [](const auto& info) { return info.param.stem().string(); });

std::string Refusal(const std::string& text, std::string_view device = "cuda:0") {
  const auto graph = ParseGraph(text);
  EXPECT_TRUE(graph.ok()) << graph.status() << text;
  if (!graph.ok()) return "";
  const auto moved = Retarget(*graph, {.device = std::string(device)});
  EXPECT_FALSE(moved.ok()) << text;
  return std::string(moved.status().message());
}

std::string Attention(const std::string& type, int features, int of_value, const std::string& more = "0.0, false, none, none") {
  const auto meta = [&](int f) { return absl::StrCat(type, "[2,4,8,", f, "]{", 32 * f, ",", 8 * f, ",", f, ",1}"); };
  return absl::StrCat("graph \"g\" {\n %q = input ", meta(features), "\n %v = input ", meta(of_value),
                      "\n %out, %sums = aten._scaled_dot_product_flash_attention_for_cpu.default(%q, %q, %v, ", more, ") -> ",
                      meta(of_value), ", f32[2,4,8]{32,1,4} @ \"\" \"net.py:7\"\n return (%out)\n}");
}

TEST(RetargetTest, RefusesWhatHasNoCounterpart) {
  EXPECT_EQ(Refusal(Attention("f64", 16, 16)),
            "%out of aten._scaled_dot_product_flash_attention_for_cpu.default (net.py:7) has no counterpart on cuda:0: "
            "no fused attention of f64");
  EXPECT_THAT(Refusal(Attention("f32", 6, 8)), HasSubstr("f32 takes heads of a multiple of 4 features, got 6"));
  EXPECT_THAT(Refusal(Attention("bf16", 8, 12)), HasSubstr("bf16 takes heads of a multiple of 8 features, got 12"));
  EXPECT_THAT(Refusal(R"(graph "g" {
    %x = input f32[4]{1}
    %y = aten.mkldnn_linear.default(%x) -> f32[4]{1}
    return (%y)
  })", "cuda:3"), HasSubstr("has no counterpart on cuda:3: oneDNN's, of the CPU alone"));
  constexpr char kForeign[] = R"(graph "g" {
    %x = input f32[4]{1}
    %y = my.scale.default(%x) -> f32[4]{1}
    return (%y)
  })";
  EXPECT_THAT(Refusal(kForeign), HasSubstr("an operator of another library"));
  EXPECT_TRUE(Retarget(*ParseGraph(kForeign), {.device = "cuda:0", .foreign = true}).ok());
  EXPECT_THAT(Refusal(R"(graph "g" {
    %x = input f32[4]{1}
    %y = python.3.higher_order.cond(%x) -> f32[4]{1}
    return (%y)
  })"), HasSubstr("a Python callable"));
  EXPECT_THAT(Refusal(R"(graph "g" {
    %x = input other("layout sparse_coo")
    return (%x)
  })"), HasSubstr("%x is layout sparse_coo"));
}

TEST(RetargetTest, TakesOnlyTheCpus) {
  const auto graph = ParseGraph("graph \"g\" {\n %x = input f32[4]{1}\n return (%x)\n}");
  const auto moved = Retarget(*graph);
  ASSERT_TRUE(moved.ok());
  EXPECT_THAT(std::string(Retarget(*moved).status().message()), HasSubstr("wanted a graph of the CPU, got a tensor on cuda:0"));
}

// A backward whose forward is elsewhere: random numbers would have to come from there.
TEST(RetargetTest, RefusesDropoutWithoutItsForward) {
  const std::string m = "bf16[2,4,8,16]{512,128,16,1}";
  const std::string text = absl::StrCat("graph \"g\" {\n %g = input ", m, "\n %q = input ", m, "\n %s = input f32[2,4,8]{32,1,4}\n",
                                        " %a, %b, %c = aten._scaled_dot_product_flash_attention_for_cpu_backward.default(",
                                        "%g, %q, %q, %q, %q, %s, 0.5, false, none, none) -> ", m, ", ", m, ", ", m, "\n return (%a)\n}");
  EXPECT_THAT(Refusal(text), HasSubstr("dropout whose forward is in another graph"));
}

TEST(RetargetTest, FactoriesAreOfTheTable) {
  for (const FactoryRow& row : Factories()) EXPECT_NE(FindRow(row.overload), nullptr) << row.overload;
}

}  // namespace
}  // namespace tenon::aten
