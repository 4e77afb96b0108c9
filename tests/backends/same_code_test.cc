// Kernels whose code is the same though their sizes differ are compiled once (backends/codegen/llvm/same_code.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "backends/driver/literal_executable.h"
#include "backends/report/document.h"
#include "hlo/check.h"
#include "hlo/text/text.h"
#include "nlohmann/json.hpp"
#include "tests/backends/kernel_runner.h"

namespace tenon {
namespace {

// Row kernels that share nothing: what each operation makes of the rows of its parameter.
std::unique_ptr<Module> Rows(const std::vector<std::string>& shapes, const std::vector<std::string>& operations) {
  std::string body, types, names;
  for (size_t k = 0; k < shapes.size(); ++k) {
    const std::string result = absl::StrCat("f32[", shapes[k].substr(0, shapes[k].find(',')), "]");
    absl::StrAppend(&body, "  p", k, " = f32[", shapes[k], "] parameter(", k, ")\n");
    absl::StrAppend(&body, "  s", k, " = ", result, " reduce(p", k, ", zero), dimensions={1}, to_apply=", operations[k], "\n");
    absl::StrAppend(&types, k > 0 ? ", " : "", result);
    absl::StrAppend(&names, k > 0 ? ", s" : "s", k);
  }
  auto module = ParseModule(absl::StrCat(R"(HloModule rows
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
maximum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] maximum(a, b) }
ENTRY main {
  zero = f32[] constant(0)
)", body, "  ROOT r = (", types, ") tuple(", names, ")\n}"));
  TENON_CHECK(module.ok(), module.status().ToString());
  return *std::move(module);
}

int Aliases(const Module& module, int threads = 1) {
  int count = 0;
  CompileOptions options{.compile_threads = threads};
  options.stages.wanted = 1u << static_cast<int>(StageKind::kLlvm);
  options.stages.take = [&](const Stage& stage) {
    for (size_t at = stage.text.find(" = alias "); at != std::string::npos; at = stage.text.find(" = alias ", at + 1)) ++count;
  };
  TENON_CHECK(LiteralExecutable::Compile(module, options).ok(), "");
  return count;
}

TEST(SameCode, OfMoreRows) { EXPECT_EQ(Aliases(*Rows({"64,256", "96,256"}, {"add", "add"})), 1); }

TEST(SameCode, IsCompiledByOneThread) {
  EXPECT_EQ(Aliases(*Rows({"64,256", "96,256", "128,256", "192,256"}, {"add", "add", "maximum", "maximum"}), 2), 2);
}

TEST(SameCode, NotOfLongerRowsOrOtherOperations) {
  EXPECT_EQ(Aliases(*Rows({"64,256", "64,320"}, {"add", "add"})), 0);
  EXPECT_EQ(Aliases(*Rows({"64,256", "96,256"}, {"add", "maximum"})), 0);
}

TEST(SameCode, ComputesBoth) {
  const auto module = Rows({"64,256", "96,256"}, {"add", "add"});
  std::vector<Literal> args;
  for (int k = 0; k < 2; ++k) {
    args.emplace_back(module->entry()->parameter(k)->shape());
    for (int64_t i = 0; i < args[k].num_elements(); ++i) args[k].SetFromDouble(i, k + 1);
  }
  auto executable = LiteralExecutable::Compile(*module, {.verify_passes = true});
  ASSERT_TRUE(executable.ok()) << executable.status();
  const auto results = (*executable)->Run(args);
  ASSERT_TRUE(results.ok()) << results.status();
  for (int k = 0; k < 2; ++k) {
    for (int64_t i = 0; i < (*results)[k].num_elements(); ++i) ASSERT_EQ((*results)[k].GetAsDouble(i), 256 * (k + 1));
  }
}

TEST(SameCode, IsShownOfBothKernels) {
  auto module = Rows({"64,256", "96,256"}, {"add", "add"});
  const Binding binding = BindingOf(*module);
  const auto program = CompileToProgram(std::move(module), binding, {.report = CompileOptions::Report::kCode});
  ASSERT_TRUE(program.ok()) << program.status();
  const auto graph = nlohmann::json::parse(GraphReport(*program, ""));
  const auto& code = graph["code"];
  ASSERT_EQ(program->kernels.size(), 2u);
  for (const KernelSpec& k : program->kernels) {
    EXPECT_THAT(code[k.symbol]["assembly"].get<std::string>(), ::testing::HasSubstr("ret")) << k.symbol;
  }
}

// Both kernels turn what they pack by one function (backends/codegen/kernel/kernel_parts.h).
TEST(SameCode, SquaresAreTurnedByOneFunction) {
  const auto module = ParseModule(R"(HloModule m
ENTRY e {
  x = f32[32,64] parameter(0)
  y = f32[48,64] parameter(1)
  z = f32[80,48] parameter(2)
  d = f32[32,48] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT e = f32[32,80] dot(d, z), lhs_contracting_dims={1}, rhs_contracting_dims={1}
})");
  ASSERT_TRUE(module.ok()) << module.status();
  CompileOptions options{.compile_threads = 1, .provider = "generated"};
  std::string llvm;
  options.stages.wanted = 1u << static_cast<int>(StageKind::kLlvm);
  options.stages.take = [&](const Stage& stage) { llvm += stage.text; };
  ASSERT_TRUE(LiteralExecutable::Compile(**module, options).ok());
  const auto count = [&](absl::string_view what) { return std::vector<std::string>(absl::StrSplit(llvm, what)).size() - 1; };
  EXPECT_EQ(count("define internal void @turn."), 1u);
  EXPECT_EQ(count("call void @turn."), 2u);
}

// Threads get as much to compile each: what a kernel is said to take is about what is emitted of it. A contraction's tiles are written
// out, whatever few instructions it has.
TEST(SameCode, WhatThereIsToCompileIsKnownBefore) {
  const auto emitted = [](const Module& module) {
    const auto program = CompileToProgram(
        module.Clone(), BindingOf(module), {.provider = "generated", .report = CompileOptions::Report::kCode});
    TENON_CHECK(program.ok(), program.status().ToString());
    TENON_CHECK(program->kernels.size() == 1u, "more than a kernel");
    const auto graph = nlohmann::json::parse(GraphReport(*program, ""));
    const std::string text = graph["code"][program->kernels[0].symbol]["llvm"];
    int64_t lines = 0;
    for (const absl::string_view line : absl::StrSplit(text, '\n')) lines += absl::StartsWith(line, "  ");
    return lines;
  };
  for (const auto& [shape, result] : {std::pair("f32[64,64]", "add(x, y)"),
                                      {"f32[64,64]", "multiply(tanh(x), y)"},
                                      {"f32[64,64]", "dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"},
                                      {"f32[64,64]", "dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}"},
                                      {"f32[120,120]", "dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}"},
                                      {"f64[50,50]", "dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}"}}) {
    const auto module = ParseModule(absl::StrCat("HloModule m\nENTRY e {\n x = ", shape, " parameter(0)\n y = ", shape,
                                                 " parameter(1)\n ROOT r = ", shape, " ", result, "\n}"));
    ASSERT_TRUE(module.ok()) << module.status();
    const auto runner = KernelRunner::Make(DenseRequest(WrapEntryAsFusion(**module)), {});
    ASSERT_TRUE(runner.ok()) << runner.status();
    const int64_t known = runner->kernel().likeness().operations, is = emitted(**module);
    EXPECT_GE(known, is / 2) << result << ": " << is;
    EXPECT_LE(known, is * 3) << result << ": " << is;
  }
}

}  // namespace
}  // namespace tenon
