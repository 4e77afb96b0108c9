// A module of LLVM IR -> code. The only place that owns LLVM contexts and target machines.
//
// Every compile runs on a thread of tenon's own (llvm_threads.h) in its own LLVMContext. An LLVM fatal error inside comes back as
// kInternal; that compile's context and target machine stay on their parked thread (leaked on purpose: their state is unknown).
#pragma once

#include <atomic>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace llvm {
class Module;
}

namespace tenon {

struct LlvmTarget {
  std::string triple, cpu, features;
  bool jit = true;               // code that is loaded where it lies; else what another program takes (PTX)
  void (*initialize)() = nullptr;  // LLVM's registration of the target; called before each compile
  std::string Key() const { return triple + "|" + cpu + "|" + features; }
};

struct ModuleRequest {
  LlvmTarget target;
  std::string name;                                     // of the LLVM module, for messages
  std::function<absl::Status(llvm::Module&)> emit;      // fills the module in, whose triple and data layout are set
  std::string* emitted_ir = nullptr;                    // if not null: IR as emitted, also where it is refused
  std::string* llvm_ir = nullptr;                       // if not null: IR after our passes
  std::string* bitcode = nullptr;                       // if not null: the same in bitcode
  std::string* assembly = nullptr;
  bool as_text = false;                                 // the code is assembly, not an object
  std::string (*repair)(std::string_view) = nullptr;    // as_text: what becomes of the assembly before anybody sees it
  bool no_code = false;                                 // none is made, but where `assembly` asks for it: the IR is what is wanted
  std::function<absl::Status(std::span<const char>)> check;  // of the code made; may be null
  std::string_view inject_fault;                        // see CompileOptions::inject_fault
  const std::atomic<bool>* cancelled = nullptr;         // looked at between phases: the compile then ends with kCancelled
};

// Emits, verifies, runs EarlyCSE + LICM, generates code, each on one thread; on at most `threads` at once. Returns when all are done.
// `while_waiting`: see RunOnLlvmThreads.
std::vector<absl::StatusOr<std::vector<uint8_t>>> CompileModules(std::span<const ModuleRequest> requests, int threads,
                                                                 const std::function<void()>& while_waiting = nullptr);

}  // namespace tenon
