// Copies of an op put in turns (backends/codegen/kernel/turns.h).
#include "backends/codegen/kernel/turns.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "backends/cpu/plan/kernel.h"
#include "backends/cpu/plan/target.h"
#include "hlo/text/text.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "tests/backends/hlo_cases.h"
#include "tests/backends/kernel_runner.h"

namespace tenon {
namespace {

// A function of three floats whose copies, one a float, are emitted by `emit(builder, x, copy)`, with an instruction in front of them and
// perhaps one behind; returns its instructions' names in order.
template <typename Emit>
std::string InTurns(const Emit& emit, bool more_behind, size_t together = 4) {
  llvm::LLVMContext context;
  llvm::Module module("m", context);
  llvm::IRBuilder<> b(context);
  llvm::Type* f32 = b.getFloatTy();
  auto* type = llvm::FunctionType::get(b.getVoidTy(), {f32, f32, f32}, false);
  auto* f = llvm::Function::Create(type, llvm::Function::ExternalLinkage, "f", module);
  auto* block = llvm::BasicBlock::Create(context, "block", f);
  b.SetInsertPoint(block);
  b.CreateFNeg(f->getArg(0), "front");
  llvm::Instruction* end = b.CreateRetVoid();
  if (more_behind) end = llvm::cast<llvm::Instruction>(llvm::IRBuilder<>(end).CreateFNeg(f->getArg(0), "behind"));
  b.SetInsertPoint(end);
  Turns turns(b);
  for (unsigned c = 0; c < 3; ++c) {
    emit(b, f->getArg(c), std::to_string(c));
    turns.EndCopy(b);
  }
  turns.Take(together);
  EXPECT_FALSE(llvm::verifyModule(module, nullptr));
  std::string names;
  for (const llvm::Instruction& i : *block) names += i.getName().str() + " ";
  return names;
}

TEST(Turns, GoFromCopyToCopy) {
  const auto chain = [](llvm::IRBuilder<>& b, llvm::Value* x, const std::string& copy) {
    llvm::Value* y = b.CreateFMul(x, x, "a" + copy);
    y = b.CreateFAdd(y, x, "b" + copy);
    b.CreateFSub(y, x, "c" + copy);
  };
  EXPECT_EQ(InTurns(chain, false), "front a0 a1 a2 b0 b1 b2 c0 c1 c2  ");
  EXPECT_EQ(InTurns(chain, true), "front a0 a1 a2 b0 b1 b2 c0 c1 c2 behind  ");
  EXPECT_EQ(InTurns(chain, true, 2), "front a0 a1 b0 b1 c0 c1 a2 b2 c2 behind  ");
}

TEST(Turns, LeaveCopiesOfOtherLengths) {
  const auto some = [](llvm::IRBuilder<>& b, llvm::Value* x, const std::string& copy) {
    llvm::Value* y = b.CreateFMul(x, x, "a" + copy);
    if (copy != "1") b.CreateFAdd(y, x, "b" + copy);
  };
  EXPECT_EQ(InTurns(some, true), "front a0 b0 a1 a2 b2 behind  ");
}

// Four copies where functions are long, many and have registers; two elsewhere.
TEST(Turns, AreTakenByFourOfManyElementsOfFunctions) {
  const auto unroll = [](const std::string& opcode, int64_t rows, const char* isa) {
    const std::string shape = absl::StrCat("f32[", rows, ",1000]");
    auto module = ParseModule(
        absl::StrCat("HloModule m\nENTRY e {\n  x = ", shape, " parameter(0)\n  ROOT y = ", shape, " ", opcode, "(x)\n}"));
    EXPECT_TRUE(module.ok()) << module.status();
    auto kernel = PlanCpuKernel(DenseRequest(WrapEntryAsFusion(**module)), *MakeCpuTarget(isa), true);
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    const std::string& text = (*kernel)->info().plan_text;
    return text.substr(text.find("unroll="), 8);
  };
  EXPECT_EQ(unroll("exponential", 512, "avx512"), "unroll=4");
  EXPECT_EQ(unroll("exponential", 512, "avx2"), "unroll=2");
  EXPECT_EQ(unroll("exponential", 12, "avx512"), "unroll=2");
  EXPECT_EQ(unroll("negate", 512, "avx512"), "unroll=2");
}

TEST(Turns, LeaveNothingAsItIs) {
  EXPECT_EQ(InTurns([](llvm::IRBuilder<>&, llvm::Value*, const std::string&) {}, true), "front behind  ");
}

}  // namespace
}  // namespace tenon
