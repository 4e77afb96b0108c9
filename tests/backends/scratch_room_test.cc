// Scratch of a program's kernels: in the arena or in an output's memory, where nothing is alive that anybody reads later.
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <random>
#include <span>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backends/driver/compile.h"
#include "backends/driver/literal_executable.h"
#include "hlo/check.h"
#include "hlo/eval/evaluator.h"
#include "hlo/text/text.h"
#include "hlo/tolerance.h"
#include "runtime/program/step_views.h"
#include "tests/backends/hlo_cases.h"

namespace tenon {
namespace {

// Two layers, then many more columns than all that was before: the output has room until it is written.
constexpr char kModule[] = R"(HloModule m
ENTRY main {
  x = f32[24,512] parameter(0)
  w1 = f32[1024,512] parameter(1)
  w2 = f32[512,1024] parameter(2)
  w3 = f32[4096,512] parameter(3)
  h = f32[24,1024] dot(x, w1), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  a = f32[24,1024] abs(h)
  y = f32[24,512] dot(a, w2), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT z = f32[24,4096] dot(y, w3), lhs_contracting_dims={1}, rhs_contracting_dims={1}
})";

TEST(ScratchRoom, IsInTheOutputUntilItIsWritten) {
  auto module = *ParseModule(kModule);
  const Binding binding = BindingOf(*module);
  const absl::StatusOr<Program> program = CompileToProgram(std::move(module), binding, {.verify_passes = true, .provider = "generated"});
  ASSERT_TRUE(program.ok()) << program.status();
  int in_output = 0, with_scratch = 0;
  const std::vector<Step>& steps = program->regions[0].steps;
  for (const Step& step : steps) {
    const auto& kernel = std::get<KernelStep>(step.body);
    const int64_t scratch = program->kernels[static_cast<size_t>(kernel.kernel)].scratch_bytes;
    if (scratch == 0) continue;
    ++with_scratch;
    if (kernel.room.output != 0) continue;
    ++in_output;
    EXPECT_NE(&step, &steps.back()) << "which writes it";
    EXPECT_GE(kernel.room.bytes, 2 * scratch) << program->ToString();
  }
  EXPECT_EQ(with_scratch, 3) << program->ToString();
  EXPECT_EQ(in_output, 2) << program->ToString();
}

TEST(ScratchRoom, GivesTheEvaluatorsValues) {
  auto module = *ParseModule(kModule);
  std::vector<Literal> args;
  for (const Instruction* p : module->entry()->parameters()) {
    Literal value(p->shape());
    const std::span<float> numbers = value.mutable_data<float>();
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i * i % 3) - 1;  // sums are exact
    args.push_back(std::move(value));
  }
  const absl::StatusOr<Literal> want = Evaluate(*module, args);
  ASSERT_TRUE(want.ok()) << want.status();
  const auto compiled = LiteralExecutable::Compile(*module, {.provider = "generated"});
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  for (int run = 0; run < 2; ++run) {
    const auto got = (*compiled)->Run(args);
    ASSERT_TRUE(got.ok()) << got.status();
    const LiteralDifference d = CompareLiterals((*got)[0], *want);
    EXPECT_TRUE(d.within) << d.what;
  }
}

struct Use {
  size_t first = SIZE_MAX, last = 0;  // steps of a region
};

// By value: where `region` uses it, in the regions that its steps run too.
std::map<int32_t, Use> UsesIn(const Program& program, const Region& region) {
  std::map<int32_t, Use> uses;
  for (size_t i = 0; i < region.steps.size(); ++i) {
    ForEachViewInside(program, region.steps[i], [&](const View& view) {
      if (view.value < 0) return;
      Use& use = uses[view.value];
      use = {std::min(use.first, i), i};
    });
  }
  return uses;
}

// Of what a step works beside: does `value` lie in `room`, if it is alive?
bool LiesIn(const Value& value, const FreeMemory& room) {
  const bool arena = value.kind == ValueKind::kArena && value.space == 0 && room.output < 0;
  const bool lent = value.kind == ValueKind::kLent && value.index == room.output;
  return (arena || lent) && value.offset < room.offset + room.bytes && room.offset < value.offset + value.bytes;
}

// Products and sums of values of 24 rows, drawn from all that were made before; two or three of them are results.
std::string DrawnModule(uint32_t seed) {
  std::mt19937 random(seed);
  auto below = [&](size_t n) { return random() % n; };
  constexpr int kSizes[] = {128, 512, 1024};
  auto type = [](int columns) { return absl::StrCat("f32[24,", columns, "] "); };
  std::vector<std::pair<std::string, int>> values = {{"x", 128}};  // and their columns
  std::string body = "  x = f32[24,128] parameter(0)\n";
  int parameters = 1;
  const size_t count = 4 + below(14);
  for (size_t k = 0; k < count; ++k) {
    const auto [from, columns] = values[below(values.size())];
    const std::string name = absl::StrCat("v", k);
    const auto [other, others] = values[below(values.size())];
    if (columns == others && below(3) == 0) {
      absl::StrAppend(&body, "  ", name, " = ", type(columns), "add(", from, ", ", other, ")\n");
      values.emplace_back(name, columns);
      continue;
    }
    const int to = kSizes[below(3)];
    absl::StrAppend(&body, "  w", k, " = f32[", to, ",", columns, "] parameter(", parameters++, ")\n");
    absl::StrAppend(&body, "  ", name, " = ", type(to), "dot(", from, ", w", k, "), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n");
    values.emplace_back(name, to);
  }
  std::vector<std::string> results, types;
  for (size_t k = 0; k < 2 + below(2); ++k) {
    const auto& [name, columns] = values[values.size() - 1 - below(values.size() / 2)];
    if (absl::c_linear_search(results, name)) continue;
    results.push_back(name), types.push_back(type(columns));
  }
  return absl::StrCat("HloModule m\nENTRY main {\n", body, "  ROOT r = (", absl::StrJoin(types, ", "), ") tuple(",
                      absl::StrJoin(results, ", "), ")\n}\n");
}

// By the steps alone, whatever the buffer plan thought: no room holds what was used before and is used behind, and none is an output's that
// was written.
void ExpectRoomsHoldNothing(const Program& program, int64_t* rooms, int64_t* in_outputs) {
  for (const Region& region : program.regions) {
    const std::map<int32_t, Use> uses = UsesIn(program, region);
    for (size_t i = 0; i < region.steps.size(); ++i) {
      const auto* kernel = std::get_if<KernelStep>(&region.steps[i].body);
      if (kernel == nullptr || kernel->room.bytes == 0) continue;
      ++*rooms;
      *in_outputs += kernel->room.output >= 0;
      for (const auto& [v, use] : uses) {
        const Value& value = program.values[static_cast<size_t>(v)];
        const bool written = value.kind == ValueKind::kOutput && value.index == kernel->room.output && use.first <= i;
        EXPECT_FALSE(written || (use.first <= i && i <= use.last && LiesIn(value, kernel->room)))
            << region.steps[i].name << " value " << v << "\n" << program.ToString();
      }
    }
  }
}

TEST(ScratchRoom, HoldsNothingThatLaterStepsRead) {
  int64_t rooms = 0, in_outputs = 0;
  auto look = [&](const std::string& text) {
    SCOPED_TRACE(text);
    auto module = ParseModule(text);
    ASSERT_TRUE(module.ok()) << module.status();
    const Binding binding = BindingOf(**module);
    const absl::StatusOr<Program> program = CompileToProgram(*std::move(module), binding, {.provider = "generated"});
    if (program.ok()) ExpectRoomsHoldNothing(*program, &rooms, &in_outputs);  // else: what is to be refused
  };
  for (const HloCase& c : LoadCases(std::string(TENON_SOURCE_DIR) + "/tests/backends")) look(c.text);
  for (uint32_t seed = 0; seed < 60; ++seed) look(DrawnModule(seed));
  std::cout << rooms << " rooms, " << in_outputs << " of them in outputs\n";
  EXPECT_GT(rooms, 100);
  EXPECT_GT(in_outputs, 30);
  EXPECT_GT(rooms - in_outputs, 30);
}

}  // namespace
}  // namespace tenon
