// CodeLoader: an image of a target's code -> what can be called. Implemented by each target (backends/cpu with JITLink); runtime knows
// no LLVM.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/kernel_abi.h"

namespace tenon {

// Executable memory; dies with the last owner.
class LoadedCode {
 public:
  virtual ~LoadedCode() = default;
  const std::vector<KernelFn>& functions() const {
    return functions_;
  }  // in the order of the symbols asked for

 protected:
  std::vector<KernelFn> functions_;
};

class CodeLoader {
 public:
  virtual ~CodeLoader() = default;
  // Thread-safe. Errors: unresolved or unlisted symbol, bad object.
  virtual absl::StatusOr<std::unique_ptr<LoadedCode>> Load(
      std::span<const uint8_t> object, std::span<const std::string> symbols) = 0;
};

}  // namespace tenon
