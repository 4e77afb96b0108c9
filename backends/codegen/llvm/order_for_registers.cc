#include "backends/codegen/llvm/order_for_registers.h"

#include <algorithm>
#include <vector>

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/Instructions.h"

namespace tenon {
namespace {

using llvm::Instruction;

// Instructions: what is shorter seldom lacks registers; longer, it takes longer than what it saves (the order is found in quadratic time).
constexpr size_t kLong = 48, kTooLong = 4096;

bool IsInRegister(const Instruction& i) {
  const llvm::Type* type = i.getType();
  return type->isVectorTy() ? !type->getScalarType()->isIntegerTy(1) : type->isFloatingPointTy();
}

// Sums that a loop carries in registers: their kernels' tiles are planned for the registers, and loads stand where they are hidden.
bool CarriesVectors(const llvm::BasicBlock& block) {
  return std::ranges::any_of(block.phis(), [](const llvm::PHINode& phi) { return IsInRegister(phi); });
}

class Block {
 public:
  explicit Block(llvm::BasicBlock& block) : block_(block) {
    for (Instruction& i : block) {
      if (llvm::isa<llvm::PHINode>(i) || i.isTerminator()) continue;
      number_[&i] = order_.size();
      order_.push_back(&i);
    }
  }
  size_t size() const { return order_.size(); }

  // How many vectors are alive at once in this order.
  int Pressure(const std::vector<size_t>& order) const {
    Live live = LiveBehind();
    size_t most = live.size();
    for (size_t k = order.size(); k-- > 0;) {
      const Instruction& i = *order_[order[k]];
      live.erase(&i);
      for (const llvm::Value* operand : i.operands()) AddLive(operand, &live);
      most = std::max<size_t>(most, live.size());
    }
    return static_cast<int>(most);
  }

  std::vector<size_t> AsItIs() const {
    std::vector<size_t> order(size());
    for (size_t k = 0; k < order.size(); ++k) order[k] = k;
    return order;
  }

  std::vector<size_t> FromBelow() {
    AddEdges();
    CountRegisters();
    live_ = LiveBehind();
    std::vector<size_t> reversed;
    for (size_t k = 0; k < size(); ++k) {
      if (waits_for_[k] == 0) ready_.push_back(k);
    }
    while (!ready_.empty()) {
      size_t best = ready_.size() - 1;
      int least = Growth(ready_[best]);
      for (size_t r = best; r-- > 0;) {
        if (const int growth = Growth(ready_[r]); growth < least) {
          least = growth;
          best = r;
        }
      }
      const size_t next = ready_[best];
      ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(best));
      reversed.push_back(next);
      Place(next);
    }
    std::ranges::reverse(reversed);
    return reversed;
  }

  void Rearrange(const std::vector<size_t>& order) {
    Instruction* end = block_.getTerminator();
    for (const size_t k : order) order_[k]->moveBefore(end->getIterator());
  }

 private:
  using Live = llvm::SmallPtrSet<const Instruction*, 32>;

  bool IsHere(const llvm::Value* v) const {
    const auto* i = llvm::dyn_cast<Instruction>(v);
    return i != nullptr && number_.contains(i);
  }
  void AddLive(const llvm::Value* v, Live* live) const {
    if (IsHere(v) && IsInRegister(*llvm::cast<Instruction>(v))) live->insert(llvm::cast<Instruction>(v));
  }
  Live LiveBehind() const {
    Live live;
    for (const Instruction* i : order_) {
      for (const llvm::User* user : i->users()) {
        if (!IsHere(user)) AddLive(i, &live);
      }
    }
    return live;
  }

  void AddEdge(size_t before, size_t behind) {
    after_[behind].push_back(before);
    ++waits_for_[before];
  }

  void AddEdges() {
    after_.resize(size());
    waits_for_.assign(size(), 0);
    llvm::SmallVector<size_t, 32> readers, writers;
    for (size_t k = 0; k < size(); ++k) {
      Instruction& i = *order_[k];
      for (const llvm::Value* operand : i.operands()) {
        if (IsHere(operand)) AddEdge(number_.lookup(llvm::cast<Instruction>(operand)), k);
      }
      const bool fixed = i.hasMetadata(llvm::LLVMContext::MD_invariant_load);
      if (i.mayHaveSideEffects() || i.mayWriteToMemory()) {
        for (const size_t earlier : readers) AddEdge(earlier, k);
        for (const size_t earlier : writers) AddEdge(earlier, k);
        readers.clear();
        writers.assign(1, k);
      } else if (i.mayReadFromMemory() && !fixed) {
        for (const size_t earlier : writers) AddEdge(earlier, k);
        readers.push_back(k);
      }
    }
  }

  void CountRegisters() {
    registers_.assign(size(), 0);
    for (size_t k = 0; k < size(); ++k) {
      llvm::SmallVector<int, 4> needs;
      for (const llvm::Value* operand : order_[k]->operands()) {
        if (IsHere(operand)) needs.push_back(registers_[number_.lookup(llvm::cast<Instruction>(operand))]);
      }
      std::ranges::sort(needs, std::greater<>());
      int most = IsInRegister(*order_[k]) ? 1 : 0;
      for (size_t n = 0; n < needs.size(); ++n) most = std::max(most, needs[n] + static_cast<int>(n));
      registers_[k] = most;
    }
  }

  // By how many the live values become more if this comes next, seen from below.
  int Growth(size_t k) const {
    const Instruction& i = *order_[k];
    int growth = live_.contains(&i) ? -1 : 0;
    llvm::SmallPtrSet<const llvm::Value*, 4> counted;
    for (const llvm::Value* operand : i.operands()) {
      if (!IsHere(operand) || !counted.insert(operand).second) continue;
      const auto* made = llvm::cast<Instruction>(operand);
      if (IsInRegister(*made) && !live_.contains(made)) ++growth;
    }
    return growth;
  }

  void Place(size_t k) {
    live_.erase(order_[k]);
    for (const llvm::Value* operand : order_[k]->operands()) AddLive(operand, &live_);
    llvm::SmallVector<size_t, 8> now;
    for (const size_t before : after_[k]) {
      if (--waits_for_[before] == 0) now.push_back(before);
    }
    // The last is taken first: it stands behind the others.
    std::ranges::stable_sort(now, [&](size_t a, size_t b) { return registers_[a] > registers_[b]; });
    ready_.insert(ready_.end(), now.begin(), now.end());
  }

  llvm::BasicBlock& block_;
  std::vector<Instruction*> order_;
  llvm::DenseMap<const Instruction*, size_t> number_;
  std::vector<llvm::SmallVector<size_t, 4>> after_;  // by what: what has to stand before it
  std::vector<size_t> waits_for_;                     // how many that stand behind it are not placed yet
  std::vector<int> registers_;
  std::vector<size_t> ready_;
  Live live_;
};

}  // namespace

void OrderForRegisters(llvm::Function& f, llvm::LoopInfo& loops, int registers) {
  for (llvm::BasicBlock& basic : f) {
    if (basic.size() < kLong || basic.size() > kTooLong || loops.getLoopFor(&basic) == nullptr) continue;
    if (CarriesVectors(basic)) continue;
    Block block(basic);
    const int now = block.Pressure(block.AsItIs());
    if (now <= registers) continue;
    const std::vector<size_t> order = block.FromBelow();
    if (block.Pressure(order) < now) block.Rearrange(order);
  }
}

}  // namespace tenon
