// From a module for NVPTX to one for the host in which every access, barrier and operation of a warp is a call into the emulator.
// Of the emulator's own files only; each step is a file of its name.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"
#include "tools/lab/gpu/image.h"

namespace tenon::gpu {

// check_module.cc. Unimplemented, by name: what NVPTX or the emulator doesn't take. Intrinsics of NVPTX itself are left to
// ReplaceIntrinsic.
absl::Status CheckModule(const llvm::Module& module);
bool IsKernel(const llvm::Function& f);
// That an intrinsic says nothing to a GPU: lifetimes, assumptions, hints.
bool SaysNothing(const llvm::IntrinsicInst& call);

// What of the module is told to the emulator, before it is changed: instructions with the sites that were made for them.
struct Marked {
  llvm::Instruction* instruction;
  uint32_t site;
};
// sites.cc. Fills in image->sites. A loop is marked at the first instruction of its header, a function at its first instruction.
struct Marks {
  std::vector<Marked> accesses, divisions, intrinsics, loops, functions;
};
Marks MarkSites(llvm::Module& module, EmulatedModule::Image* image);

// globals.cc. Lays out shared memory, notes what each kernel reaches, and puts addresses in place of shared globals.
void PlaceShared(llvm::Module& module, EmulatedModule::Image* image);

// A call of one of host_functions.h.
llvm::CallInst* CallHost(llvm::IRBuilderBase& b, llvm::StringRef name, llvm::Type* result, llvm::ArrayRef<llvm::Value*> args);
llvm::Value* Generic(llvm::IRBuilderBase& b, llvm::Value* pointer);  // in address space 0

// replace_intrinsics.cc. Unimplemented names the intrinsic.
absl::Status ReplaceIntrinsic(llvm::CallInst* call, uint32_t site);
// Whether a thread that executes this may have to wait for others.
bool MayWait(const llvm::Function& intrinsic);

// instrument.cc. The rest of what the marks say, and allocas.
void Instrument(llvm::Module& module, const Marks& marks);

// Name of the function void(void* const* params) that calls a kernel.
std::string EntryName(llvm::StringRef kernel);
// instrument.cc. Entries of all kernels; nothing of NVPTX stays behind.
void MakeHostModule(llvm::Module& module);

}  // namespace tenon::gpu
