// LLVM IR -> object bytes -> callable kernels. The only place that owns LLVM contexts, target machines and executable memory.
//
// Every compile runs on a thread of tenon's own (llvm_threads.h) in its own LLVMContext. An LLVM fatal error inside comes back as
// kInternal; that compile's context and target machine stay on their parked thread (leaked on purpose: their state is unknown).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/cpu/plan/target.h"
#include "runtime/execute/code_loader.h"

namespace llvm {
class Module;
}

namespace tenon {

struct ObjectRequest {
  CpuTarget target;
  std::string name;                                     // of the LLVM module, for messages
  std::function<absl::Status(llvm::Module&)> emit;      // fills the module in
  std::string* emitted_ir = nullptr;                    // if not null: IR as emitted, also where it is refused
  std::string* llvm_ir = nullptr;                       // if not null: IR after our passes
  std::string* assembly = nullptr;
  std::string_view inject_fault;                        // see CompileOptions::inject_fault
  const std::atomic<bool>* cancelled = nullptr;         // looked at between phases: the compile then ends with kCancelled
};

// Emits, verifies, runs EarlyCSE + LICM, generates code. The object imports only symbols of runtime/imports.def, else
// kInternal naming the symbol and the kernels that want it.
absl::StatusOr<std::vector<uint8_t>> CompileToObject(const ObjectRequest& request);
// Several at once, one thread each. Returns when all are done. `while_waiting`: see RunOnLlvmThreads.
std::vector<absl::StatusOr<std::vector<uint8_t>>> CompileToObjects(std::span<const ObjectRequest> requests,
                                                                   const std::function<void()>& while_waiting = nullptr);

// A code image is a sequence of objects, each behind its size as a little-endian u64: what Program::object holds.
void AppendObject(std::vector<uint8_t>* image, std::span<const uint8_t> object);
absl::StatusOr<std::vector<std::span<const uint8_t>>> SplitImage(std::span<const uint8_t> image);

// Symbols of imports.def, resolved in this process (nullptr if absent).
std::vector<std::pair<std::string, void*>> ResolvedImports();

}  // namespace tenon
