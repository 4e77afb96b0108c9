// One broken program for each thing Program::Validate promises.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "runtime/program/dim_program.h"
#include "tests/runtime/fakes.h"

namespace tenon::testing {
namespace {

using ::testing::HasSubstr;
constexpr PrimitiveType kF = PrimitiveType::kF32;

Program Good() {
  Program p;
  p.name = "good";
  p.regions.resize(2);
  const int32_t in = AddInput(p, kF, {8}), out = AddOutput(p, kF, {8});
  p.arena_bytes = 64;
  p.num_slots = 1;
  const int32_t mid = AddValue(p, ValueKind::kArena, 0, 32),
                slot = AddValue(p, ValueKind::kSlot, 0, 32);
  const int32_t k = AddKernel(p, "add_one");
  const View m = MakeView(mid, kF, {8}), s = MakeView(slot, kF, {8});
  p.regions[0].steps = {KernelCall(k, {MakeView(in, kF, {8}), m}, 8),
                        FrameworkCall("test.add", {m, m}, s, ResultRule::kOwned),
                        {.body = CopyStep{s, MakeView(out, kF, {8})}, .name = "copy"}};
  p.regions[0].steps[2].release_slots = {0};
  return p;
}

KernelStep& Kernel(Program& p) { return std::get<KernelStep>(p.regions[0].steps[0].body); }
FrameworkStep& Call(Program& p) { return std::get<FrameworkStep>(p.regions[0].steps[1].body); }
CopyStep& Copy(Program& p) { return std::get<CopyStep>(p.regions[0].steps[2].body); }

struct Case {
  const char* name;
  std::function<void(Program&)> spoil;
  const char* message;
};

const Case kCases[] = {
    {"value", [](Program& p) { Kernel(p).operands[0].value = 99; }, "value 99 of 4"},
    {"kernel", [](Program& p) { Kernel(p).kernel = 7; }, "kernel 7 of 1"},
    {"grain", [](Program& p) { Kernel(p).grain = 0; }, "grain 0"},
    {"results", [](Program& p) { Kernel(p).num_results = 3; }, "3 results"},
    {"tensor argument", [](Program& p) { Call(p).args[0].i = 5; }, "tensor argument 5 of 2"},
    {"owned outside of a slot", [](Program& p) { Call(p).results[0].value = 1; },
     "an owned result outside of a slot"},
    {"out in a slot", [](Program& p) { Call(p).rule = ResultRule::kOut; },
     "an out= result in a slot"},
    {"copy shapes", [](Program& p) { Copy(p).to.dims = {4}; }, "a copy between different shapes"},
    {"view outside of the arena value", [](Program& p) { Kernel(p).operands[1].byte_offset = 4; },
     "which has 32 bytes"},
    {"arena", [](Program& p) { p.values[2].offset = 64; }, "of an arena of 64 bytes"},
    {"alignment",
     [](Program& p) {
       p.arena_bytes = 512;
       p.values[2].offset = 4;
     },
     "not aligned"},
    {"lent by no output", [](Program& p) { p.values[2] = {.kind = ValueKind::kLent, .index = 5, .bytes = 32}; }, "output 5 of 1"},
    {"more than is lent", [](Program& p) { p.values[2] = {.kind = ValueKind::kLent, .offset = 64, .bytes = 32}; },
     "[64, +32) of an output of"},
    {"lent by a slot",
     [](Program& p) {
       p.outputs[0].kind = OutputKind::kSlot;
       p.values[2] = {.kind = ValueKind::kLent, .bytes = 32};
     },
     "no memory"},
    {"alignment of what is lent",
     [](Program& p) {
       p.outputs[0].dims = {64};
       p.values[2] = {.kind = ValueKind::kLent, .offset = 32, .bytes = 32};
     },
     "not aligned"},
    {"scratch beyond the arena", [](Program& p) { Kernel(p).room = {-1, 64, 64}; }, "[64, +64) of the arena, which has 64 bytes"},
    {"scratch of a wild size", [](Program& p) { Kernel(p).room = {-1, 64, INT64_MAX}; }, "of the arena"},
    {"scratch where the step writes", [](Program& p) { Kernel(p).room = {-1, 0, 64}; }, "scratch where value 2 of the step lies"},
    {"alignment of scratch", [](Program& p) { Kernel(p).room = {-1, 32, 32}; }, "scratch in [32, +32)"},
    {"scratch beyond an output", [](Program& p) { Kernel(p).room = {0, 0, 64}; }, "scratch in [0, +64) of output 0, which has 32 bytes"},
    {"scratch in no output", [](Program& p) { Kernel(p).room = {3, 0, 64}; }, "output 3 of 1"},
    {"slot", [](Program& p) { p.values[3].index = 4; }, "slot 4 of 1"},
    {"use after release", [](Program& p) { p.regions[0].steps[1].release_slots = {0}; },
     "used after its release"},
    {"double release", [](Program& p) { p.regions[0].steps[2].release_slots = {0, 0}; },
     "released twice"},
    {"input release", [](Program& p) { p.regions[0].steps[0].release_inputs = {3}; },
     "input 3 of 1"},
    {"dim slot", [](Program& p) { Kernel(p).end = ~5; }, "dim slot 5 of 0"},
    {"dim program order", [](Program& p) { p.dim_program = {{DimOp::Kind::kAdd, ~0, 1}}; },
     "dim slot 0 of 0"},
    {"input axis", [](Program& p) { p.dim_program = {{DimOp::Kind::kInputDim, 0, 3}}; },
     "axis 3 of 1"},
    {"commit region", [](Program& p) { p.commit_region = 9; }, "commit region 9"},
    {"recursion",
     [](Program& p) {
       p.regions[1].steps = {
           {.body = ConditionalStep{MakeView(0, PrimitiveType::kS32, {}), {1}}, .name = "self"}};
     },
     "runs itself"},
    {"predicate",
     [](Program& p) {
       p.regions[0].steps.push_back({.body = WhileStep{1, 1, MakeView(0, kF, {})}, .name = "w"});
     },
     "needs a predicate"},
    {"code", [](Program& p) { p.code[0].object.clear(); }, "0 bytes of code"},
    {"a packed input for a kernel", [](Program& p) { p.inputs[0].packed_by = "test.add"; },
     "packed for test.add is read by something else"},
    {"a packed input for another call",
     [](Program& p) {
       Kernel(p).operands[0].value = 2;
       Call(p).operands[0].value = 0;
       p.inputs[0].packed_by = "test.multiply";
     },
     "packed for test.multiply is read by something else"},
    {"a part of a packed input",
     [](Program& p) {
       Kernel(p).operands[0].value = 2;
       Call(p).operands[0] = MakeView(0, kF, {4});
       p.inputs[0].packed_by = "test.add";
     },
     "packed for test.add is read otherwise than as a whole"},
    {"output slot",
     [](Program& p) { p.outputs.push_back({.kind = OutputKind::kSlot, .index = 3}); },
     "slot 3 of 1"},
    {"output without memory", [](Program& p) { p.outputs[0].kind = OutputKind::kNone; },
     "has no memory"},
};

TEST(Validate, AcceptsAGoodProgram) { EXPECT_TRUE(Good().Validate().ok()) << Good().Validate(); }

TEST(Validate, AcceptsAPackedInputWhereItIsRead) {
  Program p = Good();
  Kernel(p).operands[0].value = 2;
  Call(p).operands[0].value = 0;
  p.inputs[0].packed_by = "test.add";
  EXPECT_TRUE(p.Validate().ok()) << p.Validate();
}

TEST(Validate, RefusesEachBrokenInvariant) {
  for (const Case& c : kCases) {
    Program p = Good();
    c.spoil(p);
    const absl::Status status = p.Validate();
    EXPECT_FALSE(status.ok()) << c.name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message)) << c.name;
  }
}

TEST(Validate, NamesTheStep) {
  Program p = Good();
  Kernel(p).kernel = 7;
  EXPECT_THAT(std::string(p.Validate().message()),
              HasSubstr("program good: region 0, step kernel: "));
}

TEST(ToString, ShowsStepsValuesAndReleases) {
  const std::string text = Good().ToString();
  for (const char* part : {"program \"good\" native", "v2 = arena [0, +32)",
                           "kernel add_one(v0:f32[8]{1}, v2:f32[8]{1})", "call test.add",
                           "-> owned (v3:f32[8]{1})", "release slots 0"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(DimProgram, FoldsAndDividesToMinusInfinity) {
  Program p;
  p.inputs.resize(1);
  p.inputs[0].dims = p.inputs[0].strides = {1};
  DimProgramBuilder b(&p);
  using Kind = DimOp::Kind;
  EXPECT_EQ(b.Emit({Kind::kAdd, 3, 4}), 7);
  const SizeRef minus = b.Emit({Kind::kSub, 3, 10});
  EXPECT_EQ(b.Emit({Kind::kMul, minus, minus}), 49);
  EXPECT_EQ(
      b.Emit({Kind::kSub, b.Emit({Kind::kFloorDiv, minus, 2}), b.Emit({Kind::kConstant, -4})}), 0);
  EXPECT_EQ(b.Emit({Kind::kMod, minus, 4}), 1);
  const SizeRef n = b.Emit({Kind::kInputDim, 0, 0});
  EXPECT_EQ(b.Emit({Kind::kMul, n, 1}), n);
  EXPECT_EQ(b.Emit({Kind::kAdd, 0, n}), n);
}

// Of sums, differences and products that 64 bits don't hold, and quotients: neither folded nor computed.
TEST(DimProgram, RefusesWhatIsNoNumber) {
  using Kind = DimOp::Kind;
  constexpr int64_t kMost = INT64_MAX;
  for (const auto& [kind, size, by, fits] : {std::tuple(Kind::kAdd, kMost - 1, int64_t{1}, true), {Kind::kAdd, kMost, 1, false},
                                             {Kind::kSub, -2, kMost, false}, {Kind::kMul, int64_t{1} << 31, int64_t{1} << 31, true},
                                             {Kind::kMul, int64_t{1} << 31, int64_t{1} << 32, false}, {Kind::kFloorDiv, 1, 0, false},
                                             {Kind::kFloorDiv, INT64_MIN, -1, false}, {Kind::kMod, INT64_MIN, -1, false}}) {
    Program p;
    p.inputs.resize(1);
    p.inputs[0].dims = p.inputs[0].strides = {1};
    DimProgramBuilder b(&p);
    const SizeRef ref = b.Emit({kind, b.Emit({Kind::kInputDim, 0, 0}), b.Emit({Kind::kConstant, by})});
    EXPECT_LT(ref, 0);
    const int64_t folded = b.Emit({kind, b.Emit({Kind::kConstant, size}), b.Emit({Kind::kConstant, by})});
    EXPECT_EQ(folded >= 0 || p.dim_program[~folded].kind == Kind::kConstant, fits) << size << " " << by;
    p.dim_program.resize(static_cast<size_t>(~ref) + 1);
    TenonTensor input = {};
    input.ndim = 1, input.sizes = &size, input.strides = &size;
    std::vector<int64_t> slots;
    EXPECT_EQ(EvaluateDims(p.dim_program, &input, &slots).ok(), fits) << size << " " << by;
  }
}

}  // namespace
}  // namespace tenon::testing
