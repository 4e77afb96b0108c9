#include "backends/codegen/kernel/sort_rows.h"

#include <utility>

#include "backends/codegen/emit/elementwise.h"

namespace tenon {

using llvm::Value;

llvm::AllocaInst* SortRows::Slot(Value* start) {
  llvm::AllocaInst* slot = e_.Alloca(start->getType());
  b().CreateStore(start, slot);
  return slot;
}

SortRows::Row SortRows::Pointers(const std::vector<llvm::AllocaInst*>& slots) {
  Row r;
  for (llvm::AllocaInst* s : slots) r.push_back(Get(s));
  return r;
}

Value* SortRows::LoadAt(size_t k, const Row& base, Value* i) {
  return b().CreateAlignedLoad(TypeOf(k), b().CreateGEP(TypeOf(k), base[k], i), AlignOf(k));
}

SortRows::Row SortRows::LoadRow(const Row& base, Value* i) {
  Row r;
  for (size_t k = 0; k < columns(); ++k) r.push_back(LoadAt(k, base, i));
  return r;
}

void SortRows::StoreRow(const Row& base, Value* i, const Row& row) {
  for (size_t k = 0; k < columns(); ++k) b().CreateAlignedStore(row[k], b().CreateGEP(TypeOf(k), base[k], i), AlignOf(k));
}

Val SortRows::Column(size_t k, const IndexTuple& full, Index position) {
  const PrimitiveType type = columns_.types[k];
  if (k >= static_cast<size_t>(op_.operand_count())) {  // topk's positions
    Val v = e_.IsVectorIndex(position) ? e_.VectorIndex(position) : e_.ScalarIndex(position);
    for (Value*& x : v.v) x = e_.At(v.level).CreateSExtOrTrunc(x, WithLanesOf(x->getType(), TypeOf(k)));
    return v;
  }
  const Instruction* operand = op_.operand(static_cast<int64_t>(k));
  if (operand->opcode() == Opcode::kParameter) {
    const int p = static_cast<int>(operand->parameter_number());
    Index offset = e_.space().Linear(full, e_.fused().operands[static_cast<size_t>(p)].strides);
    return e_.LoadElements(e_.OperandPointer(p), 0, MemoryType(e_.context(), type), offset, nullptr);
  }
  Val v = e_.Eval(operand, full);
  Val r{.level = e_.innermost()};
  for (Value* x : v.v) r.v.push_back(ToMemory(b(), type, x, e_.specs().types));
  return r;
}

// ---- the order ----

bool SortRows::Compares(size_t k, int side) const {
  if (op_.opcode() == Opcode::kTopk) return k == 0;
  return op_.to_apply()->parameter(static_cast<int64_t>(2 * k) + side)->user_count() > 0 ||
         op_.to_apply()->root()->opcode() == Opcode::kParameter;
}

// Registers of the columns that the order looks at; null: not looked at.
SortRows::Row SortRows::Keys(int side, const std::function<Value*(size_t)>& element) {
  Row r(columns(), nullptr);
  for (size_t k = 0; k < columns(); ++k) {
    if (Compares(k, side)) {
      Value* v = element(k);
      r[k] = FromMemory(b(), columns_.types[k], v, e_.specs().types);
    }
  }
  return r;
}

SortRows::Row SortRows::KeysAt(int side, const Row& base, Value* i) {
  return Keys(side, [&](size_t k) { return LoadAt(k, base, i); });
}

Value* SortRows::Before(const Row& x, const Row& y) {
  if (op_.opcode() == Opcode::kTopk) return Better(x[0], y[0]);
  std::vector<Value*> args;
  for (size_t k = 0; k < columns(); ++k) args.insert(args.end(), {x[k], y[k]});
  return e_.Apply(b(), *op_.to_apply(), args, /*merging=*/false)[0];
}

Value* SortRows::Before(const Row& base, Value* i, Value* j) {
  Row x = KeysAt(0, base, i), y = KeysAt(1, base, j);
  return Before(x, y);
}

// topk: NaN is above all numbers.
Value* SortRows::Better(Value* x, Value* y) {
  const bool largest = op_.attrs().get<bool>(Attr::kLargest);
  const PrimitiveType type = columns_.types[0];
  if (!largest) std::swap(x, y);
  if (!IsFloat(type)) return IsSigned(type) ? b().CreateICmpSGT(x, y) : b().CreateICmpUGT(x, y);
  Value* only = b().CreateAnd(b().CreateFCmpUNO(x, x), b().CreateFCmpORD(y, y));
  return b().CreateOr(b().CreateFCmpOGT(x, y), only);
}

// ---- sorting ----

void SortRows::SortByInsertion(const Row& base, Value* start, Value* end) {
  e_.Loop(Add(start, e_.I64(1)), end, e_.I64(1), [&](Value* i) {
    const Row element = LoadRow(base, i);
    const Row key = Keys(0, [&](size_t k) { return element[k]; });
    llvm::AllocaInst* hole = Slot(i);
    e_.While(
        [&] {
          Value* j = Get(hole);
          Value* open = b().CreateICmpSGT(j, start);
          Value* previous = b().CreateSelect(open, Sub(j, e_.I64(1)), start);
          return b().CreateAnd(open, Before(key, KeysAt(1, base, previous)));
        },
        [&] {
          Value* j = Get(hole);
          Value* previous = Sub(j, e_.I64(1));
          Copy(base, previous, base, j);
          Set(hole, previous);
        });
    StoreRow(base, Get(hole), element);
  });
}

void SortRows::MoveRange(Value* i, Value* end, Value* to, const Move& move) {
  Value* distance = Sub(to, i);
  e_.Loop(i, end, e_.I64(1), [&](Value* at) { move(at, Add(at, distance)); });
}

Value* SortRows::Choose(Value* take, Value* x, Value* y) {
  Value* mask = b().CreateSExt(take, b().getInt64Ty());
  return b().CreateXor(y, b().CreateAnd(b().CreateXor(x, y), mask));
}

void SortRows::Merge(const Row& from, Value* i, Value* i_end, Value* j, Value* j_end, Value* out, const Move& move) {
  llvm::AllocaInst *left_at = Slot(i), *right_at = Slot(j), *o = Slot(out);
  e_.While([&] { return b().CreateAnd(b().CreateICmpSLT(Get(left_at), i_end), b().CreateICmpSLT(Get(right_at), j_end)); },
           [&] {
             Value *left = Get(left_at), *right = Get(right_at), *to = Get(o);
             Value* take_right = Before(from, right, left);
             move(Choose(take_right, right, left), to);
             Set(left_at, Add(left, One(b().CreateNot(take_right))));
             Set(right_at, Add(right, One(take_right)));
             Set(o, Add(to, e_.I64(1)));
           });
  Value *left = Get(left_at), *right = Get(right_at), *to = Get(o);
  MoveRange(left, i_end, to, move);
  MoveRange(right, j_end, Add(to, Sub(i_end, left)), move);
}

}  // namespace tenon
