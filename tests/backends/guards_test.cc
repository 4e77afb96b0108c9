// Programs of symbolic HLO, called with sizes that they were not compiled for: refused by name before anything is read.
#include "backends/driver/compile.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hlo/text/text.h"
#include "runtime/execute/executable.h"
#include "runtime/host/plain_host.h"
#include "runtime/program/guard.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;

struct Input {
  std::vector<int64_t> sizes, strides;
  std::vector<float> memory;
};

Input Of(std::vector<int64_t> sizes, std::vector<int64_t> strides = {}) {
  Input input{.sizes = std::move(sizes), .strides = std::move(strides)};
  int64_t elements = 1;
  for (size_t d = input.sizes.size(); d-- > 0; elements *= input.sizes[d]) {
    if (input.strides.size() < input.sizes.size()) input.strides.insert(input.strides.begin(), elements);
  }
  int64_t last = 0;
  for (size_t d = 0; d < input.sizes.size(); ++d) last += (input.sizes[d] - 1) * input.strides[d];
  input.memory.assign(static_cast<size_t>(std::max<int64_t>(last + 1, 0)), 1.0f);
  return input;
}

class Guards : public ::testing::Test {
 protected:
  // `entry`: the body of a computation of f32 arrays with one array as its root.
  void Compile(const std::string& symbols, const std::string& entry) {
    const std::string head = symbols.empty() ? "HloModule m" : "HloModule m, symbols={" + symbols + "}";
    absl::StatusOr<std::unique_ptr<Module>> module = ParseModule(head + "\nENTRY main {\n" + entry + "}\n");
    ASSERT_TRUE(module.ok()) << module.status();
    Binding binding = BindingOf(**module);
    if (change_) change_(&binding, **module);
    absl::StatusOr<Program> program = CompileToProgram(std::move(*module), binding, {.verify_passes = true});
    ASSERT_TRUE(program.ok()) << program.status();
    auto executable = Executable::Create(*std::move(program), LoadersOf({}), PlainHost(), {});
    ASSERT_TRUE(executable.ok()) << executable.status();
    executable_ = *std::move(executable);
  }

  // "" or what was wrong.
  std::string Run(std::vector<Input> inputs) {
    std::vector<TenonTensor> tensors;
    for (Input& input : inputs) {
      TenonTensor t = {};
      t.data = input.memory.data();
      t.sizes = input.sizes.data();
      t.strides = input.strides.data();
      t.dtype = static_cast<int32_t>(PrimitiveType::kF32);
      t.ndim = static_cast<int32_t>(input.sizes.size());
      tensors.push_back(t);
    }
    std::vector<int64_t> sizes, strides;
    if (absl::Status s = executable_->OutputSizes(tensors.data(), 0, &sizes, &strides); !s.ok()) return std::string(s.message());
    int64_t elements = 1;
    for (int64_t size : sizes) elements *= size;
    std::vector<float> result(static_cast<size_t>(elements));
    TenonTensor output = {};
    output.data = result.data();
    return executable_->Run(tensors.data(), &output).error;
  }

  std::function<void(Binding*, const Module&)> change_;
  std::shared_ptr<Executable> executable_;
};

TEST_F(Guards, ASymbolIsOneSizeInAllInputs) {
  Compile("", "x = f32[s0] parameter(0)\n y = f32[s0] parameter(1)\n ROOT z = f32[s0] add(x, y)\n");
  EXPECT_EQ(Run({Of({10}), Of({10})}), "");
  EXPECT_THAT(Run({Of({10}), Of({5})}), HasSubstr("input 1's size along dim 0: wanted s0 = 10, got 5"));
  EXPECT_EQ(Run({Of({0}), Of({0})}), "");
}

TEST_F(Guards, SizesThatAreExpressions) {
  Compile("", "x = f32[s0] parameter(0)\n y = f32[2*s0+1] parameter(1)\n ROOT z = f32[3*s0+1] concatenate(x, y), dimensions={0}\n");
  EXPECT_EQ(Run({Of({3}), Of({7})}), "");
  EXPECT_THAT(Run({Of({3}), Of({6})}), HasSubstr("wanted 2*s0+1 = 7, got 6"));
}

TEST_F(Guards, RangesAndDivisors) {
  Compile("s0:[4,64]%4", "x = f32[s0,3] parameter(0)\n ROOT z = f32[s0,3] negate(x)\n");
  EXPECT_EQ(Run({Of({8, 3})}), "");
  EXPECT_THAT(Run({Of({68, 3})}), HasSubstr("wanted s0 in [4, 64], divisible by 4, got 68"));
  EXPECT_THAT(Run({Of({0, 3})}), HasSubstr("got 0"));
  EXPECT_THAT(Run({Of({6, 3})}), HasSubstr("got 6"));
}

// The range says more of such a call than the division does, which is evaluated first.
TEST_F(Guards, RangesBeforeDivisions) {
  Compile("s0:[1,64]", "x = f32[s0] parameter(0)\n ROOT z = f32[floordiv(24,s0)] iota(), iota_dimension=0\n");
  EXPECT_EQ(Run({Of({8})}), "");
  EXPECT_THAT(Run({Of({0})}), HasSubstr("wanted s0 in [1, 64], got 0"));
}

TEST_F(Guards, Strides) {
  change_ = [](Binding* binding, const Module& module) {
    const Dim row = module.dims().Symbol("row");
    for (size_t i = 0; i < 2; ++i) binding->inputs[i].strides[0] = binding->parameters[i].strides[0] = row;
  };
  Compile("", "x = f32[s0,4] parameter(0)\n y = f32[s0,4] parameter(1)\n ROOT z = f32[s0,4] add(x, y)\n");
  EXPECT_EQ(Run({Of({3, 4}, {6, 1}), Of({3, 4}, {6, 1})}), "");
  EXPECT_THAT(Run({Of({3, 4}, {6, 1}), Of({3, 4}, {4, 1})}), HasSubstr("input 1's stride along dim 0: wanted row = 6, got 4"));
  EXPECT_EQ(Run({Of({1, 4}, {6, 1}), Of({1, 4}, {4, 1})}), "") << "one row: its stride means nothing";
}

TEST(Guard, TextAndValidation) {
  const Guard range{.kind = Guard::Kind::kRange, .lower = 2, .upper = 64, .divisor = 8, .text = "s0"};
  EXPECT_EQ(range.ToString(), "s0 in [2, 64], divisible by 8");
  Program program{.regions = {{.name = "main"}}};
  program.guards = {{.kind = Guard::Kind::kDim, .input = 3, .text = "s0"}};
  EXPECT_THAT(program.Validate().ToString(), HasSubstr("guard input 3's size along dim 0 is s0: input 3"));
  program.guards = {{.size = -2, .text = "s0"}};
  EXPECT_FALSE(program.Validate().ok());
  program.guards = {{.divisor = 0, .text = "s0"}};
  EXPECT_THAT(program.Validate().ToString(), HasSubstr("divisor 0"));
}

}  // namespace
}  // namespace tenon
