// CodeLoader: an image of a target's code -> what can be called. Implemented by each target (backends/cpu with JITLink); runtime knows
// no LLVM.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/execute/device.h"
#include "runtime/kernel_abi.h"

namespace tenon {

// A kernel of a device, about to run.
struct KernelLaunch {
  int64_t kernel = 0;             // in the order of the symbols asked for
  void* const* pointers = nullptr;  // as runtime/kernel_abi.h has them, in the device's memory; null or not, if it has no elements
  const int64_t* args = nullptr;
  std::array<int64_t, 3> grid = {1, 1, 1};
  std::array<int32_t, 3> block = {1, 1, 1};
  int64_t shared_bytes = 0;
  void* stream = nullptr;         // TenonHost::stream's
};

// Executable memory; dies with the last owner.
class LoadedCode {
 public:
  virtual ~LoadedCode() = default;
  // Of the host's target: in the order of the symbols asked for. A device has none.
  const std::vector<KernelFn>& functions() const { return functions_; }
  // Of a device: starts the kernel, ordered behind what the stream was given before; it may be still to come on return. Thread-safe.
  virtual absl::Status Launch(const KernelLaunch& launch) const {
    return absl::UnimplementedError("a launch of code of the host");
  }

 protected:
  std::vector<KernelFn> functions_;
};

class CodeLoader {
 public:
  virtual ~CodeLoader() = default;
  virtual std::string_view target() const = 0;  // TargetFacts::name of those whose code it loads
  // What copies its target's data; null: that is the host's memory.
  virtual Device* device() const { return nullptr; }
  // Thread-safe. Errors: unresolved or unlisted symbol, bad object.
  virtual absl::StatusOr<std::unique_ptr<LoadedCode>> Load(
      std::span<const uint8_t> object, std::span<const std::string> symbols) = 0;
};

// The loaders of a program's targets, which live as long as the process.
class CodeLoaders {
 public:
  CodeLoaders() = default;
  CodeLoaders(CodeLoader* one) {  // NOLINT: a program of one target takes its loader; null: none
    if (one != nullptr) all_.push_back(one);
  }
  explicit CodeLoaders(std::vector<CodeLoader*> all) : all_(std::move(all)) {}
  // Null: there is none.
  CodeLoader* Find(std::string_view target) const {
    for (CodeLoader* loader : all_) {
      if (loader->target() == target) return loader;
    }
    return nullptr;
  }

 private:
  std::vector<CodeLoader*> all_;
};

}  // namespace tenon
