#include "tools/lab/gpu/emulator.h"

#include <algorithm>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "hlo/check.h"
#include "llvm/ExecutionEngine/Orc/AbsoluteSymbols.h"
#include "llvm/ExecutionEngine/Orc/JITTargetMachineBuilder.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/ExecutionEngine/Orc/ThreadSafeModule.h"
#include "llvm/IR/Verifier.h"
#include "llvm/IRReader/IRReader.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Transforms/Scalar/ScalarizeMaskedMemIntrin.h"
#include "tools/lab/gpu/host_functions.h"
#include "tools/lab/gpu/machine.h"
#include "tools/lab/gpu/prepare.h"

namespace tenon::gpu {
namespace {

namespace orc = llvm::orc;

absl::Status LlvmError(llvm::Error error) { return absl::InternalError(llvm::toString(std::move(error))); }

absl::StatusOr<std::unique_ptr<llvm::Module>> Parse(std::string_view text, llvm::LLVMContext& context) {
  // Alignments that an instruction doesn't state are NVPTX's, also where the module doesn't say how it lays out data.
  const llvm::ParserCallbacks callbacks([](llvm::StringRef triple, llvm::StringRef layout) -> std::optional<std::string> {
    if (!layout.empty()) return std::nullopt;
    return llvm::Triple(triple).isNVPTX() ? llvm::Triple(triple).computeDataLayout() : std::optional<std::string>();
  });
  llvm::SMDiagnostic diagnostic;
  const auto buffer = llvm::MemoryBuffer::getMemBufferCopy(llvm::StringRef(text.data(), text.size()), "kernels");
  std::unique_ptr<llvm::Module> module = llvm::parseIR(*buffer, diagnostic, context, callbacks);
  std::string message;
  llvm::raw_string_ostream stream(message);
  if (module == nullptr) {
    diagnostic.print(nullptr, stream, /*ShowColors=*/false);
    return absl::InvalidArgumentError(absl::StrCat("no LLVM module: ", message));
  }
  if (llvm::verifyModule(*module, &stream)) return absl::InvalidArgumentError(absl::StrCat("invalid LLVM IR: ", message));
  return module;
}

// Masked loads, stores, gathers and scatters become loads and stores under branches, as no target at all would have them.
void ScalarizeMasked(llvm::Module& module) {
  llvm::LoopAnalysisManager lam;
  llvm::FunctionAnalysisManager fam;
  llvm::CGSCCAnalysisManager cgam;
  llvm::ModuleAnalysisManager mam;
  llvm::PassBuilder builder;
  builder.registerModuleAnalyses(mam);
  builder.registerCGSCCAnalyses(cgam);
  builder.registerFunctionAnalyses(fam);
  builder.registerLoopAnalyses(lam);
  builder.crossRegisterProxies(lam, fam, cgam, mam);
  for (llvm::Function& f : module) {
    if (!f.isDeclaration()) llvm::ScalarizeMaskedMemIntrinPass().run(f, fam);
  }
}

absl::StatusOr<std::unique_ptr<orc::LLJIT>> MakeJit() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
  auto host = orc::JITTargetMachineBuilder::detectHost();
  if (!host) return LlvmError(host.takeError());
  host->setCodeGenOptLevel(llvm::CodeGenOptLevel::Less);
  for (const char* feature : {"avx512bf16", "avxneconvert"}) host->getFeatures().AddFeature(feature, false);  // they flush subnormals
  auto jit = orc::LLJITBuilder()
                 .setJITTargetMachineBuilder(std::move(*host))
                 .setLinkProcessSymbolsByDefault(false)
                 .setPlatformSetUp(orc::setUpInactivePlatform)
                 .create();
  if (!jit) return LlvmError(jit.takeError());
  (*jit)->getExecutionSession().setErrorReporter([](llvm::Error e) { llvm::consumeError(std::move(e)); });  // the lookup returns it too
  orc::SymbolMap symbols;
  for (const auto& [name, function] : HostFunctions()) {
    symbols[(*jit)->mangleAndIntern(name)] = {orc::ExecutorAddr::fromPtr(function), llvm::JITSymbolFlags::Exported};
  }
  if (auto error = (*jit)->getMainJITDylib().define(orc::absoluteSymbols(std::move(symbols)))) return LlvmError(std::move(error));
  return std::move(*jit);
}

absl::StatusOr<uint64_t> Lookup(orc::LLJIT& jit, const std::string& name) {
  auto address = jit.lookup(name);
  if (!address) return LlvmError(address.takeError());
  return address->getValue();
}

absl::Status Prepare(llvm::Module& module, EmulatedModule::Image* image) {
  ScalarizeMasked(module);
  TENON_RETURN_IF_ERROR(CheckModule(module));
  const Marks marks = MarkSites(module, image);
  PlaceShared(module, image);
  Instrument(module, marks);
  for (const Marked& m : marks.intrinsics) TENON_RETURN_IF_ERROR(ReplaceIntrinsic(llvm::cast<llvm::CallInst>(m.instruction), m.site));
  MakeHostModule(module);
  for (const llvm::GlobalVariable& g : module.globals()) {
    image->constants.push_back({g.getName().str(), 0, module.getDataLayout().getTypeAllocSize(g.getValueType())});
  }
  return absl::OkStatus();
}

}  // namespace

EmulatedModule::EmulatedModule(std::unique_ptr<Image> image) : image_(std::move(image)) {}
EmulatedModule::~EmulatedModule() = default;

absl::StatusOr<std::shared_ptr<EmulatedModule>> EmulatedModule::Load(std::string_view text) {
  auto context = std::make_unique<llvm::LLVMContext>();
  TENON_ASSIGN_OR_RETURN(std::unique_ptr<llvm::Module> module, Parse(text, *context));
  auto image = std::make_unique<Image>();
  TENON_RETURN_IF_ERROR(Prepare(*module, image.get()));
  TENON_ASSIGN_OR_RETURN(image->jit, MakeJit());
  module->setTargetTriple(image->jit->getTargetTriple());
  module->setDataLayout(image->jit->getDataLayout());
  std::string message;
  llvm::raw_string_ostream stream(message);
  if (llvm::verifyModule(*module, &stream)) return absl::InternalError(absl::StrCat("the emulator made invalid LLVM IR: ", message));
  if (auto error = image->jit->addIRModule(orc::ThreadSafeModule(std::move(module), std::move(context)))) {
    return LlvmError(std::move(error));
  }
  for (Kernel& kernel : image->kernels) {
    TENON_ASSIGN_OR_RETURN(const uint64_t entry, Lookup(*image->jit, EntryName(kernel.name)));
    kernel.entry = reinterpret_cast<void (*)(void* const*)>(entry);
  }
  for (ConstantRange& constant : image->constants) {
    TENON_ASSIGN_OR_RETURN(constant.begin, Lookup(*image->jit, constant.name));
  }
  std::sort(image->constants.begin(), image->constants.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  return std::make_shared<EmulatedModule>(std::move(image));
}

std::vector<std::string> EmulatedModule::kernels() const {
  std::vector<std::string> names;
  for (const Kernel& kernel : image_->kernels) names.push_back(kernel.name);
  return names;
}

int64_t EmulatedModule::static_shared_bytes(std::string_view kernel) const {
  const auto k = std::find_if(image_->kernels.begin(), image_->kernels.end(), [&](const Kernel& k) { return k.name == kernel; });
  if (k == image_->kernels.end()) return -1;
  int64_t bytes = 0;
  for (const size_t g : k->shared) bytes += static_cast<int64_t>(image_->shared->globals()[g].size);
  return bytes;
}

absl::Status EmulatedModule::Launch(std::string_view kernel, const LaunchConfig& config, absl::Span<void* const> params,
                                    const EmulatorOptions& options, LaunchCounts* counts) const {
  const auto k = std::find_if(image_->kernels.begin(), image_->kernels.end(), [&](const Kernel& k) { return k.name == kernel; });
  if (k == image_->kernels.end()) return absl::NotFoundError(absl::StrCat("no kernel ", std::string(kernel), " in this module"));
  if (params.size() != k->param_aligns.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("launch of ", std::string(kernel), ": ", params.size(), " values for ", k->param_aligns.size(), " parameters"));
  }
  LaunchCounts ignored;
  LaunchCounts* out = counts != nullptr ? counts : &ignored;
  *out = {};
  absl::MutexLock lock(&TheEmulatedMemory().mutex());
  return TheMachine().Run(*image_, *k, config, params.data(), options, out);
}

}  // namespace tenon::gpu
