// Long loops whose values don't fit into the registers (backends/codegen/llvm/order_for_registers.h, sink_numbers.h).
#include <gtest/gtest.h>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "backends/codegen/llvm/order_for_registers.h"
#include "hlo/check.h"
#include "hlo/text/text.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "tests/backends/hlo_cases.h"
#include "tests/backends/kernel_runner.h"

namespace tenon {
namespace {

// Polynomials of x whose coefficients are polynomials of y, written row by row, as equations of state are; all coefficients differ.
std::string Polynomials(int count, int degree) {
  std::string text = "HloModule p\nENTRY e {\n  x = f32[1024] parameter(0)\n  y = f32[1024] parameter(1)\n";
  int number = 0;
  const auto coefficient = [&] {
    absl::StrAppend(&text, "  c", number, " = f32[] constant(", 1 + 0.001 * number, ")\n  b", number, " = f32[1024] broadcast(c", number,
                    "), dimensions={}\n");
    return absl::StrCat("b", number++);
  };
  int value = 0;
  const auto op = [&](const char* opcode, const std::string& a, const std::string& b) {
    absl::StrAppend(&text, "  v", value, " = f32[1024] ", opcode, "(", a, ", ", b, ")\n");
    return absl::StrCat("v", value++);
  };
  std::vector<std::string> rows;
  for (int k = 0; k < count; ++k) {
    std::string row = coefficient();
    for (int d = 0; d < degree; ++d) row = op("add", op("multiply", row, "y"), coefficient());
    rows.push_back(row);
  }
  std::string sum = rows[0];
  for (int k = 1; k < count; ++k) sum = op("add", op("multiply", sum, "x"), op("divide", rows[k], op("add", rows[k - 1], rows[0])));
  absl::StrAppend(&text, "  ROOT r = f32[1024] multiply(", sum, ", ", rows[count / 2], ")\n}");
  return text;
}

TEST(Registers, AreEnoughForLongPolynomials) {
  if (!absl::c_linear_search(HostIsas(), "avx512")) GTEST_SKIP() << "no AVX-512 here";
  auto module = ParseModule(Polynomials(12, 5));
  ASSERT_TRUE(module.ok()) << module.status();
  const KernelRequest request = DenseRequest(WrapEntryAsFusion(**module));
  const auto runner = KernelRunner::Make(request, {.isa = "avx512", .keep_text = true});
  ASSERT_TRUE(runner.ok()) << runner.status();
  int instructions = 0, spills = 0;
  for (absl::string_view line : absl::StrSplit(runner->assembly(), '\n')) {
    instructions += absl::StartsWith(line, "\t") && !absl::StartsWith(line, "\t.");
    spills += absl::StrContains(line, "(%rsp)");
  }
  EXPECT_GT(instructions, 150);
  EXPECT_LE(spills * 20, instructions) << runner->assembly();
}

// A block that branches to itself, of `loads` vectors that are loaded one behind the other, and then summed up backwards.
struct Loop {
  llvm::LLVMContext context;
  llvm::Module module{"m", context};
  llvm::Function* f = nullptr;
  llvm::BasicBlock* body = nullptr;

  Loop(int loads, bool stores_between) {
    llvm::IRBuilder<> b(context);
    auto* pointer = b.getPtrTy();
    f = llvm::Function::Create(llvm::FunctionType::get(b.getVoidTy(), {pointer, pointer, b.getInt1Ty()}, false),
                               llvm::Function::ExternalLinkage, "f", module);
    auto* entry = llvm::BasicBlock::Create(context, "entry", f);
    body = llvm::BasicBlock::Create(context, "body", f);
    auto* end = llvm::BasicBlock::Create(context, "end", f);
    b.SetInsertPoint(entry);
    b.CreateBr(body);
    b.SetInsertPoint(body);
    auto* vector = llvm::FixedVectorType::get(b.getFloatTy(), 16);
    std::vector<llvm::Value*> values;
    for (int k = 0; k < loads; ++k) {
      llvm::Value* at = b.CreateConstInBoundsGEP1_64(vector, f->getArg(0), k);
      values.push_back(b.CreateAlignedLoad(vector, at, llvm::Align(4)));
      values.push_back(b.CreateFMul(values.back(), values.back()));
    }
    if (stores_between) b.CreateAlignedStore(values[0], f->getArg(1), llvm::Align(4));
    // What is read behind it may be what was written. It is the first that is added, and the value that was stored the last.
    llvm::Value* sum = b.CreateAlignedLoad(vector, f->getArg(0), llvm::Align(4));
    for (size_t k = values.size(); k-- > 0;) sum = b.CreateFAdd(sum, values[k]);
    b.CreateAlignedStore(sum, b.CreateConstInBoundsGEP1_64(vector, f->getArg(1), 1), llvm::Align(4));
    b.CreateCondBr(f->getArg(2), body, end);
    b.SetInsertPoint(end);
    b.CreateRetVoid();
  }

  void Order(int registers) {
    llvm::DominatorTree tree(*f);
    llvm::LoopInfo loops(tree);
    OrderForRegisters(*f, loops, registers);
  }

  std::vector<std::string> Opcodes() const {
    std::vector<std::string> names;
    for (const llvm::Instruction& i : *body) names.emplace_back(i.getOpcodeName());
    return names;
  }
};

TEST(Registers, TheOrderIsAnotherWhereThereAreTooFew) {
  Loop loop(40, /*stores_between=*/false);
  const std::vector<std::string> before = loop.Opcodes();
  loop.Order(100);
  EXPECT_EQ(loop.Opcodes(), before) << "there are enough";
  loop.Order(32);
  std::vector<std::string> after = loop.Opcodes();
  EXPECT_NE(after, before);
  EXPECT_FALSE(llvm::verifyFunction(*loop.f, &llvm::errs()));
  // Loads stand where they are used, not all in front.
  int most = 0, pending = 0;
  for (const std::string& name : after) {
    pending += name == "load" ? 1 : name == "fadd" ? -1 : 0;
    most = std::max(most, pending);
  }
  EXPECT_LE(most, 8);
}

TEST(Registers, WhatIsWrittenAndReadKeepsItsOrder) {
  Loop loop(40, /*stores_between=*/true);
  loop.Order(32);
  std::vector<const llvm::Instruction*> memory;
  for (const llvm::Instruction& i : *loop.body) {
    if (llvm::isa<llvm::StoreInst>(i)) memory.push_back(&i);
    if (llvm::isa<llvm::LoadInst>(i) && !memory.empty()) memory.push_back(&i);
  }
  ASSERT_EQ(memory.size(), 3u) << "a store, a load, a store: no other load is behind the first store";
  EXPECT_TRUE(llvm::isa<llvm::StoreInst>(memory[0]) && llvm::isa<llvm::LoadInst>(memory[1]) && llvm::isa<llvm::StoreInst>(memory[2]));
}

}  // namespace
}  // namespace tenon
