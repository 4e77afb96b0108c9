// The instructions that an op's copies came to, one copy after the other, put in turns: the first of each copy, the second of each, ...
// An elementary function is a chain of some thirty instructions that wait for each other. Copy after copy of it fills a core's queue of
// waiting instructions before the next vectors, which could go on, are reached; in turns each waits a fraction of that time.
#pragma once

#include <vector>

#include "llvm/IR/IRBuilder.h"

namespace tenon {

class Turns {
 public:
  explicit Turns(const llvm::IRBuilderBase& b) : block_(b.GetInsertBlock()), last_(Before(b)) {}

  // What was emitted at the builder's insertion point since the last call is a copy.
  void EndCopy(const llvm::IRBuilderBase& b);
  // By `together` copies at a time, as many as find registers. Does nothing if copies differ in length (some were folded), or if one has
  // control flow.
  void Take(size_t together) const;

 private:
  static llvm::Instruction* Before(const llvm::IRBuilderBase& b);

  llvm::BasicBlock* block_;
  llvm::Instruction* last_;  // in front of the next copy; null: it begins the block
  std::vector<std::vector<llvm::Instruction*>> copies_;
  bool straight_ = true;
};

}  // namespace tenon
