// Which write-backs are written by the kernel that makes the new value, where the old one lies (ValueKind::kUpdate).
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "backends/driver/compile.h"
#include "hlo/check.h"
#include "hlo/text/text.h"
#include "runtime/execute/executable.h"
#include "runtime/host/plain_host.h"

namespace tenon {
namespace {

// Root element 0 is written back into input 0; the others are outputs.
absl::StatusOr<Program> Compiled(const std::string& body) {
  absl::StatusOr<std::unique_ptr<Module>> module = ParseModule(R"(HloModule m
less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}
second {
  a = f32[] parameter(0)
  ROOT b = f32[] parameter(1)
}
ENTRY main {
)" + body + "}\n");
  if (!module.ok()) return module.status();
  Binding binding = BindingOf(**module);
  binding.inputs[0].mutated = true;
  binding.mutations.push_back({.input = 0, .root_index = 0});
  binding.outputs.erase(binding.outputs.begin());
  binding.checks = {{"IndexError", "negative"}};
  return CompileToProgram(std::move(*module), binding, {.verify_passes = true});
}

// The name of the step that updates input 0, "" if only the commit region writes it.
std::string Updater(const std::string& body) {
  const absl::StatusOr<Program> program = Compiled(body);
  TENON_CHECK(program.ok(), program.status().ToString());
  const absl::Status valid = program->Validate();
  EXPECT_TRUE(valid.ok()) << valid;
  for (const Step& step : program->regions[0].steps) {
    const auto* kernel = std::get_if<KernelStep>(&step.body);
    if (kernel == nullptr) continue;
    for (const View& view : kernel->operands) {
      if (view.value < 0 || program->values[view.value].kind != ValueKind::kUpdate || step.effect != Effect::kMutates) continue;
      return step.name;
    }
  }
  return "";
}

TEST(Update, ByTheKernelThatReadsTheOldValueLast) {
  EXPECT_NE(Updater(R"(p = f32[8,4] parameter(0)
    g = f32[8,4] parameter(1)
    n = f32[8,4] subtract(p, g)
    ROOT t = (f32[8,4]) tuple(n))"), "");
}

TEST(Update, OfWhatNobodyReads) {
  EXPECT_NE(Updater(R"(p = f32[8] parameter(0)
    g = f32[8] parameter(1)
    n = f32[8] exponential(g)
    ROOT t = (f32[8]) tuple(n))"), "");
}

TEST(Update, NotWhereTheOldValueIsAnOutput) {
  EXPECT_EQ(Updater(R"(p = f32[8] parameter(0)
    g = f32[8] parameter(1)
    n = f32[8] subtract(p, g)
    ROOT t = (f32[8], f32[8]) tuple(n, p))"), "");
}

TEST(Update, NotAtAnotherPlaceThanItIsRead) {
  EXPECT_EQ(Updater(R"(p = f32[8] parameter(0)
    r = f32[8] reverse(p), dimensions={0}
    n = f32[8] add(r, p)
    ROOT t = (f32[8]) tuple(n))"), "");
}

TEST(Update, NotWhereAnotherKernelReadsTheOldValueLater) {
  EXPECT_EQ(Updater(R"(p = f32[64,64] parameter(0)
    g = f32[64,64] parameter(1)
    n = f32[64,64] sort(g), dimensions={1}, to_apply=less
    e = f32[64,64] add(n, p)
    s = f32[64,64] sort(e), dimensions={0}, to_apply=less
    ROOT t = (f32[64,64], f32[64,64]) tuple(n, s))"), "");
}

constexpr char kChecked[] = R"(p = f32[8] parameter(0)
    i = s32[8] parameter(1)
    zero = s32[] constant(0)
    zeros = s32[8] broadcast(zero), dimensions={}
    bad = pred[8] compare(i, zeros), direction=LT
    check = pred[] custom-call(bad), custom_call_target="tenon.check", custom_call_has_side_effect=true, backend_config={"check":0}
    g = f32[8] convert(i)
    )";

TEST(Update, NeverByAKernelThatChecks) {
  const absl::StatusOr<Program> program = Compiled(std::string(kChecked) + "n = f32[8] subtract(p, g)\n ROOT t = (f32[8]) tuple(n)");
  ASSERT_TRUE(program.ok()) << program.status();
  bool writes = false, failed = false;
  for (const Step& step : program->regions[0].steps) {
    failed |= writes && step.effect == Effect::kError;
    writes |= step.effect == Effect::kMutates;
    EXPECT_FALSE(failed) << "a check after an update\n" << program->ToString();
  }
  EXPECT_TRUE(program->Validate().ok());
}

TEST(Update, BeforeStepsOfTheFrameworkThatTakeAnyValues) {
  const std::string call = R"hlo(p = f32[8,8] parameter(0)
    g = f32[8,8] parameter(1)
    n = f32[8,8] subtract(p, g)
    d = f32[8,8] custom-call(n), custom_call_target="aten.x", backend_config={"args":"(%0)","rule":"owned")hlo";
  EXPECT_EQ(Updater(call + R"hlo(}
    ROOT t = (f32[8,8], f32[8,8]) tuple(n, d))hlo"), "");
  EXPECT_NE(Updater(call + R"hlo(,"total":true}
    ROOT t = (f32[8,8], f32[8,8]) tuple(n, d))hlo"), "");
  EXPECT_EQ(Updater(call + R"hlo(,"total":true}
    e = f32[8,8] custom-call(d), custom_call_target="aten.y", backend_config={"args":"(%0)","rule":"owned"}
    ROOT t = (f32[8,8], f32[8,8]) tuple(n, e))hlo"), "");
  EXPECT_NE(Updater(R"hlo(p = f32[8,8] parameter(0)
    g = f32[8,8] parameter(1)
    n = f32[8,8] subtract(p, g)
    d = f32[8,8] dot(n, g), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    ROOT t = (f32[8,8], f32[8,8]) tuple(n, d))hlo"), "");
  EXPECT_NE(Updater(R"hlo(p = f32[8,8] parameter(0)
    g = f32[8,8] parameter(1)
    d = f32[8,8] dot(g, g), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    n = f32[8,8] subtract(p, d)
    ROOT t = (f32[8,8]) tuple(n))hlo"), "");
}

TEST(Update, NotOfWhatAnOperatorMayKeep) {
  EXPECT_EQ(Updater(R"hlo(p = f32[8,8] parameter(0)
    g = f32[8,8] parameter(1)
    n = f32[8,8] subtract(p, g)
    d = f32[8,8] custom-call(n), custom_call_target="aten.x", backend_config={"args":"(%0)","rule":"view","total":true}
    ROOT t = (f32[8,8], f32[8,8]) tuple(n, d))hlo"), "");
}

// Checks come before the update, though nothing waits for them.
TEST(Update, OfAPartAtACheckedPlaceBeforeACall) {
  EXPECT_NE(Updater(R"hlo(p = f32[8,4] parameter(0)
    g = f32[1,4] parameter(1)
    i = s64[1] parameter(2)
    zero = s64[1] constant({0})
    bad = pred[1] compare(i, zero), direction=LT
    n = f32[8,4] scatter(p, i, g), update_window_dims={0,1}, inserted_window_dims={}, scatter_dims_to_operand_dims={0},
      index_vector_dim=0, to_apply=second
    check = pred[] custom-call(bad), custom_call_target="tenon.check", custom_call_has_side_effect=true, backend_config={"check":0}
    d = f32[4,8] custom-call(n), custom_call_target="aten.x", backend_config={"args":"(%0)","rule":"owned","total":true}
    ROOT t = (f32[8,4], f32[4,8]) tuple(n, d))hlo"), "");
}

// What a scatter or an update of a slice leaves alone is there, too, where the input's own memory cannot be taken: what the kernel
// writes lies partly in it.
// The step that writes input 0's memory by an operator of the framework.
std::string UpdatingCall(const Program& program) {
  for (const Step& step : program.regions[0].steps) {
    const auto* call = std::get_if<FrameworkStep>(&step.body);
    if (call == nullptr || step.effect != Effect::kMutates) continue;
    for (const View& view : call->operands) {
      if (program.values[view.value].kind == ValueKind::kUpdate) return call->overload;
    }
  }
  return "";
}

constexpr char kStore[] =
    R"hlo(custom_call_has_side_effect=true, backend_config={"args":"(%0{1}, %1{1})","rule":"owned","writes":[[0,0]],"reason":"custom"})hlo";
constexpr char kMayFail[] = R"hlo(custom_call_has_side_effect=true, backend_config={"args":"(%0)","rule":"owned","reason":"custom"})hlo";

TEST(Update, ByAnOperatorThatWritesItsOperandWhateverFollows) {
  const auto program = Compiled(absl::StrCat(R"(p = f32[8] parameter(0)
    x = f32[8] parameter(1)
    s = (f32[8]) custom-call(p, x), custom_call_target="my.store.default", )", kStore, R"(
    n = f32[8] get-tuple-element(s), index=0
    r = f32[8] custom-call(n), custom_call_target="my.op.default", )", kMayFail, R"(
    ROOT t = (f32[8], f32[8]) tuple(n, r))"));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE(program->Validate().ok()) << program->Validate();
  EXPECT_EQ(UpdatingCall(*program), "my.store.default");
}

TEST(Update, NotByAnOperatorThatReadsTheOldValueToo) {
  const auto program = Compiled(absl::StrCat(R"(p = f32[8] parameter(0)
    s = (f32[8]) custom-call(p, p), custom_call_target="my.store.default", )", kStore, R"(
    n = f32[8] get-tuple-element(s), index=0
    ROOT t = (f32[8]) tuple(n))"));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(UpdatingCall(*program), "");
}

TEST(Update, NotByAnOperatorWhereTheOldValueIsReadLater) {
  const auto program = Compiled(absl::StrCat(R"(p = f32[8] parameter(0)
    x = f32[8] parameter(1)
    s = (f32[8]) custom-call(p, x), custom_call_target="my.store.default", )", kStore, R"(
    n = f32[8] get-tuple-element(s), index=0
    r = f32[8] multiply(n, p)
    ROOT t = (f32[8], f32[8]) tuple(n, r))"));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(UpdatingCall(*program), "");
}

TEST(Update, OfAPartWhereInputsOverlap) {
  const std::string bodies[] = {
      R"(p = f32[8] parameter(0)
    g = f32[8] parameter(1)
    two = s32[] constant(2)
    u = f32[3] slice(g), slice={[0:3]}
    n = f32[8] dynamic-update-slice(p, u, two)
    ROOT t = (f32[8]) tuple(n))",
      R"(p = f32[8] parameter(0)
    g = f32[8] parameter(1)
    u = f32[3] slice(g), slice={[0:3]}
    i = s32[3,1] constant({{2}, {3}, {4}})
    n = f32[8] scatter(p, i, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0},
      index_vector_dim=1, to_apply=second
    ROOT t = (f32[8]) tuple(n))"};
  for (const std::string& body : bodies) {
    absl::StatusOr<Program> program = Compiled(body);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_NE(Updater(body), "");
    const auto executable = Executable::Create(*std::move(program), LoadersOf({}), PlainHost());
    ASSERT_TRUE(executable.ok()) << executable.status();
    for (const int64_t shift : {8, 1, 8, 4}) {
      std::vector<float> flat(16), want(16);
      for (size_t k = 0; k < flat.size(); ++k) flat[k] = want[k] = static_cast<float>(k + 1);
      for (int64_t k = 0; k < 3; ++k) want[k + 2] = flat[k + shift];
      const int64_t dims[] = {8}, strides[] = {1};
      const int32_t type = static_cast<int32_t>(PrimitiveType::kF32);
      const TenonTensor inputs[] = {{nullptr, flat.data(), dims, strides, type, 1}, {nullptr, flat.data() + shift, dims, strides, type, 1}};
      const RunResult result = (*executable)->Run(inputs, nullptr);
      ASSERT_EQ(result.code, TENON_OK) << result.error;
      EXPECT_EQ(flat, want) << shift << "\n" << body;
    }
  }
}

}  // namespace
}  // namespace tenon
