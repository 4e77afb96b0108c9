// Reports: what stands in the JSON, and that nothing in it can leave its place in the page.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "backends/driver/compile.h"
#include "backends/report/document.h"
#include "backends/report/program_report.h"
#include "hlo/text/text.h"

namespace tenon {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view kSoftmax = R"(HloModule softmax
max { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT m = f32[] maximum(a, b) }
ENTRY e {
  x = f32[8,64] parameter(0)
  w = f32[64,64] parameter(1)
  low = f32[] constant(-inf)
  y = f32[8,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={source_file="net.py" source_line=7}
  top = f32[8] reduce(y, low), dimensions={1}, to_apply=max
  top_b = f32[8,64] broadcast(top), dimensions={0}
  d = f32[8,64] subtract(y, top_b)
  ROOT r = f32[8,64] exponential(d), metadata={source_file="net.py" source_line=8}
})";

std::unique_ptr<Module> Parse(std::string_view text) {
  auto module = ParseModule(text);
  EXPECT_TRUE(module.ok()) << module.status();
  return *std::move(module);
}

absl::StatusOr<Program> Compile(std::string_view text, CompileOptions::Report report) {
  std::unique_ptr<Module> module = Parse(text);
  CompileOptions options;
  options.report = report;
  options.provider = "host.matmul";  // whatever this machine would rather
  Binding binding = BindingOf(*module);
  return CompileToProgram(std::move(module), std::move(binding), options);
}

json ReportOf(std::string_view text, CompileOptions::Report report = CompileOptions::Report::kCode) {
  auto program = Compile(text, report);
  EXPECT_TRUE(program.ok()) << program.status();
  return json::parse(GraphReport(*program, ""));
}

TEST(Report, HasEveryInstructionBeforeAndAfterThePasses) {
  const json graph = ReportOf(kSoftmax);
  std::set<std::string> before;
  for (const json& i : graph["input"]["instructions"]) before.insert(i["name"]);
  EXPECT_THAT(before, ::testing::ElementsAre("d", "low", "r", "top", "top_b", "w", "x", "y"));
  const json& module = graph["module"];
  int fusions = 0;
  for (const json& i : module["instructions"]) {
    for (const json& o : i["operands"]) EXPECT_LT(o.get<size_t>(), module["instructions"].size());
    fusions += i["opcode"] == "fusion";
    if (i["opcode"] == "fusion") {
      EXPECT_EQ(i["calls"].size(), 1);
      EXPECT_EQ(i["source"], "net.py:8");
    }
    EXPECT_THAT(i["text"].get<std::string>(), HasSubstr(i["opcode"].get<std::string>()));
  }
  EXPECT_EQ(fusions, 1);
  size_t members = 0;
  for (const json& c : module["computations"]) members += c["instructions"].size();
  EXPECT_EQ(members, module["instructions"].size());
  EXPECT_EQ(graph["passes"].size(), DefaultPipeline().size());
}

TEST(Report, HasEveryBufferStepAndKernel) {
  auto program = Compile(kSoftmax, CompileOptions::Report::kCode);
  ASSERT_TRUE(program.ok()) << program.status();
  const json graph = json::parse(GraphReport(*program, ""));
  EXPECT_EQ(graph["program"]["values"].size(), program->values.size());
  EXPECT_EQ(graph["program"]["regions"][0]["steps"].size(), program->regions[0].steps.size());
  EXPECT_EQ(graph["program"]["order"].size(), program->regions[0].steps.size());
  for (const json& v : graph["program"]["values"]) {
    if (v["kind"] == "arena" && v["bytes"] > 0)
      EXPECT_LE(v["offset"].get<int64_t>() + v["bytes"].get<int64_t>(), program->arena_bytes);
  }
  for (const KernelSpec& k : program->kernels) {
    EXPECT_THAT(graph["code"][k.symbol]["llvm"].get<std::string>(), HasSubstr("define"));
    EXPECT_THAT(graph["code"][k.symbol]["assembly"].get<std::string>(), HasSubstr("ret"));
  }
}

TEST(Report, OnlyWhenAskedFor) {
  EXPECT_EQ(Compile(kSoftmax, CompileOptions::Report::kNone)->report, "");
  EXPECT_EQ(ReportOf(kSoftmax, CompileOptions::Report::kNone)["module"], json());
  EXPECT_EQ(ReportOf(kSoftmax, CompileOptions::Report::kModule)["code"], json::object());
}

TEST(Report, SymbolicSizesAreTold) {
  auto module =
      Parse("HloModule s, symbols={n:[1,100]}\nENTRY e { x = f32[n] parameter(0)\n ROOT y = f32[n] sine(x) }");
  const json graph = json::parse(GraphReport(*module, "why"));
  EXPECT_EQ(graph["module"]["instructions"][0]["shape"], "f32[n]");
  EXPECT_FALSE(graph["module"].contains("cost"));
  EXPECT_EQ(graph["error"], "why");
}

// A loop's values: `state` goes in and out, `tmp` is written and read within a trip, `carry` is read before it is
// written.
TEST(Report, LivesAcrossLoops) {
  const auto view = [](int32_t value) { return View{.value = value, .dims = {1}, .strides = {1}}; };
  const auto copy = [&](const char* name, int32_t from, int32_t to) {
    return Step{.body = CopyStep{view(from), view(to)}, .name = name};
  };
  enum { kState, kPredicate, kTmp, kCarry, kAfter };
  Program p;
  p.values.assign(5, {.kind = ValueKind::kArena, .bytes = 4});
  p.regions = {{.name = "main"}, {.name = "condition"}, {.name = "body"}};
  p.regions[0].steps = {copy("init", kAfter, kState), Step{.body = WhileStep{1, 2, view(kPredicate)}, .name = "loop"},
                        copy("end", kState, kAfter)};
  p.regions[1].steps = {copy("test", kState, kPredicate)};
  p.regions[2].steps = {copy("a", kState, kTmp), copy("b", kTmp, kState), copy("c", kCarry, kState),
                        copy("d", kState, kCarry)};
  const json report = json::parse(ProgramJson(p).dump());
  std::vector<std::string> order;
  for (const json& at : report["order"])
    order.push_back(report["regions"][at[0].get<int>()]["steps"][at[1].get<int>()]["name"]);
  EXPECT_THAT(order, ::testing::ElementsAre("init", "loop", "test", "a", "b", "c", "d", "end"));
  const auto life = [&](int v) {
    return std::pair<int, int>(report["values"][v]["first"], report["values"][v]["last"]);
  };
  EXPECT_EQ(life(kState), std::pair(0, 7));
  EXPECT_EQ(life(kPredicate), std::pair(1, 6));
  EXPECT_EQ(life(kTmp), std::pair(3, 4));
  EXPECT_EQ(life(kCarry), std::pair(1, 6));
  EXPECT_EQ(report["values"][kState]["name"], "init, b, c");
}

TEST(Report, NoTextLeavesItsPlaceInThePage) {
  const std::string evil = "</script><script>alert(1)</script><!-- \"' & \xF0\x9F\x98\x80 \xFF";
  Program p;
  p.name = evil;
  p.regions = {{.name = "main"}};
  p.regions[0].steps = {{.body = FrameworkStep{.overload = "aten.x", .reason = evil}, .name = evil, .source = evil}};
  const auto html = ReportHtml(ReportDocument(absl::StrCat("{{data}} ", evil), {GraphReport(p, "")}));
  ASSERT_TRUE(html.ok()) << html.status();
  EXPECT_THAT(*html, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(*html, HasSubstr("&lt;script&gt;alert"));
  EXPECT_THAT(*html, HasSubstr("\\u003c/script>\\u003cscript>alert"));
  size_t ends = 0;
  for (size_t at = html->find("</script"); at != std::string::npos; at = html->find("</script", at + 1)) ++ends;
  EXPECT_EQ(ends, 2u) << "the data's and the program's own";
  for (const char* outside : {"http://", "https://", "@import", "url(", "src="}) {
    std::string rest = *html;
    for (const char* ours : {"http://www.w3.org/2000/svg", "'marker-end': 'url(#arrow)'", "'url(#inside)'"}) {
      for (size_t at = rest.find(ours); at != std::string::npos; at = rest.find(ours))
        rest.erase(at, std::strlen(ours));
    }
    EXPECT_THAT(rest, Not(HasSubstr(outside))) << "the page needs nothing but itself";
  }
}

TEST(Report, RefusesWhatIsNoReport) {
  EXPECT_EQ(ReportHtml("nonsense").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReportHtml("{}").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(ReportHtml(R"({"schema":"tenon-report","version":99})").status().message(), HasSubstr("99"));
}

TEST(Stages, GoNoFurtherThanWanted) {
  std::vector<std::string> files;
  CompileOptions options;
  options.stages.take = [&](const Stage& s) { files.push_back(s.file); };
  const auto stages = [&](std::initializer_list<StageKind> kinds, std::string_view text) {
    files.clear();
    options.stages.wanted = 0;
    for (StageKind k : kinds) options.stages.wanted |= 1u << static_cast<int>(k);
    auto module = Parse(text);
    Binding binding = BindingOf(*module);
    return CompileStages(std::move(module), std::move(binding), options);
  };
  EXPECT_TRUE(stages({StageKind::kPlans, StageKind::kProgram}, kSoftmax).ok());
  EXPECT_THAT(files, ::testing::ElementsAre("plans.txt", "program.txt"));
  EXPECT_TRUE(stages({StageKind::kLlvm, StageKind::kOptimizedLlvm, StageKind::kAssembly}, kSoftmax).ok());
  EXPECT_THAT(files, ::testing::ElementsAre("llvm.0.emitted.ll", "llvm.0.ll", "llvm.0.s"));
  // What cannot be planned can still be looked at until there.
  options.passes = {"dce"};
  EXPECT_TRUE(stages({StageKind::kHlo}, kSoftmax).ok());
  EXPECT_THAT(files, ::testing::ElementsAre("00.input.hlo"));
  EXPECT_FALSE(stages({StageKind::kPlans}, kSoftmax).ok());
  // IR that LLVM's verifier refuses is shown all the same.
  options.passes = {};
  options.inject_fault = "invalid-ir";
  EXPECT_FALSE(stages({StageKind::kLlvm}, kSoftmax).ok());
  EXPECT_THAT(files, ::testing::ElementsAre("llvm.0.emitted.ll"));
}

}  // namespace
}  // namespace tenon
