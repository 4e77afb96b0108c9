// The pipeline names the pass that lies about "changed", that breaks the module, or that does not exist.
#include "passes/pipeline.h"

#include "gtest/gtest.h"
#include "hlo/text/text.h"

namespace tenon {
namespace {

constexpr std::string_view kModule = R"(HloModule m
ENTRY main {
  x = f32[2,3] parameter(0)
  y = f32[2,3] parameter(1)
  dead = f32[2,3] negate(x)
  ROOT sum = f32[2,3] add(x, y)
})";

absl::StatusOr<bool> SaysItDidNot(Module& module, PassContext&) {
  module.entry()->root()->mutable_attrs().set(Attr::kBackendConfig, std::string("{}"));
  return false;
}
absl::StatusOr<bool> SaysItDid(Module&, PassContext&) { return true; }
absl::StatusOr<bool> BreaksShapes(Module& module, PassContext&) {
  module.entry()->root()->mutable_shape() = Shape::Array(PrimitiveType::kF32, {6});
  return true;
}
absl::StatusOr<bool> Fails(Module&, PassContext&) { return absl::UnimplementedError("not on a Saturday"); }
absl::StatusOr<bool> Honest(Module&, PassContext&) { return false; }

constexpr PassInfo kPlanted[] = {
    {"says-it-did-not", SaysItDidNot, ""},
    {"says-it-did", SaysItDid, ""},
    {"breaks-shapes", BreaksShapes, ""},
    {"fails", Fails, ""},
    {"honest", Honest, ""},
};

absl::StatusOr<bool> RunPlanted(std::vector<std::string> passes, PipelineOptions options = {}) {
  auto module = ParseModule(kModule);
  PassContext context;
  options.passes = std::move(passes);
  options.verify = true;
  options.table = kPlanted;
  return RunPipeline(**module, context, options);
}

std::string Message(const absl::StatusOr<bool>& result) { return std::string(result.status().message()); }

TEST(Pipeline, CatchesAPassThatHidesAChange) {
  EXPECT_EQ(Message(RunPlanted({"honest", "says-it-did-not"})), "pass says-it-did-not changed the module and said it did not");
}

TEST(Pipeline, CatchesAPassThatInventsAChange) {
  EXPECT_EQ(Message(RunPlanted({"says-it-did"})), "pass says-it-did said it changed the module and did not");
}

TEST(Pipeline, NamesThePassThatBreaksTheModule) {
  EXPECT_EQ(Message(RunPlanted({"honest", "breaks-shapes"})).find("pass breaks-shapes: "), 0u)
      << Message(RunPlanted({"breaks-shapes"}));
}

TEST(Pipeline, NamesThePassThatFails) {
  const absl::StatusOr<bool> result = RunPlanted({"fails"});
  EXPECT_TRUE(absl::IsUnimplemented(result.status()));
  EXPECT_EQ(Message(result), "pass fails: not on a Saturday");
}

TEST(Pipeline, RefusesUnknownNames) {
  const std::string known = "known: says-it-did-not, says-it-did, breaks-shapes, fails, honest";
  EXPECT_EQ(Message(RunPlanted({"fuze"})), "unknown pass \"fuze\"; " + known);
  EXPECT_EQ(Message(RunPlanted({"honest"}, {.disable = {"fuze"}})), "unknown pass \"fuze\"; " + known);
  EXPECT_EQ(Message(RunPlanted({"honest"}, {.stop_after = "fuze"})), "unknown pass \"fuze\"; " + known);
}

TEST(Pipeline, DisablesAndStopsByName) {
  EXPECT_TRUE(RunPlanted({"honest", "fails"}, {.disable = {"fails"}}).ok());
  EXPECT_TRUE(RunPlanted({"honest", "fails"}, {.stop_after = "honest"}).ok());
}

TEST(Pipeline, TimesEveryPassAndDumpsWhatChanged) {
  auto module = ParseModule(kModule);
  PassContext context;
  std::vector<PassTiming> timings;
  std::vector<std::string> dumped;
  PipelineOptions options{.passes = {"dce", "cse"}, .verify = true};
  options.dump = [&](std::string_view pass, int index, const Module& m) {
    dumped.push_back(std::string(pass) + "@" + std::to_string(index) + ":" + std::to_string(m.instruction_count()));
  };
  const absl::StatusOr<bool> changed = RunPipeline(**module, context, options, &timings);
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_TRUE(*changed);
  ASSERT_EQ(timings.size(), 2u);
  EXPECT_TRUE(timings[0].changed);
  EXPECT_FALSE(timings[1].changed);
  EXPECT_EQ(dumped, std::vector<std::string>{"dce@0:3"});
}

TEST(Pipeline, DefaultListIsKnown) {
  for (const std::string& name : DefaultPipeline()) EXPECT_NE(FindPass(name), nullptr) << name;
}

}  // namespace
}  // namespace tenon
