// The pipeline and the buffer plan at 16,000 instructions, where a quadratic step would be felt. How time grows is printed, not
// judged: benchmarks/compile_time.py --linear reports it.
#include <chrono>

#include "gtest/gtest.h"
#include "hlo/builder.h"
#include "passes/memory/buffer_plan.h"
#include "passes/pipeline.h"

namespace tenon {
namespace {

using Grow = std::function<Instruction*(Builder&, Instruction* x, Instruction* value, int64_t step)>;

// x, then n steps.
std::unique_ptr<Module> Chain(int64_t n, const Grow& grow) {
  auto module = std::make_unique<Module>("chain");
  Computation* entry = module->AddComputation("main");
  module->set_entry(entry);
  Builder b(entry);
  Instruction* x = b.Parameter(0, Shape::Array(PrimitiveType::kF32, {64, 64}));
  Instruction* value = x;
  for (int64_t i = 0; i < n; ++i) value = grow(b, x, value, i);
  entry->set_root(value);
  return module;
}

double Milliseconds(int64_t n, const Grow& grow) {
  double best = 1e9;
  for (int run = 0; run < 2; ++run) {
    auto module = Chain(n, grow);
    PassContext context;
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(RunPipeline(*module, context, {}).ok());
    EXPECT_TRUE(PlanBuffers(*module, {}).ok());
    best = std::min(best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

void AtScale(const char* what, const Grow& grow) {
  const double small = Milliseconds(1000, grow), middle = Milliseconds(5000, grow), large = Milliseconds(16000, grow);
  std::printf("%-28s 1,000: %6.1f ms   5,000: %6.1f ms   16,000: %6.1f ms\n", what, small, middle, large);
}

TEST(Scaling, Pointwise) {
  AtScale("pointwise chain", [](Builder& b, Instruction* x, Instruction* v, int64_t i) {
    return b.Binary(i % 3 == 0 ? Opcode::kAdd : i % 3 == 1 ? Opcode::kMultiply : Opcode::kSubtract, v, x);
  });
}

TEST(Scaling, ValuesReadTwice) {
  AtScale("residual pointwise",
               [last = static_cast<Instruction*>(nullptr)](Builder& b, Instruction* x, Instruction* v, int64_t i) mutable {
                 Instruction* skip = i < 2 ? x : last;
                 last = v;
                 return b.Binary(i % 2 == 0 ? Opcode::kAdd : Opcode::kMultiply, v, skip);
               });
}

TEST(Scaling, Views) {
  AtScale("views", [](Builder& b, Instruction*, Instruction* v, int64_t i) {
    return i % 2 == 0 ? b.Transpose(v, {1, 0}) : b.Reshape(b.Reshape(v, {Dim(4096)}), {Dim(64), Dim(64)});
  });
}

TEST(Scaling, Dots) {
  AtScale("dots with pointwise between", [](Builder& b, Instruction* x, Instruction* v, int64_t i) {
    return i % 2 == 0 ? b.Dot(v, x, {}, {}, {1}, {0}) : b.Binary(Opcode::kAdd, v, x);
  });
}

TEST(Scaling, Rows) {
  AtScale("row sums with pointwise", [](Builder& b, Instruction* x, Instruction* v, int64_t i) -> Instruction* {
    if (i % 4 != 0) return b.Binary(Opcode::kAdd, v, x);
    Instruction* sum = b.Reduce(v, b.ScalarConstant(PrimitiveType::kF32, 0), {1}, Opcode::kAdd);
    return b.Binary(Opcode::kSubtract, v, b.Broadcast(sum, v->shape().dims(), {0}));
  });
}

}  // namespace
}  // namespace tenon
