// SortRows: the elements of a sort or topk as they lie in memory, column by column, and their order: what sorts of all targets are made of.
#pragma once

#include <functional>
#include <vector>

#include "backends/codegen/kernel/kernel_emitter.h"
#include "backends/codegen/plan/serial_plan.h"

namespace tenon {

class SortRows {
 public:
  using Row = std::vector<llvm::Value*>;  // an element of each column, as in memory; or a pointer to each column

  SortRows(KernelEmitter& e, const SortColumns& columns) : e_(e), op_(*e.fused().serial), columns_(columns) {}

  size_t columns() const { return columns_.types.size(); }
  llvm::Type* TypeOf(size_t k) { return MemoryType(e_.context(), columns_.types[k]); }
  // State of a loop, in a register.
  llvm::AllocaInst* Slot(llvm::Value* start);
  llvm::Value* Get(llvm::AllocaInst* slot) { return b().CreateLoad(slot->getAllocatedType(), slot); }
  void Set(llvm::AllocaInst* slot, llvm::Value* v) { b().CreateStore(v, slot); }
  Row Pointers(const std::vector<llvm::AllocaInst*>& slots);

  Row LoadRow(const Row& base, llvm::Value* i);
  void StoreRow(const Row& base, llvm::Value* i, const Row& row);
  void Copy(const Row& from, llvm::Value* i, const Row& to, llvm::Value* j) { StoreRow(to, j, LoadRow(from, i)); }

  // Column k of this iteration, as in memory. A parameter is moved bit by bit, what is computed comes from registers.
  Val Column(size_t k, const IndexTuple& full, Index position);

  // Must the first stand before the second? Columns that the order does not look at may be null.
  llvm::Value* Before(const Row& x, const Row& y);
  llvm::Value* Before(const Row& base, llvm::Value* i, llvm::Value* j);

  // ---- sorting: stable, by any comparator a permutation ----

  // Elements [start, end) of `base`, in place.
  void SortByInsertion(const Row& base, llvm::Value* start, llvm::Value* end);
  // Elements [i, i_end) and [j, j_end) of `from`, either sorted; move(from, to) for each, in order, the first to `out`.
  using Move = std::function<void(llvm::Value* from, llvm::Value* to)>;
  void Merge(const Row& from, llvm::Value* i, llvm::Value* i_end, llvm::Value* j, llvm::Value* j_end, llvm::Value* out, const Move& move);
  void MoveRange(llvm::Value* i, llvm::Value* end, llvm::Value* to, const Move& move);
  // x if `take`, else y: by arithmetic, as the compiler would make a branch of a select.
  llvm::Value* Choose(llvm::Value* take, llvm::Value* x, llvm::Value* y);
  llvm::Value* One(llvm::Value* condition) { return b().CreateZExt(condition, b().getInt64Ty()); }

 private:
  llvm::IRBuilder<>& b() { return e_.Here(); }
  llvm::Value* Add(llvm::Value* x, llvm::Value* y) { return b().CreateAdd(x, y, "", false, true); }
  llvm::Value* Sub(llvm::Value* x, llvm::Value* y) { return b().CreateSub(x, y, "", false, true); }
  llvm::Align AlignOf(size_t k) { return llvm::Align(std::max(1u, PartBits(TypeOf(k)) / 8)); }
  llvm::Value* LoadAt(size_t k, const Row& base, llvm::Value* i);
  bool Compares(size_t k, int side) const;
  Row Keys(int side, const std::function<llvm::Value*(size_t)>& element);
  Row KeysAt(int side, const Row& base, llvm::Value* i);
  llvm::Value* Better(llvm::Value* x, llvm::Value* y);

  KernelEmitter& e_;
  const Instruction& op_;
  const SortColumns& columns_;
};

}  // namespace tenon
