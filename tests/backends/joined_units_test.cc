// Which kernels compute the units of a call together: the runtime then cuts their work once a thread (runtime/execute/shares.h).
#include <gtest/gtest.h>

#include "backends/driver/compile.h"
#include "hlo/check.h"
#include "hlo/text/text.h"

namespace tenon {
namespace {

// By the only kernel of the program.
bool Joins(const std::string& body) {
  auto module = ParseModule(
      "HloModule m\nadd { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }\nENTRY main {\n" + body + "}\n");
  TENON_CHECK(module.ok(), module.status().ToString());
  const Binding binding = BindingOf(**module);
  const absl::StatusOr<Program> program = CompileToProgram(*std::move(module), binding, {.verify_passes = true});
  TENON_CHECK(program.ok(), program.status().ToString());
  EXPECT_EQ(program->regions[0].steps.size(), 1);
  return std::get<KernelStep>(program->regions[0].steps[0].body).joins_units;
}

TEST(JoinedUnits, OfColumns) {
  EXPECT_TRUE(Joins(R"(x = f32[512,1024] parameter(0)
    zero = f32[] constant(0)
    ROOT r = f32[1024] reduce(x, zero), dimensions={0}, to_apply=add)"));
}

TEST(JoinedUnits, NotOfRowsNorOfElements) {
  EXPECT_FALSE(Joins(R"(x = f32[512,1024] parameter(0)
    zero = f32[] constant(0)
    ROOT r = f32[512] reduce(x, zero), dimensions={1}, to_apply=add)"));
  EXPECT_FALSE(Joins(R"(x = f32[512,1024] parameter(0)
    ROOT r = f32[512,1024] exponential(x))"));
}

}  // namespace
}  // namespace tenon
