// Kernels whose code is the same though their sizes differ are compiled once (backends/codegen/llvm/same_code.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
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

// Threads get as much to compile each: a contraction's tiles are written out, whatever few instructions it has.
TEST(SameCode, ContractionsAreMoreToCompile) {
  const auto operations = [](const std::string& text) {
    const auto module = ParseModule(text);
    TENON_CHECK(module.ok(), module.status().ToString());
    const auto runner = KernelRunner::Make(DenseRequest(WrapEntryAsFusion(**module)), {});
    TENON_CHECK(runner.ok(), runner.status().ToString());
    return runner->kernel().likeness().operations;
  };
  const int64_t sum = operations("HloModule m\nENTRY e {\n x = f32[64,64] parameter(0)\n y = f32[64,64] parameter(1)\n"
                                 " ROOT r = f32[64,64] add(x, y)\n}");
  const int64_t product = operations("HloModule m\nENTRY e {\n x = f32[64,64] parameter(0)\n y = f32[64,64] parameter(1)\n"
                                     " ROOT r = f32[64,64] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}");
  EXPECT_GE(product, 8 * sum);
}

}  // namespace
}  // namespace tenon
