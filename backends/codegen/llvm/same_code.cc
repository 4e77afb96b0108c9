#include "backends/codegen/llvm/same_code.h"

#include "llvm/IR/Function.h"
#include "llvm/IR/GlobalAlias.h"
#include "llvm/IR/StructuralHash.h"

namespace tenon {

void SameCode::Emitted(llvm::Function* f) {
  auto& alike = by_hash_[llvm::StructuralHash(*f, /*DetailedHash=*/true)];
  for (llvm::Function* earlier : alike) {
    if (llvm::FunctionComparator(earlier, f, &globals_).compare() != 0) continue;
    llvm::GlobalAlias* alias = llvm::GlobalAlias::create("", earlier);
    alias->takeName(f);
    f->eraseFromParent();
    return;
  }
  alike.push_back(f);
}

}  // namespace tenon
