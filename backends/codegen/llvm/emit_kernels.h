// A program's planned kernels -> modules of code: in shares, one LLVM module and one thread each.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/codegen/llvm/compile_module.h"
#include "backends/contract/target.h"

namespace tenon {

struct EmittedShare {
  std::vector<uint8_t> code;
  std::string bitcode;          // if it was asked for: of the module after our passes
  std::vector<size_t> kernels;  // positions in EmitRequest::kernels
};

struct KernelEmission {
  // Target, name and check of a share's module.
  std::function<ModuleRequest(std::string name)> module;
  std::function<absl::Status(llvm::Module&, const PlannedKernel& kernel, const std::string& symbol)> emit;
  bool keep_bitcode = false;
  bool aliases = false;  // the code may have several symbols for one kernel (SameCode)
};

// The request's stages get each share's texts, whatever comes of it.
absl::StatusOr<std::vector<EmittedShare>> EmitKernels(const EmitRequest& request, const KernelEmission& emission);

}  // namespace tenon
