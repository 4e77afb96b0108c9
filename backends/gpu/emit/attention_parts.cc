#include "backends/gpu/emit/attention_parts.h"

#include <cmath>

#include "backends/gpu/plan/block_product.h"

namespace tenon::gpu {

using llvm::Value;

namespace {

constexpr int64_t kLoadsAtOnce = 4;  // of an operand, by a thread
constexpr int64_t kResultLanes = 4;  // of a row of the result, by a thread

}  // namespace

AttentionParts::AttentionParts(KernelEmitter& e, const GpuPlan& plan, Value* thread)
    : e_(e),
      f_(e.fused()),
      gpu_(plan),
      thread_(thread),
      fragments_(e, thread),
      a_(*AttentionOf(f_)),
      tile_(AttentionTileOf(f_, plan)),
      at_(e.space(), f_, a_, tile_, plan.mma) {
  queries_ = f_.dims[f_.dims.size() - 2];
  keys_ = f_.dims.back();
  full_ = at_.At(a_.x->shape(), at_.row, at_.key);
  kept_.assign(full_.begin(), full_.end() - 1);
  scores_index_ = at_.At(a_.scores->shape(), at_.row, at_.key);
  half_ = gpu_.mma ? a_.values->operand(1)->operand(0)->shape().element_type() : PrimitiveType::kF32;
}

void AttentionParts::ForTiles(const std::function<void()>& body) {
  e_.ForUnits([&](Value* unit) {
    Value* blocks = e_.EmitDim(CeilDiv(queries_, tile_.rows));
    Value* block = b().CreateURem(unit, blocks);
    e_.BindVar(at_.row_block, block);
    if (at_.batch != nullptr) e_.BindVar(at_.batch, b().CreateUDiv(unit, blocks));
    rows_left_ = b().CreateSub(e_.EmitDim(queries_), b().CreateMul(block, e_.I64(tile_.rows)));
    body();
  });
}

llvm::AllocaInst* AttentionParts::NewSlot(llvm::Type* type, Value* first) {
  llvm::AllocaInst* slot = e_.Alloca(type);
  b().CreateStore(first, slot);
  return slot;
}
std::vector<llvm::AllocaInst*> AttentionParts::NewSums(int64_t count) {
  std::vector<llvm::AllocaInst*> sums;
  for (int64_t i = 0; i < count; ++i) sums.push_back(NewSlot(b().getFloatTy(), Constant(0)));
  return sums;
}

LaneMode AttentionParts::VectorsAlong(Index variable, int64_t lanes) {
  LaneMode mode;
  mode.lanes = static_cast<int>(lanes);
  mode.vector_var = lanes > 1 ? variable->var : -1;
  mode.level = e_.innermost();
  return mode;
}

void AttentionParts::Fill(const AttentionOperand& o, Value* left) {
  const int64_t line = o.terms / o.lanes, count = o.places * line;
  const int64_t at_once = count % (kLoadsAtOnce * gpu_.threads) == 0 ? kLoadsAtOnce : 1;
  llvm::Type* type = WithLanes(ElementType(), static_cast<unsigned>(o.lanes));
  std::vector<llvm::AllocaInst*> slots;
  for (int64_t i = 0; i < at_once; ++i) slots.push_back(e_.Alloca(type));
  e_.Loop(thread_, e_.I64(count), e_.I64(at_once * gpu_.threads), [&](Value* from) {
    std::vector<Value*> places, terms;
    for (llvm::AllocaInst* slot : slots) {
      Value* at = b().CreateAdd(from, e_.I64(static_cast<int64_t>(places.size()) * gpu_.threads));
      Value* other = e_.I64(o.along_terms ? line : o.places);
      Value *fast = b().CreateURem(at, other), *slow = b().CreateUDiv(at, other);
      places.push_back(o.along_terms ? slow : fast);
      terms.push_back(b().CreateMul(o.along_terms ? fast : slow, e_.I64(o.lanes)));
      b().CreateStore(llvm::Constant::getNullValue(type), slot);
      Value* inside = b().CreateICmpSLT(places.back(), left);
      if (o.real_terms < o.terms) inside = b().CreateAnd(inside, b().CreateICmpSLT(terms.back(), e_.I64(o.real_terms)));
      e_.If(inside, [&] {
        e_.BindVar(o.place, places.back());
        e_.BindVar(o.term, terms.back());
        e_.set_mode(VectorsAlong(o.term, o.lanes));
        const Val v = Read(o);
        b().CreateStore(e_.Splat(v.v[0], v.level), slot);
        e_.set_mode({});
      });
    }
    for (size_t i = 0; i < slots.size(); ++i) {
      Value* at = Place(o.bytes_before, places[i], o.row, terms[i], ElementType());
      b().CreateAlignedStore(Load(slots[i]), at, llvm::Align(static_cast<uint64_t>(o.lanes * (gpu_.mma ? 2 : 4))));
    }
  });
}

Val AttentionParts::Read(const AttentionOperand& o) {
  if (!gpu_.mma) return e_.Eval(o.op, o.index);
  Value* base = e_.OperandPointer(static_cast<int>(o.source->parameter->parameter_number()));
  return e_.LoadElements(base, 0, ElementType(), o.source->offset, nullptr);
}

Value* AttentionParts::Place(int64_t bytes_before, Value* row, int64_t row_elements, Value* column, llvm::Type* element) {
  Value* base = e_.ScratchPointer(bytes_before);
  return b().CreateGEP(element, base, b().CreateAdd(b().CreateMul(row, e_.I64(row_elements)), column));
}
Value* AttentionParts::LoadFloat(int64_t bytes_before, Value* row, int64_t row_elements, Value* column) {
  return b().CreateLoad(b().getFloatTy(), Place(bytes_before, row, row_elements, column, b().getFloatTy()));
}
void AttentionParts::StoreFactor(Value* row, Value* factor) {
  b().CreateStore(factor, Place(0, row, 1, e_.I64(0), b().getFloatTy()));
}

Value* AttentionParts::LanesRow(size_t i) {
  Value* row = b().CreateAdd(WarpsRow(), b().CreateUDiv(fragments_.Lane(), fragments_.I32(4)));
  return b().CreateZExt(b().CreateAdd(row, fragments_.I32(i % 4 < 2 ? 0 : kMatrix)), b().getInt64Ty());
}
Value* AttentionParts::LanesColumn(size_t i) {
  Value* column = b().CreateMul(b().CreateAnd(fragments_.Lane(), fragments_.I32(3)), fragments_.I32(2));
  return b().CreateZExt(b().CreateAdd(column, fragments_.I32(static_cast<int64_t>(i) / 4 * kMmaColumns)), b().getInt64Ty());
}
void AttentionParts::StoreFragment(const std::vector<llvm::AllocaInst*>& sums, int64_t bytes_before, int64_t row_elements) {
  for (size_t i = 0; i < sums.size(); i += 2) {
    Value* pair = llvm::PoisonValue::get(llvm::FixedVectorType::get(b().getFloatTy(), 2));
    for (unsigned k = 0; k < 2; ++k) pair = b().CreateInsertElement(pair, Load(sums[i + k]), k);
    Value* at = Place(bytes_before, LanesRow(i), row_elements, LanesColumn(i), b().getFloatTy());
    b().CreateAlignedStore(pair, at, llvm::Align(8));
  }
}

Value* AttentionParts::Divisor(Value* maximum, Value* sum) {
  DefineRow(a_.maximum, maximum);
  Value* never = IsMinusInfinity(RowValue(a_.shift));
  Value* total = b().CreateSelect(never, Constant(NAN), sum);
  DefineRow(a_.sum, total);
  Value* by = RowValue(a_.divisor);
  // Weights of 0 are sums' own: nothing else was added up.
  if (a_.zeros == Attention::Zeros::kNoMaximum) by = b().CreateSelect(IsMinusInfinity(maximum), Constant(1), by);
  if (a_.zeros == Attention::Zeros::kNoSum) by = b().CreateSelect(b().CreateFCmpOEQ(total, Constant(0)), Constant(1), by);
  return by;
}

void AttentionParts::Results() {
  IndexSpace& space = e_.space();
  const int64_t columns = at_.values.real_terms;
  const int64_t lanes = columns % kResultLanes == 0 ? kResultLanes : 1, line = columns / lanes;
  const Index row = space.Var(tile_.rows), column = space.Var(columns);
  const IndexTuple index = at_.At(a_.values->shape(), row, column, /*keys=*/false);
  e_.Loop(thread_, e_.I64(tile_.rows * line), e_.I64(gpu_.threads), [&](Value* at) {
    Value* own = b().CreateUDiv(at, e_.I64(line));
    e_.If(b().CreateICmpSLT(own, rows_left_), [&] {
      e_.BindVar(row, own);
      e_.BindVar(column, b().CreateMul(b().CreateURem(at, e_.I64(line)), e_.I64(lanes)));
      e_.set_mode(VectorsAlong(column, lanes));
      const Index offset = space.Combine(row, tile_.result_row, column, 1);
      Val v = e_.LoadRaw({e_.ScratchPointer(tile_.queries), 0, offset, PrimitiveType::kF32});
      Value* divisor = LoadFactor(own);
      if (scaled()) v.v[0] = b().CreateFMul(v.v[0], llvm::ConstantFP::get(v.v[0]->getType(), 1 / kWeightScale));
      v.v[0] = b().CreateFDiv(v.v[0], lanes > 1 ? b().CreateVectorSplat(static_cast<unsigned>(lanes), divisor) : divisor);
      v.level = e_.innermost();
      e_.Define(a_.values, index, 0, v);
      e_.StoreResult(0, space.Linear(index, f_.results[0].strides), e_.Eval(f_.roots[0], index));
      e_.set_mode({});
    });
  });
}

}  // namespace tenon::gpu
