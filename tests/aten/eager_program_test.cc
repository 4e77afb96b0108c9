#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch_plugin/aten/lower.h"

namespace tenon::aten {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Program Make(const char* text) {
  auto graph = ParseGraph(text);
  EXPECT_TRUE(graph.ok()) << graph.status();
  auto program = EagerProgram(*graph, "test");
  EXPECT_TRUE(program.ok()) << program.status();
  return *std::move(program);
}
const FrameworkStep& StepOf(const Program& p, size_t i) {
  return std::get<FrameworkStep>(p.regions[0].steps[i].body);
}

TEST(EagerProgramTest, SlotsAreReleasedAtLastUseAndViewsKeepTheirBase) {
  Program p = Make(R"(graph "g" {
    %p0 = input f32[4,3]{3,1}
    %a = aten.convolution.default(%p0) -> f32[4,3]{3,1}
    %v = aten.permute.default(%a, [1, 0]) -> f32[3,4]{1,3}
    %b = aten.convolution.default(%v) -> f32[3,4]{4,1}
    return (%b)
  })");
  ASSERT_EQ(p.regions[0].steps.size(), 3u);
  EXPECT_EQ(p.tier, Program::Tier::kEagerProgram);
  EXPECT_EQ(StepOf(p, 0).rule, ResultRule::kOwned);
  EXPECT_EQ(StepOf(p, 1).rule, ResultRule::kView);
  EXPECT_THAT(p.regions[0].steps[0].release_inputs, ElementsAre(0));
  EXPECT_THAT(p.regions[0].steps[1].release_slots, IsEmpty());
  EXPECT_THAT(p.regions[0].steps[2].release_slots, ElementsAre(0, 1));
  EXPECT_EQ(p.outputs[0].kind, OutputKind::kSlot);
  EXPECT_EQ(p.outputs[0].index, 2);
}

TEST(EagerProgramTest, ProductsAndConvolutionsTellTheirWork) {
  Program p = Make(R"(graph "g" {
    %a = input f32[8,16]{16,1}
    %b = input f32[16,4]{4,1}
    %bias = input f32[4]{1}
    %x = input f32[2,6,10]{60,10,1}
    %k = input f32[4,3,5]{15,5,1}
    %w = input f32[6,4,5]{20,5,1}
    %mm = aten.mm.default(%a, %b) -> f32[8,4]{4,1}
    %addmm = aten.addmm.default(%bias, %a, %b) -> f32[8,4]{4,1}
    %relu = aten.relu.default(%a) -> f32[8,16]{16,1}
    %groups = aten.convolution.default(%x, %k, none, [1], [0], [1], false, [0], 2) -> f32[2,4,6]{24,6,1}
    %back = aten.convolution.default(%x, %w, none, [1], [0], [1], true, [0], 1) -> f32[2,4,14]{56,14,1}
    return (%mm, %addmm, %relu, %groups, %back)
  })");
  std::vector<int64_t> flops;
  for (const Step& step : p.regions[0].steps) flops.push_back(step.flops);
  EXPECT_THAT(flops, ElementsAre(2 * 8 * 16 * 4, 2 * 8 * 16 * 4, 0, 2 * (2 * 4 * 6) * (3 * 5), 2 * (2 * 6 * 10) * (4 * 5)));
}

TEST(EagerProgramTest, InputsConstantsNoneAndNumbersPassThrough) {
  Program p = Make(R"(graph "g" {
    %p0 = input f32[2]{1}
    %s = input symint 7
    %c = constant f32[2]{1}
    %l = literal f32[2]{1} [1.0, 2.0]
    %n = aten.sym_size.int(%p0, 0) -> symint 2
    %x = aten.full.default([%n, %s], 1.0, none, none, none, none) -> f32[2,7]{7,1}
    return (%p0, %p0, %c, none, %n, %x, %x, %l)
  })");
  ASSERT_EQ(p.outputs.size(), 8u);
  EXPECT_EQ(p.outputs[0].kind, OutputKind::kInput);
  EXPECT_EQ(p.outputs[1].kind, OutputKind::kInput);
  EXPECT_EQ(p.outputs[2].kind, OutputKind::kConstant);
  EXPECT_EQ(p.outputs[3].kind, OutputKind::kNone);
  EXPECT_EQ(p.outputs[4].kind, OutputKind::kSymInt);
  EXPECT_EQ(p.outputs[4].size, 2);
  EXPECT_EQ(p.outputs[5].index, p.outputs[6].index);
  EXPECT_EQ(p.outputs[7].kind, OutputKind::kSlot);
  ASSERT_EQ(p.regions[0].steps.size(), 2u) << "sym_size is no step; the literal is cloned";
  EXPECT_EQ(ToString(StepOf(p, 0).args), "([2, 7], 1.0, none, none, none, none)");
}

TEST(EagerProgramTest, MutationsAndRandomStepsSaySo) {
  Program p = Make(R"(graph "g" {
    %p0 = input f32[2]{1}
    %r = aten.rand.default([2], none, none, none, none) -> f32[2]{1}
    aten.copy_.default(%p0, %r, false) -> alias %p0
    return (%p0)
  })");
  EXPECT_EQ(p.regions[0].steps[0].effect, Effect::kRandom);
  EXPECT_EQ(p.regions[0].steps[1].effect, Effect::kMutates);
  EXPECT_TRUE(p.inputs[0].mutated);
  EXPECT_EQ(p.outputs[0].kind, OutputKind::kInput);
  EXPECT_THAT(p.regions[0].steps[1].release_inputs, IsEmpty()) << "it is returned";
}

TEST(EagerProgramTest, WhatAnOperatorWritesIsACopy) {
  Program p = Make(R"(graph "g" {
    %cache = input f32[4,3]{3,1}
    %x = input f32[3]{1}
    %r, %new = my.store.default(%cache[3]{1}+3, %x{1}) writes(%cache) -> f32[3]{1}, f32[4,3]{3,1}
    %s = aten.convolution.default(%new) -> f32[4,3]{3,1}
    return (%r, %s, %cache)
  })");
  ASSERT_EQ(p.regions[0].steps.size(), 3u);
  EXPECT_EQ(StepOf(p, 0).overload, "aten.clone.default");
  const int32_t copy = StepOf(p, 0).results[0].value;
  EXPECT_EQ(StepOf(p, 1).operands[0].value, copy);
  EXPECT_EQ(ToString(StepOf(p, 1).args), "(%0[3]{1}+3, %1{1})");
  ASSERT_EQ(StepOf(p, 1).results.size(), 2u);
  EXPECT_EQ(StepOf(p, 1).results[1].value, -1);
  EXPECT_EQ(StepOf(p, 2).operands[0].value, copy);
  EXPECT_THAT(p.regions[0].steps[2].release_slots, ElementsAre(p.values[copy].index));
  EXPECT_FALSE(p.inputs[0].mutated);
  EXPECT_TRUE(p.Validate().ok()) << p.Validate();
}

TEST(EagerProgramTest, SymbolicGraphsMustBeSpecialisedFirst) {
  auto graph = ParseGraph("graph \"g\" {\n symbols s0\n %p = input f32[s0]{1}\n return (%p)\n}");
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(EagerProgram(*graph, "t").status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace tenon::aten
