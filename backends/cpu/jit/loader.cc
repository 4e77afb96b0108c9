// NativeCodeLoader: JITLink through one ORC session of the process; a JITDylib per loaded image. It runs on its caller's thread, not on
// one of llvm_threads.h: JITLink returns its errors, and a parked thread would keep the session's lock.
#include <dlfcn.h>

#include <cmath>
#include <cstring>
#include <mutex>
#include <new>

#include "absl/strings/str_cat.h"
#include "backends/cpu/cpu.h"
#include "backends/cpu/jit/jit.h"
#include "hlo/check.h"
#include "llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h"
#include "llvm/ExecutionEngine/Orc/AbsoluteSymbols.h"
#include "llvm/ExecutionEngine/Orc/Core.h"
#include "llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h"
#include "llvm/ExecutionEngine/Orc/SelfExecutorProcessControl.h"
#include "llvm/Support/MemoryBuffer.h"
#include "runtime/fork.h"
#include "runtime/program/program.h"

namespace tenon {
namespace {

namespace orc = llvm::orc;

// The session and its layer. Lives as long as the process: executables may die in static destructors.
struct Session {
  std::unique_ptr<orc::ExecutionSession> es;
  std::unique_ptr<orc::ObjectLinkingLayer> layer;
  orc::SymbolMap imports;
  std::atomic<int64_t> next{0};

  static absl::StatusOr<Session*> Get() {
    static absl::StatusOr<Session*> session = Make();
    return session;
  }

 private:
  static absl::StatusOr<Session*> Make() {
    auto epc = orc::SelfExecutorProcessControl::Create();
    if (!epc) return absl::InternalError(absl::StrCat("ORC: ", llvm::toString(epc.takeError())));
    auto* s = new Session;
    s->es = std::make_unique<orc::ExecutionSession>(std::move(*epc));
    // A failed lookup is reported by its caller as a Status; nothing goes to stderr.
    s->es->setErrorReporter([](llvm::Error e) { llvm::consumeError(std::move(e)); });
    s->layer = std::make_unique<orc::ObjectLinkingLayer>(*s->es, s->es->getExecutorProcessControl().getMemMgr());
    for (auto& [name, address] : ResolvedImports()) {
      if (address == nullptr) continue;
      s->imports[s->es->intern(name)] = {orc::ExecutorAddr::fromPtr(address),
                                         llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
    }
    return s;
  }
};

class OrcCode : public LoadedCode {
 public:
  OrcCode(Session* session, orc::JITDylib* dylib) : session_(session), dylib_(dylib) {}
  ~OrcCode() override {
    ForkSection section;
    try {
      if (llvm::Error e = session_->es->removeJITDylib(*dylib_)) llvm::consumeError(std::move(e));
    } catch (const std::bad_alloc&) {  // the code stays loaded
    }
  }
  void set_functions(std::vector<KernelFn> f) { functions_ = std::move(f); }

 private:
  Session* session_;
  orc::JITDylib* dylib_;
};

class OrcLoader : public CodeLoader {
 public:
  std::string_view target() const override { return kHostTarget; }
  absl::StatusOr<std::unique_ptr<LoadedCode>> Load(std::span<const uint8_t> image,
                                                   std::span<const std::string> symbols) override {
    ForkSection section;
    TENON_ASSIGN_OR_RETURN(Session * s, Session::Get());
    TENON_ASSIGN_OR_RETURN(auto objects, SplitImage(image));
    orc::JITDylib& dylib = s->es->createBareJITDylib(absl::StrCat("kernels", s->next++));
    auto code = std::make_unique<OrcCode>(s, &dylib);
    if (llvm::Error e = dylib.define(orc::absoluteSymbols(s->imports))) return Failed("imports", std::move(e));
    for (std::span<const uint8_t> object : objects) {
      auto buffer = llvm::MemoryBuffer::getMemBufferCopy(
          llvm::StringRef(reinterpret_cast<const char*>(object.data()), object.size()), dylib.getName());
      if (llvm::Error e = s->layer->add(dylib, std::move(buffer))) return Failed("object", std::move(e));
    }
    orc::SymbolLookupSet wanted;
    std::vector<orc::SymbolStringPtr> names;
    for (const std::string& symbol : symbols) {
      names.push_back(s->es->intern(symbol));
      wanted.add(names.back());
    }
    llvm::Expected<orc::SymbolMap> found =
        s->es->lookup({{&dylib, orc::JITDylibLookupFlags::MatchAllSymbols}}, std::move(wanted));
    if (!found) return Failed("link", found.takeError());
    std::vector<KernelFn> functions;
    for (const orc::SymbolStringPtr& name : names) functions.push_back((*found)[name].getAddress().toPtr<KernelFn>());
    code->set_functions(std::move(functions));
    return code;
  }

 private:
  static absl::Status Failed(std::string_view what, llvm::Error e) {
    return absl::InternalError(absl::StrCat("loading generated code, ", std::string(what), ": ", llvm::toString(std::move(e))));
  }
};

}  // namespace

std::vector<std::pair<std::string, void*>> ResolvedImports() {
  std::vector<std::pair<std::string, void*>> resolved;
#define TENON_IMPORT(s) resolved.emplace_back(#s, dlsym(RTLD_DEFAULT, #s));
#include "runtime/imports.def"
  return resolved;
}

CodeLoader* CpuLoader() {
  static auto* loader = new OrcLoader;
  return loader;
}

}  // namespace tenon
