#include "backends/codegen/kernel/turns.h"

#include <algorithm>

namespace tenon {

llvm::Instruction* Turns::Before(const llvm::IRBuilderBase& b) {
  return b.GetInsertPoint() == b.GetInsertBlock()->begin() ? nullptr : &*std::prev(b.GetInsertPoint());
}

void Turns::EndCopy(const llvm::IRBuilderBase& b) {
  straight_ = straight_ && b.GetInsertBlock() == block_;
  if (!straight_) return;
  std::vector<llvm::Instruction*>& copy = copies_.emplace_back();
  auto begin = last_ == nullptr ? block_->begin() : std::next(last_->getIterator());
  for (auto i = begin; i != b.GetInsertPoint(); ++i) copy.push_back(&*i);
  if (!copy.empty()) last_ = copy.back();
}

void Turns::Take(size_t together) const {
  if (!straight_ || copies_.size() < 2 || copies_[0].size() < 2) return;
  const size_t length = copies_[0].size();
  if (std::any_of(copies_.begin(), copies_.end(), [&](const auto& c) { return c.size() != length; })) return;
  const llvm::BasicBlock::iterator end = std::next(last_->getIterator());
  for (size_t begin = 0; begin < copies_.size(); begin += together) {
    const size_t stop = std::min(begin + together, copies_.size());
    for (size_t i = 0; i < length; ++i) {
      for (size_t c = begin; c < stop; ++c) copies_[c][i]->moveBefore(*block_, end);
    }
  }
}

}  // namespace tenon
