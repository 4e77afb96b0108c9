// Kernels that differ in sizes may have the same code, once it is emitted: piece bounds and literals are arguments. What is compiled
// is one of them.
#pragma once

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "llvm/Transforms/Utils/FunctionComparator.h"

namespace llvm {
class Function;
}

namespace tenon {

// Of one module. Equal is what LLVM's function merging calls equal.
class SameCode {
 public:
  // `f`: emitted to its end, used by nobody. Where an earlier one has its code, an alias of that takes its place and its name.
  void Emitted(llvm::Function* f);

 private:
  llvm::GlobalNumberState globals_;
  absl::flat_hash_map<uint64_t, absl::InlinedVector<llvm::Function*, 1>> by_hash_;
};

}  // namespace tenon
