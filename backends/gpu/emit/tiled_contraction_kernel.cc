// kContraction, by blocks: a block has a tile of the result, `rows` by `block` elements. Of each slice of terms both operands' parts are
// brought into shared memory, then multiplied: each thread has the sums of 8 by 4 elements in registers, or each warp those of 32 or 64 by
// 32, which tensor cores add up (mma.sync.m16n8k16, halves times halves in f32). Of several `stages` all slices but the one that is
// multiplied are on their way, as asynchronous copies. In the end the sums lie in shared memory, from where
// threads take vectors of the result's rows through the rest of the fusion.
//
// What is outside of the operands is zero in shared memory, and what is outside of the result is not stored. A sum's order is that of its
// terms (of mma: of sixteens of them), in parts of kPartTerms, whatever the tile and the grid.
#include <algorithm>
#include <utility>

#include "backends/codegen/index/contraction_index.h"
#include "backends/gpu/emit/fragments.h"
#include "backends/gpu/emit/kernels.h"
#include "backends/gpu/emit/threads.h"
#include "backends/gpu/plan/block_product.h"
#include "llvm/IR/Intrinsics.h"

namespace tenon::gpu {

using llvm::Value;

namespace {

constexpr int64_t kTermsAtOnce = 2;  // of a thread's sums, in one turn of a loop
constexpr int64_t kLoadsAtOnce = 4;  // of an operand, by a thread
constexpr int64_t kMmaAcross = kTile / kMmaColumns;  // of a warp's part of the tile

// An operand along one side of the tile.
struct Side {
  Index block = nullptr, local = nullptr;  // place = block * size + local
  Dim extent;                              // of the result
  int64_t size = 0;                        // of the tile
  const Instruction* operand = nullptr;
  IndexTuple index;
  std::optional<OperandSource> source;
  bool along_terms = false;  // how it is read: elements of neighbouring terms side by side
  bool term_rows = true;     // a row in shared memory has all places of one term, else all terms of one place
  int64_t lanes = 1;         // of a load
  Index offset = nullptr;    // in shared memory, in elements
  int64_t row = 0;           // elements from one row to the next there
  int64_t bytes_before = 0;
  // What a thread brings into shared memory: `count` vectors, at place `along` of lines `across`, `across` + `step`, ...
  int64_t count = 0, step = 0;
  Value *along = nullptr, *across = nullptr;
  std::vector<llvm::AllocaInst*> values;  // on the way
  Value* low = nullptr;  // block * size
};

class TiledContraction {
 public:
  TiledContraction(KernelEmitter& e, const GpuPlan& plan, Value* thread)
      : e_(e),
        f_(e.fused()),
        gpu_(plan),
        plan_(plan.loops),
        thread_(thread),
        fragments_(e, thread),
        product_(*BlockProductOf(f_, plan_.loops)),
        op_(*product_.op) {
    type_ = op_.shape().element_type();
    element_ = gpu_.mma ? *HalvesOf(f_, product_) : type_;
    std::vector<Index> index;
    for (const PlanLoop& l : plan_.loops) index.push_back(e_.space().Var(l.extent));
    outer_ = index;
    MakeSide(rows_, plan_.rows, plan_.loops[plan_.loops.size() - 2].extent, &index[index.size() - 2]);
    MakeSide(columns_, plan_.block, plan_.loops.back().extent, &index.back());
    iteration_.emplace(e_.space(), f_, plan_.loops, index);
    std::vector<Dim> extents = SummedExtents(op_);
    for (Dim d : extents) terms_ *= d;
    slice_ = e_.space().Var(CeilDiv(terms_, gpu_.slice));
    term_ = e_.space().Var(gpu_.slice);
    const IndexTuple summed = e_.space().Delinearize(e_.space().Combine(slice_, gpu_.slice, term_, 1), extents);
    const ContractionIndex at = MapContraction(e_.space(), op_, iteration_->IndexOf(e_.space(), f_, op_.shape()), summed);
    MapSide(rows_, *op_.operand(product_.row_operand), product_.row_operand == 0 ? at.lhs : at.rhs);
    MapSide(columns_, *op_.operand(1 - product_.row_operand), product_.row_operand == 0 ? at.rhs : at.lhs);
    columns_.bytes_before = SliceBytes(gpu_, rows_.size, type_);
    stage_bytes_ = columns_.bytes_before + SliceBytes(gpu_, columns_.size, type_);
    sum_row_ = columns_.size + kSumGap / StorageBytes(type_);
    sum_offset_ = e_.space().Combine(rows_.local, sum_row_, columns_.local, 1);
  }

  void Emit() {
    e_.ForUnits([&](Value* unit) {
      Value* rest = unit;
      auto digit = [&](Dim extent) {
        Value* n = e_.EmitDim(extent);
        Value* own = b().CreateURem(rest, n);
        rest = b().CreateUDiv(rest, n);
        return own;
      };
      // Tiles one below the other first: what they read of the columns' operand stays in cache.
      Bind(rows_, digit(CeilDiv(rows_.extent, rows_.size)));
      for (int i = plan_.split; i-- > 0;) e_.BindVar(outer_[static_cast<size_t>(i)], digit(plan_.loops[static_cast<size_t>(i)].extent));
      Bind(columns_, rest);
      MakeVectors(rows_);
      MakeVectors(columns_);
      MakeSums();
      AddUp();
      e_.InLevel([&] { gpu_.mma ? StoreFragments() : StoreSums(); });
      Barrier(b());
      Results();
    });
  }

 private:
  llvm::IRBuilder<>& b() { return e_.Here(); }
  int64_t per_thread() const { return gpu_.mma ? rows_.size * columns_.size / gpu_.threads : kThreadRows; }
  int64_t mma_down() const { return per_thread() / (4 * kMmaAcross); }

  void MakeSide(Side& side, int64_t size, Dim extent, Index* place) {
    side.size = size;
    side.extent = extent;
    side.block = e_.space().Var(CeilDiv(extent, size));
    side.local = e_.space().Var(size);
    *place = e_.space().Combine(side.block, size, side.local, 1);
  }

  void MapSide(Side& side, const Instruction& operand, const IndexTuple& index) {
    side.operand = &operand;
    side.index = index;
    side.source = SourceOf(e_.space(), f_, operand, index);
    side.along_terms = LiesAlong(side.source, term_) || !LiesAlong(side.source, side.local);
    side.term_rows = !gpu_.mma || !side.along_terms;
    // Vectors, where there are whole ones only.
    const Dim along = side.along_terms ? terms_ : side.extent;
    const int64_t most = gpu_.mma ? kMatrix : kThreadColumns;
    if (LiesAlong(side.source, side.along_terms ? term_ : side.local) && along.is_constant()) {
      for (side.lanes = most; along.constant() % side.lanes != 0;) side.lanes /= 2;
    }
    const int64_t bytes = gpu_.mma ? 2 : StorageBytes(type_);
    side.row = (side.term_rows ? side.size : int64_t{gpu_.slice}) + SliceGap(bytes) / bytes;
    side.offset = side.term_rows ? e_.space().Combine(term_, side.row, side.local, 1) : e_.space().Combine(side.local, side.row, term_, 1);
  }

  void Bind(Side& side, Value* block) {
    e_.BindVar(side.block, block);
    side.low = b().CreateMul(block, e_.I64(side.size));
  }

  LaneMode VectorsAlong(Index variable, int64_t lanes) {
    LaneMode mode;
    mode.lanes = static_cast<int>(lanes);
    mode.vector_var = lanes > 1 ? variable->var : -1;
    mode.level = e_.innermost();
    return mode;
  }

  // ---- sums ----

  void MakeSums() {
    llvm::Type* type = RegisterType(e_.context(), type_);
    if (!gpu_.mma) type = WithLanes(type, kThreadColumns);
    for (int64_t i = 0; i < per_thread(); ++i) sums_.push_back(NewSum(type));
    parts_ = sums_;
    if (!SumsInParts(op_)) return;
    for (llvm::AllocaInst*& part : parts_) part = NewSum(type);
  }
  llvm::AllocaInst* NewSum(llvm::Type* type) {
    llvm::AllocaInst* sum = e_.Alloca(type);
    b().CreateStore(llvm::Constant::getNullValue(type), sum);
    return sum;
  }

  void AddUp() {
    Value* end = e_.EmitDim(CeilDiv(terms_, gpu_.slice));
    const bool staged = gpu_.stages > 1;
    for (int64_t k = 0; k + 1 < gpu_.stages; ++k) Begin(e_.I64(k), end);
    auto slices = [&](Value* from, Value* to) { staged ? StagedSlices(from, to, end) : Slices(from, to); };
    if (!SumsInParts(op_)) {
      slices(e_.I64(0), end);
    } else {
      const int64_t step = kPartTerms / gpu_.slice;
      e_.Loop(e_.I64(0), end, e_.I64(step), [&](Value* from) {
        for (llvm::AllocaInst* part : parts_) b().CreateStore(llvm::Constant::getNullValue(part->getAllocatedType()), part);
        slices(from, b().CreateBinaryIntrinsic(llvm::Intrinsic::smin, end, b().CreateAdd(from, e_.I64(step))));
        for (size_t i = 0; i < sums_.size(); ++i) {
          llvm::Type* type = sums_[i]->getAllocatedType();
          b().CreateStore(b().CreateFAdd(b().CreateLoad(type, sums_[i]), b().CreateLoad(type, parts_[i])), sums_[i]);
        }
      });
    }
    if (staged) Barrier(b());  // sums lie where slices did
  }

  // Who comes by the barrier has waited for its own copies of this slice, and has multiplied the one before, in whose place the next
  // copies go.
  void StagedSlices(Value* from, Value* to, Value* end) {
    e_.Loop(from, to, e_.I64(1), [&](Value* slice) {
      WaitForCopies(b(), gpu_.stages - 2);
      Barrier(b());
      Begin(b().CreateAdd(slice, e_.I64(gpu_.stages - 1)), end);
      e_.InLevel([&] {
        stage_ = b().CreateURem(slice, e_.I64(gpu_.stages));
        MultiplyFragments();
        stage_ = nullptr;
      });
    });
  }

  // The copies of a slice, a group of their own; behind the last one a group of none.
  void Begin(Value* slice, Value* end) {
    e_.If(b().CreateICmpSLT(slice, end), [&] {
      e_.BindVar(slice_, slice);
      stage_ = b().CreateURem(slice, e_.I64(gpu_.stages));
      Value* first = b().CreateMul(slice, e_.I64(gpu_.slice));
      for (const Side* side : {&rows_, &columns_}) Copy(*side, first);
      stage_ = nullptr;
    });
    CommitCopies(b());
  }

  void Slices(Value* from, Value* to) {
    const bool ahead = gpu_.mma && rows_.count <= kLoadsAtOnce && columns_.count <= kLoadsAtOnce;
    auto load = [&](Value* slice, bool store) {
      e_.If(b().CreateICmpSLT(slice, to), [&] {
        e_.BindVar(slice_, slice);
        for (const Side* side : {&rows_, &columns_}) Fill(*side, b().CreateMul(slice, e_.I64(gpu_.slice)), store);
      });
    };
    if (ahead) load(from, false);
    e_.Loop(from, to, e_.I64(1), [&](Value* slice) {
      if (ahead) {
        for (const Side* side : {&rows_, &columns_}) Store(*side, e_.I64(0), side->count);
      } else {
        load(slice, true);
      }
      Barrier(b());
      if (ahead) load(b().CreateAdd(slice, e_.I64(1)), false);  // under way while this one is multiplied
      e_.InLevel([&] { gpu_.mma ? MultiplyFragments() : Multiply(); });
      Barrier(b());
    });
  }

  // ---- operands to shared memory ----

  // The thread's vectors of each slice: of lines `step` apart, at one place.
  void MakeVectors(Side& side) {
    const int64_t line = (side.along_terms ? int64_t{gpu_.slice} : side.size) / side.lanes;  // vectors, at most one for each thread
    side.step = gpu_.threads / line;
    side.count = side.size * gpu_.slice / side.lanes / gpu_.threads;
    side.along = b().CreateMul(b().CreateURem(thread_, e_.I64(line)), e_.I64(side.lanes));
    side.across = b().CreateUDiv(thread_, e_.I64(line));
    llvm::Type* element = gpu_.mma ? MemoryType(e_.context(), element_) : RegisterType(e_.context(), element_);
    for (int64_t i = 0; i < std::min(side.count, kLoadsAtOnce); ++i) {
      side.values.push_back(e_.Alloca(WithLanes(element, static_cast<unsigned>(side.lanes))));
    }
  }

  void Fill(const Side& side, Value* first, bool store) {
    if (side.count <= kLoadsAtOnce) {
      Load(side, first, e_.I64(0), side.count);
      if (store) Store(side, e_.I64(0), side.count);
      return;
    }
    e_.Loop(e_.I64(0), e_.I64(side.count * side.step), e_.I64(kLoadsAtOnce * side.step), [&](Value* from) {
      Load(side, first, from, kLoadsAtOnce);
      Store(side, from, kLoadsAtOnce);
    });
  }

  // body(term, place) for each of `count` vectors from line `from` on, and how it is emitted.
  void Vectors(const Side& side, Value* from, int64_t count, const std::function<void(int64_t i, Value* term, Value* place)>& body) {
    for (int64_t i = 0; i < count; ++i) {
      Value* line = b().CreateAdd(b().CreateAdd(side.across, from), e_.I64(i * side.step));
      body(i, side.along_terms ? side.along : line, side.along_terms ? line : side.along);
    }
  }
  void InVector(const Side& side, Value* term, Value* place, const std::function<void()>& body) {
    e_.BindVar(term_, term);
    e_.BindVar(side.local, place);
    e_.set_mode(VectorsAlong(side.along_terms ? term_ : side.local, side.lanes));
    body();
    e_.set_mode({});
  }

  using VectorBody = std::function<void(int64_t i, Value* term, Value* place)>;
  void Load(const Side& side, Value* first, Value* from, int64_t count) {
    auto load = [&](int64_t i, Value* term, Value* place) {
      InVector(side, term, place, [&] {
        const Val x = Read(side);
        b().CreateStore(e_.Splat(x.v[0], x.level), side.values[static_cast<size_t>(i)]);
      });
    };
    auto zero = [&](int64_t i, Value*, Value*) {
      llvm::AllocaInst* value = side.values[static_cast<size_t>(i)];
      b().CreateStore(llvm::Constant::getNullValue(value->getAllocatedType()), value);
    };
    Bring(side, first, from, count, load, zero);
  }

  void Copy(const Side& side, Value* first) {
    llvm::Type* element = MemoryType(e_.context(), element_);
    auto copy = [&](int64_t, Value* term, Value* place) {
      InVector(side, term, place, [&] {
        Value* base = e_.OperandPointer(static_cast<int>(side.source->parameter->parameter_number()));
        Value* from = side.lanes == kMatrix ? e_.VectorPointer(base, element, side.source->offset) : nullptr;
        if (from == nullptr) return Write(side, Read(side));
        Value* to = b().CreateGEP(element, SliceOf(side), e_.ScalarIndex(side.offset).v[0]);
        CopyAsync(b(), to, from);
      });
    };
    auto zero = [&](int64_t, Value* term, Value* place) {
      InVector(side, term, place, [&] {
        Write(side, {.v = {llvm::Constant::getNullValue(WithLanes(element, static_cast<unsigned>(side.lanes)))}, .level = e_.innermost()});
      });
    };
    Bring(side, first, e_.I64(0), side.count, copy, zero);
  }

  // in() of each vector that lies in the operand, out() of each that doesn't, or before.
  void Bring(const Side& side, Value* first, Value* from, int64_t count, const VectorBody& in, const VectorBody& out) {
    auto all = [&] {
      Vectors(side, from, count, [&](int64_t i, Value* term, Value* place) { e_.InLevel([&] { in(i, term, place); }); });
    };
    const bool terms = terms_.is_constant() && terms_.constant() % gpu_.slice == 0;
    const bool places = side.extent.is_constant() && side.extent.constant() % side.size == 0;
    if (terms && places) return all();
    Value *terms_left = b().CreateSub(e_.EmitDim(terms_), first), *places_left = b().CreateSub(e_.EmitDim(side.extent), side.low);
    auto inside = [&] {
      Vectors(side, from, count, [&](int64_t i, Value* term, Value* place) {
        Value* there = b().CreateAnd(b().CreateICmpSLT(term, terms_left), b().CreateICmpSLT(place, places_left));
        if (stage_ == nullptr) out(i, term, place);  // overwritten
        else e_.If(b().CreateNot(there), [&] { out(i, term, place); });
        e_.If(there, [&] { in(i, term, place); });
      });
    };
    if (side.count > kLoadsAtOnce) return inside();
    Value* whole = b().CreateAnd(b().CreateICmpSGE(terms_left, e_.I64(gpu_.slice)), b().CreateICmpSGE(places_left, e_.I64(side.size)));
    e_.If(whole, all);
    e_.If(b().CreateNot(whole), inside);
  }

  void Store(const Side& side, Value* from, int64_t count) {
    Vectors(side, from, count, [&](int64_t i, Value* term, Value* place) {
      e_.InLevel([&] {
        InVector(side, term, place, [&] {
          llvm::AllocaInst* value = side.values[static_cast<size_t>(i)];
          Write(side, {.v = {b().CreateLoad(value->getAllocatedType(), value)}, .level = e_.innermost()});
        });
      });
    });
  }

  // Halves as they lie in memory, anything else in registers.
  Val Read(const Side& side) {
    if (!gpu_.mma) return e_.Eval(side.operand, side.index);
    Value* base = e_.OperandPointer(static_cast<int>(side.source->parameter->parameter_number()));
    return e_.LoadElements(base, 0, MemoryType(e_.context(), element_), side.source->offset, nullptr);
  }
  // Of the stage that is brought.
  Value* SliceOf(const Side& side) {
    Value* base = e_.ScratchPointer(side.bytes_before);
    return stage_ == nullptr ? base : b().CreateGEP(b().getInt8Ty(), base, b().CreateMul(stage_, e_.I64(stage_bytes_)));
  }
  void Write(const Side& side, const Val& v) {
    const int level = stage_ == nullptr ? 0 : e_.innermost();
    if (!gpu_.mma) return e_.StoreRaw(SliceOf(side), level, side.offset, type_, v);
    e_.StoreElements(SliceOf(side), level, MemoryType(e_.context(), element_), side.offset, v);
  }

  // ---- by threads ----

  // Of the thread's part of the tile: its rows are copies, its columns a vector.
  void InThreadsPart(const std::function<void()>& body) {
    const int64_t across = columns_.size / kThreadColumns;
    e_.BindVar(rows_.local, b().CreateMul(b().CreateUDiv(thread_, e_.I64(across)), e_.I64(kThreadRows)));
    e_.BindVar(columns_.local, b().CreateMul(b().CreateURem(thread_, e_.I64(across)), e_.I64(kThreadColumns)));
    body();
  }
  LaneMode PartMode() {
    LaneMode mode = VectorsAlong(columns_.local, kThreadColumns);
    mode.copies = kThreadRows;
    mode.unroll_var = rows_.local->var;
    return mode;
  }

  void Multiply() {
    InThreadsPart([&] {
      e_.Rounds(term_, e_.I64(0), e_.I64(gpu_.slice), 1, kTermsAtOnce, [&](int64_t) {
        auto load = [&](const Side& side) { return e_.LoadRaw({e_.ScratchPointer(side.bytes_before), 0, side.offset, type_}); };
        LaneMode mode = VectorsAlong(rows_.local, kThreadColumns);
        mode.copies = kThreadRows / kThreadColumns;
        mode.unroll_var = rows_.local->var;
        mode.unroll_step = kThreadColumns;
        e_.set_mode(mode);
        const Val x = load(rows_);
        e_.set_mode(PartMode());
        const Val y = load(columns_);
        for (size_t i = 0; i < parts_.size(); ++i) {
          Value* sum = b().CreateLoad(parts_[i]->getAllocatedType(), parts_[i]);
          Value* own = b().CreateExtractElement(x.v[i / kThreadColumns], i % kThreadColumns);
          b().CreateStore(MultiplyAdd(b().CreateVectorSplat(kThreadColumns, own), y.v[0], sum), parts_[i]);
        }
        e_.set_mode({});
      });
    });
  }

  Value* MultiplyAdd(Value* x, Value* y, Value* sum) {
    if (IsIntegral(type_)) return b().CreateAdd(b().CreateMul(x, y), sum);
    return b().CreateIntrinsic(llvm::Intrinsic::fma, {sum->getType()}, {x, y, sum});
  }

  void StoreSums() {
    InThreadsPart([&] {
      e_.set_mode(PartMode());
      Val sums{.level = e_.innermost()};
      for (llvm::AllocaInst* sum : sums_) sums.v.push_back(b().CreateLoad(sum->getAllocatedType(), sum));
      e_.StoreRaw(e_.ScratchPointer(0), 0, sum_offset_, type_, sums);
      e_.set_mode({});
    });
  }

  // ---- by tensor cores ----

  // Where the warp's part of the tile begins.
  std::pair<Value*, Value*> WarpsPart() {
    Value *warp = fragments_.Warp(), *across = I32(columns_.size / kTile);
    Value *down = b().CreateUDiv(warp, across), *along = b().CreateURem(warp, across);
    return {b().CreateMul(down, I32(mma_down() * kMmaRows)), b().CreateMul(along, I32(kTile))};
  }
  Value* I32(int64_t c) { return fragments_.I32(c); }
  SharedHalves Lying(const Side& side) {
    SharedHalves halves{side.bytes_before, side.row, side.term_rows};
    if (stage_ != nullptr) halves.further = b().CreateMul(b().CreateTrunc(stage_, b().getInt32Ty()), I32(stage_bytes_ / 2));
    return halves;
  }

  void MultiplyFragments() {
    const auto [row, column] = WarpsPart();
    const SharedHalves rows = Lying(rows_), columns = Lying(columns_);
    Value *of_rows = fragments_.LaneOffset(rows, row, true), *of_columns = fragments_.LaneOffset(columns, column, false);
    for (int64_t term = 0; term < gpu_.slice; term += kMmaTerms) {
      std::vector<Value*> y;  // two registers for each eight columns
      for (int64_t i = 0; i < kTile; i += 2 * kMmaColumns) {
        for (Value* v : fragments_.Load(columns, of_columns, i, term)) y.push_back(v);
      }
      for (int64_t down = 0; down < mma_down(); ++down) {
        const std::vector<Value*> x = fragments_.Load(rows, of_rows, down * kMmaRows, term);
        for (int64_t across = 0; across < kMmaAcross; ++across) {
          llvm::AllocaInst* const* parts = &parts_[static_cast<size_t>((down * kMmaAcross + across) * 4)];
          fragments_.MultiplyAdd(element_, x, &y[static_cast<size_t>(2 * across)], parts);
        }
      }
    }
  }

  // Lane l has columns 2 (l % 4) and the next one of rows l / 4 and l / 4 + 8.
  void StoreFragments() {
    const auto [row, column] = WarpsPart();
    Value* own_row = b().CreateAdd(row, b().CreateUDiv(fragments_.Lane(), I32(4)));
    Value* own_column = b().CreateAdd(column, b().CreateMul(b().CreateAnd(fragments_.Lane(), I32(3)), I32(2)));
    Value* own = b().CreateAdd(b().CreateMul(own_row, I32(sum_row_)), own_column);
    llvm::Type* pair = llvm::FixedVectorType::get(b().getFloatTy(), 2);
    for (size_t i = 0; i < sums_.size(); i += 2) {
      const int64_t fragment = static_cast<int64_t>(i) / 4, lower = static_cast<int64_t>(i) / 2 % 2;
      const int64_t down = fragment / kMmaAcross * kMmaRows + lower * kMatrix, across = fragment % kMmaAcross * kMmaColumns;
      Value* v = llvm::PoisonValue::get(pair);
      for (unsigned k = 0; k < 2; ++k) v = b().CreateInsertElement(v, b().CreateLoad(b().getFloatTy(), sums_[i + k]), k);
      Value* at = b().CreateMul(b().CreateAdd(own, I32(down * sum_row_ + across)), I32(4));
      b().CreateAlignedStore(v, fragments_.Shared(0, at), llvm::Align(8));
    }
  }

  // ---- results ----

  void Results() {
    const bool vectors = columns_.extent.is_constant() && columns_.extent.constant() % kThreadColumns == 0 && !IsHeavy(f_);
    const int64_t lanes = vectors ? kThreadColumns : 1, line = columns_.size / lanes;
    e_.Loop(thread_, e_.I64(rows_.size * line), e_.I64(gpu_.threads), [&](Value* at) {
      Value* row = b().CreateUDiv(at, e_.I64(line));
      Value* column = b().CreateMul(b().CreateURem(at, e_.I64(line)), e_.I64(lanes));
      Value* inside = b().CreateAnd(b().CreateICmpSLT(b().CreateAdd(rows_.low, row), e_.EmitDim(rows_.extent)),
                                    b().CreateICmpSLT(b().CreateAdd(columns_.low, column), e_.EmitDim(columns_.extent)));
      e_.If(inside, [&] {
        e_.BindVar(rows_.local, row);
        e_.BindVar(columns_.local, column);
        e_.set_mode(VectorsAlong(columns_.local, lanes));
        e_.DefineInMemory(&op_, iteration_->IndexOf(e_.space(), f_, op_.shape()), 0, {e_.ScratchPointer(0), 0, sum_offset_, type_});
        EmitChecks(e_, *iteration_, Role::kFull);
        StoreRoots(e_, *iteration_, RootsWithRole(f_, Role::kFull));
        e_.set_mode({});
      });
    });
    e_.ForgetInMemory();
  }

  KernelEmitter& e_;
  const FusedKernel& f_;
  const GpuPlan& gpu_;
  const KernelPlan& plan_;
  Value* const thread_;  // in the block, i64
  Fragments fragments_;
  const BlockProduct product_;
  const Instruction& op_;
  PrimitiveType type_, element_;  // of sums; of what lies in shared memory
  std::vector<Index> outer_;      // variables of the loops, those of the tile unused
  std::optional<Iteration> iteration_;
  Side rows_, columns_;
  Dim terms_ = 1;
  Index slice_ = nullptr, term_ = nullptr;
  int64_t sum_row_ = 0, stage_bytes_ = 0;
  Value* stage_ = nullptr;  // that is brought or multiplied, i64; null: there is one
  Index sum_offset_ = nullptr;
  std::vector<llvm::AllocaInst*> sums_, parts_;  // of a thread; parts are added to sums, if they are not the same
};

}  // namespace

void EmitTiledContractionKernel(KernelEmitter& e, const GpuPlan& plan, Value* thread) {
  TiledContraction(e, plan, thread).Emit();
  EmitOthers(e);
}

}  // namespace tenon::gpu
