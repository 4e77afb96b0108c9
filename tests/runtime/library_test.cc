// Library steps: what Validate refuses, what runs, what a run keeps, and what happens when there is no memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <stdexcept>

#include "hlo/library/custom_calls.h"
#include "runtime/execute/frame.h"
#include "tests/runtime/fakes.h"

namespace tenon::testing {
namespace {

using ::testing::HasSubstr;
constexpr PrimitiveType kF = PrimitiveType::kF32;

// out = cholesky(in), of 3 x 3.
Program Cholesky() {
  Program p;
  p.name = "library";
  p.regions.resize(1);
  const int32_t in = AddInput(p, kF, {3, 3}), out = AddOutput(p, kF, {3, 3});
  LibraryStep call{.function = "cholesky", .operands = {MakeView(in, kF, {3, 3})}, .results = {MakeView(out, kF, {3, 3})}};
  call.attributes.Set("lower", int64_t{1});
  call.scratch_bytes = 2 * 128;  // two copies in double
  p.regions[0].steps = {{.body = std::move(call), .name = "l"}};
  return p;
}

LibraryStep& Call(Program& p) { return std::get<LibraryStep>(p.regions[0].steps[0].body); }

RunResult RunOn(Executable& e, Array& in, Array& out) {
  TenonTensor inputs[] = {in.tensor()}, outputs[] = {out.tensor()};
  return e.Run(inputs, outputs);
}

struct Case {
  const char* name;
  std::function<void(Program&)> spoil;
  const char* message;
};

const Case kCases[] = {
    {"unknown function", [](Program& p) { Call(p).function = "choleski"; }, "no library function \"choleski\""},
    {"no attribute", [](Program& p) { Call(p).attributes = {}; }, "wanted lower"},
    {"attribute of another kind",
     [](Program& p) {
       Call(p).attributes = {};
       Call(p).attributes.Set("lower", std::string("true"));
     },
     "wanted lower"},
    {"no operand", [](Program& p) { Call(p).operands.clear(); }, "wanted one array each"},
    {"absent operand", [](Program& p) { Call(p).operands[0].value = -1; }, "an absent array"},
    {"value", [](Program& p) { Call(p).operands[0].value = 9; }, "value 9 of 2"},
    {"shape", [](Program& p) { Call(p).operands[0] = MakeView(0, kF, {9}); }, "of one shape"},
    {"type", [](Program& p) { Call(p).operands[0].dtype = Call(p).results[0].dtype = PrimitiveType::kS32; }, "wanted float"},
    {"strides", [](Program& p) { Call(p).operands[0].strides = {1, 3}; }, "a view that isn't dense"},
    {"symbolic", [](Program& p) {
       p.dim_program = {{DimOp::Kind::kInputDim, 0, 0}};
       Call(p).operands[0].dims[0] = ~0;
     }, "views of symbolic sizes"},
    {"scratch", [](Program& p) { Call(p).scratch_bytes = 0; }, "0 bytes of scratch, wanted 256"},
    {"result in an input", [](Program& p) { Call(p).results[0].value = 0; }, "outside of the arena and the outputs"},
    {"view outside of its value", [](Program& p) { Call(p).results[0].byte_offset = 4; }, "has 36 bytes"},
};

TEST(LibraryStep, ValidateRefusesEachBrokenInvariant) {
  ASSERT_TRUE(Cholesky().Validate().ok()) << Cholesky().Validate();
  for (const Case& c : kCases) {
    Program p = Cholesky();
    c.spoil(p);
    const absl::Status status = p.Validate();
    EXPECT_FALSE(status.ok()) << c.name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message)) << c.name;
    EXPECT_FALSE(Executable::Create(std::move(p), FakeLoader(), DefaultHost()).ok()) << c.name;
  }
}

TEST(LibraryStep, PrintsWhatItCalls) {
  EXPECT_THAT(Cholesky().ToString(),
              HasSubstr("l = library cholesky{lower=1} of (v0:f32[3,3]{3,1}) -> (v1:f32[3,3]{3,1}) scratch 256"));
}

TEST(LibraryStep, RunsAndIsCounted) {
  FakeHost host;
  auto e = *Executable::Create(Cholesky(), FakeLoader(), host.get());
  Array in({3, 3}), out({3, 3}, 7);
  in.data = {4, 0, 0, 2, 5, 0, 0, 4, 6};
  for (int run = 0; run < 2; ++run) ASSERT_EQ(RunOn(*e, in, out).code, TENON_OK);
  EXPECT_EQ(out.data, (std::vector<float>{2, 0, 0, 1, 2, 0, 0, 2, std::sqrt(2.0f)}));
  EXPECT_THAT(e->StatsJson(false), HasSubstr("\"library\":[{\"name\":\"l\",\"source\":\"\",\"count\":2,"));
  EXPECT_THAT(e->InfoJson(), HasSubstr("\"kind\":\"library\",\"name\":\"l\""));
  e.reset();
  EXPECT_TRUE(host.clean());
}

// out = in sorted, of a size and stride that each call brings.
Program SortOfAnySize() {
  Program p;
  p.name = "sorted";
  p.regions.resize(1);
  p.dim_program = {{DimOp::Kind::kInputDim, 0, 0}, {DimOp::Kind::kInputStride, 0, 0}, {DimOp::Kind::kMul, ~0, 4}};
  const int32_t in = AddInput(p, kF, {1}), out = AddOutput(p, kF, {1});
  p.inputs[0].dims = {~0};
  p.inputs[0].strides = {~1};
  p.outputs[0].dims = {~0};
  p.values[in].bytes = p.values[out].bytes = ~2;
  View from = MakeView(in, kF, {~0}), to = MakeView(out, kF, {~0});
  from.strides = {~1};
  to.strides = {1};
  LibraryStep call{.function = "sort", .operands = {from}, .results = {to}, .scratch_bytes = -1};
  p.regions[0].steps = {{.body = std::move(call), .name = "s"}};
  return p;
}

TEST(LibraryStep, SymbolicSizesAreThoseOfEachCall) {
  FakeHost host;
  EXPECT_THAT(SortOfAnySize().ToString(), HasSubstr("scratch by size"));
  Program numbered = SortOfAnySize();
  Call(numbered).scratch_bytes = 64;
  EXPECT_THAT(numbered.Validate().ToString(), HasSubstr("64 bytes of scratch for symbolic sizes"));
  auto e = *Executable::Create(SortOfAnySize(), FakeLoader(), host.get());
  for (const int64_t n : {3, 3, 1000, 0, 1, 5}) {
    Array in({n}), out({n}, 7);
    std::vector<float> sorted;
    for (int64_t i = 0; i < n; ++i) in.data[static_cast<size_t>(i)] = static_cast<float>(i * 7 % n);
    sorted = in.data;
    std::sort(sorted.begin(), sorted.end());
    ASSERT_EQ(RunOn(*e, in, out).code, TENON_OK) << n;
    EXPECT_EQ(out.data, sorted);
  }
  Array in({4}), out({4}, 7);
  in.strides = {2};
  in.data.resize(8);
  const RunResult result = RunOn(*e, in, out);
  EXPECT_EQ(result.code, TENON_ERROR);
  EXPECT_THAT(result.error, HasSubstr("s: a view that isn't dense"));
  e.reset();
  EXPECT_TRUE(host.clean());
}

TEST(LibraryStep, EveryFailingAllocationIsAnErrorThatLeavesNothing) {
  FakeHost host;
  Program p = Cholesky();
  p.arena_bytes = 64;
  AddValue(p, ValueKind::kArena, 0, 64);
  auto e = *Executable::Create(std::move(p), FakeLoader(), host.get());
  Array in({3, 3}, 0), out({3, 3});
  int failures = 0;
  for (;; ++failures) {
    host.FailAllocation(failures);
    const RunResult result = RunOn(*e, in, out);
    if (result.code == TENON_OK) break;
    EXPECT_THAT(result.error, HasSubstr("out of memory"));
    FramePool::TrimIdle(0);  // the next run allocates all of it again
    ASSERT_LT(failures, 10);
  }
  EXPECT_EQ(failures, 2) << "the arena and the scratch";
  host.FailAllocation(-1);
  e.reset();
  EXPECT_TRUE(host.clean());
}

// bits = rng-get-and-update-state, twice.
TEST(LibraryStep, TheRandomStateBelongsToTheRun) {
  Program p;
  p.regions.resize(1);
  for (int k = 0; k < 2; ++k) {
    const int32_t out = AddOutput(p, PrimitiveType::kU64, {2});
    LibraryStep call{.function = "rng-get-and-update-state", .results = {MakeView(out, PrimitiveType::kU64, {2})}};
    call.attributes.Set("delta", int64_t{5});
    p.regions[0].steps.push_back({.body = std::move(call), .name = "s", .effect = Effect::kRandom});
  }
  auto e = *Executable::Create(std::move(p), FakeLoader(), DefaultHost());
  for (int run = 0; run < 2; ++run) {
    Array first({4}), second({4});  // 16 bytes each
    TenonTensor outputs[] = {first.tensor(), second.tensor()};
    ASSERT_EQ(e->Run(nullptr, outputs).code, TENON_OK);
    uint64_t a[2], b[2];
    std::memcpy(a, first.data.data(), 16);
    std::memcpy(b, second.data.data(), 16);
    EXPECT_EQ(a[0], 0x7012395u) << "every run begins anew";
    EXPECT_EQ(b[0], a[0] + 5);
  }
}

Program CustomProgram() {
  Program p = Cholesky();
  LibraryStep& call = Call(p);
  call.function = "custom-call";
  call.attributes = {};
  for (const char* name : {"backend_config", "instruction"}) call.attributes.Set(name, std::string(name));
  call.attributes.Set("name", std::string("c"));
  call.attributes.Set("target", std::string("runtime_test.twice"));
  call.attributes.Set("tuple", int64_t{0});
  call.scratch_bytes = 0;
  return p;
}

TEST(LibraryStep, CustomCallsAreLookedUpWhenTheyRun) {
  auto e = *Executable::Create(CustomProgram(), FakeLoader(), DefaultHost());
  Array in({3, 3}, 4), out({3, 3});
  RunResult result = RunOn(*e, in, out);
  EXPECT_EQ(result.code, TENON_ERROR);
  EXPECT_EQ(result.kind, absl::StatusCode::kUnimplemented);
  EXPECT_THAT(result.error, HasSubstr("\"runtime_test.twice\" is not registered"));

  RegisterCustomCall("runtime_test.twice", [](const CustomCall& call, absl::Span<const Literal> operands) -> absl::StatusOr<Literal> {
    EXPECT_EQ(call.backend_config, "backend_config");
    EXPECT_EQ(call.instruction, "instruction");
    Literal twice = operands[0];
    for (float& v : twice.mutable_data<float>()) v *= 2;
    return twice;
  });
  EXPECT_EQ(RunOn(*e, in, out).code, TENON_OK);
  EXPECT_THAT(out.data, ::testing::Each(8.0f));
  EXPECT_THAT(in.data, ::testing::Each(4.0f)) << "operands are copies";

  RegisterCustomCall("runtime_test.twice", [](const CustomCall&, absl::Span<const Literal>) -> absl::StatusOr<Literal> {
    return Literal::Scalar(PrimitiveType::kF32, 1);
  });
  result = RunOn(*e, in, out);
  EXPECT_EQ(result.kind, absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(result.error, HasSubstr("gave f32[], wanted f32[3,3]"));
  RegisterCustomCall("runtime_test.twice", [](const CustomCall&, absl::Span<const Literal>) -> absl::StatusOr<Literal> {
    throw std::runtime_error("thrown inside");
  });
  EXPECT_THAT(RunOn(*e, in, out).error, HasSubstr("thrown inside"));
  RegisterCustomCall("runtime_test.twice", nullptr);
}

}  // namespace
}  // namespace tenon::testing
