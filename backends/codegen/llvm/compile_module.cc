#include "backends/codegen/llvm/compile_module.h"

#include <mutex>
#include <new>
#include <optional>

#include "absl/base/const_init.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "backends/codegen/llvm/asked_once.h"
#include "backends/codegen/llvm/llvm_threads.h"
#include "backends/codegen/llvm/order_for_registers.h"
#include "backends/codegen/llvm/sink_numbers.h"
#include "hlo/check.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Scalar/LICM.h"
#include "llvm/Transforms/Scalar/LoopPassManager.h"
#include "llvm/Transforms/Utils/Cloning.h"
#include "runtime/fork.h"

namespace tenon {
namespace {

// LLVM's list of targets has no lock of its own: two threads that register the same one leave it there twice, and no lookup is good again.
ABSL_CONST_INIT absl::Mutex registry_mutex(absl::kConstInit);

void InitializeLlvmOnce(const LlvmTarget& target) {
  static std::once_flag once;
  std::call_once(once, [] {
    // LoopStrengthReduce costs 8 % of compile time and gains nothing on our loops. It has no other switch.
    auto& options = llvm::cl::getRegisteredOptions();
    if (auto it = options.find("disable-lsr"); it != options.end()) {
      static_cast<llvm::cl::opt<bool>*>(it->second)->setValue(true);
    }
  });
  absl::MutexLock lock(&registry_mutex);
  target.initialize();
}

absl::StatusOr<std::unique_ptr<llvm::TargetMachine>> MakeTargetMachine(const LlvmTarget& target) {
  std::string error;
  const llvm::Triple triple(target.triple);
  const llvm::Target* t = nullptr;
  {
    absl::MutexLock lock(&registry_mutex);
    t = llvm::TargetRegistry::lookupTarget(triple, error);
  }
  if (t == nullptr) return absl::InternalError(absl::StrCat("LLVM has no target for ", target.triple, ": ", error));
  llvm::TargetOptions options;
  options.FunctionSections = true;  // an undefined symbol is traced back to its kernel by section
  std::unique_ptr<llvm::TargetMachine> tm(t->createTargetMachine(triple, target.cpu, target.features, options,
                                                                 target.jit ? std::optional(llvm::Reloc::PIC_) : std::nullopt,
                                                                 llvm::CodeModel::Small,
                                                                 llvm::CodeGenOptLevel::Default, target.jit));
  if (tm == nullptr) return absl::InternalError("LLVM made no target machine");
  return tm;
}

// Target machines are dear (1-3 ms) and single-threaded: lent out, kept when given back, dropped after a failure.
class TargetMachinePool {
 public:
  static TargetMachinePool& Get() {
    static auto* pool = new TargetMachinePool;
    return *pool;
  }
  absl::StatusOr<std::unique_ptr<llvm::TargetMachine>> Take(const LlvmTarget& target) {
    {
      std::lock_guard lock(mutex_);
      for (auto it = idle_.begin(); it != idle_.end(); ++it) {
        if (it->first != target.Key()) continue;
        std::unique_ptr<llvm::TargetMachine> tm = std::move(it->second);
        idle_.erase(it);
        return tm;
      }
    }
    return MakeTargetMachine(target);
  }
  void Give(const LlvmTarget& target, std::unique_ptr<llvm::TargetMachine> tm) {
    std::lock_guard lock(mutex_);
    if (idle_.size() < 16) idle_.emplace_back(target.Key(), std::move(tm));
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<std::string, std::unique_ptr<llvm::TargetMachine>>> idle_;
};

// Masked stores of one lane that is known, as stores of that. LLVM 22 for x86 makes stores of them itself, but where the vector is a
// truncated one these are as wide as the elements before the truncation: bytes behind the lane are overwritten.
void StoreSingleLanes(llvm::Function& f) {
  for (llvm::Instruction& i : llvm::make_early_inc_range(llvm::instructions(f))) {
    auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(&i);
    if (call == nullptr || call->getIntrinsicID() != llvm::Intrinsic::masked_store) continue;
    const auto* mask = llvm::dyn_cast<llvm::Constant>(call->getArgOperand(2));
    const auto* type = llvm::dyn_cast<llvm::FixedVectorType>(call->getArgOperand(0)->getType());
    if (mask == nullptr || type == nullptr) continue;
    llvm::SmallVector<unsigned, 64> live;
    for (unsigned lane = 0; lane < type->getNumElements(); ++lane) {
      const llvm::Constant* element = mask->getAggregateElement(lane);
      if (element == nullptr || !element->isNullValue()) live.push_back(lane);
    }
    if (live.size() != 1) continue;
    llvm::IRBuilder<> b(call);
    llvm::Value* to = b.CreateConstInBoundsGEP1_64(type->getElementType(), call->getArgOperand(1), live[0]);
    b.CreateAlignedStore(b.CreateExtractElement(call->getArgOperand(0), live[0]), to, llvm::Align(1));
    call->eraseFromParent();
  }
}

// LLVM 22 for x86 takes a product of two vectors of 64-bit numbers that have 16 bits each for one of 32 bits, where it is shifted right and
// cut to 16 bits (combinePMULH): of shifts by more than 16 the bits above are lost, or the result is not computed at all. So these don't
// know by how much they shift.
void HideShiftsOfProducts(llvm::Function& f) {
  llvm::SmallVector<std::pair<uint64_t, llvm::Value*>, 2> hidden;
  for (llvm::Instruction& i : llvm::make_early_inc_range(llvm::instructions(f))) {
    if (i.getOpcode() != llvm::Instruction::LShr && i.getOpcode() != llvm::Instruction::AShr) continue;
    const auto* type = llvm::dyn_cast<llvm::FixedVectorType>(i.getType());
    const auto* product = llvm::dyn_cast<llvm::Instruction>(i.getOperand(0));
    const auto* by = llvm::dyn_cast<llvm::Constant>(i.getOperand(1));
    if (type == nullptr || !type->getElementType()->isIntegerTy(64) || product == nullptr || by == nullptr) continue;
    const auto* amount = llvm::dyn_cast_or_null<llvm::ConstantInt>(by->getSplatValue());
    if (product->getOpcode() != llvm::Instruction::Mul || amount == nullptr || amount->getZExtValue() <= 16) continue;
    auto* known = llvm::find_if(hidden, [&](const auto& h) { return h.first == amount->getZExtValue(); });
    if (known == hidden.end()) {
      llvm::BasicBlock& entry = f.getEntryBlock();
      llvm::IRBuilder<> b(&entry, entry.getFirstInsertionPt());
      llvm::Type* i64 = b.getInt64Ty();
      auto* same = llvm::InlineAsm::get(llvm::FunctionType::get(i64, {i64}, false), "", "=r,0", /*hasSideEffects=*/false);
      hidden.emplace_back(amount->getZExtValue(), b.CreateCall(same, {b.getInt64(amount->getZExtValue())}));
      known = &hidden.back();
    }
    llvm::IRBuilder<> b(&i);
    i.setOperand(1, b.CreateVectorSplat(type->getNumElements(), known->second));
  }
}

int VectorRegisters(const llvm::TargetMachine& tm) { return tm.getTargetCPU() == "x86-64-v4" ? 32 : 16; }

void Optimize(llvm::Module& module, llvm::TargetMachine* tm) {
  llvm::LoopAnalysisManager lam;
  llvm::FunctionAnalysisManager fam;
  llvm::CGSCCAnalysisManager cgam;
  llvm::ModuleAnalysisManager mam;
  llvm::PassBuilder builder(tm);
  builder.registerModuleAnalyses(mam);
  builder.registerCGSCCAnalyses(cgam);
  builder.registerFunctionAnalyses(fam);
  builder.registerLoopAnalyses(lam);
  builder.crossRegisterProxies(lam, fam, cgam, mam);
  llvm::FunctionPassManager fpm;
  fpm.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/false));
  fpm.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()), /*UseMemorySSA=*/true));
  const bool branches = tm->getTargetTriple().isX86();  // a device's threads would go both ways
  for (llvm::Function& f : module) {
    if (f.isDeclaration()) continue;
    fpm.run(f, fam);
    if (!branches) continue;
    StoreSingleLanes(f);
    HideShiftsOfProducts(f);
    SinkNumbers(f, fam.getResult<llvm::LoopAnalysis>(f));
    OrderForRegisters(f, fam.getResult<llvm::LoopAnalysis>(f), VectorRegisters(*tm));
    CopyLoopsForInside(f, fam.getResult<llvm::LoopAnalysis>(f));
    LoadWholeVectors(f);
  }
}

absl::Status Generate(llvm::Module& module, llvm::TargetMachine* tm, llvm::CodeGenFileType type,
                      llvm::SmallVectorImpl<char>* out) {
  llvm::raw_svector_ostream stream(*out);
  llvm::legacy::PassManager pm;
  if (tm->addPassesToEmitFile(pm, stream, nullptr, type, /*DisableVerify=*/true)) {
    return absl::InternalError("LLVM cannot emit this file type for the target");
  }
  pm.run(module);
  return absl::OkStatus();
}

void Print(const llvm::Module& module, std::string* text) {
  llvm::raw_string_ostream stream(*text);
  module.print(stream, nullptr);
}

// What one compile owns. After a fatal error it stays on its parked thread.
struct Work {
  std::unique_ptr<llvm::LLVMContext> context = std::make_unique<llvm::LLVMContext>();
  std::unique_ptr<llvm::Module> module;
  std::unique_ptr<llvm::TargetMachine> tm;
  std::string error;  // the first that LLVM reported (inline assembly, register allocation, ...); by itself it would end the process
  llvm::SmallVector<char, 0> object;
};

void OnDiagnostic(const llvm::DiagnosticInfo* diagnostic, void* work) {
  std::string& error = static_cast<Work*>(work)->error;
  if (diagnostic->getSeverity() != llvm::DS_Error || !error.empty()) return;
  llvm::raw_string_ostream stream(error);
  llvm::DiagnosticPrinterRawOStream printer(stream);
  diagnostic->print(printer);
}

// Between two phases nothing of LLVM is locked, so this is where a fork may come between, and where a compile may end.
absl::Status Between(const ModuleRequest& request, const Work& w, ForkSection& section) {
  section.Yield();
  if (!w.error.empty()) return absl::InternalError(absl::StrCat("LLVM: ", w.error));
  const bool stop = request.cancelled != nullptr && request.cancelled->load(std::memory_order_relaxed);
  return stop ? absl::CancelledError("interrupted") : absl::OkStatus();
}

absl::Status DoCompile(const ModuleRequest& request, Work& w) {
  ForkSection section;
  w.context->setDiagnosticHandlerCallBack(OnDiagnostic, &w);
  w.module = std::make_unique<llvm::Module>(request.name, *w.context);
  w.module->setTargetTriple(llvm::Triple(request.target.triple));
  w.module->setDataLayout(w.tm->createDataLayout());
  TENON_RETURN_IF_ERROR(request.emit(*w.module));
  TENON_RETURN_IF_ERROR(Between(request, w, section));
  if (request.inject_fault == "invalid-ir") {  // a block without a terminator
    llvm::Function* f = llvm::Function::Create(llvm::FunctionType::get(llvm::Type::getVoidTy(*w.context), false),
                                               llvm::Function::ExternalLinkage, "injected", *w.module);
    llvm::BasicBlock::Create(*w.context, "entry", f);
  }
  if (request.inject_fault == "unresolved-symbol") {
    llvm::FunctionType* type = llvm::FunctionType::get(llvm::Type::getVoidTy(*w.context), false);
    llvm::Function* f = llvm::Function::Create(type, llvm::Function::ExternalLinkage, "injected", *w.module);
    llvm::IRBuilder<> b(llvm::BasicBlock::Create(*w.context, "entry", f));
    b.CreateCall(w.module->getOrInsertFunction("tenon_injected_unlisted_symbol", type));
    b.CreateRetVoid();
  }
  if (request.emitted_ir != nullptr) Print(*w.module, request.emitted_ir);
  std::string error;
  llvm::raw_string_ostream stream(error);
  if (llvm::verifyModule(*w.module, &stream)) return absl::InternalError(absl::StrCat("invalid LLVM IR: ", error));
  if (request.inject_fault == "fatal-error") llvm::report_fatal_error("injected fatal error");
  if (request.inject_fault == "llvm-error") w.context->emitError("injected error");
  TENON_RETURN_IF_ERROR(Between(request, w, section));
  Optimize(*w.module, w.tm.get());
  TENON_RETURN_IF_ERROR(Between(request, w, section));
  if (request.llvm_ir != nullptr) Print(*w.module, request.llvm_ir);
  if (request.assembly != nullptr && !request.as_text) {  // code generation changes the module: on a copy
    std::unique_ptr<llvm::Module> copy = llvm::CloneModule(*w.module);
    llvm::SmallVector<char, 0> text;
    TENON_RETURN_IF_ERROR(Generate(*copy, w.tm.get(), llvm::CodeGenFileType::AssemblyFile, &text));
    request.assembly->assign(text.begin(), text.end());
  }
  if (request.bitcode != nullptr) {
    llvm::raw_string_ostream bytes(*request.bitcode);
    llvm::WriteBitcodeToFile(*w.module, bytes);
  }
  if (request.no_code && request.assembly == nullptr) return Between(request, w, section);
  const auto type = request.as_text ? llvm::CodeGenFileType::AssemblyFile : llvm::CodeGenFileType::ObjectFile;
  TENON_RETURN_IF_ERROR(Generate(*w.module, w.tm.get(), type, &w.object));
  if (request.as_text && request.repair != nullptr) {
    const std::string repaired = request.repair(std::string_view(w.object.data(), w.object.size()));
    w.object.assign(repaired.begin(), repaired.end());
  }
  if (request.assembly != nullptr && request.as_text) request.assembly->assign(w.object.begin(), w.object.end());
  TENON_RETURN_IF_ERROR(Between(request, w, section));
  return request.check ? request.check(std::span<const char>(w.object.data(), w.object.size())) : absl::OkStatus();
}

absl::Status Compile(const ModuleRequest& request, std::vector<uint8_t>* object) {
  InitializeLlvmOnce(request.target);
  auto work = std::make_unique<Work>();
  try {
    TENON_ASSIGN_OR_RETURN(work->tm, TargetMachinePool::Get().Take(request.target));
    TENON_RETURN_IF_ERROR(DoCompile(request, *work));
  } catch (const std::bad_alloc&) {
    (void)work.release();  // LLVM knows no exceptions: what they left half changed is not touched again
    throw;
  }
  object->assign(work->object.begin(), work->object.end());
  work->module.reset();
  TargetMachinePool::Get().Give(request.target, std::move(work->tm));
  return absl::OkStatus();
}

}  // namespace

std::vector<absl::StatusOr<std::vector<uint8_t>>> CompileModules(std::span<const ModuleRequest> requests, int threads,
                                                                   const std::function<void()>& while_waiting) {
  std::vector<std::vector<uint8_t>> objects(requests.size());
  std::vector<std::function<absl::Status()>> tasks;
  for (size_t k = 0; k < requests.size(); ++k) {
    tasks.push_back([&, k] { return Compile(requests[k], &objects[k]); });
  }
  const std::vector<absl::Status> done = RunOnLlvmThreads(std::move(tasks), threads, while_waiting);
  std::vector<absl::StatusOr<std::vector<uint8_t>>> results;
  for (size_t k = 0; k < requests.size(); ++k) {
    if (done[k].ok()) {
      results.push_back(std::move(objects[k]));
    } else {
      results.push_back(done[k]);
    }
  }
  return results;
}

}  // namespace tenon
