// One math body compiled for the host: y[i] = f(a[i], b[i]) over arrays, in vectors of a chosen
// width.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "backends/codegen/math/library.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/TargetParser/Host.h"

namespace tenon::ulp_sweep {

// Emits the body under test on one or two operands.
using BodyEmitter =
    std::function<llvm::Value*(llvm::IRBuilderBase&, std::span<llvm::Value* const>)>;

struct JitOptions {
  int width = 0;  // lanes; 0: as wide as the host; 1: a scalar, not a vector of one
  bool is_double = false;
  std::string cpu;  // empty: the host; "x86-64-v3" is AVX2 with FMA
};

inline int HostWidth(const std::string& cpu) {
  if (!cpu.empty()) return 8;
  return llvm::sys::getHostCPUFeatures().lookup("avx512f") ? 16 : 8;
}

class JitBody {
 public:
  static absl::StatusOr<JitBody> Create(int arity, const BodyEmitter& emit, JitOptions options);

  // n must be a multiple of width(). b is not read by unary bodies.
  void Run(const void* a, const void* b, void* y, int64_t n) const { entry_(a, b, y, n); }

  int width() const { return width_; }
  int instructions() const { return instructions_; }  // LLVM instructions emitted for the body

 private:
  JitBody() = default;
  void Build(llvm::Module& module, int arity, const BodyEmitter& emit, bool is_double);

  std::unique_ptr<llvm::orc::LLJIT> jit_;
  void (*entry_)(const void*, const void*, void*, int64_t) = nullptr;
  int width_ = 0;
  int instructions_ = 0;
};

inline absl::Status ToStatus(llvm::Error error) {
  return absl::InternalError(llvm::toString(std::move(error)));
}

// for (i = 0; i < n; i += width) store(body(load a + i, load b + i), y + i)
inline void JitBody::Build(llvm::Module& module, int arity, const BodyEmitter& emit,
                           bool is_double) {
  llvm::LLVMContext& context = module.getContext();
  llvm::IRBuilder<> b(context);
  llvm::Type* scalar = is_double ? b.getDoubleTy() : b.getFloatTy();
  llvm::Type* type = width_ == 1 ? scalar : llvm::FixedVectorType::get(scalar, width_);
  auto* signature = llvm::FunctionType::get(
      b.getVoidTy(), {b.getPtrTy(), b.getPtrTy(), b.getPtrTy(), b.getInt64Ty()}, false);
  auto* function =
      llvm::Function::Create(signature, llvm::Function::ExternalLinkage, "body", module);
  function->addFnAttr("prefer-vector-width", "512");
  auto* entry = llvm::BasicBlock::Create(context, "entry", function);
  auto* loop = llvm::BasicBlock::Create(context, "loop", function);
  auto* done = llvm::BasicBlock::Create(context, "done", function);
  b.SetInsertPoint(entry);
  b.CreateCondBr(b.CreateICmpSGT(function->getArg(3), b.getInt64(0)), loop, done);
  b.SetInsertPoint(loop);
  llvm::PHINode* i = b.CreatePHI(b.getInt64Ty(), 2);
  i->addIncoming(b.getInt64(0), entry);
  llvm::Align align(is_double ? 8 : 4);
  std::vector<llvm::Value*> args;
  for (int k = 0; k < arity; ++k) {
    args.push_back(b.CreateAlignedLoad(type, b.CreateGEP(scalar, function->getArg(k), i), align));
  }
  size_t before = loop->size();
  llvm::Value* y = emit(b, args);
  instructions_ = static_cast<int>(loop->size() - before);
  b.CreateAlignedStore(y, b.CreateGEP(scalar, function->getArg(2), i), align);
  llvm::Value* next = b.CreateAdd(i, b.getInt64(width_));
  i->addIncoming(next, b.GetInsertBlock());
  b.CreateCondBr(b.CreateICmpSLT(next, function->getArg(3)), loop, done);
  b.SetInsertPoint(done);
  b.CreateRetVoid();
}

inline absl::StatusOr<JitBody> JitBody::Create(int arity, const BodyEmitter& emit,
                                               JitOptions options) {
  static const bool kTargetReady = [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    return true;
  }();
  (void)kTargetReady;
  JitBody body;
  body.width_ = options.width ? options.width : HostWidth(options.cpu);

  auto machine = llvm::orc::JITTargetMachineBuilder::detectHost();
  if (!machine) return ToStatus(machine.takeError());
  if (!options.cpu.empty()) {
    machine->setCPU(options.cpu);
    machine->getFeatures() = llvm::SubtargetFeatures();
  }
  auto jit = llvm::orc::LLJITBuilder().setJITTargetMachineBuilder(std::move(*machine)).create();
  if (!jit) return ToStatus(jit.takeError());
  body.jit_ = std::move(*jit);

  auto context = std::make_unique<llvm::LLVMContext>();
  auto module = std::make_unique<llvm::Module>("ulp_sweep", *context);
  module->setDataLayout(body.jit_->getDataLayout());
  body.Build(*module, arity, emit, options.is_double);
  math::DefineLibraryFunctions(*module);  // pow, as a GPU has it
  std::string problem;
  llvm::raw_string_ostream out(problem);
  if (llvm::verifyModule(*module, &out)) return absl::InternalError(problem);
  if (auto error = body.jit_->addIRModule(
          llvm::orc::ThreadSafeModule(std::move(module), std::move(context)))) {
    return ToStatus(std::move(error));
  }
  auto address = body.jit_->lookup("body");
  if (!address) return ToStatus(address.takeError());
  body.entry_ = address->toPtr<void (*)(const void*, const void*, void*, int64_t)>();
  return body;
}

}  // namespace tenon::ulp_sweep
